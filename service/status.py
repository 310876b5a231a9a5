"""Status: what the loop says of itself, as frozen values, and the board it pins them on.

The loop publishes a whole new value between batches; any thread reads the latest one.
Invariant: a reader sees one published value, never a half of two: a publication replaces one
reference, so neither side waits for the other.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal, NamedTuple

PartitionPhase = Literal["assigned", "restoring", "running"]
ServicePhase = Literal["starting", "running", "waiting", "stopping"]


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


class Status(NamedTuple):
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

    @classmethod
    def starting(cls, instance: str, group_id: str, started_at: datetime) -> "Status":
        """Nothing has happened yet."""
        return cls("starting", None, instance, group_id, started_at, (), 0, 0, 0, 0, 0, 0, None)


class Info(NamedTuple):
    """What runs here: versions and names."""

    version: str
    python: str
    libraries: Mapping[str, str]
    cluster_id: str | None
    """None until the broker was reached."""
    instance: str
    group_id: str


class StatusBoard:
    """Where the loop pins its status and its heartbeat for other threads."""

    def __init__(self, initial: Status, clock_s: Callable[[], float]) -> None:
        """Start with a value, so that a reader never finds none. `clock_s` is monotonic."""
        self._status = initial
        self._clock_s = clock_s
        self._beat_s = clock_s()
        self._has_run = initial.phase == "running"

    def publish(self, status: Status) -> None:
        """Replace the status. The loop calls this between batches."""
        joined = status.phase == "running" or bool(status.partitions)
        self._has_run = self._has_run or joined
        self._status = status

    def read(self) -> Status:
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
