"""Membership: nothing is committed for a group that has not reported us as a member."""

from collections.abc import Iterable, Sequence

import pytest

from ringfence_client.headers import DUPLICATE_ID
from ringfence_service.dedup.checks import DecisionContext
from ringfence_service.dedup.plan import Output, Plan
from ringfence_service.processor.transaction import TransactionAbortedError
from ringfence_state.model import PartitionId
from tests.fakes.consumer import FakeConsumer
from tests.simulation.disk import Disk
from tests.support.living import ORDERS, Living, in_group, turns, waiting_for
from tests.unit.service.processor.test_poll import at_read


def test_who_is_no_member_of_the_group_commits_nothing() -> None:
    living = Living()
    loop = living.running()
    living.send("a")
    consumer = loop.assignment.consumer
    loop.assignment.on_lost(consumer, [])
    loop.turn()
    assert "not a member" in (waiting_for(living) or "")
    assert living.committed() is None
    loop.assignment.on_assign(consumer, [])
    turns(loop)
    assert living.values("orders.unique") == ["a"]


def test_the_group_is_sent_the_generation_that_it_reported_to_us() -> None:
    """The client's own may be of a generation in which another has our partitions."""
    living = Living(partitions=2)
    loop = living.running()
    told, consumer = loop.assignment.membership(), loop.assignment.consumer
    other = living.loop("1", Disk(living.cluster.step))
    turns(other, 5)
    assert consumer.consumer_group_metadata() != told
    assert loop.assignment.membership() == told
    turns(loop, 3)
    assert loop.assignment.membership() == consumer.consumer_group_metadata()


def test_a_client_that_is_closed_and_knows_no_group_any_more_ends_its_life_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka knows none once it has left, which may be before it has its last say."""

    def unknown(_consumer: FakeConsumer) -> object:
        raise RuntimeError("Consumer group metadata not available")

    living = Living()
    loop = living.running()
    with monkeypatch.context() as patched:
        patched.setattr(FakeConsumer, "consumer_group_metadata", unknown)
        loop.close()
    assert loop.assignment.membership() is None
    living.send("a")
    turns(living.running())
    assert living.values("orders.unique") == ["a"]


@pytest.mark.parametrize("late", [(0, 1), (0,), (1,)])
def test_the_group_speaks_before_something_is_committed_that_was_not_read(
    late: tuple[int, ...],
) -> None:
    living = Living(partitions=2, addresses={"#": {"group_timeout_ms": 1_000}})
    for partition in late:
        living.write(b"a", *in_group("t", 1, 2), (DUPLICATE_ID, b"a"), partition=partition)
    loop = living.running()
    turns(loop, 2)
    other = living.loop("1", Disk(living.cluster.step))
    turns(other, 5)
    living.cluster.wait(2)
    for _ in range(5):
        turns(loop, 1)
        turns(other, 1)
        living.cluster.wait(1)
    assert len(loop.assignment.partitions) == len(other.assignment.partitions) == 1
    given_up = [partition for partition in (0, 1) if living.values("orders.dlq", partition)]
    assert given_up == list(late)


def test_the_offset_of_a_partition_that_is_not_ours_is_not_committed_nor_what_goes_with_it() -> (
    None
):
    living = Living()
    loop = living.running()

    def fill(_rules: DecisionContext, plan: Plan, _now_ms: int) -> Iterable[Sequence[Output]]:
        plan.next_offsets = {ORDERS: 1, PartitionId("orders", 7): 1}
        return ()

    with pytest.raises(TransactionAbortedError, match="the group was rebalanced"):
        loop.change(fill)
    assert living.committed() is None


def test_a_change_is_not_made_after_a_rebalance_that_is_heard_of_only_by_it() -> None:
    living = Living()
    loop = living.running()
    assignment, begun_ms = loop.assignment, living.cluster.now_ms
    heard = at_read(1, lambda: assignment.on_assign(assignment.consumer, []))
    living.faults.at["consume"] = heard
    with pytest.raises(TransactionAbortedError, match="the group was rebalanced"):
        loop.change(lambda *_: ())
    loop.change(lambda *_: ())
    assert living.cluster.now_ms == begun_ms, "nothing is waited for"
