"""Addresses that go by publishers' numbers, through all the checks."""

from dataclasses import replace

import pytest
from confluent_kafka import Message

from ringfence_client.headers import BOOKMARK, DUPLICATE_ID, MARK, DeadLetter, Reason, bookmark
from ringfence_service.config.model import RouteSettings
from ringfence_service.dedup.partition import addresses_of
from ringfence_state.cache import Cache
from tests.support.deciding import NOW_MS, World, reasons, record, told, topics

ROUTE = RouteSettings(
    name="orders", inputs=("orders",), scope="partition", missing_id="dead_letter"
)


def counting(strategy: str, **settings: object) -> World:
    return World(ROUTE, addresses={"#": {"strategy": strategy, **settings}})


def of(offset: int, publisher: bytes | None, number: int, **rest: int) -> Message:
    names = {"stream": "_SEQ_ID", "previous": "_PREV"}
    numbers = [(names[name], b"%d" % value) for name, value in rest.items()]
    return record(offset, ("_PUBLISHER", publisher), ("_SEQ", b"%d" % number), *numbers)


@pytest.mark.parametrize("strategy", ["audit", "sequence"])
def test_a_number_that_comes_again_is_a_duplicate_and_ids_are_not_asked(strategy: str) -> None:
    world = counting(strategy)
    world.commit(of(0, b"P", 1), of(1, b"P", 2))
    world.cache = Cache(1 << 30)  # from the store
    plan = world.decide(of(2, b"P", 2), of(3, b"P", 3), of(4, b"Q", 2))
    assert reasons(plan.outputs) == [Reason.DUPLICATE, None, None]
    assert told(plan.outputs[0][-1])[DeadLetter.STRATEGY] == strategy
    assert (plan.tally.accepted.total(), plan.tally.duplicates.total()) == (2, 1)
    assert addresses_of(world.store) == world.partition.addresses == {"orders"}


def test_a_record_after_a_missing_one_is_rejected_with_the_expected_number() -> None:
    world = counting("ordered", on_duplicate="mark")
    first = of(0, b"P", 1, stream=1, previous=0)
    plan = world.decide(first, of(1, b"P", 3, stream=1, previous=2))
    assert reasons(plan.outputs) == [None, Reason.OUT_OF_ORDER]
    assert "the one after 1 is expected" in (told(plan.outputs[1][-1])[DeadLetter.CAUSE])
    assert plan.tally.duplicates.total() == 0


@pytest.mark.parametrize(
    "headers",
    [
        [("_PUBLISHER", b"\xff"), ("_SEQ", b"1")],
        [("_PUBLISHER", b""), ("_SEQ", b"1")],
        [("_PUBLISHER", b"P" * 1025), ("_SEQ", b"1")],
        [("_PUBLISHER", b"P"), ("_SEQ", b"-1")],
        [("_PUBLISHER", b"P"), ("_SEQ", b"one")],
        [("_PUBLISHER", b"P"), ("_SEQ", b"9223372036854775808")],
        [("_PUBLISHER", b"P"), ("_SEQ", b"1"), ("_PREV", b"")],
    ],
)
def test_a_name_or_a_number_that_is_none_is_an_invalid_claim_where_it_is_read(
    headers: list[tuple[str, bytes | None]],
) -> None:
    plan = counting("audit").decide(record(0, *headers))
    assert reasons(plan.outputs) == [Reason.INVALID_CLAIM]
    elsewhere = World(ROUTE).decide(record(0, (DUPLICATE_ID, b"1"), *headers))
    assert topics(elsewhere) == ["orders.unique"]


@pytest.mark.parametrize("strategy", ["audit", "ordered"])
def test_who_tells_no_number_has_no_id(strategy: str) -> None:
    plan = counting(strategy).decide(
        of(0, b"P", 0), of(1, None, 1), record(2, (DUPLICATE_ID, b"1"))
    )
    assert reasons(plan.outputs) == [Reason.MISSING_ID] * 3


@pytest.mark.parametrize(
    ("strategy", "lacks"),
    [
        ("audit", ["_SEQ", "_PUBLISHER", "_PUBLISHER, _SEQ"]),
        ("ordered", ["_SEQ, _SEQ_ID", "_PUBLISHER", "_PUBLISHER, _SEQ, _SEQ_ID, _PREV"]),
    ],
)
def test_the_dead_letter_of_who_tells_no_number_names_the_headers_that_are_missing(
    strategy: str, lacks: list[str]
) -> None:
    letters = counting(strategy).decide(
        record(0, ("_PUBLISHER", b"P"), ("_SEQ", b"0"), ("_PREV", b"0")),
        record(1, ("_SEQ", b"1"), ("_SEQ_ID", b"1"), ("_PREV", b"0")),
        record(2, (DUPLICATE_ID, b"1")),
    )
    end = f", which {strategy} reads, and the route requires it"
    causes = [told(output[-1])[DeadLetter.CAUSE] for output in letters.outputs]
    assert causes == [f"it has no {each}{end}" for each in lacks]


def test_a_sequence_counts_what_tells_no_number_by_partition_and_offset() -> None:
    world = counting("sequence")
    plan = world.decide(record(0), of(7, b"P", 5), of(8, b"P", 0))
    marks = [dict(output[-1])[BOOKMARK] for output in plan.outputs]
    derived = "@g/orders/1", "P@g/orders/1"
    assert marks == [bookmark(derived[0], 1), bookmark("P", 5), bookmark(derived[1], 9)]
    world.commit(of(7, b"P", 5), of(8, b"P", 0), record(9))
    assert topics(world.decide(record(10), of(11, b"P", 0))) == ["orders.unique"] * 2


def test_a_bookmark_is_the_hash_of_the_name_and_the_number() -> None:
    assert bookmark("", 1) == b"%d|1|" % int("e3b0c44298fc1c14", 16)


def test_a_marked_duplicate_of_a_sequence_keeps_its_bookmark() -> None:
    world = counting("sequence", on_duplicate="mark")
    plan = world.decide(of(0, b"P", 1), of(1, b"P", 1))
    assert [name for name, _ in plan.outputs[1][-1]][-2:] == [BOOKMARK, MARK]
    assert dict(plan.outputs[1][-1])[MARK] == b"orders-1@0"


def test_a_window_goes_by_the_partitions_time_and_by_who_publishes() -> None:
    world = counting("window", window_ms=1000)
    named = [(DUPLICATE_ID, b"1")]
    world.commit(record(0, *named, timestamp_ms=NOW_MS - 5000))
    plan = world.commit(
        record(1, *named, timestamp_ms=NOW_MS - 4500),
        record(2, *named, ("_PUBLISHER", b"P"), ("_SEQ", b"none"), timestamp_ms=NOW_MS - 4500),
        record(3, *named, timestamp_ms=NOW_MS - 9000),  # late, and the time stays
        record(4, *named, timestamp_ms=NOW_MS - 3499),
    )
    assert reasons(plan.outputs) == [Reason.DUPLICATE, None, Reason.DUPLICATE, None]
    assert told(plan.outputs[0][-1])[DeadLetter.ORIGINAL] == "orders-1@0"


def test_a_strategy_of_one_address_leaves_the_others_alone() -> None:
    route = replace(ROUTE, address="{header:A}")
    world = World(route, addresses={"count.#": {"strategy": "audit"}})
    both = [("_PUBLISHER", b"P"), ("_SEQ", b"1"), (DUPLICATE_ID, b"1")]
    plan = world.decide(
        *[record(n, ("A", name), *both) for n, name in enumerate([b"count.a", b"ids", b"count.a"])]
    )
    assert reasons(plan.outputs) == [None, None, Reason.DUPLICATE]
