"""Schemas of ids: the ids that an address remembers, and changes of them."""

from datetime import datetime
from typing import Annotated, Final, Self

from pydantic import AwareDatetime, Field, PlainValidator, model_validator

from ringfence_api.parameters import parse_id, position_of, sought_id, token_of
from ringfence_api.schemas import Document, Given, Sighting, ms_of, offset_of, time_of
from ringfence_client.headers import NUMBER_MAX, id_text
from ringfence_service.dedup.record import KnownId
from ringfence_service.queries.errors import NotPossible
from ringfence_service.queries.ids import (
    ChangeAnswer,
    IdCursor,
    IdsAnswer,
    IdsLookup,
    LookupAnswer,
    RememberedId,
)
from ringfence_state.model import OFFSET_MAX
from ringfence_state.segment import HASHED_ID_BYTES, STORED_ID_BYTES_MAX

PARTITION_MAX: Final = 2**31 - 1
"""The largest number of a partition in Kafka's protocol, where it is a signed 32-bit integer."""


WrittenId = Annotated[bytes, PlainValidator(parse_id, json_schema_input_type=str)]

SoughtId = Annotated[bytes, PlainValidator(sought_id, json_schema_input_type=str)]


class Remembered(Document):
    """A remembered id, and the accepted message that carried it."""

    id: str = Field(description="The id as text, or as `hex:` if it is not printable text.")
    topic: str = Field(description="The topic.")
    partition: int = Field(description="The number of the partition.")
    offset: int | None = Field(description="The offset; null if it was imported without one.")
    time: datetime = Field(
        description="Time of the deciding partition when it accepted the message: the newest "
        "timestamp that it had read, at most the present. Not the timestamp of the message."
    )
    slots_to_eviction: int = Field(
        description="Number of further ids after which this one is evicted."
    )
    hashed: bool = Field(
        description="If true, `id` is the beginning and the SHA-256 of a long id; requests for an "
        "id take it too."
    )

    @classmethod
    def of(cls, remembered: RememberedId) -> Self:
        """Build the document from a remembered id."""
        seen = remembered.sighting
        return cls(
            id=id_text(remembered.identifier),
            topic=seen.topic,
            partition=seen.partition,
            offset=offset_of(seen.offset),
            time=time_of(seen.time_ms),
            slots_to_eviction=seen.slots_to_eviction,
            hashed=len(remembered.identifier) > STORED_ID_BYTES_MAX,
        )


class Ids(Document):
    """A page of ids."""

    address: str = Field(description="The address.")
    ids: tuple[Remembered, ...] = Field(description="In the requested order.")
    next_page_token: str | None = Field(
        description="Send it as `page_token` to get the next page; null on the last page."
    )
    complete: bool = Field(description="If false, other instances may have more.")

    @classmethod
    def of(cls, address: str, answer: IdsAnswer) -> Self:
        """Build the document from the answer of the loops."""
        return cls(
            address=address,
            ids=tuple(map(Remembered.of, answer.ids)),
            next_page_token=None if answer.cursor is None else token_of(answer.cursor),
            complete=answer.complete,
        )


class Lookup(Given):
    """Ids to look up."""

    ids: tuple[SoughtId, ...] = Field(
        min_length=1, max_length=1_000, description="As text, `hex:` or `base64:`."
    )


class Found(Document):
    """Whether one id is remembered, and since which messages."""

    id: str = Field(description="The id as text, or as `hex:` if it is not printable text.")
    known: bool = Field(description="Whether the id is remembered.")
    sightings: tuple[Sighting, ...] = Field(description="The accepted messages with this id.")


class FoundIds(Document):
    """The result of a lookup, in the order of the request."""

    address: str = Field(description="The address.")
    ids: tuple[Found, ...] = Field(description="In the order of the request.")
    known: int = Field(description="Number of ids that are remembered.")
    complete: bool = Field(description="If false, another instance may know more of them.")

    @classmethod
    def of(cls, query: IdsLookup, answer: LookupAnswer) -> Self:
        """Build the document from the query and its answer."""
        pairs = zip(query.identifiers, answer.sightings, strict=True)
        return cls(
            address=query.address,
            ids=tuple(
                Found(id=id_text(each), known=bool(seen), sightings=tuple(map(Sighting.of, seen)))
                for each, seen in pairs
            ),
            known=sum(map(bool, answer.sightings)),
            complete=answer.complete,
        )


class ImportedId(Document):
    """An id to import, with the offset and time of its acceptance if known."""

    id: WrittenId = Field(description="As text, `hex:` or `base64:`.")
    offset: int | None = Field(
        default=None, ge=0, le=OFFSET_MAX, description="Offset of the accepted message, if known."
    )
    time: AwareDatetime | None = Field(
        default=None, description="When it was accepted; by default now."
    )
    hashed: bool = Field(default=False, description="As in the export.")

    @model_validator(mode="after")
    def _digest_has_its_length(self) -> Self:
        if self.hashed and len(self.id) != HASHED_ID_BYTES:
            raise ValueError(f"a hashed id has {HASHED_ID_BYTES} bytes")
        return self

    def known(self, topic: str | None = None, partition: int | None = None) -> KnownId:
        """Return the id as a value of the service."""
        time_ms = None if self.time is None else ms_of(self.time)
        return KnownId(self.id, self.offset, time_ms, topic, partition, self.hashed)


class ImportedLine(ImportedId):
    """A line of an import: an id that names its own partition, as in an export."""

    topic: str = Field(min_length=1, max_length=249, description="The topic.")
    partition: int = Field(ge=0, le=PARTITION_MAX, description="The number of the partition.")

    def placed(self) -> KnownId:
        """Return the id, with its own partition, as a value of the service."""
        return self.known(self.topic, self.partition)


class Import(Given):
    """Ids for one deciding partition, oldest first."""

    topic: str = Field(
        min_length=1, max_length=249, description="The topic whose records are decided."
    )
    partition: int = Field(ge=0, le=PARTITION_MAX, description="The number of the partition.")
    ids: tuple[ImportedId, ...] = Field(
        min_length=1, max_length=10_000, description="The ids, oldest first."
    )

    def known(self) -> tuple[KnownId, ...]:
        """Return the ids as values of the service."""
        return tuple(each.known() for each in self.ids)


class Changed(Document):
    """The result of a change."""

    ids: int = Field(description="Number of ids that were affected, on all instances.")
    complete: bool = Field(description="If false, other partitions may have changed too.")

    @classmethod
    def of(cls, answer: ChangeAnswer) -> Self:
        """Build the document from the answer of the loops."""
        return cls(ids=answer.ids, complete=answer.complete)


class Imported(Document):
    """The result of an import."""

    ids: int = Field(description="Number of ids imported.")
    new: int = Field(description="Number of them that were not known before.")
    complete: bool = Field(
        description="If false, other instances own partitions of the address too."
    )


def cursor_of(page_token: str) -> IdCursor | None:
    """Return the cursor in a page token; None for an empty token. Raise NotPossible."""
    if not page_token:
        return None
    match position_of(page_token):
        case [str(topic), int(partition), int(number), int() | None as end] if (
            0 <= number <= NUMBER_MAX and 0 <= (end or 0) <= NUMBER_MAX
        ):
            return IdCursor(topic, partition, number, end)
        case _:
            raise NotPossible("The page token is not one that a page of ids returned.")
