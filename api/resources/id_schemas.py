"""Schemas of ids: what an address remembers, and changes of it."""

from datetime import datetime
from typing import Annotated, Final, Self

from pydantic import AwareDatetime, Field, PlainValidator, model_validator

from api.parameters import parse_id, place_of, token_of
from api.schemas import Document, Given, Sighting, ms_of, offset_of, time_of
from ringfence.headers import NUMBER_MAX, id_text
from service.dedup.record import KnownId
from service.queries.errors import NotPossible
from service.queries.ids import (
    ChangeAnswer,
    IdCursor,
    IdsAnswer,
    IdsLookup,
    LookupAnswer,
    RememberedId,
)
from state.segment import ID_BYTES_MAX as KEPT_BYTES_MAX

PARTITION_MAX: Final = 2**31 - 1


WrittenId = Annotated[bytes, PlainValidator(parse_id, json_schema_input_type=str)]


class Remembered(Document):
    """An id that is remembered, and the accepted message that it came with."""

    id: str = Field(description="Text, or `hex:` where the id is not printable text.")
    topic: str = Field(description="The topic.")
    partition: int = Field(description="The number of the partition.")
    offset: int | None = Field(description="Null where it was imported without one.")
    time: datetime = Field(description="When it was accepted.")
    slots_to_eviction: int = Field(description="Ids to come before this one is forgotten.")
    hashed: bool = Field(description="Of a long id: its beginning and its SHA-256 stand for it.")

    @classmethod
    def of(cls, remembered: RememberedId) -> Self:
        """Describe it."""
        seen = remembered.sighting
        return cls(
            id=id_text(remembered.identifier),
            topic=seen.topic,
            partition=seen.partition,
            offset=offset_of(seen.offset),
            time=time_of(seen.time_ms),
            slots_to_eviction=seen.slots_to_eviction,
            hashed=len(remembered.identifier) > KEPT_BYTES_MAX,
        )


class Ids(Document):
    """A page of ids."""

    address: str = Field(description="The address.")
    ids: tuple[Remembered, ...] = Field(description="In the order that was asked for.")
    next_page_token: str | None = Field(description="Null at the end.")
    complete: bool = Field(description="False: other instances may know more.")

    @classmethod
    def of(cls, address: str, answer: IdsAnswer) -> Self:
        """Describe a page."""
        return cls(
            address=address,
            ids=tuple(map(Remembered.of, answer.ids)),
            next_page_token=None if answer.cursor is None else token_of(answer.cursor),
            complete=answer.complete,
        )


class Lookup(Given):
    """Ids to be looked up."""

    ids: tuple[WrittenId, ...] = Field(
        min_length=1, max_length=1_000, description="Text, or `hex:` or `base64:` and the bytes."
    )


class Found(Document):
    """One of them."""

    id: str = Field(description="Text, or `hex:` where the id is not printable text.")
    known: bool = Field(description="Whether the id is remembered.")
    sightings: tuple[Sighting, ...] = Field(description="The accepted messages that came with it.")


class FoundIds(Document):
    """Which of the ids are remembered, in the order in which they were asked for."""

    address: str = Field(description="The address.")
    ids: tuple[Found, ...] = Field(description="In the order in which they were asked for.")
    known: int = Field(description="How many of them.")
    complete: bool = Field(description="False: another instance may know more of them.")

    @classmethod
    def of(cls, query: IdsLookup, answer: LookupAnswer) -> Self:
        """Describe them."""
        asked = zip(query.identifiers, answer.sightings, strict=True)
        return cls(
            address=query.address,
            ids=tuple(
                Found(id=id_text(each), known=bool(seen), sightings=tuple(map(Sighting.of, seen)))
                for each, seen in asked
            ),
            known=sum(map(bool, answer.sightings)),
            complete=answer.complete,
        )


class ImportedId(Document):
    """An id to be known, and where and when it was accepted, as far as that is known."""

    id: WrittenId = Field(description="Text, or `hex:` or `base64:` and the bytes.")
    offset: int | None = Field(
        default=None, ge=0, le=NUMBER_MAX, description="Of the accepted message, where it is known."
    )
    time: AwareDatetime | None = Field(
        default=None, description="When it was accepted; now where it is not known."
    )
    hashed: bool = Field(default=False, description="As it was exported.")

    @model_validator(mode="after")
    def _digest_has_its_length(self) -> Self:
        if self.hashed and len(self.id) != KEPT_BYTES_MAX + 1:
            raise ValueError(f"hashed stands beside an id of {KEPT_BYTES_MAX + 1} bytes alone")
        return self

    def known(self, topic: str | None = None, partition: int | None = None) -> KnownId:
        """As the loop takes it."""
        time_ms = None if self.time is None else ms_of(self.time)
        return KnownId(self.id, self.offset, time_ms, topic, partition, self.hashed)


class ImportedLine(ImportedId):
    """A line of an import: an id that names its own place, as an export writes it."""

    topic: str = Field(min_length=1, max_length=249, description="The topic.")
    partition: int = Field(ge=0, le=PARTITION_MAX, description="The number of the partition.")

    def placed(self) -> KnownId:
        """As the loop takes it."""
        return self.known(self.topic, self.partition)


class Import(Given):
    """Ids for one deciding partition, the oldest first."""

    topic: str = Field(min_length=1, max_length=249, description="The topic that is decided.")
    partition: int = Field(ge=0, le=PARTITION_MAX, description="The number of the partition.")
    ids: tuple[ImportedId, ...] = Field(
        min_length=1, max_length=10_000, description="The oldest first."
    )

    def known(self) -> tuple[KnownId, ...]:
        """As the loop takes them."""
        return tuple(each.known() for each in self.ids)


class Changed(Document):
    """What a change has come to."""

    ids: int = Field(description="How many ids it was about, on all instances.")
    complete: bool = Field(description="False: other partitions may have changed too.")

    @classmethod
    def of(cls, answer: ChangeAnswer) -> Self:
        """Describe it."""
        return cls(ids=answer.ids, complete=answer.complete)


class Imported(Document):
    """What an import has come to."""

    ids: int = Field(description="How many ids were taken in.")
    new: int = Field(description="How many of them were not known before.")
    complete: bool = Field(description="False: other instances have partitions too.")


def cursor_of(page_token: str) -> IdCursor | None:
    """Where a page begins whose token this is; NotPossible for one that no page has given."""
    if not page_token:
        return None
    match place_of(page_token):
        case [str(topic), int(partition), int(number), int() | None as end] if (
            0 <= number <= NUMBER_MAX and 0 <= (end or 0) <= NUMBER_MAX
        ):
            return IdCursor(topic, partition, number, end)
        case _:
            raise NotPossible("The page token is none that a page of ids has given.")
