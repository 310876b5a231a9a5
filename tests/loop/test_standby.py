"""Standby copies: an instance follows what others decide, and continues there at a takeover."""

import pytest
from confluent_kafka import KafkaError

from ringfence_service.kafka.errors import UNREADABLE_BATCH
from ringfence_service.kafka.unreadable_batch import UnreadableBatchFault
from ringfence_service.processor.restore import Restorer
from ringfence_service.queries.status import StandbyStatus
from ringfence_state.offset_metadata import TOMBSTONES_KEPT_MS
from ringfence_state.store import (
    StoreCorruptError,
    StoreLockedError,
    StorePosition,
)
from tests.fakes.partition import Record
from tests.simulation.disk import Disk
from tests.support.helpers import some
from tests.support.living import LOG, ORDERS, Living, gone, turn_until_running

WARM = StandbyStatus(topic="orders", partition=0, warm=True, lag_records=0)


class Two:
    """One instance that owns the only partition, and a second one with a disk of its own."""

    def __init__(self, *, partitions: int = 1, workers: int = 1) -> None:
        self.living = Living(standby="all", partitions=partitions, workers=workers)
        self.first = self.living.running()
        self.disk = Disk(self.living.cluster.step)
        self.second = self.living.loop("1", self.disk)

    def accept(self, *ids: str) -> None:
        self.living.send(*ids)
        for _ in range(4):
            self.first.turn()

    def follow(self, seconds: float = 3, turns: int = 6) -> None:
        """Let both have their turns for a while."""
        for _ in range(turns):
            self.living.cluster.wait(seconds / turns)
            self.first.turn()
            self.second.turn()

    @property
    def statuses(self) -> tuple[StandbyStatus, ...]:
        return self.second.assignment.standbys.statuses()

    @property
    def decided(self) -> dict[bytes, bytes]:
        """What the first instance has on its disk."""
        assert isinstance(self.living.stores, Disk)
        return contents(self.living.stores)

    @property
    def held(self) -> dict[bytes, bytes]:
        """What the second instance has on its disk."""
        return {} if ORDERS not in self.disk._stores else contents(self.disk)

    @property
    def position(self) -> StorePosition:
        return some(self.disk._stores[ORDERS].position())

    def fail_over(self) -> None:
        self.first.close(leaves=True)
        turn_until_running(self.second)


def contents(disk: Disk) -> dict[bytes, bytes]:
    return next(held for source, _, held in disk.stores() if source == ORDERS)


def test_a_copy_has_what_the_owner_has_written() -> None:
    two = Two()
    two.accept("a", "b")
    two.follow()
    assert two.held == two.decided
    assert two.statuses == (WARM,)
    two.accept("c")
    two.follow()
    assert two.held == two.decided


def test_a_takeover_continues_with_the_copy_and_replays_what_is_missing() -> None:
    two = Two()
    two.accept("a", "b")
    two.follow()
    two.accept("c")
    opened = two.living.faults.passed["store.open"]
    two.fail_over()
    partition = two.second.assignment.partitions[ORDERS]
    assert partition.restored_records <= 1
    assert two.living.faults.passed["store.open"] == opened
    assert two.statuses == ()
    two.living.send("a", "b", "c", "d")
    two.second.turn()
    two.second.turn()
    assert two.living.values("orders.unique") == ["a", "b", "c", "d"]


def test_a_partition_that_goes_elsewhere_is_followed_from_there_on() -> None:
    two = Two()
    two.accept("a")
    two.follow()
    two.fail_over()
    two.first = two.living.loop("0", two.living.stores)  # begins to follow what was its own
    for _ in range(10):
        two.living.cluster.wait(1)
        two.second.turn()
        two.first.turn()
    two.living.send("b")
    two.second.turn()
    for _ in range(10):
        two.living.cluster.wait(1)
        two.second.turn()
        two.first.turn()
    assert two.decided == two.held
    assert len(two.held) == 2


def test_without_the_setting_nothing_is_followed() -> None:
    living = Living()
    living.running()
    disk = Disk(living.cluster.step)
    second = living.loop("1", disk)
    for _ in range(5):
        living.cluster.wait(1)
        second.turn()
    assert (list(disk.stores()), second.assignment.rebalances > 0) == ([], True)


def test_a_member_joins_a_group_that_decides_once_its_copies_are_warm() -> None:
    two = Two()
    two.accept("a")
    two.living.faults.at["topics"] = iter([gone()])
    two.second.turn()
    two.second.turn()
    assert two.second.assignment.rebalances == 0
    assert [each.warm for each in two.statuses] == [False]
    two.follow(40)
    assert two.second.assignment.rebalances == 0
    two.follow(25)
    assert two.second.assignment.rebalances > 0


def test_a_member_whose_copies_are_not_warm_joins_when_partitions_have_no_member() -> None:
    two = Two()
    two.second.turn()
    two.living.faults.at["ends"] = iter([gone()] * 4)
    two.first.close(leaves=True)
    for _ in range(6):
        two.living.cluster.wait(1)
        two.second.turn()
    assert two.second.assignment.rebalances > 0


def test_a_copy_is_not_warm_before_it_has_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two()
    two.accept("a")
    with monkeypatch.context() as patch:
        patch.setattr(Restorer, "step", lambda *_: 0)
        two.follow(9)
        (copy,) = two.statuses
        assert (copy.warm, two.second.assignment.rebalances) == (False, 0)
        assert some(copy.lag_records) > 0
    two.follow()
    assert two.statuses == (WARM,)


def test_a_member_joins_without_copies_where_records_arrive_and_none_is_decided() -> None:
    two = Two()
    two.accept("a")
    two.living.faults.at["starts"] = iter([gone()] * 100)
    for number in range(3):
        two.second.turn()
        two.living.send(f"waits {number}")
        two.living.cluster.wait(2.5)
    assert two.second.assignment.rebalances == 0
    for number in range(3, 6):
        two.living.send(f"waits {number}")
        two.living.cluster.wait(2.5)
        two.second.turn()
    assert two.second.assignment.rebalances > 0


def test_a_member_does_not_wait_for_copies_that_make_no_progress() -> None:
    two = Two()
    two.accept("a")
    two.living.faults.at["starts"] = iter([gone()] * 100)
    two.follow(50, 10)
    assert two.second.assignment.rebalances == 0
    two.follow(20, 10)
    assert two.second.assignment.rebalances > 0


def test_a_later_life_of_a_member_joins_at_once() -> None:
    two = Two()
    two.accept("a")
    two.follow()
    runner = two.living.worker()
    two.first.close()
    runner._resumes = True
    loop = some(runner.open_loop())
    assert loop.assignment._joins


def test_the_first_member_of_a_group_joins_at_once() -> None:
    loop = Living(standby="all").loop()
    for _ in range(3):
        loop.turn()
    assert loop.assignment.rebalances > 0


def test_a_record_that_a_newer_version_wrote_costs_the_copy_and_not_the_process() -> None:
    two = Two()
    two.accept("a")
    two.follow()
    two.living.cluster.write(*LOG, Record(b"?foreign", b"value"))
    two.follow()
    assert [each.warm for each in two.statuses] == [False]
    assert two.second.assignment.rebalances > 0


def test_a_damaged_copy_is_made_again() -> None:
    two = Two()
    two.accept("a")
    two.follow()
    damaged = two.disk._stores[ORDERS]
    two.living.faults.at["store.apply"] = iter([None, StoreCorruptError(ORDERS, "a bit flipped")])
    two.accept("b")
    two.follow(5)
    assert two.disk._stores[ORDERS] is not damaged
    assert (two.held, two.statuses) == (two.decided, (WARM,))


def test_an_answer_that_does_not_come_delays_a_copy_and_nothing_else() -> None:
    two = Two()
    two.accept("a")
    two.follow()
    two.living.faults.at["ends"] = iter([gone(), gone()])
    two.accept("b")
    two.follow()
    two.follow()
    assert (two.held, two.statuses) == (two.decided, (WARM,))


def test_a_copy_of_a_quiet_changelog_does_not_grow_old() -> None:
    two = Two()
    two.accept("a")
    two.follow()
    for _ in range(30):
        two.follow(TOMBSTONES_KEPT_MS / 1000 / 20)
    assert two.living.cluster.now_ms - two.position.level_at_ms < 3_600_000
    assert len(two.held) == 1


def test_a_copy_that_was_not_followed_for_too_long_is_made_again() -> None:
    two = Two()
    two.accept("a")
    two.follow()
    two.second.close(leaves=True)
    two.living.cluster.wait(TOMBSTONES_KEPT_MS / 1000)
    stale = two.disk._stores[ORDERS]
    two.second = two.living.loop("1", two.disk)
    two.follow()
    assert two.disk._stores[ORDERS] is not stale
    assert two.held == two.decided


def test_a_store_that_another_worker_has_open_is_no_copy_to_wait_for() -> None:
    two = Two()
    two.accept("a")
    two.living.faults.at["store.open"] = iter([StoreLockedError("held")] * 1_000)
    two.follow()
    assert (two.statuses, two.second.assignment.rebalances > 0) == ((), True)


def test_a_store_that_another_worker_waits_for_is_closed() -> None:
    two = Two(workers=2)
    two.accept("a")
    two.follow()
    assert two.statuses == (WARM,)
    two.disk.want(ORDERS)
    two.follow(1)
    assert two.second.assignment.standbys.take(ORDERS) is None


def test_a_batch_of_a_changelog_that_cannot_be_read_costs_its_copy_and_is_logged() -> None:
    two = Two()
    two.accept("a")
    two.follow()
    assert two.statuses == (WARM,)
    copies = two.second.assignment.standbys
    fault = UnreadableBatchFault.of(KafkaError(UNREADABLE_BATCH, "it is garbled"), 1)
    copies._restorer._refused[LOG] = fault
    two.second.turn()
    assert copies.take(ORDERS) is None
    two.follow()
    assert [each.warm for each in two.statuses] == [False]


def test_a_store_is_left_to_a_worker_whose_turns_fail_no_longer_than_it_is_wanted() -> None:
    two = Two(workers=2)
    two.accept("a")
    two.follow()
    two.living.faults.at["consume"] = iter([gone()] * 100)
    two.disk.want(ORDERS)
    two.living.cluster.wait(1)
    two.second.turn()
    assert two.second.assignment.standbys.take(ORDERS) is None


def test_the_workers_of_an_instance_share_the_partitions() -> None:
    two = Two(workers=2, partitions=3)
    two.follow(6, 12)
    assert {each.partition for each in two.statuses} <= {0, 2}
