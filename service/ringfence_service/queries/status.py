"""Status: the state that a loop publishes, and the board that holds the latest one.

The loop publishes a new value between batches; any thread reads the latest.
Invariant: a reader sees one published value, never parts of two. Publishing replaces one reference,
so neither side waits for the other.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from operator import add
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from ringfence_service.config.model import FastPath
from ringfence_state.model import PartitionId

PartitionPhase = Literal["assigned", "restoring", "running"]
ServicePhase = Literal["starting", "running", "waiting", "stopping"]
WorkerPhase = Literal["starting", "running", "waiting", "stopping", "ended"]


class StatusValue(BaseModel):
    """Base class of the values whose fields are declared here alone.

    The documents of the API inherit the fields with their descriptions. Another instance's value
    with an unknown or a missing field is refused.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,
    )


class PartitionStatus(StatusValue):
    """One input partition that this instance owns."""

    topic: str
    """The topic."""
    partition: int
    """The number of the partition."""
    phase: PartitionPhase
    """Current phase of the partition."""
    committed_offset: int | None
    """Offset up to which records are committed; null before the first commit."""
    next_offset: int | None
    """Next offset to read; null while unknown."""
    end_offset: int | None
    """The high watermark; null while unknown."""
    lag_records: int | None
    """Records between the next offset and the end; null while unknown."""
    lag_ms: int | None = None
    """Upper bound of the time that the next record has waited, in ms."""
    changelog_next_offset: int | None
    """Next offset of the changelog; null while unknown."""
    restored_records: int
    """Changelog records replayed since the partition was assigned."""
    restore_remaining_records: int | None
    """Changelog records still to be replayed; null while unknown."""
    addresses: int
    """Number of addresses that it holds state of."""
    groups_open: int
    """Transaction groups that wait for more records."""
    paused: bool = False
    """Its route is paused: the partition is owned and restored, but not read."""
    waiting_for: str | None = None
    """What it needs to decide its next record, and what to do; null unless it is blocked. Others go
    on."""
    waiting_since: datetime | None = None
    """Since when it is blocked; null unless it is."""

    @property
    def source(self) -> PartitionId:
        """The partition."""
        return PartitionId(self.topic, self.partition)


class StandbyStatus(StatusValue):
    """A standby copy of a deciding partition that another instance owns."""

    topic: str
    """The topic."""
    partition: int
    """The number of the partition."""
    warm: bool
    """Whether it equalled its changelog a few seconds ago: a takeover replays what came since."""
    lag_records: int | None
    """How many offsets of the changelog it is behind; null while it is not open."""

    @property
    def source(self) -> PartitionId:
        """The partition."""
        return PartitionId(self.topic, self.partition)


class RouteCounts(NamedTuple):
    """What became of the records of a route since the process started."""

    route: str
    consumed: int = 0
    """Records decided. Those below were accepted without a check whether they are duplicates."""
    no_id: int = 0
    """They claim nothing that their address checks."""
    unreadable: int = 0
    """The document that would have their id cannot be decoded."""
    off: int = 0
    """Their address detects no duplicates."""
    stamped: int = 0
    """They got an id made of their position, as the route says; none of the others did."""
    compared: int = 0
    """Duplicates that were compared with their originals, which are samples of all."""
    different: int = 0
    """Of these, those with another content than their original."""
    not_compared: int = 0
    """Samples whose original could not be read, or of which one is too large."""

    @property
    def unchecked(self) -> int:
        """How many records passed without a check."""
        return self.no_id + self.unreadable + self.off

    @property
    def warning(self) -> str | None:
        """What is wrong and what to do if records have no id that can be read, else None."""
        if not self.no_id and not self.unreadable:
            return None
        counted = ((self.no_id, "without an id"), (self.unreadable, "that cannot be decoded"))
        kinds = " and ".join(f"{number:,} {what}" for number, what in counted if number)
        if self.unchecked == self.consumed:
            found = f"Nothing of the route {self.route} is deduplicated: every message passed"
        else:
            found = f"Messages of the route {self.route} passed"
        fix = "compare the route's id with what ringfence check --sample 1000 shows"
        return f"{found} unchecked, {kinds} of {self.consumed:,}; {fix}."

    @property
    def duplicates_warning(self) -> str | None:
        """What is wrong and what to do if duplicates differ from their originals, else None."""
        if not self.different:
            return None
        return (
            f"Duplicates of the route {self.route} have another content than their originals, "
            f"{self.different:,} of {self.compared:,} that were compared: the id of the route may "
            "name more than one message, and the later ones are removed; the log line "
            "duplicate_differs names two to compare."
        )

    def plus(self, other: "RouteCounts | None") -> "RouteCounts":
        """Return the sums of both, which are of one route."""
        return self if other is None else RouteCounts(self.route, *map(add, self[1:], other[1:]))


class Counts(StatusValue):
    """Counters since the service started, which only grow, and the time of its last commit."""

    records_consumed: int
    """Records read from inputs."""
    records_accepted: int
    """Of the records consumed, those accepted; all others are duplicates, refused or waiting."""
    duplicates: int
    """Of the records consumed, those that are duplicates."""
    refused: int
    """Of the records consumed, those that were dead-lettered for another reason."""
    dead_letters: int
    """Records written to dead-letter topics, also those by redrives."""
    redriven: int
    """Dead letters that redrives decided again."""
    redriven_accepted: int
    """Of the redriven dead letters, those accepted."""
    transactions_committed: int
    """Transactions that were committed."""
    transactions_aborted: int
    """Transactions that were aborted."""
    last_commit_at: datetime | None
    """When the last transaction was committed; null before the first."""

    def more(self, last_commit_at: datetime | None = None, **added: int) -> "Counts":
        """Return the counts with these numbers added, and the new time if there is one."""
        values: dict[str, Any] = {name: getattr(self, name) + one for name, one in added.items()}
        if last_commit_at is not None:
            values["last_commit_at"] = last_commit_at
        return self.model_copy(update=values)

    def plus(self, other: "Counts") -> "Counts":
        """Return the sums, and the later time."""
        added = other.model_dump(exclude={"last_commit_at"})
        times = filter(None, (self.last_commit_at, other.last_commit_at))
        return self.more(max(times, default=None), **added)


_NUMBERS: Final = Counts.model_fields.keys() - {"last_commit_at"}
NO_COUNTS: Final = Counts.model_validate(dict.fromkeys(_NUMBERS, 0) | {"last_commit_at": None})
"""The counts of a process that has done nothing."""


class ServiceStatus(NamedTuple):
    """The state of the service at one moment."""

    phase: ServicePhase
    waiting_for: str | None
    """One sentence: what it waits for, where, what to do. None if it waits for nothing."""
    instance: str
    group_id: str
    started_at: datetime
    partitions: tuple[PartitionStatus, ...]
    counts: Counts = NO_COUNTS
    complete: bool = False
    """True when every partition of every input is among `partitions`."""
    partitions_total: int = 0
    """The partitions of all inputs, owned by any instance; 0 until known."""
    config_revision: int = 0
    """Of the newest settings document wholly applied; 0 while only the file is effective."""
    config_fault: str | None = None
    """Why the newest settings document is invalid here."""
    hops: tuple[str, ...] = ()
    """The hops that the effective routes need."""
    inputs_missing: tuple[str, ...] = ()
    """Inputs that routes name and that do not exist."""
    routes: tuple[RouteCounts, ...] = ()
    """Of the routes of which records were decided, sorted by name."""

    standbys: tuple[StandbyStatus, ...] = ()
    """The standby copies that it keeps."""
    stands_still: bool = False
    """Whether it waits only since no partition here can be read: the broker refuses nothing."""
    compression: str | None = None
    """Of a process: the codec that its producer uses now since records fit only so (ADR 28)."""

    @property
    def standbys_cold(self) -> int:
        """How many of the standby copies are not warm."""
        return sum(not each.warm for each in self.standbys)

    @property
    def reads(self) -> bool:
        """Whether any partition here can be read."""
        return any(
            each.phase == "running" and not each.paused and each.waiting_for is None
            for each in self.partitions
        )

    @classmethod
    def starting(cls, instance: str, group_id: str, started_at: datetime) -> "ServiceStatus":
        """Return the status before anything has happened."""
        return cls("starting", None, instance, group_id, started_at, ())


class WorkerStatus(StatusValue):
    """The status of one worker process of the instance."""

    pid: int | None
    """Process id; null while the process is being replaced."""
    worker: int
    """The number of the worker."""
    hop: str
    """What it reads: the inputs, or the topics that are repartitioned by address."""
    phase: WorkerPhase
    """Current phase of the worker."""
    since: datetime
    """When the process started; while it is being replaced, when it ended."""
    restarts: int
    """Number of times that it was replaced since the instance started."""
    last_exit_code: int | None
    """Exit code of the previous process; negative: the signal that ended it."""
    heartbeat_age_ms: int
    """Age of the last heartbeat of the loop, in ms."""
    partitions_owned: int
    """Number of partitions that it owns."""
    memory_bytes: int | None
    """Resident memory, in bytes; null if the system does not report it."""
    partitions_restoring: int = 0
    """Number of owned partitions that are being restored."""
    restored_records: int = 0
    """Changelog records replayed for the partitions being restored."""
    restore_remaining_records: int | None = 0
    """Changelog records still to be replayed; null while unknown."""
    fast_path: FastPath | None = None
    """How it decides plain records; null until it has reported."""
    fast_path_fault: str | None = None
    """Why that is not what `service.fast_path` names; null if it is."""
    compression: str | None = None
    """The codec with which it compresses all records now, since some fit their topics only so:
    `gzip` or `zstd`. Null if there are none, or `[kafka.producer]` has one."""

    def restoring(self, partitions: Iterable[PartitionStatus]) -> "WorkerStatus":
        """Return the status with the restore progress of its partitions."""
        open_ = [each for each in partitions if each.phase != "running"]
        left = [each.restore_remaining_records for each in open_]
        known = [each for each in left if each is not None]
        progress = {
            "partitions_restoring": len(open_),
            "restored_records": sum(each.restored_records for each in open_),
            "restore_remaining_records": sum(known) if len(known) == len(left) else None,
        }
        return self.model_copy(update=progress)


class ServiceInfo(StatusValue):
    """The versions and names of a running instance."""

    version: str
    """Version of Ringfence."""
    python: str
    """Version of Python."""
    libraries: dict[str, str]
    """Versions of the Kafka client and the store."""
    cluster_id: str | None
    """Cluster id; null until the broker has been reached."""
    instance: str
    """The name of the instance."""
    group_id: str
    """The consumer group of the service."""
    config_revision: int = 0
    """Revision of the newest settings that are fully applied."""
    settings_managed_by: Literal["rest", "file"] = "rest"
    """`service.managed_by`: with `file`, settings cannot be changed over REST."""
    fast_path: FastPath | None = None
    """How plain records are decided: `native` if all workers that have reported run compiled code,
    else `python`; null before, and for a bridge."""
    fast_path_fault: str | None = None
    """Why a worker does not run what `service.fast_path` names; null if all do."""

    def with_fast_path(self, workers: Iterable[WorkerStatus]) -> "ServiceInfo":
        """Return the information with the fast path of the workers, by the slowest of them."""
        reported = [each for each in workers if each.fast_path is not None]
        # "python" comes after "native", and a fault after none.
        last = max(
            reported, key=lambda each: (each.fast_path, each.fast_path_fault or ""), default=None
        )
        if last is None:
            return self
        found = {"fast_path": last.fast_path, "fast_path_fault": last.fast_path_fault}
        return self.model_copy(update=found)


class StatusBoard:
    """Holds the latest status and heartbeat of a loop for other threads."""

    def __init__(self, initial: ServiceStatus, clock_s: Callable[[], float]) -> None:
        """Publish an initial status, so that there always is one. `clock_s` is monotonic."""
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
        """Return whether a published status ever showed that the group was joined."""
        return self._has_run

    def beat(self) -> None:
        """Record a heartbeat. The loop calls this on every turn, and while it waits."""
        self._beat_s = self._clock_s()

    def heartbeat_age_ms(self) -> int:
        """Return the time since the last beat."""
        return max(0, round((self._clock_s() - self._beat_s) * 1000))
