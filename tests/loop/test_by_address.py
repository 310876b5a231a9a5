"""The second hop: one address, fed by many partitions of many inputs, decides in one order."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from ringfence_client.headers import DUPLICATE_ID, ORIGIN, DeadLetter, Reason
from ringfence_service.config.model import RouteSettings
from ringfence_service.config.tasks import Hop
from ringfence_service.dedup.blame import WrongPartitionError
from ringfence_service.dedup.dead_letter import RedrivenRecord
from ringfence_state.pending_group import decode
from tests.fakes.log import FakeCluster
from tests.oracle.model import DequeRing
from tests.support.deciding import (
    BY_ADDRESS,
    CHANGELOG,
    FALLBACK,
    NOW_MS,
    World,
    cluster_of,
    reasons,
    record,
    told,
    topics,
)

ROUTE = RouteSettings(name="all", inputs=("orders", "more"), address="all", output="{topic}.unique")
Header = tuple[str, bytes | None]


def cluster() -> FakeCluster:
    return cluster_of(orders=3, more=2, orders_unique=3, more_unique=2, orders_dlq=3, more_dlq=2)


def world(route: RouteSettings = ROUTE, **all_addresses: object) -> World:
    book = {"#": all_addresses} if all_addresses else {}
    return World(route, book, cluster(), hop=Hop.ADDRESSES)


def carried(at: int, place: str, *headers: Header, key: bytes | None = b"k") -> Message:
    """A record as it stands in by-address, from `place` in its input."""
    return record(at, *headers, (ORIGIN, place.encode()), key=key, value=place.encode())


def named(at: int, place: str, identifier: bytes) -> Message:
    return carried(at, place, (DUPLICATE_ID, identifier))


def test_a_duplicate_from_another_input_is_caught_and_names_its_original() -> None:
    twice = named(10, "orders-2@5", b"1"), named(11, "more-0@5", b"1")
    accepted, letter = world().decide(*twice).outputs
    assert (accepted[0], accepted[3]) == ("orders.unique", 2)
    assert (letter[0], letter[3]) == ("more.dlq", 0)
    envelope = told(letter[-1])
    assert envelope[DeadLetter.ORIGINAL] == "orders-2@5"
    assert (envelope[DeadLetter.TOPIC], envelope[DeadLetter.OFFSET]) == ("more", "5")


def test_a_group_whose_earlier_record_lost_its_route_meanwhile_is_refused_whole() -> None:
    living = world()
    group: list[Header] = [("_TX_ID", b"t"), ("_TX_SIZE", b"2")]
    living.commit(carried(10, "more-0@1", *group, ("_TX_SEQ", b"1"), (DUPLICATE_ID, b"a")))
    living.settings = replace(ROUTE, inputs=("orders",))
    plan = living.decide(carried(11, "orders-0@1", *group, ("_TX_SEQ", b"2"), (DUPLICATE_ID, b"b")))
    assert reasons(plan.outputs) == ["no-output"] * 2


def test_what_goes_out_does_not_carry_its_place_any_more() -> None:
    extra: list[Header] = [("a", None), (ORIGIN, b"somebody else's"), (DUPLICATE_ID, b"1")]
    plan = world().decide(carried(10, "orders-0@1", *extra))
    assert plan.outputs[0][-1] == extra
    letter = world().decide(named(0, "orders-0@1", b"1"), named(1, "orders-0@2", b"1")).outputs[1]
    assert letter[-1][0] == (DUPLICATE_ID, b"1")
    assert letter[-1][1][0] == DeadLetter.REASON


def test_the_original_is_known_in_another_transaction_and_another_life() -> None:
    living = world()
    living.commit(named(10, "orders-2@5", b"1"), named(11, "more-1@7", b"2"))
    living.cache.drop(BY_ADDRESS)
    again = living.decide(named(12, "orders-0@1", b"1"), named(13, "orders-0@2", b"2"))
    originals = [told(output[-1])[DeadLetter.ORIGINAL] for output in again.outputs]
    assert originals == ["orders-2@5", "more-1@7"]


def test_what_cannot_be_traced_to_an_input_is_kept_with_the_reason() -> None:
    gone = replace(ROUTE, inputs=("more",))
    plan = world(gone).decide(
        record(1, (DUPLICATE_ID, b"1")), carried(2, "orders-0@1"), carried(3, "more-0@1")
    )
    assert [output[0] for output in plan.outputs] == [FALLBACK, FALLBACK, "more.unique"]
    assert reasons(plan.outputs)[:2] == [Reason.NO_OUTPUT, Reason.NO_OUTPUT]
    assert "orders belongs to no route" in told(plan.outputs[1][-1])[DeadLetter.CAUSE]


@pytest.mark.parametrize(
    "place", ["orders-0@" + "9" * 5000, "orders-0@" + "9" * 19, "orders-99999999999@1"]
)
def test_a_place_that_cannot_be_is_none(place: str) -> None:
    plan = world().decide(named(1, place, b"1"), named(2, "orders-0@1", b"2"))
    assert [output[0] for output in plan.outputs] == [FALLBACK, "orders.unique"]
    assert reasons(plan.outputs) == [Reason.NO_OUTPUT, None]


def test_what_belongs_to_no_route_may_belong_to_one_by_the_next_piece() -> None:
    living = world()
    living.settings = replace(ROUTE, inputs=("more",))

    def pieces() -> Iterator[list[Message]]:
        for at, input_partition in enumerate(["orders-0", "more-0", "orders-0"]):
            yield [named(at, f"{input_partition}@{at}", b"%d" % at)]
            living.settings = ROUTE

    plan = living.decide_pieces(pieces())
    assert topics(plan) == [FALLBACK, "more.unique", "orders.unique"]


def letter(*headers: Header, key: bytes | None = b"h", topic: str = "orders") -> RedrivenRecord:
    return RedrivenRecord(0, topic, 0, 5, NOW_MS - 1, key, b"v", headers, 0)


def test_a_letter_is_decided_again_where_its_address_is() -> None:
    living = world(replace(ROUTE, address="{key}"))
    sent = letter(), letter(key=None), letter(topic="former")
    outcomes, plan = living.redrive("through", *sent)
    assert outcomes == ["accepted", "refused", "refused"]
    assert reasons(plan.outputs) == [None, Reason.NO_ADDRESS, Reason.NO_OUTPUT]
    assert plan.tally.redriven == {("through", "accepted"): 1, ("through", "refused"): 2}
    assert living.redrive("bypass", *sent)[0] == ["accepted", "failed", "failed"]
    with pytest.raises(WrongPartitionError, match=r"g\.by-address-8 decides"):
        living.redrive("through", letter(key=b"k"))
    with pytest.raises(WrongPartitionError, match="orders-0 decides"):
        World().redrive("through", letter())


@pytest.mark.parametrize(("next_offset", "begun"), [(0, 0), (1, 0), (9, 8)])
def test_a_letter_that_waits_for_its_group_stands_at_the_end_of_what_was_decided(
    next_offset: int, begun: int
) -> None:
    living = world(replace(ROUTE, address="{key}"))
    living.partition.next_offset = next_offset
    group: list[Header] = [("_TX_ID", b"t"), ("_TX_SIZE", b"2"), ("_TX_SEQ", b"1")]
    outcomes, plan = living.redrive("through", letter(*group))
    assert outcomes == ["waiting"]
    pending_record = decode(plan.edits[CHANGELOG][0].value or b"")
    assert (pending_record.begun, pending_record.own_offset) == (begun, begun)


def test_an_input_that_was_deleted_is_decided_to_its_end() -> None:
    living = world()
    del living.cluster.logs["orders"]
    plan = living.decide(named(1, "orders-2@5", b"1"))
    assert plan.outputs[0][0] == "orders.unique"


@pytest.mark.parametrize("earlier", ["more-1@7", "more-1@0"])
def test_a_group_may_come_by_several_partitions(earlier: str) -> None:
    def member(at: int, place: str, position: bytes) -> Message:
        group = (("_TX_ID", b"t"), ("_TX_SIZE", b"2"), ("_TX_SEQ", position))
        return carried(at, place, *group, (DUPLICATE_ID, position))

    living = world()
    assert living.commit(member(1, earlier, b"2")).outputs == []
    living.cache.drop(BY_ADDRESS)
    plan = living.commit(member(2, "orders-0@3", b"1"))
    assert [(output[0], output[1]) for output in plan.outputs] == [
        ("orders.unique", b"orders-0@3"),
        ("more.unique", earlier.encode()),
    ]
    assert all(name != ORIGIN for output in plan.outputs for name, _ in output[-1])
    again = living.decide(named(3, "more-0@9", b"2"))
    assert told(again.outputs[0][-1])[DeadLetter.ORIGINAL] == earlier


def test_stamps_name_the_input() -> None:
    plan = world(replace(ROUTE, missing_id="stamp")).decide(carried(1, "more-1@7"))
    assert dict(plan.outputs[0][-1])[DUPLICATE_ID] == b"cluster/more/1/7"


def test_accepted_records_are_counted_for_the_route_they_came_by() -> None:
    plan = world().decide(named(1, "more-1@7", b"1"), named(2, "orders-1@7", b"2"))
    assert plan.tally.accepted == {("all", "all"): 2}
    assert plan.tally.consumed == {"all": 2}


INLETS = ("orders-0", "orders-2", "more-1")
SENT = st.lists(st.tuples(st.sampled_from(INLETS), st.integers(0, 6)), max_size=40)


@given(SENT, st.integers(1, 5), st.integers(1, 10))
def test_many_inlets_are_decided_in_the_order_of_the_log(
    sent: list[tuple[str, int]], capacity: int, batch: int
) -> None:
    living = world(id_cache_size=capacity)
    model, verdicts, fates = DequeRing(capacity), list[bool](), list[bool]()
    for start in range(0, len(sent), batch):
        rows = list(enumerate(sent))[start : start + batch]
        plan = living.commit(
            *(named(at, f"{input_partition}@{at}", b"%d" % i) for at, (input_partition, i) in rows)
        )
        fates += [reason is not None for reason in reasons(plan.outputs)]
        for _, (_, number) in rows:
            verdicts.append(model.judge(b"%d" % number))
            if not verdicts[-1]:
                model.remember(b"%d" % number)
    assert fates == verdicts


def test_a_topic_may_have_dashes_and_end_in_a_number() -> None:
    dashed = RouteSettings(name="r", inputs=("a-b-1",), address="all", output="orders.unique")
    living = World(dashed, {}, cluster_of(orders_unique=3, **{"a-b-1_dlq": 1}), hop=Hop.ADDRESSES)
    plan = living.decide(named(1, "a-b-1-0@4", b"1"), named(2, "a-b-1-2@4", b"1"))
    assert told(plan.outputs[1][-1])[DeadLetter.ORIGINAL] == "a-b-1-0@4"
