"""Response schemas shared by several resources.

Model and field names are a contract: they may be added, never renamed. Each model is built from a
value of the service; times become RFC 3339 in UTC.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from ringfence_api.content import well_formed
from ringfence_client.headers import id_text
from ringfence_service.queries import ids, status
from ringfence_service.queries.addresses import AddressAnswer, MemoryStatus
from ringfence_service.queries.ids import IdAnswer, IdQuery
from ringfence_service.queries.settings import EffectiveSetting
from ringfence_state.model import IMPORTED

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
"""Upper bound of times: a producer may write any timestamp, up to the largest integer."""


class Document(BaseModel):
    """Base class of the response documents."""

    model_config = ConfigDict(frozen=True, from_attributes=True, extra="ignore")


_UNKNOWN_MAX: Final = 20
"""Unknown members of an object that are each reported."""


class Given(Document):
    """Base class of the request documents; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, from_attributes=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _is_json(cls, sent: object) -> object:
        if not isinstance(sent, dict):
            return sent
        unknown = sent.keys() - cls.model_fields.keys()
        if len(unknown) > _UNKNOWN_MAX:
            raise ValueError(f"{len(unknown)} of its members are unknown")
        return well_formed(sent)

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_long_list(cls, sent: object, info: ValidationInfo) -> object:
        """Refuse a list that is too long before its items are checked: each may cost a kilobyte."""
        if not isinstance(sent, list):
            return sent
        for each in cls.model_fields[info.field_name or ""].metadata:
            longest = getattr(each, "max_length", None)
            if longest is not None and len(sent) > longest:
                size = {"field_type": "List", "max_length": longest, "actual_length": len(sent)}
                raise PydanticKnownError("too_long", size)
        return sent


class Info(status.ServiceInfo, Document):
    """Versions and names of the running service."""


class StandbyDocument(Document):
    """A standby copy of a partition, on the disk of an instance that does not own it."""

    instance: str = Field(description="The instance that has it.")
    warm: bool = Field(
        description="Whether it equalled its changelog a few seconds ago: a takeover replays what "
        "came since."
    )
    lag_records: int | None = Field(
        description="How many offsets of the changelog it is behind; null while it is not open."
    )


class Partition(status.PartitionStatus, Document):
    """An input partition that an instance owns."""

    instance: str
    """The instance that owns it."""
    standbys: tuple[StandbyDocument, ...] = ()
    """Its copies on other instances, with `service.standby = "all"`; a takeover by one of these
    waits for seconds only."""

    @classmethod
    def of(
        cls,
        instance: str,
        partition: status.PartitionStatus,
        standbys: tuple[StandbyDocument, ...] = (),
    ) -> Self:
        """Build the document from the status of a partition and those of its copies."""
        return cls(instance=instance, standbys=standbys, **dict(partition))


class Partitions(Document):
    """The partitions of all instances, or of the responding instance."""

    instance: str = Field(description="The instance that responds.")
    partitions: tuple[Partition, ...] = Field(description="Sorted by topic and number.")
    complete: bool = Field(description="True if these are all partitions of the group.")


class Worker(status.WorkerStatus, Document):
    """A worker process of this instance."""


class Workers(Document):
    """The worker processes of this instance."""

    instance: str = Field(description="The name of the instance.")
    workers: tuple[Worker, ...] = Field(description="Sorted by number.")
    complete: bool = Field(
        default=True, description="Always true: the responding instance knows all of its workers."
    )


class Setting(Document):
    """The effective value of an address setting."""

    value: str | int | bool = Field(description="The effective value.")
    pattern: str = Field(description="The pattern that sets it, or `default`.")


_DISK: Final = (
    "Disk used, in bytes: estimated for stored ids, and the files that find older ones. Null if "
    "unknown until it is loaded, and for strategies of sequence numbers."
)


class Ring(Document):
    """The state that one deciding partition holds of an address."""

    topic: str = Field(description="The topic whose records are decided.")
    partition: int = Field(description="The number of the partition.")
    ids_held: int | None = Field(
        description="Number of ids held (or of publishers); null if unknown until it is loaded. A "
        "forgotten id counts in a ring until its slot is overwritten."
    )
    capacity: int = Field(description="Number of ids that it can hold.")
    bytes: int = Field(description="Memory used, in bytes; 0 if it is not loaded.")
    runs: int = Field(
        description="Number of files that find its older ids; 0 if they are found in memory."
    )
    disk_bytes: int | None = Field(description=_DISK)
    oldest_time: datetime | None = Field(
        description="Time of the oldest id held; null if none is held."
    )
    newest_time: datetime | None = Field(
        description="Time of the newest id held; null if none is held."
    )
    horizon_ms: int | None = Field(
        description="How far back it remembers, in ms; null until a ring has evicted an id since "
        "it was empty, and while a window forgets by time alone. It stays when the size is raised."
    )

    @classmethod
    def of(cls, ring: MemoryStatus) -> Self:
        """Build the document from the state of one partition."""
        return cls(
            topic=ring.topic,
            partition=ring.partition,
            ids_held=ring.ids_held,
            capacity=ring.capacity,
            bytes=ring.bytes,
            runs=ring.runs,
            disk_bytes=ring.disk_bytes,
            oldest_time=maybe_time(ring.oldest_time_ms),
            newest_time=maybe_time(ring.newest_time_ms),
            horizon_ms=ring.horizon_ms,
        )


class Held(NamedTuple):
    """The state of an address, aggregated over its partitions."""

    ids_held: int | None
    capacity: int
    fill: float | None
    bytes: int
    disk_bytes: int | None
    horizon_ms: int | None
    oldest_time_ms: int | None
    newest_time_ms: int | None

    @classmethod
    def of(cls, rings: Sequence[MemoryStatus]) -> Self:
        """Add up counts; of fill, horizon and times, take the extreme over the partitions."""
        held = [ring.ids_held for ring in rings]
        known = [ids for ids in held if ids is not None]
        disk = [ring.disk_bytes for ring in rings if ring.disk_bytes is not None]
        fills = [r.ids_held / r.capacity for r in rings if r.ids_held is not None and r.capacity]
        horizons = [ring.horizon_ms for ring in rings if ring.horizon_ms is not None]
        oldest = [ring.oldest_time_ms for ring in rings if ring.oldest_time_ms is not None]
        newest = [ring.newest_time_ms for ring in rings if ring.newest_time_ms is not None]
        return cls(
            ids_held=sum(known) if len(known) == len(held) else None,
            capacity=sum(ring.capacity for ring in rings),
            fill=max(fills, default=None),
            bytes=sum(ring.bytes for ring in rings),
            disk_bytes=sum(disk) if len(disk) == len(rings) else None,
            horizon_ms=min(horizons, default=None),
            oldest_time_ms=min(oldest, default=None),
            newest_time_ms=max(newest, default=None),
        )


class Address(Document):
    """An address: its effective settings, and the state that is held of it."""

    address: str = Field(description="The address.")
    strategy: str = Field(
        description="The strategy that recognises duplicates, such as `ring` or `window`."
    )
    settings: dict[str, Setting] = Field(description="The effective settings, by name.")
    ids_held: int | None = Field(
        description="Number of ids held; null if unknown until they are loaded. A forgotten id "
        "counts in a ring until its slot is overwritten."
    )
    capacity: int = Field(description="Number of ids that all of its partitions can hold.")
    fill: float | None = Field(
        description="Fill of the fullest partition, 0 to 1; null if unknown."
    )
    bytes: int = Field(description="Memory used, in bytes.")
    disk_bytes: int | None = Field(description=_DISK)
    horizon_ms: int | None = Field(
        description="How far back the partition with the shortest history remembers, in ms; null "
        "until an id was evicted."
    )
    accepted: int = Field(description="Records accepted since `counted_since`.")
    duplicates: int = Field(description="Duplicates since `counted_since`.")
    counted_since: datetime | None = Field(
        description="When counting began; null before the first record."
    )
    partitions: tuple[Ring, ...] = Field(
        description="The state that each deciding partition holds."
    )
    complete: bool = Field(description="True if no other instance holds state of the address.")

    @classmethod
    def of(cls, answer: AddressAnswer) -> Self:
        """Build the document from the answer of the loops."""
        held = Held.of(answer.partitions)
        return cls(
            address=answer.address,
            strategy=str(answer.settings["strategy"].value),
            settings=settings_shown(answer.settings),
            ids_held=held.ids_held,
            capacity=held.capacity,
            fill=held.fill,
            bytes=held.bytes,
            disk_bytes=held.disk_bytes,
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
    offset: int | None = Field(description="The offset; null if the id was imported without one.")
    time: datetime = Field(
        description="Time of the deciding partition when it accepted the message: the newest "
        "timestamp that it had read, at most the present. Not the timestamp of the message."
    )
    slots_to_eviction: int = Field(
        description="Number of further ids after which this one is evicted."
    )

    @classmethod
    def of(cls, seen: ids.IdLocation) -> Self:
        """Build the document from a remembered id."""
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
    id: str = Field(description="The id as text, or as `hex:` if it is not printable text.")
    known: bool = Field(description="Whether the id is remembered.")
    sightings: tuple[Sighting, ...] = Field(
        description="The accepted messages with this id; a further one is a duplicate of the first."
    )
    settings: dict[str, Setting] = Field(
        description="The effective settings of the address, by name."
    )
    complete: bool = Field(description="If false, another instance may know the id.")
    why: str | None = Field(
        description="Why no message of the address can have the id, as a sentence; null if it is "
        "known or may be."
    )

    @classmethod
    def of(cls, query: IdQuery, answer: IdAnswer) -> Self:
        """Build the document from the answer to a query."""
        return cls(
            address=query.address,
            id=id_text(query.identifier),
            known=answer.known,
            sightings=tuple(map(Sighting.of, answer.sightings)),
            settings=settings_shown(answer.settings or {}),
            complete=answer.complete,
            why=answer.why,
        )


def settings_shown(settings: Mapping[str, EffectiveSetting]) -> dict[str, Setting]:
    """Return address settings as documents, sorted by name."""
    return {key: Setting.model_validate(each) for key, each in sorted(settings.items())}


def offset_of(offset: int) -> int | None:
    """Return the offset; None for an id that was imported without one."""
    return None if offset == IMPORTED else offset


def ms_of(time: datetime) -> int:
    """Return milliseconds since the epoch; 0 for earlier times."""
    return max(0, (time - _EPOCH) // timedelta(milliseconds=1))


def time_of(time_ms: int) -> datetime:
    """Return the UTC time of milliseconds since the epoch."""
    return _EPOCH + timedelta(milliseconds=min(time_ms, _LATEST_MS))


def maybe_time(time_ms: int | None) -> datetime | None:
    """Return the UTC time of milliseconds since the epoch; None for None."""
    return None if time_ms is None else time_of(time_ms)
