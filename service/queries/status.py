"""Status: what the loop publishes about itself, and the board that holds the newest value.

The loop publishes a new value between batches; any thread reads the newest.
Invariant: a reader sees one published value, never parts of two: a publication replaces one
reference, so neither side waits for the other.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Literal, NamedTuple

PartitionPhase = Literal["assigned", "restoring", "running"]
ServicePhase = Literal["starting", "running", "waiting", "stopping"]
WorkerPhase = Literal["starting", "running", "waiting", "stopping", "ended"]


class PartitionStatus(NamedTuple):
    """One input partition that this instance owns."""

    topic: str
    partition: int
    phase: PartitionPhase
    committed_offset: int | None
    """The offset after the last record that was decided and committed; None before the first."""
    next_offset: int | None
    """The next record to read."""
    end_offset: int | None
    """The high watermark, where the broker told it."""
    lag_records: int | None
    changelog_next_offset: int | None
    restored_records: int
    """Changelog records replayed when this instance took the partition over."""
    restore_remaining_records: int | None
    addresses: int
    groups_open: int
    """Transaction groups that wait for the rest of their records."""
    paused: bool = False
    """Whether its route is paused: it is ours and restored, and not read."""
    lag_ms: int | None = None
    """For how long the next record may have waited, at most; None where that is not known."""


class ServiceStatus(NamedTuple):
    """The service at one moment."""

    phase: ServicePhase
    waiting_for: str | None
    """One sentence: for what, where, what to do. None when it waits for nothing."""
    instance: str
    group_id: str
    started_at: datetime
    partitions: tuple[PartitionStatus, ...]
    records_consumed: int
    records_accepted: int
    duplicates: int
    dead_letters: int
    transactions_committed: int
    transactions_aborted: int
    last_commit_at: datetime | None
    complete: bool = False
    """True when every partition of every input is among `partitions`."""
    partitions_total: int = 0
    """How many partitions all inputs have, whoever owns them; 0 until that is known."""
    config_revision: int = 0
    """Of the newest settings document that is applied wholly; 0 while the file alone holds."""
    config_fault: str | None = None
    """Why the newest settings document does not hold here."""
    hops: tuple[str, ...] = ()
    """Those that the routes in force need."""

    @classmethod
    def starting(cls, instance: str, group_id: str, started_at: datetime) -> "ServiceStatus":
        """Nothing has happened yet."""
        return cls("starting", None, instance, group_id, started_at, (), 0, 0, 0, 0, 0, 0, None)


class WorkerStatus(NamedTuple):
    """One process of the instance."""

    pid: int | None
    """None while it is being replaced."""
    worker: int
    hop: str
    phase: WorkerPhase
    since: datetime
    """When its process started; while it is being replaced, when the last one ended."""
    restarts: int
    last_exit_code: int | None
    """Of the process before; minus the signal where one ended it."""
    heartbeat_age_ms: int
    partitions_owned: int
    memory_bytes: int | None
    """Resident; None where the system does not tell."""
    partitions_restoring: int = 0
    restored_records: int = 0
    """Changelog records replayed for those."""
    restore_remaining_records: int | None = 0
    """Of those; None while it is not known of one."""

    def restoring(self, partitions: Iterable[PartitionStatus]) -> "WorkerStatus":
        """The same with how far the restore of its partitions is."""
        open_ = [each for each in partitions if each.phase != "running"]
        left = [each.restore_remaining_records for each in open_]
        known = [each for each in left if each is not None]
        return self._replace(
            partitions_restoring=len(open_),
            restored_records=sum(each.restored_records for each in open_),
            restore_remaining_records=sum(known) if len(known) == len(left) else None,
        )


class ServiceInfo(NamedTuple):
    """What runs here: versions and names."""

    version: str
    python: str
    libraries: Mapping[str, str]
    cluster_id: str | None
    """None until the broker was reached."""
    instance: str
    group_id: str
    config_revision: int = 0
    """See `ServiceStatus.config_revision`."""


class StatusBoard:
    """Where the loop pins its status and its heartbeat for other threads."""

    def __init__(self, initial: ServiceStatus, clock_s: Callable[[], float]) -> None:
        """Start with a value, so that a reader never finds none. `clock_s` is monotonic."""
        self._status = initial
        self._clock_s = clock_s
        self._beat_s = clock_s()
        self._has_run = initial.phase == "running"

    def publish(self, status: ServiceStatus) -> None:
        """Replace the status. The loop calls this between batches."""
        joined = status.phase == "running" or bool(status.partitions)
        self._has_run = self._has_run or joined
        self._status = status

    def read(self) -> ServiceStatus:
        """Return the latest status published."""
        return self._status

    def has_run(self) -> bool:
        """Tell whether the group was ever joined: true for good once a status told of it."""
        return self._has_run

    def beat(self) -> None:
        """Say that the loop is alive. The loop calls this on every turn, waits included."""
        self._beat_s = self._clock_s()

    def heartbeat_age_ms(self) -> int:
        """Return the time since the last beat."""
        return max(0, round((self._clock_s() - self._beat_s) * 1000))
