"""Instance status: the state of each worker, and the one status that follows from all."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from service.config.tasks import Task
from service.queries.status import PartitionStatus, ServicePhase, ServiceStatus


class CumulativeCounts(NamedTuple):
    """What only grows."""

    records_consumed: int
    records_accepted: int
    duplicates: int
    dead_letters: int
    transactions_committed: int
    transactions_aborted: int
    last_commit_at: datetime | None

    @classmethod
    def of(cls, status: ServiceStatus) -> "CumulativeCounts":
        """What one process has counted."""
        return cls(*(getattr(status, name) for name in cls._fields))

    def plus(self, other: "CumulativeCounts") -> "CumulativeCounts":
        """Both."""
        times = [each.last_commit_at for each in (self, other) if each.last_commit_at is not None]
        return CumulativeCounts(
            self.records_consumed + other.records_consumed,
            self.records_accepted + other.records_accepted,
            self.duplicates + other.duplicates,
            self.dead_letters + other.dead_letters,
            self.transactions_committed + other.transactions_committed,
            self.transactions_aborted + other.transactions_aborted,
            max(times, default=None),
        )


NOTHING: Final = CumulativeCounts(0, 0, 0, 0, 0, 0, None)


class WorkerState(NamedTuple):
    """One part."""

    part: Task
    status: ServiceStatus | None
    """What its process told last; None while there is none, or it has not spoken."""
    past: CumulativeCounts
    """Of the processes before it."""
    trouble: str | None
    """Why the part is not done now, as what is waited for."""
    has_run: bool
    """Whether its process has joined the group."""


def instance_status(
    nothing_yet: ServiceStatus, standings: Sequence[WorkerState], *, has_run: bool, stopping: bool
) -> ServiceStatus:
    """One status: partitions of all, counts summed, the worst phase.

    `has_run` tells whether each part had joined its group once: then one that has not is waited
    for.
    """
    phase, waiting_for = _phase(standings, has_run=has_run, stopping=stopping)
    known = [each.status for each in standings if each.status is not None]
    counts = NOTHING
    for each in (*(standing.past for standing in standings), *map(CumulativeCounts.of, known)):
        counts = counts.plus(each)
    return nothing_yet._replace(
        phase=phase,
        waiting_for=waiting_for,
        partitions=_partitions(known),
        complete=_complete(standings),
        partitions_total=sum(_totals(standings).values()),
        config_revision=min((each.config_revision for each in known), default=0),
        config_fault=next((each.config_fault for each in known if each.config_fault), None),
        hops=max((each.hops for each in known), key=len, default=()),
        **counts._asdict(),
    )


def _phase(
    standings: Sequence[WorkerState], *, has_run: bool, stopping: bool
) -> tuple[ServicePhase, str | None]:
    if stopping:
        return "stopping", None
    sentences = (_sentence(each, alone=len(standings) == 1, has_run=has_run) for each in standings)
    sentence = next(filter(None, sentences), None)
    if sentence is not None:
        return "waiting", sentence
    is_starting = any(each.status is None or not each.has_run for each in standings)
    return ("starting" if is_starting else "running"), None


def _sentence(standing: WorkerState, *, alone: bool, has_run: bool) -> str | None:
    """What a part waits for; named where there are several."""
    name, status = f"worker {standing.part.label}", standing.status
    if standing.trouble is not None:
        return f"{name}, which {standing.trouble}"
    if status is not None and status.phase == "stopping":
        return f"{name}, which was told to end and is started again"
    if status is not None and status.waiting_for is not None:
        return status.waiting_for if alone else f"{name}: {status.waiting_for}"
    if has_run and not standing.has_run:
        return f"{name}, which was started again and has not joined the group yet"
    return None


def _partitions(statuses: Sequence[ServiceStatus]) -> tuple[PartitionStatus, ...]:
    """Each once: one that moves may be told of by two, and by the one that has it more."""
    found: dict[tuple[str, int], PartitionStatus] = {}
    for status in statuses:
        for partition in status.partitions:
            place = (partition.topic, partition.partition)
            if place not in found or partition.phase == "running":
                found[place] = partition
    return tuple(found[place] for place in sorted(found))


def _complete(standings: Sequence[WorkerState]) -> bool:
    """Whether, on each hop, all partitions are ours."""
    totals = _totals(standings)
    owned: dict[object, set[tuple[str, int]]] = {hop: set() for hop in totals}
    for part, status, *_ in standings:
        if status is not None:
            owned[part.hop] |= {(each.topic, each.partition) for each in status.partitions}
    return all(totals[hop] and len(owned[hop]) == totals[hop] for hop in totals)


def _totals(standings: Sequence[WorkerState]) -> dict[object, int]:
    """How many partitions there are on each hop; 0 where no part knows."""
    totals: dict[object, int] = {}
    for part, status, *_ in standings:
        known = 0 if status is None else status.partitions_total
        totals[part.hop] = max(totals.get(part.hop, 0), known)
    return totals
