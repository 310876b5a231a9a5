"""What nobody reads is noticed when it lasts, and read after that."""

from itertools import repeat

import pytest

from state.edit import Source
from tests.simulation.disk import Disk
from tests.unit.service.living import (
    Living,
    gone,
    turn_until_running,
    turns,
    waiting_for,
)

MORE = Source("orders", 1)


def test_a_partition_that_the_group_left_out_is_told_and_asked_for() -> None:
    living = Living(partitions=2)
    loop = living.loop()
    turn_until_running(loop)
    member = next(iter(living.cluster.group("g").members.values()))
    member.held.discard(MORE)
    del loop.assignment.partitions[MORE], loop.assignment.running[MORE]
    waits = []
    for _ in range(4):
        living.cluster.wait(6)
        waits.append(loop.assignment.step())
    assert waits[0] is not None
    assert "orders-1" in waits[0]
    assert living.faults.passed["subscribe"] > 1


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
