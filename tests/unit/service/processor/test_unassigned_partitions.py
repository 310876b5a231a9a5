"""What nobody reads is noticed when it lasts, and read after that."""

from itertools import repeat

import pytest
from confluent_kafka import TopicPartition

from state.model import PartitionId
from tests.simulation.disk import Disk
from tests.support.living import (
    Living,
    gone,
    turn_until_running,
    turns,
    waiting_for,
)


def test_partitions_that_the_group_left_out_are_reported_and_read_each_time_it_happens() -> None:
    living = Living(partitions=8)
    loop = living.loop()
    turn_until_running(loop)
    for _ in range(2):
        (member,) = living.cluster.group("g").members.values()
        lost = [TopicPartition("orders", number) for number in range(1, 8)]
        member.held -= {PartitionId(place.topic, place.partition) for place in lost}
        loop.assignment.on_revoke(loop.assignment.consumer, lost)
        living.cluster.wait(6)
        loop.turn()
        assert waiting_for(living) == (
            "the group to assign 7 partitions that no member reads: "
            "orders-1, orders-2, orders-3, orders-4, orders-5"
        )
        living.cluster.wait(6)
        turn_until_running(loop)
        turns(loop, 3)
        assert (len(loop.assignment.running), waiting_for(living)) == (8, None)


@pytest.mark.row(36)
def test_a_group_that_cannot_be_looked_at_while_a_broker_is_away_stops_nothing() -> None:
    living = Living(partitions=2)
    loop = living.running()
    turns(living.loop("1", Disk(living.cluster.step)), 5)
    turns(loop, 5)
    living.faults.at["assigned"] = repeat(gone())
    for value in "abc":
        living.send(value)
        living.cluster.wait(6)
        loop.turn()
        assert waiting_for(living) is None
    assert living.faults.passed["assigned"]
