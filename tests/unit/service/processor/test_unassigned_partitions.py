"""What nobody reads is noticed when it lasts, and read after that."""

from itertools import repeat

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ringfence_service.processor.stuck_inputs import UnassignedPartitions
from ringfence_state.model import PartitionId
from tests.simulation.disk import Disk
from tests.support.living import (
    GROUP,
    ORDERS,
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


def group_of(living: Living) -> UnassignedPartitions:
    return UnassignedPartitions(living.clients().cluster, GROUP, living.clock)


def test_a_partition_is_unassigned_when_the_group_says_so_twice_in_questions_of_every_5_s() -> None:
    living, found = Living(), list[int]()
    group = group_of(living)
    for second in range(1, 21):
        living.clock.sleep(1)
        if group.poll(frozenset({ORDERS})):
            found.append(second)
    assert found == [10, 15, 20]
    assert living.faults.passed["assigned"] == 4


def test_a_group_that_may_not_be_looked_at_is_an_error() -> None:
    living = Living()
    group = group_of(living)
    denied = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    living.faults.at["assigned"] = iter([denied])
    living.clock.sleep(5)
    with pytest.raises(KafkaException) as caught:
        group.poll(frozenset({ORDERS}))
    assert caught.value is denied


@pytest.mark.row(36)
def test_a_group_that_cannot_be_looked_at_while_a_broker_is_away_stops_nothing() -> None:
    living = Living(partitions=2)
    loop = living.running()
    turns(living.loop("1", Disk(living.cluster.step)), 5)
    turns(loop, 5)
    living.faults.at["assigned"] = repeat(gone())
    subscribed = living.faults.passed["subscribe"]
    for value in "abc":
        living.send(value)
        living.cluster.wait(6)
        loop.turn()
        assert waiting_for(living) is None
    assert living.faults.passed["assigned"]
    assert living.faults.passed["subscribe"] == subscribed
