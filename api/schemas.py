"""Schemas: what the resources answer. Names here are a contract: extend, never rename.

Each is made from the value that the loop gave; times become RFC 3339 in UTC.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field

from ringfence.headers import id_text
from service import control, status

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Document(BaseModel):
    """A document of the API."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Info(Document):
    """What runs here."""

    version: str
    python: str
    libraries: dict[str, str] = Field(description="Versions of the Kafka client and the store.")
    cluster_id: str | None = Field(description="Null until the broker was reached.")
    instance: str
    group_id: str


class Status(Document):
    """The service now, and its counts since it started."""

    phase: status.ServicePhase
    waiting_for: str | None = Field(description="For what, where, and what to do.")
    instance: str
    group_id: str
    started_at: datetime
    partitions_assigned: int
    partitions_restoring: int
    records_consumed: int
    records_accepted: int
    duplicates: int
    dead_letters: int
    transactions_committed: int
    transactions_aborted: int
    last_commit_at: datetime | None
    heartbeat_age_ms: int

    @classmethod
    def of(cls, board: status.StatusBoard) -> Self:
        """Describe what is on the board."""
        now = board.read()
        return cls(
            phase=now.phase,
            waiting_for=now.waiting_for,
            instance=now.instance,
            group_id=now.group_id,
            started_at=now.started_at,
            partitions_assigned=len(now.partitions),
            partitions_restoring=sum(each.phase != "running" for each in now.partitions),
            records_consumed=now.records_consumed,
            records_accepted=now.records_accepted,
            duplicates=now.duplicates,
            dead_letters=now.dead_letters,
            transactions_committed=now.transactions_committed,
            transactions_aborted=now.transactions_aborted,
            last_commit_at=now.last_commit_at,
            heartbeat_age_ms=board.heartbeat_age_ms(),
        )


class Partition(Document):
    """An input partition that this instance owns."""

    topic: str
    partition: int
    phase: status.PartitionPhase
    committed_offset: int | None
    next_offset: int | None
    end_offset: int | None = Field(description="The high watermark.")
    lag_records: int | None
    changelog_next_offset: int | None
    restored_records: int = Field(description="Changelog records replayed at this takeover.")
    restore_remaining_records: int | None
    addresses: int


class Partitions(Document):
    """The partitions that this instance owns."""

    instance: str
    partitions: tuple[Partition, ...]
    complete: bool = Field(description="True when no partition belongs to another instance.")


class Setting(Document):
    """An address setting in force."""

    value: str | int | bool
    pattern: str = Field(description="The pattern of the address settings it came from.")


class Ring(Document):
    """What one deciding partition remembers of an address."""

    topic: str
    partition: int
    ids_held: int
    capacity: int
    bytes: int
    oldest_time: datetime | None
    newest_time: datetime | None
    horizon_ms: int | None = Field(description="Null until the ring has evicted once.")

    @classmethod
    def of(cls, ring: control.RingStatus) -> Self:
        """Describe a ring."""
        return cls(
            topic=ring.topic,
            partition=ring.partition,
            ids_held=ring.ids_held,
            capacity=ring.capacity,
            bytes=ring.bytes,
            oldest_time=_time(ring.oldest_time_ms),
            newest_time=_time(ring.newest_time_ms),
            horizon_ms=ring.horizon_ms,
        )


class Address(Document):
    """An address: its effective settings, and what this instance remembers of it."""

    address: str
    settings: dict[str, Setting]
    ids_held: int
    bytes: int
    partitions: tuple[Ring, ...]
    complete: bool = Field(description="True when no ring of it belongs to another instance.")

    @classmethod
    def of(cls, answer: control.AddressAnswer) -> Self:
        """Describe an address."""
        return cls(
            address=answer.address,
            settings=_settings(answer.settings),
            ids_held=sum(ring.ids_held for ring in answer.partitions),
            bytes=sum(ring.bytes for ring in answer.partitions),
            partitions=tuple(Ring.of(ring) for ring in answer.partitions),
            complete=answer.complete,
        )


class Sighting(Document):
    """An accepted message whose id is remembered."""

    topic: str
    partition: int
    offset: int
    time: datetime
    slots_to_eviction: int = Field(description="Ids to come before this one is forgotten.")


class Identifier(Document):
    """Whether an id is remembered at an address, and since which message."""

    address: str
    id: str = Field(description="Text, or `hex:` where the id is not printable text.")
    known: bool
    sightings: tuple[Sighting, ...]
    complete: bool = Field(description="False: another instance may know the id.")

    @classmethod
    def of(cls, query: control.IdQuery, answer: control.IdAnswer) -> Self:
        """Describe an id."""
        sightings = (
            Sighting(
                topic=seen.topic,
                partition=seen.partition,
                offset=seen.offset,
                time=_EPOCH + timedelta(milliseconds=seen.time_ms),
                slots_to_eviction=seen.slots_to_eviction,
            )
            for seen in answer.sightings
        )
        return cls(
            address=query.address,
            id=id_text(query.identifier),
            known=answer.known,
            sightings=tuple(sightings),
            complete=answer.complete,
        )


def _settings(settings: Mapping[str, control.EffectiveSetting]) -> dict[str, Setting]:
    return {key: Setting.model_validate(each) for key, each in sorted(settings.items())}


def _time(time_ms: int | None) -> datetime | None:
    return None if time_ms is None else _EPOCH + timedelta(milliseconds=time_ms)
