"""Schemas of answers. Their names are a contract: extend, never rename.

Each is made from a value of the loop; times become RFC 3339 in UTC.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.content import well_formed
from api.ports import StatusPort
from ringfence.headers import id_text
from service.queries import ids, status
from service.queries.addresses import AddressAnswer, MemoryStatus
from service.queries.ids import IdAnswer, IdQuery
from service.queries.settings import EffectiveSetting
from state.model import IMPORTED

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
"""A producer may have told any time, the greatest number among them."""


class Document(BaseModel):
    """A document of the API."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Given(Document):
    """A document that a client sends; what it does not know is refused."""

    model_config = ConfigDict(frozen=True, from_attributes=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _is_json(cls, sent: object) -> object:
        return well_formed(sent) if isinstance(sent, dict) else sent


class Info(Document):
    """What runs here."""

    version: str = Field(description="Of Ringfence.")
    python: str = Field(description="Version of Python.")
    libraries: dict[str, str] = Field(description="Versions of the Kafka client and the store.")
    cluster_id: str | None = Field(description="Null until the broker was reached.")
    instance: str = Field(description="The name of the instance.")
    group_id: str = Field(description="The consumer group of the service.")
    config_revision: int = Field(description="Of the newest settings that are wholly applied.")


class Status(Document):
    """The service now, and its counts since it started."""

    phase: status.ServicePhase = Field(description="What it does now.")
    waiting_for: str | None = Field(description="For what, where, and what to do.")
    instance: str = Field(description="The name of the instance.")
    group_id: str = Field(description="The consumer group of the service.")
    started_at: datetime = Field(description="When it started.")
    partitions_assigned: int = Field(description="How many partitions this instance owns.")
    partitions_restoring: int = Field(description="How many of its partitions are being restored.")
    records_consumed: int = Field(description="Records read from inputs.")
    records_accepted: int = Field(description="Records written to outputs.")
    duplicates: int = Field(description="Records that were duplicates.")
    dead_letters: int = Field(description="Records written to dead-letter topics.")
    transactions_committed: int = Field(description="Transactions that were committed.")
    transactions_aborted: int = Field(description="Transactions that were aborted.")
    last_commit_at: datetime | None = Field(
        description="When the last transaction was committed; null before the first."
    )
    heartbeat_age_ms: int = Field(description="How long ago the loop gave a sign of life, in ms.")
    config_revision: int = Field(description="Of the newest settings that are wholly applied.")
    config_fault: str | None = Field(description="Why newer settings do not hold here.")

    @classmethod
    def of(cls, board: StatusPort) -> Self:
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
            config_revision=now.config_revision,
            config_fault=now.config_fault,
        )


class Partition(Document):
    """An input partition that an instance owns."""

    instance: str = Field(description="The one that owns it.")
    topic: str = Field(description="The topic.")
    partition: int = Field(description="The number of the partition.")
    phase: status.PartitionPhase = Field(description="What it does now.")
    committed_offset: int | None = Field(
        description="Up to where records are decided; null before the first."
    )
    next_offset: int | None = Field(
        description="The next offset to be read; null while it is not known."
    )
    end_offset: int | None = Field(description="The high watermark.")
    lag_records: int | None = Field(
        description="Records between the next offset and the end; null while it is not known."
    )
    lag_ms: int | None = Field(description="For how long the next record may have waited, at most.")
    changelog_next_offset: int | None = Field(
        description="The next offset of the changelog; null while it is not known."
    )
    restored_records: int = Field(description="Changelog records replayed at this takeover.")
    restore_remaining_records: int | None = Field(
        description="Changelog records still to be replayed; null while it is not known."
    )
    addresses: int = Field(description="How many addresses it remembers something of.")
    groups_open: int = Field(description="Transaction groups that wait for records.")
    paused: bool = Field(description="Its route is paused: it is ours, restored, and not read.")

    @classmethod
    def of(cls, instance: str, partition: status.PartitionStatus) -> Self:
        """Describe a partition."""
        return cls.model_validate({**partition._asdict(), "instance": instance})


class Partitions(Document):
    """The partitions of all instances, or of the one that answers."""

    instance: str = Field(description="The one that answers.")
    partitions: tuple[Partition, ...] = Field(description="By topic and number.")
    complete: bool = Field(description="True when these are all partitions that there are.")


class Worker(Document):
    """A process of this instance."""

    pid: int | None = Field(description="Null while it is being replaced.")
    worker: int = Field(description="The number of the process.")
    hop: str = Field(description="What it reads: the inputs, or what was re-keyed by address.")
    phase: status.WorkerPhase = Field(description="What it does now.")
    since: datetime = Field(description="Its start; its end while it is being replaced.")
    restarts: int = Field(description="How often it was replaced since the instance started.")
    last_exit_code: int | None = Field(
        description="Of the process before; minus the signal where one ended it."
    )
    heartbeat_age_ms: int = Field(description="How long ago the loop gave a sign of life, in ms.")
    partitions_owned: int = Field(description="How many partitions it owns.")
    memory_bytes: int | None = Field(
        description="Resident memory, in bytes; null where the system does not tell."
    )
    partitions_restoring: int = Field(description="How many of its partitions are being restored.")
    restored_records: int = Field(description="Changelog records replayed for those.")
    restore_remaining_records: int | None = Field(description="Null while it is not known.")


class Workers(Document):
    """The processes of this instance."""

    instance: str = Field(description="The name of the instance.")
    workers: tuple[Worker, ...] = Field(description="By number.")
    complete: bool = Field(default=True, description="Always: they are of the one that answers.")


class Setting(Document):
    """An address setting in force."""

    value: str | int | bool = Field(description="The value in force.")
    pattern: str = Field(description="The pattern of the address settings it came from.")


class Ring(Document):
    """What one deciding partition remembers of an address."""

    topic: str = Field(description="The topic that is decided.")
    partition: int = Field(description="The number of the partition.")
    ids_held: int | None = Field(
        description="Or publishers. Null where only loading it into memory would tell."
    )
    capacity: int = Field(description="How many ids it can hold.")
    bytes: int = Field(description="Of memory; 0 where it is not in memory.")
    oldest_time: datetime | None = Field(
        description="Time of the oldest id held; null without one."
    )
    newest_time: datetime | None = Field(
        description="Time of the newest id held; null without one."
    )
    horizon_ms: int | None = Field(
        description="Null until the ring has evicted once; of a window, while it is not full."
    )

    @classmethod
    def of(cls, ring: MemoryStatus) -> Self:
        """Describe a ring."""
        return cls(
            topic=ring.topic,
            partition=ring.partition,
            ids_held=ring.ids_held,
            capacity=ring.capacity,
            bytes=ring.bytes,
            oldest_time=maybe_time(ring.oldest_time_ms),
            newest_time=maybe_time(ring.newest_time_ms),
            horizon_ms=ring.horizon_ms,
        )


class Held(NamedTuple):
    """What the partitions hold of an address together."""

    ids_held: int | None
    capacity: int
    fill: float | None
    bytes: int
    horizon_ms: int | None
    oldest_time_ms: int | None
    newest_time_ms: int | None

    @classmethod
    def of(cls, rings: Sequence[MemoryStatus]) -> Self:
        """The sums; of times and of what may be short, the worst."""
        held = [ring.ids_held for ring in rings]
        known = [ids for ids in held if ids is not None]
        fills = [r.ids_held / r.capacity for r in rings if r.ids_held is not None and r.capacity]
        horizons = [ring.horizon_ms for ring in rings if ring.horizon_ms is not None]
        oldest = [ring.oldest_time_ms for ring in rings if ring.oldest_time_ms is not None]
        newest = [ring.newest_time_ms for ring in rings if ring.newest_time_ms is not None]
        return cls(
            ids_held=sum(known) if len(known) == len(held) else None,
            capacity=sum(ring.capacity for ring in rings),
            fill=max(fills, default=None),
            bytes=sum(ring.bytes for ring in rings),
            horizon_ms=min(horizons, default=None),
            oldest_time_ms=min(oldest, default=None),
            newest_time_ms=max(newest, default=None),
        )


class Address(Document):
    """An address: its effective settings, and what this instance remembers of it."""

    address: str = Field(description="The address.")
    strategy: str = Field(description="How duplicates are recognised: `ring`, `window` and so on.")
    settings: dict[str, Setting] = Field(description="By which it decides.")
    ids_held: int | None = Field(description="Null where only loading it into memory would tell.")
    capacity: int = Field(description="Of all partitions that hold something of it.")
    fill: float | None = Field(description="From 0 to 1, of the fullest partition.")
    bytes: int = Field(description="Of memory.")
    horizon_ms: int | None = Field(
        description="How far back it remembers, where it remembers least; null until it forgot."
    )
    accepted: int = Field(description="Records since the time of `counted_since`.")
    duplicates: int = Field(description="Duplicates since the time of `counted_since`.")
    counted_since: datetime | None = Field(
        description="Since when records are counted; null before the first."
    )
    partitions: tuple[Ring, ...] = Field(description="What each deciding partition holds.")
    complete: bool = Field(description="True when no ring of it belongs to another instance.")

    @classmethod
    def of(cls, answer: AddressAnswer) -> Self:
        """Describe an address."""
        held = Held.of(answer.partitions)
        return cls(
            address=answer.address,
            strategy=str(answer.settings["strategy"].value),
            settings=settings_shown(answer.settings),
            ids_held=held.ids_held,
            capacity=held.capacity,
            fill=held.fill,
            bytes=held.bytes,
            horizon_ms=held.horizon_ms,
            accepted=answer.accepted,
            duplicates=answer.duplicates,
            counted_since=maybe_time(answer.counted_since_ms or None),
            partitions=tuple(Ring.of(ring) for ring in answer.partitions),
            complete=answer.complete,
        )


class Sighting(Document):
    """An accepted message whose id is remembered."""

    topic: str = Field(description="The topic.")
    partition: int = Field(description="The number of the partition.")
    offset: int | None = Field(description="Null where the id was imported without one.")
    time: datetime = Field(description="When it was accepted.")
    slots_to_eviction: int = Field(description="Ids to come before this one is forgotten.")

    @classmethod
    def of(cls, seen: ids.IdLocation) -> Self:
        """Describe it."""
        return cls(
            topic=seen.topic,
            partition=seen.partition,
            offset=offset_of(seen.offset),
            time=time_of(seen.time_ms),
            slots_to_eviction=seen.slots_to_eviction,
        )


class Identifier(Document):
    """Whether an id is remembered at an address, and since which message."""

    address: str = Field(description="The address.")
    id: str = Field(description="Text, or `hex:` where the id is not printable text.")
    known: bool = Field(description="Whether the id is remembered.")
    sightings: tuple[Sighting, ...] = Field(
        description="The accepted messages; a message with the id is a duplicate of the first."
    )
    settings: dict[str, Setting] = Field(description="By which a message with the id is judged.")
    complete: bool = Field(description="False: another instance may know the id.")

    @classmethod
    def of(cls, query: IdQuery, answer: IdAnswer) -> Self:
        """Describe an id."""
        return cls(
            address=query.address,
            id=id_text(query.identifier),
            known=answer.known,
            sightings=tuple(map(Sighting.of, answer.sightings)),
            settings=settings_shown(answer.settings or {}),
            complete=answer.complete,
        )


def settings_shown(settings: Mapping[str, EffectiveSetting]) -> dict[str, Setting]:
    """Address settings by their names."""
    return {key: Setting.model_validate(each) for key, each in sorted(settings.items())}


def offset_of(offset: int) -> int | None:
    """An offset; None where an id was imported without one."""
    return None if offset == IMPORTED else offset


def ms_of(time: datetime) -> int:
    """Milliseconds since the epoch, which is the earliest."""
    return max(0, (time - _EPOCH) // timedelta(milliseconds=1))


def time_of(time_ms: int) -> datetime:
    """The time of milliseconds since the epoch."""
    return _EPOCH + timedelta(milliseconds=min(time_ms, _LATEST_MS))


def maybe_time(time_ms: int | None) -> datetime | None:
    """The same, where there is one."""
    return None if time_ms is None else time_of(time_ms)
