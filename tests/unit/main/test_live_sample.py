"""What the newest messages of an input have, and what their route makes of that."""

from dataclasses import replace
from typing import Any, Final

import pytest

from ringfence_client.headers import DUPLICATE_ID
from ringfence_main import live_sample
from ringfence_main.live_sample import TRIAL_PREFIX, LiveSample, sampled
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import RouteSettings
from tests.support.living import ROUTE, Living, in_group

JSON: Final = replace(ROUTE, id="{json:/orderId}")
ORDER: Final = b'{"order_id": "7", "customer": "secret", "a/b": {"c": 1}}'


def seen(living: Living, records_max: int = 1_000, **more: Any) -> LiveSample:
    before = dict(living.faults.passed)
    (found,) = sampled(living.config, living.clients(), records_max, **more)
    written = living.faults.passed.keys() - before.keys()
    assert not {each for each in written if "commit" in each or "produce" in each}
    return found


def test_a_template_that_never_matches_is_a_problem_which_names_what_there_is() -> None:
    living = Living(JSON)
    for _ in range(100):
        living.write(ORDER)
    found = seen(living)
    assert found.problem is not None
    assert found.problem.what == (
        "of the last 100 messages of orders, 0 have an id at {json:/orderId}; without: 100 since "
        "the value has nothing at {json:/orderId}; their members are: /order_id, /customer, /a~1b; "
        "all of them pass unchecked, with their duplicates"
    )
    assert 'the route "orders"' in found.problem.fix
    assert "secret" not in str(found)
    assert found.warning is None


@pytest.mark.parametrize(
    ("template", "members"),
    [
        ("{json:/a~1b/d}", "/a~1b/c"),
        ("{json:/a~1b}", "/a~1b/c"),
        ("{json:/order_id/x}", ""),
        ("{sha256-json:/after}", "/order_id, /customer, /a~1b"),
        ("{json:/order_id}-{json:/line}", "/order_id, /customer, /a~1b"),
        ("{key-json:/id}", "/key"),
        ("{lower:json:/orderId}", "/order_id, /customer, /a~1b"),
    ],
)
def test_members_are_those_of_the_level_that_lacks_it(template: str, members: str) -> None:
    living = Living(replace(ROUTE, id=template))
    living.write(ORDER, key=b'{"key": 1}')
    assert ", ".join(seen(living).names) == members


def test_of_headers_the_names_are_told() -> None:
    living = Living()
    living.write(b"v", ("dupl_id", b"secret"), ("trace", None))
    found = seen(living)
    assert found.found == (
        "of the last 1 message of orders, 0 have an id in a header; without: 1 since it has no "
        f"{DUPLICATE_ID}; their headers are: dupl_id, trace"
    )
    assert found.problem is not None


def test_some_without_an_id_are_a_warning_and_a_few_are_none() -> None:
    for without, warned in ((1, False), (2, True)):
        living = Living(JSON)
        for number in range(100 - without):
            living.write(b'{"orderId": %d}' % number)
        for _ in range(without):
            living.write(b"{")
        found = seen(living)
        assert (found.identified, found.problem) == (100 - without, None)
        assert (found.warning is not None) == warned
    assert "2 since the document cannot be decoded (the first: the value is not JSON" in found.found
    assert "2.0 % pass unchecked" in str(found.warning)


@pytest.mark.parametrize(
    ("missing_id", "fate"),
    [("dead_letter", "are dead-lettered as missing-id"), ("stamp", "recognises no resend")],
)
def test_what_becomes_of_them_is_as_the_route_says(missing_id: Any, fate: str) -> None:
    living = Living(replace(JSON, missing_id=missing_id))
    living.write(ORDER)
    problem = seen(living).problem
    assert problem is not None
    assert fate in problem.what


def test_what_needs_no_id_is_left_out() -> None:
    living = Living()
    living.write(b"v", *in_group("g", 1, 1))
    living.write(b"v", (DUPLICATE_ID, f"{TRIAL_PREFIX}1".encode()))
    assert seen(living).records == 0
    off = Living(JSON, addresses={"#": {"id_cache_size": 0}})
    off.write(ORDER)
    found = seen(off)
    assert (found.off, found.problem, found.warning) == (1, None, None)
    assert found.found.startswith("orders has no messages to look at; 1 are of addresses")


def test_a_strategy_of_numbers_looks_for_its_headers() -> None:
    living = Living(JSON, addresses={"#": {"strategy": "audit"}})
    living.write(b'{"orderId": 1}', ("_PUBLISHER", b"p"))
    found = seen(living)
    assert found.wanted == "the headers _PUBLISHER, _SEQ"
    assert found.names == ("_PUBLISHER",)
    assert dict(found.causes) == {"it has no _SEQ": 1}


def test_a_record_that_will_be_refused_has_no_id_either() -> None:
    living = Living(replace(JSON, address="{header:tenant}"))
    living.write(b'{"orderId": 1}')
    found = seen(living)
    assert (found.records, found.identified) == (1, 0)
    assert list(found.causes) == ["no address: the record has nothing for {header:tenant}"]


def test_the_newest_are_read_from_the_ends_of_all_partitions() -> None:
    living = Living(partitions=3)
    for number in range(100):
        living.send(f"old {number}", partition=0)
    living.write(b"newest", partition=0)
    living.send("a", partition=1)
    found = seen(living, 10)
    assert (found.records, found.identified) == (10, 9)
    assert seen(living, 1_000).records == 102


def test_reading_is_bounded_in_bytes_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    living = Living()
    for number in range(50):
        living.send(str(number), size=1_000)
    monkeypatch.setattr(live_sample, "BYTES_MAX", 10_000)
    assert seen(living).records == 10
    now_s = iter([0.0, *[live_sample.PATIENCE_S] * 10])
    assert seen(living, monotonic_s=lambda: next(now_s)).records == 0


def test_each_input_is_told_of_apart() -> None:
    other = RouteSettings(name="other", inputs=("other",), scope="partition", id="{key}")
    living = Living(JSON, others=(other,))
    living.write(b"{}", topic="other", key=b"k")
    found = list(sampled(living.config, living.clients(), 10))
    assert [(each.topic, each.records, each.identified) for each in found] == [
        ("orders", 0, 0),
        ("other", 1, 1),
    ]
    (one,) = sampled(living.config, living.clients(), 10, "other")
    assert one.found == "of the last 1 message of other, 1 have an id at {key}"
    assert (one.problem, one.warning) == (None, None)
    assert AddressBook.of({}) == living.config.addresses
