"""Instance status: the state of each worker, and the status that they add up to."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ringfence_service.config.tasks import Task
from ringfence_service.queries.status import (
    NO_COUNTS,
    Counts,
    PartitionStatus,
    RouteCounts,
    ServicePhase,
    ServiceStatus,
)


class CumulativeCounts(NamedTuple):
    """Counts of processes that followed each other, in all and by route."""

    counts: Counts = NO_COUNTS
    routes: tuple[RouteCounts, ...] = ()

    @classmethod
    def of(cls, status: ServiceStatus) -> "CumulativeCounts":
        """Return the counts of one process."""
        return cls(status.counts, status.routes)

    def plus(self, other: "CumulativeCounts") -> "CumulativeCounts":
        """Return the sums."""
        return CumulativeCounts(self.counts.plus(other.counts), _summed(self.routes, other.routes))


def _summed(
    one: tuple[RouteCounts, ...], other: tuple[RouteCounts, ...]
) -> tuple[RouteCounts, ...]:
    found = {each.route: each for each in one}
    for each in other:
        found[each.route] = each.plus(found.get(each.route))
    return tuple(found[route] for route in sorted(found))


NOTHING_COUNTED: Final = CumulativeCounts()


class WorkerState(NamedTuple):
    """The state of one task and its worker."""

    task: Task
    status: ServiceStatus | None
    """The latest status of its process; None until there is one."""
    past: CumulativeCounts
    """The counts of earlier processes."""
    trouble: str | None
    """Why the task has no running worker, for `waiting_for`."""
    has_run: bool
    """Whether its process has joined the group."""


def instance_status(
    initial: ServiceStatus, states: Sequence[WorkerState], *, has_run: bool, stopping: bool
) -> ServiceStatus:
    """Return one status for all workers: all partitions, counts summed, the worst phase.

    `has_run`: each task has joined its group once, so the instance now waits for any worker that
    has not joined.
    """
    phase, waiting_for = _phase(states, has_run=has_run, stopping=stopping)
    known = [each.status for each in states if each.status is not None]
    counts = NOTHING_COUNTED
    for each in (*(state.past for state in states), *map(CumulativeCounts.of, known)):
        counts = counts.plus(each)
    return initial._replace(
        phase=phase,
        waiting_for=waiting_for,
        partitions=_partitions(known),
        standbys=tuple(each for one in known for each in one.standbys),
        complete=_complete(states),
        partitions_total=sum(_totals(states).values()),
        config_revision=min((each.config_revision for each in known), default=0),
        config_fault=next((each.config_fault for each in known if each.config_fault), None),
        hops=max((each.hops for each in known), key=len, default=()),
        inputs_missing=tuple(sorted({name for each in known for name in each.inputs_missing})),
        **counts._asdict(),
    )


def running_partitions(status: ServiceStatus) -> int:
    """Return the number of partitions that the instance owns; 0 unless all of them are running."""
    are_running = all(each.phase == "running" for each in status.partitions)
    return len(status.partitions) if status.phase == "running" and are_running else 0


def _phase(
    states: Sequence[WorkerState], *, has_run: bool, stopping: bool
) -> tuple[ServicePhase, str | None]:
    """Return the phase, and what the instance waits for.

    A worker that can read no partition is no reason to wait while another worker can, as a blocked
    partition is none while its worker can read another one.
    """
    if stopping:
        return "stopping", None
    alone = len(states) == 1
    reads = any(each.status is not None and each.status.reads for each in states)
    waiting = (each for each in states if not (reads and _stands_still(each)))
    sentences = (_sentence(each, alone=alone, has_run=has_run) for each in waiting)
    sentence = next(filter(None, sentences), None)
    if sentence is not None:
        return "waiting", sentence
    is_starting = any(each.status is None or not each.has_run for each in states)
    return ("starting" if is_starting else "running"), None


def _stands_still(state: WorkerState) -> bool:
    status = state.status
    if status is None or state.trouble is not None or not state.has_run:
        return False
    return status.phase == "waiting" and status.stands_still


def _sentence(state: WorkerState, *, alone: bool, has_run: bool) -> str | None:
    """Return what a worker waits for; it names the worker if there are several."""
    name, status = f"worker {state.task.label}", state.status
    if state.trouble is not None:
        return f"{name}, which {state.trouble}"
    if status is not None and status.phase == "stopping":
        return f"{name}, which received SIGTERM and will be restarted"
    if status is not None and status.waiting_for is not None:
        return status.waiting_for if alone else f"{name}: {status.waiting_for}"
    if has_run and not state.has_run:
        return f"{name}, which was restarted and has not joined the group yet"
    return None


def _partitions(statuses: Sequence[ServiceStatus]) -> tuple[PartitionStatus, ...]:
    """Return each partition once: while one moves, two workers may report it."""
    found: dict[tuple[str, int], PartitionStatus] = {}
    for status in statuses:
        for partition in status.partitions:
            key = (partition.topic, partition.partition)
            if key not in found or partition.phase == "running":
                found[key] = partition
    return tuple(found[key] for key in sorted(found))


def _complete(states: Sequence[WorkerState]) -> bool:
    """Return whether this instance owns all partitions of each hop."""
    totals = _totals(states)
    owned: dict[object, set[tuple[str, int]]] = {hop: set() for hop in totals}
    for task, status, *_ in states:
        if status is not None:
            owned[task.hop] |= {each.source for each in status.partitions}
    return all(totals[hop] and len(owned[hop]) == totals[hop] for hop in totals)


def _totals(states: Sequence[WorkerState]) -> dict[object, int]:
    """Return the number of partitions of each hop; 0 if no worker knows it."""
    totals: dict[object, int] = {}
    for task, status, *_ in states:
        known = 0 if status is None else status.partitions_total
        totals[task.hop] = max(totals.get(task.hop, 0), known)
    return totals
