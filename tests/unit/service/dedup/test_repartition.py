"""The first hop: a record goes to the partition of its address, and says where it came from."""

import pytest
from confluent_kafka import murmur2

from ringfence_client.headers import ORIGIN, Reason
from ringfence_service.config.model import RouteSettings
from ringfence_service.dedup.batch import Batch, Slice, read
from ringfence_service.dedup.decider import decide
from ringfence_service.dedup.plan import Plan
from ringfence_service.dedup.record import RejectedError
from ringfence_service.kafka.model import UNREADABLE
from tests.support.deciding import (
    FALLBACK,
    NOW_MS,
    SOURCE,
    World,
    cluster_of,
    named,
    reasons,
    record,
    told,
)

BY_KEY = RouteSettings(name="orders", inputs=("orders",), address="{key}", output="out")
BY_TOPIC = RouteSettings(name="orders", inputs=("orders",))
WITH_OUT = cluster_of(out=3, orders_dlq=3, orders_unique=3)


def world(route: RouteSettings = BY_KEY) -> World:
    return World(route, cluster=WITH_OUT)


def test_it_goes_as_it_is_and_names_its_place_last() -> None:
    headers = (("a", b"1"), ("a", None), (ORIGIN, b"somebody else's"))
    plan = world().decide(record(7, *headers, key=b"k", value=None, timestamp_ms=5))
    ((topic, value, key, partition, *_, timestamp, carried),) = plan.outputs
    assert (topic, value, key, timestamp) == ("g.by-address", None, b"k", 5)
    assert carried == [*headers, (ORIGIN, b"orders-1@7")]
    assert partition == murmur2(b"k", 12)


def test_one_address_has_one_partition_whatever_field_names_it() -> None:
    by_header = RouteSettings(name="orders", inputs=("orders",), address="{header:a}", output="out")
    rendered = RouteSettings(name="orders", inputs=("orders",), address="{plain}{key}{header:a}")
    two = record(0, ("a", b"y"), key=b"x"), record(1, ("a", b"z"), key=b"x")
    places = {
        world(BY_KEY).decide(record(0, key=b"xy")).outputs[0][3],
        world(by_header).decide(record(0, ("a", b"xy"))).outputs[0][3],
        world(rendered).decide(two[0]).outputs[0][3],
    }
    assert places == {murmur2(b"xy", 12)}
    of_two = [output[3] for output in world(rendered).decide(*two).outputs]
    assert of_two == [murmur2(b"xy", 12), murmur2(b"xz", 12)] != of_two[::-1]


def test_what_one_transaction_reads_in_two_batches_goes_once() -> None:
    ours, looked = world(), list[object]()
    batches = [Batch((Slice.of(ours.partition, *read([record(n)])[:2]),), NOW_MS) for n in range(2)]
    plan = Plan(on_headers=looked.append)
    sent = [output[7][-1] for part in decide(batches, ours.rules(), plan) for output in part]
    assert sent == [(ORIGIN, b"orders-1@0"), (ORIGIN, b"orders-1@1")]
    assert looked == [[[]], [[]]], "their headers, which may name a trace"


def test_headers_that_cannot_be_read_are_dead_lettered_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = iter([UNREADABLE, [("a", b"1")]])
    monkeypatch.setattr(
        "ringfence_service.dedup.batch.read_headers", lambda some: [next(told) for _ in some]
    )
    plan = world().decide(record(0, ("a", b"0")), record(1, ("a", b"1")))
    assert reasons(plan.outputs) == [Reason.UNREADABLE_HEADERS, None]
    assert not {("a", b"0"), ("", None)} & set(plan.outputs[0][-1])


def test_without_a_field_all_records_have_the_topics_address() -> None:
    plan = world(BY_TOPIC).decide(record(0, key=b"a"), record(1, key=None))
    assert {output[3] for output in plan.outputs} == {murmur2(b"orders", 12)}


def test_nothing_is_judged_or_remembered() -> None:
    plan = world().decide(named(0, b"1"), named(1, b"1"))
    assert len(plan.outputs) == 2
    assert (plan.edits, plan.sealed) == ({}, [])
    assert plan.next_offsets == {SOURCE: 2}


def test_it_is_counted_where_it_is_decided() -> None:
    plan = world().decide(named(0, b"1"), record(1, key=None))
    assert plan.tally.carried == {"orders": 1}
    assert plan.tally.consumed == {"orders": 1}, "the one that has no address"
    assert plan.tally.records_read == 2


def test_without_an_address_it_is_a_dead_letter_with_its_place() -> None:
    plan = world().decide(record(3, key=None))
    assert reasons(plan.outputs) == [Reason.NO_ADDRESS]
    letter = told(plan.outputs[0][-1])
    assert (letter["ringfence.partition"], letter["ringfence.offset"]) == ("1", "3")


def test_what_the_broker_refused_is_a_dead_letter_with_its_cause() -> None:
    refusal = RejectedError(Reason.TOO_LARGE, "the broker refused it")
    refusing = World(BY_KEY, cluster=WITH_OUT, refused={(SOURCE, 4): refusal})
    plan = refusing.decide(record(4), record(5))
    assert [output[0] for output in plan.outputs] == ["orders.dlq", "g.by-address"]


def test_a_letter_that_its_topic_refused_goes_to_the_fallback() -> None:
    undeliverable = World(BY_KEY, cluster=WITH_OUT, undeliverable={(SOURCE, 4)})
    assert undeliverable.decide(record(4, key=None)).outputs[0][0] == FALLBACK


def test_a_record_without_a_time_gets_none_here() -> None:
    plan = world().decide(record(0, timestamp_ms=-1), record(1, timestamp_ms=NOW_MS))
    assert [output[6] for output in plan.outputs] == [0, NOW_MS]
