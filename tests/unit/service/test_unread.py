"""What nobody reads is noticed when it lasts, and read after that."""

from state.edit import Source
from tests.unit.service.living import Living, turn_until_running

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
