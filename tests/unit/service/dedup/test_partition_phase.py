"""The phases of a partition, and which of them follow each other."""

import pytest

from ringfence_service.dedup.partition import OwnedPartition, PartitionPhase
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import PartitionId
from tests.support.helpers import rows

ASSIGNED, RESTORING, RUNNING = PartitionPhase
LOG = PartitionId("g.orders.changelog", 0)
SOURCE = PartitionId("orders", 0)


def partition(phase: PartitionPhase, *, decides: bool = True, is_open: bool) -> OwnedPartition:
    store = MemoryStore() if is_open else None
    return OwnedPartition(SOURCE, None, LOG if decides else None, phase, store)


@rows(
    ("before", "after"),
    {
        "a restore begins": (ASSIGNED, RESTORING),
        "there was nothing to restore": (ASSIGNED, RUNNING),
        "a restore ends": (RESTORING, RUNNING),
    },
)
def test_a_partition_that_decides_goes_on_with_an_open_store(
    before: PartitionPhase, after: PartitionPhase
) -> None:
    ours = partition(before, is_open=True)
    ours.move_to(after)
    assert ours.phase is after
    with pytest.raises(AssertionError):
        partition(before, is_open=False).move_to(after)


@pytest.mark.parametrize("before", PartitionPhase)
def test_every_partition_may_be_taken_over_again_once_its_store_is_closed(
    before: PartitionPhase,
) -> None:
    ours = partition(before, is_open=False)
    ours.move_to(ASSIGNED)
    assert ours.phase is ASSIGNED
    with pytest.raises(AssertionError):
        partition(before, is_open=True).move_to(ASSIGNED)


def test_a_partition_that_decides_nothing_runs_without_a_store() -> None:
    ours = partition(ASSIGNED, decides=False, is_open=False)
    ours.move_to(RUNNING)
    assert ours.phase is RUNNING


@rows(
    ("before", "after"),
    {
        "a restore while it is read": (RUNNING, RESTORING),
        "a second restore": (RESTORING, RESTORING),
        "a second start": (RUNNING, RUNNING),
    },
)
def test_other_changes_are_a_fault(before: PartitionPhase, after: PartitionPhase) -> None:
    with pytest.raises(AssertionError):
        partition(before, is_open=True).move_to(after)
