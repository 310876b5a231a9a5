"""How large an address has to be, and whether a ring of that size reaches back far enough."""

from collections import deque
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.config.model import FastPath
from ringfence_service.queries.sizing import (
    RESTORED_PER_SECOND,
    RING_LOAD_US,
    SAFETY,
    SIZE_MAX,
    STORED_BYTES,
    AcceptRates,
    RingUsage,
    asked,
    memory_bytes,
    observed,
    reach_ms,
    round_up,
    sized,
)
from ringfence_state.cache import WHOLE_IDS_MAX
from ringfence_state.ring_sizes import YOUNG_IDS
from tests.support.helpers import some

RATES = st.floats(0.01, 1e5)
WINDOWS_MS = st.integers(1, 86_400_000)


def test_what_is_held_tells_the_rate() -> None:
    rates = some(
        observed(
            [
                RingUsage(101, 0, 10_000),
                RingUsage(11, 5_000, 15_000),
                RingUsage(1, 7, 7),
                RingUsage(0, 0, 0),
            ]
        )
    )
    assert rates.total == pytest.approx(11)
    assert rates.busiest == pytest.approx(10)
    assert observed([RingUsage(1, 5, 5)]) is None
    assert observed([]) is None


def test_a_rate_is_spread_as_what_is_held_is() -> None:
    busy, calm = RingUsage(301, 0, 10_000), RingUsage(101, 0, 10_000)
    assert asked(100, [busy, calm]).busiest == pytest.approx(75)
    assert asked(
        100, [RingUsage(3, None, None), RingUsage(1, None, None)]
    ).busiest == pytest.approx(75)
    assert asked(100, []).busiest == 100


@given(RATES, WINDOWS_MS, st.integers(0, 20))
def test_the_size_reaches_back_over_the_window(
    per_second: float, window_ms: int, partitions: int
) -> None:
    rates = AcceptRates(per_second * max(1, partitions), per_second)
    size = sized(rates, window_ms, partitions, "native", is_window=False)
    if size is None:
        assert per_second * window_ms / 1000 * SAFETY > SIZE_MAX * 0.89
        return
    assert size.size >= size.ids_needed * SAFETY
    reach = some(reach_ms(size.size, rates))
    assert reach >= window_ms
    in_memory = memory_bytes(size.size, "native", is_window=False)
    assert size.memory_bytes == max(1, partitions) * in_memory
    ids = size.size * max(1, partitions)
    assert size.changelog_bytes == ids * STORED_BYTES <= size.disk_bytes
    assert size.restore_ms == pytest.approx(1000 * ids / RESTORED_PER_SECOND, abs=1)
    loaded = YOUNG_IDS if size.size > WHOLE_IDS_MAX else size.size
    expected_ms = loaded * max(1, partitions) * RING_LOAD_US / 1000
    assert size.load_ms == pytest.approx(expected_ms, abs=1)


def test_a_window_costs_what_a_ring_does_where_its_ids_are_not_objects() -> None:
    rates = AcceptRates(1000, 1000)
    for path, times in (("native", 1.01), ("python", 2.5)):
        window, ring = (
            some(sized(rates, 3_600_000, 1, cast("FastPath", path), is_window=is_window))
            for is_window in (True, False)
        )
        assert window.size == ring.size
        assert ring.memory_bytes < window.memory_bytes < times * ring.memory_bytes
        assert (window.load_ms > ring.load_ms) == (path == "python")


@given(st.integers(1, 50), st.integers(1, 40))
def test_a_ring_of_the_size_knows_every_copy_within_the_window(gap_ms: int, steps: int) -> None:
    """One message every so many ms; a copy comes after the longest time."""
    window_ms = gap_ms * steps
    size = some(
        sized(AcceptRates(1000 / gap_ms, 1000 / gap_ms), window_ms, 1, "native", is_window=False)
    )
    ring: deque[int] = deque(range(steps + 1), maxlen=size.size)  # an original, and all since
    assert 0 in ring


@given(st.integers(1, 10**12))
def test_what_is_rounded_up_is_a_little_more_and_easy_to_read(number: int) -> None:
    found = round_up(number)
    assert number <= found < number * 1.1 + 1
    assert not str(found)[2:].strip("0")
