"""Acknowledgements: one for each publisher of a transaction, visible with what it covers."""

import json
from collections.abc import Sequence

import pytest
from confluent_kafka import Message

from ringfence_client.headers import (
    GROUP,
    GROUP_POSITION,
    GROUP_SIZE,
    NUMBER,
    PREVIOUS,
    PUBLISHER,
    STREAM,
    bookmark,
)
from ringfence_service.dedup.decider import set_publisher_position
from ringfence_service.dedup.plan import Output
from ringfence_state.model import Claim
from tests.support.deciding import SOURCE, World, record
from tests.support.living import Living, refused, turns

SEQUENCE = {"#": {"strategy": "sequence"}}


def numbered(offset: int, publisher: str, number: int) -> Message:
    return record(offset, (PUBLISHER, publisher.encode()), (NUMBER, b"%d" % number))


def told(acks: Sequence[Output]) -> dict[tuple[str, str], int]:
    return {
        tuple(json.loads(key or b"")): json.loads(value or b"")["sequence"]
        for _, value, key, *_ in acks
    }


def test_the_highest_number_of_each_publisher_is_acknowledged() -> None:
    plan = World(addresses=SEQUENCE).commit(
        numbered(0, "P", 1), numbered(1, "Q", 7), numbered(2, "P", 3)
    )
    assert told(plan.acks) == {("orders", "P"): 3, ("orders", "Q"): 7}
    assert json.loads(plan.acks[0][1] or b"")["bookmark"] == bookmark("P", 3).decode()
    assert [(topic, partition) for topic, _, _, partition, *_ in plan.acks] == [("g.acks", 0)] * 2


def test_a_duplicate_is_acknowledged_by_the_number_that_covers_it() -> None:
    world = World(addresses=SEQUENCE)
    world.commit(numbered(0, "P", 5))
    assert told(world.commit(numbered(1, "P", 2)).acks) == {("orders", "P"): 5}


def test_who_was_not_heard_of_is_not_acknowledged_again() -> None:
    world = World(addresses=SEQUENCE)
    world.commit(numbered(0, "P", 5))
    assert told(world.commit(numbered(1, "Q", 1)).acks) == {("orders", "Q"): 1}


def test_what_is_refused_as_invalid_is_no_reason_to_acknowledge() -> None:
    world = World(addresses={"#": {"strategy": "sequence", "publishers_max": 1}})
    world.commit(numbered(0, "P", 5))
    assert world.commit(numbered(1, "Q", 1)).acks == []


def test_streams_are_acknowledged_by_their_last_number() -> None:
    world = World(addresses={"#": {"strategy": "ordered"}})
    headers = ((PUBLISHER, b"P"), (STREAM, b"1"), (NUMBER, b"4"), (PREVIOUS, b"0"))
    assert told(world.commit(record(0, *headers)).acks) == {("orders", "P"): 4}


def test_a_number_that_is_set_by_hand_is_acknowledged_as_of_the_time_of_the_broker() -> None:
    world = World(addresses=SEQUENCE)
    world.partition.next_offset = 5
    claim = Claim(publisher="P", number=7, previous=0)
    plan = world.unread(set_publisher_position, "orders", claim, SOURCE, after=())
    assert (told(plan.acks), plan.acks[0][6]) == ({("orders", "P"): 7}, 0)
    assert plan.next_offsets == {SOURCE: 5}


@pytest.mark.parametrize("strategy", ["ring", "window", "audit"])
def test_where_a_number_does_not_cover_those_before_it_nothing_is_acknowledged(
    strategy: str,
) -> None:
    world = World(addresses={"#": {"strategy": strategy}})
    assert world.commit(numbered(0, "P", 1)).acks == []


def test_its_topic_is_made_by_the_service_where_it_is_needed() -> None:
    living = Living(addresses=SEQUENCE)
    living.running()
    assert living.cluster.logs["g.acks"].cleanup_policy == "compact"
    other = Living()
    other.running()
    assert "g.acks" not in other.cluster.logs


@pytest.mark.parametrize("step", ["send", "send_offsets_to_transaction", "commit_transaction"])
def test_what_was_aborted_is_acknowledged_once_and_with_what_was_decided_then(step: str) -> None:
    living = Living(addresses=SEQUENCE)
    loop = living.running()
    living.faults.at[step] = iter([refused(), refused()])
    for number in (1, 2, 1):
        living.write(b"%d" % number, (PUBLISHER, b"P"), (NUMBER, b"%d" % number))
    turns(loop, 6)
    assert living.values("orders.unique") == ["1", "2"]
    acks = living.cluster.records("g.acks")
    assert [json.loads(record.value or b"")["sequence"] for record in acks] == [2]


def test_a_group_is_acknowledged_when_it_is_decided_and_not_before() -> None:
    world = World(addresses=SEQUENCE)

    def member(offset: int, position: int, number: int) -> Message:
        group = ((GROUP, b"t"), (GROUP_SIZE, b"2"), (GROUP_POSITION, b"%d" % position))
        return record(offset, *group, (PUBLISHER, b"P"), (NUMBER, b"%d" % number))

    assert world.commit(member(0, 1, 1)).acks == []
    assert told(world.commit(member(1, 2, 2)).acks) == {("orders", "P"): 2}
    rejected = world.commit(member(2, 1, 3), member(3, 2, 2))
    assert told(rejected.acks) == {("orders", "P"): 2}
