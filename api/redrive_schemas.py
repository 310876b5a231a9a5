"""Schemas of redrives: what is ordered, and how far it has come. See `schemas.py`."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import AwareDatetime, ConfigDict, Field, PlainValidator, model_validator

from api.letter_schemas import DeadLetter, HourCount
from api.parameters import parse_id
from api.schemas import Document, ms_of, time_of
from ringfence.headers import id_text
from service import letter_values

LETTERS_MAX = 5_000
_Bytes = Annotated[bytes, PlainValidator(parse_id, json_schema_input_type=str)]
_Topic = Annotated[str, Field(min_length=1, max_length=249)]


class LetterAt(Document):
    """The place of a dead letter."""

    model_config = ConfigDict(frozen=True, from_attributes=True, extra="forbid")

    topic: _Topic
    partition: int = Field(ge=0, lt=2**31)
    offset: int = Field(ge=0, lt=2**63)


class Filter(Document):
    """Which dead letters are meant; what is left out leaves none out."""

    model_config = ConfigDict(frozen=True, from_attributes=True, extra="forbid")

    address: str | None = Field(default=None, max_length=4096)
    reason: tuple[Annotated[str, Field(max_length=100)], ...] = Field(
        default=(), max_length=50, description="Any of these."
    )
    from_: AwareDatetime | None = Field(
        default=None, alias="from", description="Of the decision, inclusive."
    )
    to: AwareDatetime | None = Field(default=None, description="Of the decision, exclusive.")
    header: dict[str, _Bytes] = Field(
        default={}, max_length=20, description="Original headers, each by name and value."
    )
    key: _Bytes | None = None

    def known(self, topics: tuple[str, ...] = ()) -> letter_values.LetterFilter:
        """As the service takes it."""
        return letter_values.LetterFilter(
            topics=topics,
            address=self.address,
            reasons=self.reason,
            from_ms=None if self.from_ is None else ms_of(self.from_),
            to_ms=None if self.to is None else ms_of(self.to),
            headers=tuple(sorted(self.header.items())),
            key=self.key,
        )


class RedriveOrder(Document):
    """What to redrive, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: letter_values.Mode = Field(
        description="`through` decides again; `forget` forgets the id first and lets it through; "
        "`bypass` writes straight to the output and keeps the id."
    )
    topics: tuple[_Topic, ...] = Field(
        default=(), max_length=1_000, description="Dead-letter topics; empty for all."
    )
    filter: Filter = Filter()
    letters: tuple[LetterAt, ...] = Field(
        default=(), max_length=LETTERS_MAX, description="These and no others; then no filter."
    )
    max_per_second: float | None = Field(default=None, gt=0, le=1_000_000)
    limit: int | None = Field(default=None, ge=1, lt=2**53)
    reason: str = Field(default="", max_length=1_000, description="Why; or as query parameter.")

    @model_validator(mode="after")
    def _names_one_thing(self) -> Self:
        if self.letters and (self.topics or self.filter != Filter()):
            raise ValueError("letters are named one by one, or by topics and filter; not by both")
        return self

    def known(self, reason: str, actor: str) -> letter_values.Order:
        """As the service takes it."""
        places = (
            letter_values.LetterPlace(*each) for each in sorted(set(map(_place, self.letters)))
        )
        return letter_values.Order(
            mode=self.mode,
            filter=self.filter.known(self.topics),
            letters=tuple(places),
            max_per_second=self.max_per_second,
            limit=self.limit,
            reason=self.reason or reason,
            actor=actor,
        )


class ShownFilter(Document):
    """The filter of a redrive, as it was ordered."""

    address: str | None
    reason: tuple[str, ...]
    from_: datetime | None = Field(serialization_alias="from")
    to: datetime | None
    header: dict[str, str | None] = Field(
        description="Values as text, or `hex:`; null without the role `payload:read`."
    )
    has_key: bool
    key: str | None = Field(description="Null without the role `payload:read`.")


class Progress(Document):
    """How far it has come, in records."""

    scanned: int
    matched: int
    sent: int
    accepted: int = Field(description="Written to an output.")
    refused: int = Field(description="Refused again: a dead letter once more, or dropped.")
    waiting: int = Field(description="Parked until their transaction group is whole.")
    skipped: dict[str, int] = Field(description="Not redriven, by reason.")
    failed: int = Field(description="Given up: the broker or the route does not take them.")


class Redrive(Document):
    """A redrive: what was ordered, and how far it has come."""

    id: str
    state: letter_values.State
    mode: letter_values.Mode
    topics: tuple[str, ...] = Field(description="Empty for all.")
    filter: ShownFilter
    letters: int = Field(description="How many were named one by one; 0 where a filter decides.")
    max_per_second: float | None
    limit: int | None
    reason: str
    created_at: datetime
    created_by: str
    updated_at: datetime
    ended_at: datetime | None
    records_total: int = Field(description="To be looked at when it was ordered, about.")
    progress: Progress
    rate_per_second: float
    eta_seconds: float | None = Field(description="Null while nobody can tell.")
    waiting_for: str | None = Field(description="Why it does not go on, in a sentence.")
    error: str | None = Field(description="Why it has failed, in a sentence.")

    @classmethod
    def of(cls, view: letter_values.RedriveView, *, with_payload: bool = False) -> Self:
        """Describe it; what the filter tells of keys and headers to those who may see them."""
        order = view.order
        return cls(
            id=view.id,
            state=view.state,
            mode=order.mode,
            topics=order.filter.topics,
            filter=_shown(order.filter, with_payload=with_payload),
            letters=len(order.letters),
            max_per_second=order.max_per_second,
            limit=order.limit,
            reason=order.reason,
            created_at=time_of(view.created_at_ms),
            created_by=order.actor,
            updated_at=time_of(view.updated_at_ms),
            ended_at=_maybe(view.ended_at_ms),
            records_total=view.records_total,
            progress=Progress.model_validate(view.progress),
            rate_per_second=view.rate_per_second,
            eta_seconds=view.eta_s,
            waiting_for=view.waiting_for,
            error=view.error,
        )


class Redrives(Document):
    """The redrives that are known, the newest first."""

    redrives: tuple[Redrive, ...]
    next_page_token: str | None
    complete: bool


class RedrivePreview(Document):
    """What a redrive would be about: counted as far as one request goes, and samples."""

    records_total: int
    scanned: int
    matched: int
    skipped: dict[str, int] = Field(description="Of those: what cannot be redriven, by reason.")
    by_reason: dict[str, int]
    by_address: dict[str, int]
    by_topic: dict[str, int]
    by_hour: tuple[HourCount, ...]
    samples: tuple[DeadLetter, ...]
    complete: bool = Field(description="False: there are more records than were looked at.")

    @classmethod
    def of(cls, preview: letter_values.RedrivePreview) -> Self:
        """Describe it."""
        counts = preview.counts
        hours = sorted(counts.by_hour_ms.items())
        return cls(
            records_total=preview.records_total,
            scanned=counts.scanned,
            matched=counts.matched,
            skipped=preview.skipped,
            by_reason=counts.by_reason,
            by_address=counts.by_address,
            by_topic=counts.by_topic,
            by_hour=tuple(HourCount(hour=time_of(at), dead_letters=n) for at, n in hours),
            samples=tuple(map(DeadLetter.of, preview.samples)),
            complete=counts.place is None,
        )


def _place(letter: LetterAt) -> tuple[str, int, int]:
    return letter.topic, letter.partition, letter.offset


def _shown(found: letter_values.LetterFilter, *, with_payload: bool) -> ShownFilter:
    return ShownFilter(
        address=found.address,
        reason=found.reasons,
        from_=_maybe(found.from_ms),
        to=_maybe(found.to_ms),
        header={name: id_text(value) if with_payload else None for name, value in found.headers},
        has_key=found.key is not None,
        key=None if found.key is None or not with_payload else id_text(found.key),
    )


def _maybe(time_ms: int | None) -> datetime | None:
    return None if time_ms is None else time_of(time_ms)
