"""One status of several parts: which phase, which sentence, which counts, and when it is whole."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from ringfence_service.config.tasks import Hop, Task
from ringfence_service.queries.status import NO_COUNTS, PartitionStatus, RouteCounts, ServiceStatus
from ringfence_service.supervisor.status import (
    NOTHING_COUNTED,
    CumulativeCounts,
    WorkerState,
    instance_status,
    running_partitions,
)
from tests.support.statuses import changed, partition_status

START: Final = datetime.fromtimestamp(0, UTC)
LATER: Final = datetime.fromtimestamp(9, UTC)
EMPTY: Final = ServiceStatus.starting("0", "g", START)


def owned(*numbers: int, topic: str) -> tuple[PartitionStatus, ...]:
    return tuple(partition_status(topic, number) for number in numbers)


def part(worker: int, *numbers: int, hop: Hop = Hop.INPUTS, total: int = 4) -> WorkerState:
    status = EMPTY._replace(
        phase="running",
        partitions=owned(*numbers, topic=hop.value),
        partitions_total=total,
        counts=NO_COUNTS.more(records_consumed=10, redriven=2, last_commit_at=START),
    )
    return WorkerState(Task(worker, hop), status, NOTHING_COUNTED, None, has_run=True)


def waiting(standing: WorkerState, sentence: str) -> WorkerState:
    assert standing.status is not None
    status = standing.status._replace(phase="waiting", waiting_for=sentence)
    return standing._replace(status=status)


def whole(*standings: WorkerState, has_run: bool = True, stopping: bool = False) -> ServiceStatus:
    return instance_status(EMPTY, standings, has_run=has_run, stopping=stopping)


def test_partitions_are_united_and_counts_summed() -> None:
    past = CumulativeCounts(NO_COUNTS.more(records_consumed=5, last_commit_at=LATER, redriven=1))
    told = whole(part(0, 0, 2)._replace(past=past), part(1, 1, 3))
    assert [each.partition for each in told.partitions] == [0, 1, 2, 3]
    assert (told.phase, told.waiting_for) == ("running", None)
    assert (told.counts.records_consumed, told.counts.redriven) == (25, 5)
    assert (told.counts.last_commit_at, told.started_at) == (LATER, START)
    assert told.complete


def test_counts_of_a_route_are_summed_over_workers_and_their_predecessors() -> None:
    def counting(worker: int, *routes: RouteCounts) -> WorkerState:
        state = part(worker, worker)
        assert state.status is not None
        return state._replace(status=state.status._replace(routes=routes))

    past = NOTHING_COUNTED._replace(routes=(RouteCounts("b", 1, 1, 1, 1, 1, 3, 2, 1),))
    orders, other = RouteCounts("a", 2, 1), RouteCounts("b", 7, compared=4)
    told = whole(counting(0, orders, other)._replace(past=past), counting(1, orders))
    assert told.routes == (RouteCounts("a", 4, 2), RouteCounts("b", 8, 1, 1, 1, 1, 7, 2, 1))


def test_an_instance_is_ready_when_all_its_partitions_are_running() -> None:
    ready = whole(part(0, 0, 1), part(1, 2))
    assert running_partitions(ready) == 3
    first, *others = ready.partitions
    restoring = (changed(first, phase="restoring"), *others)
    assert running_partitions(ready._replace(partitions=restoring)) == 0
    assert running_partitions(whole(waiting(part(0, 0), "the broker"))) == 0
    assert running_partitions(whole(part(0))) == 0


def test_it_is_whole_when_every_partition_of_every_hop_is_ours() -> None:
    assert whole(part(0, 0, 1), part(1, 2, 3)).complete
    assert not whole(part(0, 0, 1), part(1, 2)).complete
    second = [part(0, 0, hop=Hop.ADDRESSES, total=2), part(1, 1, hop=Hop.ADDRESSES, total=2)]
    assert whole(part(0, 0, 1), part(1, 2, 3), *second).complete
    assert not whole(part(0, 0, 1), part(1, 2, 3), second[0]).complete
    assert not whole(part(0, total=0)).complete


def test_a_moving_partition_is_reported_once_by_the_worker_that_runs_it() -> None:
    moving = part(0, 0)
    assert moving.status is not None
    (place,) = moving.status.partitions
    restoring = moving.status._replace(partitions=(changed(place, phase="restoring"),))
    taking = part(1)._replace(status=restoring)
    for both in ([moving, taking], [taking, moving]):
        assert [each.phase for each in whole(*both).partitions] == ["running"]


def test_the_first_sentence_counts_and_names_its_worker() -> None:
    told = whole(part(0, 0), waiting(part(1, 1), "the broker"), waiting(part(2), "a topic"))
    assert (told.phase, told.waiting_for) == ("waiting", "worker 1: the broker")
    alone = whole(waiting(part(0), "the broker"))
    assert alone.waiting_for == "the broker"


def blocked(standing: WorkerState, sentence: str = "a registry") -> WorkerState:
    """No partition of a worker can be read."""
    standing = waiting(standing, sentence)
    assert standing.status is not None
    partitions = [changed(each, waiting_for=sentence) for each in standing.status.partitions]
    status = standing.status._replace(partitions=tuple(partitions), stands_still=True)
    return standing._replace(status=status)


def with_partitions(standing: WorkerState, **change: Any) -> WorkerState:
    assert standing.status is not None
    partitions = [changed(each, **change) for each in standing.status.partitions]
    return standing._replace(status=standing.status._replace(partitions=tuple(partitions)))


def test_a_worker_that_can_read_nothing_is_waited_for_only_if_no_other_worker_can() -> None:
    still = blocked(part(0, 0, hop=Hop.ADDRESSES))
    told = whole(still, part(0, 0, 1))
    assert (told.phase, told.waiting_for) == ("running", None)
    assert [each.waiting_for for each in told.partitions].count("a registry") == 1
    of_both = whole(still, blocked(part(0, 0, 1), "a topic"))
    assert of_both.waiting_for == "worker 0-by-address: a registry"
    for other in (
        part(0),
        with_partitions(part(0, 0, 1), paused=True),
        with_partitions(part(0, 0, 1), phase="restoring"),
        with_partitions(part(0, 0, 1), phase="assigned"),
    ):
        assert whole(still, other).waiting_for == of_both.waiting_for
    assert whole(still, with_partitions(part(0, 0), paused=True), part(1, 1)).phase == "running"


def test_what_a_worker_waits_for_elsewhere_counts_whatever_another_one_can_read() -> None:
    still, other = blocked(part(0, 0, hop=Hop.ADDRESSES)), part(1, 0)
    assert whole(still, waiting(part(0, 1), "the broker"), other).waiting_for == (
        "worker 0: the broker"
    )
    hung = still._replace(trouble="hung and will be restarted")
    assert whole(hung, other).phase == "waiting"
    assert still.status is not None
    stopping = still._replace(status=still.status._replace(phase="stopping"))
    assert "received SIGTERM" in (whole(stopping, other).waiting_for or "")


def test_inputs_that_are_missing_from_the_start_are_named() -> None:
    missing = blocked(part(0), "the input orders")._replace(has_run=False)
    told = whole(missing, part(0, 0, hop=Hop.ADDRESSES), has_run=False)
    assert (told.phase, told.waiting_for) == ("waiting", "worker 0: the input orders")


def test_a_part_that_is_replaced_is_waited_for() -> None:
    gone = part(1)._replace(status=None, trouble="hung and will be restarted", has_run=False)
    assert whole(part(0), gone).waiting_for == "worker 1, which hung and will be restarted"
    back = gone._replace(trouble=None, status=EMPTY)
    assert "not joined the group yet" in (whole(part(0), back).waiting_for or "")


@pytest.mark.parametrize("status", [None, EMPTY])
def test_before_all_have_joined_once_it_starts(status: ServiceStatus | None) -> None:
    new = part(1)._replace(status=status, has_run=False)
    assert whole(part(0), new, has_run=False).phase == "starting"


def test_when_it_stops_it_says_nothing_else() -> None:
    told = whole(waiting(part(0), "the broker"), stopping=True)
    assert (told.phase, told.waiting_for) == ("stopping", None)


def test_the_lowest_revision_is_the_applied_one_and_a_fault_anywhere_is_reported() -> None:
    one, other = part(0, 0, 1), part(1, 2, 3)
    assert one.status is not None
    assert other.status is not None
    ahead = one.status._replace(config_revision=9, hops=("inputs", "by-address"))
    behind = other.status._replace(config_revision=7, config_fault="no", hops=("inputs",))
    told = whole(one._replace(status=ahead), other._replace(status=behind))
    assert (told.config_revision, told.config_fault) == (7, "no")
    assert told.hops == ("inputs", "by-address")
