"""The sampler: what it reads of the metrics is what they hold, whatever an address is called."""

from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, generate_latest

from ringfence_api.console.history import read

ADDRESSES = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.sets(ADDRESSES, min_size=1, max_size=5))
@example({"a\rb", "\n", "\x85", "\u2028", "\x1c", 'a"b\\', "\0"})
def test_every_address_is_read_as_it_is_called(addresses: set[str]) -> None:
    registry = CollectorRegistry()
    counter = Counter("ringfence_duplicates", "Of each.", ["address"], registry=registry)
    for number, address in enumerate(sorted(addresses), 1):
        counter.labels(address).inc(number)
    told = {address: float(number) for number, address in enumerate(sorted(addresses), 1)}
    assert read(generate_latest(registry)).by_address == told
