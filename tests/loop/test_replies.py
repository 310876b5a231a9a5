"""Replies: a publisher that asks learns how each of its records was decided."""

import json
from dataclasses import replace
from itertools import chain, repeat

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT, REPLY_TO
from ringfence_service.dedup.dead_letter import Mode, RedrivenRecord
from ringfence_service.processor.loop import Loop
from tests.loop.test_two_hops import Hops
from tests.support.deciding import NOW_MS, SOURCE, World, named, topics
from tests.support.living import ROUTE, Living, in_group, refused, turns

ANSWERING = replace(ROUTE, reply_topics=("told", "also-told"))
ASKING = (REPLY_TO, b"told")


def answering(**settings: object) -> Living:
    living = Living(ANSWERING, **settings)  # type: ignore[arg-type]  # by name
    living.cluster.create_topic("told", 3)
    living.cluster.create_topic("also-told", 3)
    return living


def ask(living: Living, name: str, *headers: tuple[str, bytes | None]) -> None:
    living.write(name.encode(), (DUPLICATE_ID, name.encode()), ASKING, *headers)


def told(living: Living, topic: str = "told") -> list[tuple[str | None, str]]:
    """The id and outcome of each reply."""
    records = chain.from_iterable(living.cluster.records(topic, n) for n in range(3))
    return [
        (None if record.key is None else record.key.decode(), payload(record.value)["outcome"])
        for record in records
    ]


def payload(value: bytes | None) -> dict[str, str]:
    found: dict[str, str] = json.loads(value or b"")
    return found


def replies_counted(living: Living) -> dict[str, float]:
    families = text_string_to_metric_families(living.metrics.exposition().decode())
    samples = chain.from_iterable(family.samples for family in families)
    return {
        sample.labels["result"]: sample.value
        for sample in samples
        if sample.name == "ringfence_replies_total"
    }


def the_reply(living: Living) -> dict[str, str]:
    (record,) = chain.from_iterable(living.cluster.records("told", n) for n in range(3))
    return payload(record.value)


def ran(living: Living, count: int = 10) -> Loop:
    loop = living.running()
    turns(loop, count)
    return loop


def test_an_accepted_record_and_its_duplicate_are_told_apart_on_the_topic_that_each_names() -> None:
    living = answering()
    ask(living, "a")
    living.write(b"a again", (DUPLICATE_ID, b"a"), (REPLY_TO, b"also-told"))
    ran(living)
    accepted = {"outcome": "accepted", "record": "orders-0@0", "address": "orders"}
    assert the_reply(living) == accepted
    (again,) = living.cluster.records("also-told", living_partition(living, "also-told"))
    assert again.key == b"a"
    assert payload(again.value) == {
        "outcome": "duplicate",
        "record": "orders-0@1",
        "address": "orders",
        "original": "orders-0@0",
    }


def living_partition(living: Living, topic: str) -> int:
    return next(n for n in range(3) if living.cluster.records(topic, n))


@pytest.mark.parametrize("policy", ["dead_letter", "drop", "mark"])
def test_a_duplicate_is_told_whatever_becomes_of_it(policy: str) -> None:
    living = answering(addresses={"#": {"on_duplicate": policy}})
    ask(living, "a")
    ask(living, "a")
    ran(living)
    assert sorted(told(living)) == [("a", "accepted"), ("a", "duplicate")]
    assert len(living.values("orders.unique")) == (2 if policy == "mark" else 1)


def test_a_duplicate_that_is_not_dead_lettered_again_is_told_again() -> None:
    living = answering(addresses={"#": {"dead_letter_audit": True}})
    for _ in range(3):
        ask(living, "a")
    ran(living)
    assert sorted(told(living)) == [("a", "accepted"), ("a", "duplicate"), ("a", "duplicate")]
    assert living.reasons("orders.dlq") == ["duplicate"]


def test_a_refused_record_is_told_why() -> None:
    living = answering()
    ask(living, "a", (EXPIRES_AT, b"1"))
    ran(living)
    reply = the_reply(living)
    assert (reply["outcome"], reply["reason"]) == ("refused", "expired")
    assert reply["cause"].startswith("expired ")


def test_a_record_that_is_refused_before_its_id_is_read_is_told_with_its_id() -> None:
    living = answering()
    ask(living, "a", *in_group("g", 3, 2))
    ran(living)
    assert told(living) == [("a", "refused")]


def test_the_key_of_a_reply_is_the_id_that_the_routes_template_makes() -> None:
    living = Living(replace(ANSWERING, id="{header:order}-{header:line}"))
    living.cluster.create_topic("told", 3)
    living.write(b"1", ("order", b"7"), ("line", b"1"), ASKING)
    living.write(b"2", ("order", b"7"), ("line", b"2"), ASKING, (EXPIRES_AT, b"x"))
    ran(living)
    assert sorted(told(living)) == [("7-1", "accepted"), ("7-2", "refused")]


@pytest.mark.parametrize("header", [(DUPLICATE_ID, None), ("_AMQ_DUPL_ID", b"\xff")])
def test_a_record_with_no_id_or_with_one_that_is_no_text_is_answered(
    header: tuple[str, bytes | None],
) -> None:
    living = answering()
    living.write(b"1", header, ASKING)
    ran(living)
    (record,) = chain.from_iterable(living.cluster.records("told", n) for n in range(3))
    assert record.key == header[1]
    assert payload(record.value)["outcome"] == "accepted"


def test_the_records_of_a_group_are_told_when_it_is_decided() -> None:
    living = answering()
    ask(living, "a", *in_group("g", 1, 2))
    loop = ran(living)
    assert told(living) == []
    ask(living, "b", *in_group("g", 2, 2))
    turns(loop)
    assert sorted(told(living)) == [("a", "accepted"), ("b", "accepted")]


def test_the_records_of_a_group_that_timed_out_are_told_with_their_ids() -> None:
    living = answering(addresses={"#": {"group_timeout_ms": 1000}})
    ask(living, "a", *in_group("g", 1, 2))
    loop = ran(living)
    living.cluster.wait(60)
    turns(loop)
    assert told(living) == [("a", "refused")]
    assert the_reply(living)["reason"] == "group-incomplete"


def test_no_reply_is_read_of_a_transaction_that_was_aborted() -> None:
    living = answering()
    loop = living.running()
    ask(living, "a")
    living.faults.at["commit_transaction"] = iter([refused(), *repeat(None, 3)])
    turns(loop, 30)
    assert told(living) == [("a", "accepted")]
    assert living.values("orders.unique") == ["a"]


@pytest.mark.parametrize(
    "named", [b"orders.unique", b"elsewhere", b"", b"\xff", b"g.config"], ids=repr
)
def test_a_topic_that_the_route_does_not_list_gets_nothing(named: bytes) -> None:
    living = answering()
    living.write(b"a", (DUPLICATE_ID, b"a"), (REPLY_TO, named))
    ran(living)
    assert living.values("orders.unique") == ["a"]
    assert told(living) == []
    assert replies_counted(living) == {"no-topic": 1}


def test_without_topics_in_the_route_nobody_is_answered_or_counted() -> None:
    living = Living()
    living.cluster.create_topic("told", 3)
    ask(living, "a")
    ran(living)
    assert (told(living), replies_counted(living)) == ([], {})


def test_a_listed_topic_that_does_not_exist_holds_up_nothing() -> None:
    living = Living(ANSWERING)
    loop = living.running()
    ask(living, "a")
    turns(loop, 20)
    assert living.values("orders.unique") == ["a"]
    assert living.committed() == 1


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_reply_that_its_topic_refuses_is_left_out_and_its_record_is_accepted(
    *, is_announced: bool
) -> None:
    living = Living(ANSWERING)
    known_bytes = 300 if is_announced else 1 << 20
    living.cluster.create_topic("told", 3, record_bytes_max=known_bytes, limit_bytes=300)
    long = "i" * 400
    ask(living, "first")
    living.write(b"v", (DUPLICATE_ID, long.encode()), ASKING)
    ask(living, "last")
    ran(living, 60)
    assert living.values("orders.unique") == ["first", "v", "last"]
    assert living.values("orders.dlq") == living.values("g.dead-letters") == []
    assert sorted(told(living)) == [("first", "accepted"), ("last", "accepted")]


def letter(value: bytes) -> RedrivenRecord:
    headers = ((DUPLICATE_ID, value), ASKING)
    return RedrivenRecord(0, *SOURCE, 5, NOW_MS, None, value, headers, 0)


@pytest.mark.parametrize("policy", ["dead_letter", "drop"])
def test_a_redrive_sends_no_reply_and_its_outcome_is_the_same(policy: str) -> None:
    world = World(ANSWERING, {"#": {"on_duplicate": policy}})
    world.cluster.create_topic("told", 3)
    world.commit(named(0, b"known"))
    expectations: list[tuple[Mode, list[str]]]
    expectations = [("through", ["refused", "accepted"]), ("bypass", ["accepted"] * 2)]
    for mode, expected in expectations:
        outcomes, plan = world.redrive(mode, letter(b"known"), letter(b"new"))
        assert outcomes == expected
        assert "told" not in topics(plan)
        assert plan.tally.replies == {}


def test_with_two_hops_the_one_that_decides_a_record_replies() -> None:
    hops = Hops(replace(ANSWERING, scope="address", address="{key}"))
    hops.living.cluster.create_topic("told", 3)
    hops.living.cluster.wait(10)
    hops.turns()
    for key in (b"k", b"k", None):
        hops.living.write(b"1", (DUPLICATE_ID, b"a"), ASKING, key=key)
    hops.turns(10)
    assert sorted(told(hops.living)) == [("a", "accepted"), ("a", "duplicate"), ("a", "refused")]
