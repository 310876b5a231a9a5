"""Statuses of partitions and workers, and how one field of a status is changed."""

from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from ringfence_service.queries.status import PartitionStatus, StatusValue, WorkerStatus

STARTED_AT: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

Value = TypeVar("Value", bound=StatusValue)


def changed(status: Value, **fields: Any) -> Value:
    """Return the status with other values of these fields."""
    return type(status)(**{**dict(status), **fields})


def partition_status(topic: str, partition: int) -> PartitionStatus:
    """A partition that runs and has read all its records."""
    return PartitionStatus(
        topic=topic,
        partition=partition,
        phase="running",
        committed_offset=5,
        next_offset=5,
        end_offset=5,
        lag_records=0,
        changelog_next_offset=5,
        restored_records=0,
        restore_remaining_records=None,
        addresses=1,
        groups_open=0,
    )


def worker_status(**fields: Any) -> WorkerStatus:
    """A worker that runs, but for these fields."""
    running = WorkerStatus(
        pid=7,
        worker=0,
        hop="inputs",
        phase="running",
        since=STARTED_AT,
        restarts=0,
        last_exit_code=None,
        heartbeat_age_ms=12,
        partitions_owned=2,
        memory_bytes=1 << 26,
    )
    return changed(running, **fields)


LOST_WORKER: Final = worker_status(
    pid=None,
    worker=1,
    phase="ended",
    restarts=3,
    last_exit_code=-9,
    heartbeat_age_ms=0,
    partitions_owned=0,
    memory_bytes=None,
)
"""A worker whose process was killed and is being replaced."""
