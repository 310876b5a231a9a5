"""`/v1/redrives…`: dead letters sent again, as jobs.

A job is written to the metadata topic and run by one of the instances; see `service/dead_letters`.
It survives restarts, and nothing is sent twice.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final, Self

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import AwareDatetime, Field, PlainValidator, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from api.audit_context import Reason, Reasoned, actor_of, changed
from api.middleware.idempotency import HEADER, KEY_CHARS_MAX
from api.openapi import errors
from api.parameters import PageSize, PageToken, name_of, parse_id, token_of
from api.ports import ServiceView, may_read_payload
from api.problems import (
    FORBIDDEN,
    KEY_REUSED,
    NO_REDRIVE,
    NOT_POSSIBLE,
    UNAVAILABLE,
    ProblemError,
)
from api.resources.dead_letter_schemas import DeadLetter, HourCount
from api.schemas import Document, Given, ms_of, time_of
from ringfence.headers import id_text
from service.dedup import dead_letter as letter_values
from service.dedup.dead_letter import RedriveView

LETTERS_MAX = 5_000

_Bytes = Annotated[bytes, PlainValidator(parse_id, json_schema_input_type=str)]

_Topic = Annotated[str, Field(min_length=1, max_length=249)]


class LetterAt(Given):
    """The place of a dead letter."""

    topic: _Topic = Field(description="The dead-letter topic.")
    partition: int = Field(ge=0, lt=2**31, description="The number of the partition.")
    offset: int = Field(ge=0, lt=2**63, description="The offset of the dead letter.")


class Filter(Given):
    """Which dead letters are meant; what is left out leaves none out."""

    address: str | None = Field(
        default=None, max_length=4096, description="The address that decided."
    )
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
    key: _Bytes | None = Field(
        default=None, description="Text, or `hex:` or `base64:` and the bytes."
    )

    def known(self, topics: tuple[str, ...] = ()) -> letter_values.DeadLetterFilter:
        """As the service takes it."""
        return letter_values.DeadLetterFilter(
            topics=topics,
            address=self.address,
            reasons=self.reason,
            from_ms=None if self.from_ is None else ms_of(self.from_),
            to_ms=None if self.to is None else ms_of(self.to),
            headers=tuple(sorted(self.header.items())),
            key=self.key,
        )


class RedriveOrder(Given):
    """What to redrive, and how."""

    mode: letter_values.Mode = Field(
        description="`through` decides again; `forget` forgets the id first and lets it through; "
        "`bypass` writes straight to the output and keeps the id."
    )
    topics: tuple[_Topic, ...] = Field(
        default=(), max_length=1_000, description="Dead-letter topics; empty for all."
    )
    filter: Filter = Field(
        default=Filter(), description="Which dead letters of the topics; all of them without one."
    )
    letters: tuple[LetterAt, ...] = Field(
        default=(), max_length=LETTERS_MAX, description="These and no others; then no filter."
    )
    max_per_second: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="Letters per second at most; without it as fast as can be.",
    )
    limit: int | None = Field(
        default=None, ge=1, lt=2**53, description="How many letters that match are taken at most."
    )
    reason: str = Field(default="", max_length=1_000, description="Why; or as query parameter.")

    @model_validator(mode="after")
    def _names_one_thing(self) -> Self:
        if self.letters and (self.topics or self.filter != Filter()):
            raise ValueError("letters are named one by one, or by topics and filter; not by both")
        return self

    def known(self, reason: str, actor: str) -> letter_values.RedriveRequest:
        """As the service takes it."""
        places = (
            letter_values.DeadLetterPosition(*each)
            for each in sorted(set(map(_place, self.letters)))
        )
        return letter_values.RedriveRequest(
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

    address: str | None = Field(description="The address that decided; null for any.")
    reason: tuple[str, ...] = Field(description="Any of these; empty for all.")
    from_: datetime | None = Field(
        serialization_alias="from", description="Of the decision, inclusive; null for no bound."
    )
    to: datetime | None = Field(description="Of the decision, exclusive; null for no bound.")
    header: dict[str, str | None] = Field(
        description="Values as text, or `hex:`; null without the role `payload:read`."
    )
    has_key: bool = Field(description="Whether letters of one key are meant.")
    key: str | None = Field(description="Null without the role `payload:read`.")


class Progress(Document):
    """How far it has come, in records."""

    scanned: int = Field(description="How many records were looked at.")
    matched: int = Field(description="How many of them match.")
    sent: int = Field(description="How many were handed to the owners of their partitions.")
    accepted: int = Field(description="Written to an output.")
    refused: int = Field(description="Refused again: a dead letter once more, or dropped.")
    waiting: int = Field(description="Parked until their transaction group is whole.")
    skipped: dict[str, int] = Field(description="Not redriven, by reason.")
    failed: int = Field(description="Given up: the broker or the route does not take them.")


class Redrive(Document):
    """A redrive: what was ordered, and how far it has come."""

    id: str = Field(description="The name of the redrive.")
    state: letter_values.State = Field(description="Whether it runs, has ended, and how.")
    mode: letter_values.Mode = Field(description="`through`, `forget` or `bypass`.")
    topics: tuple[str, ...] = Field(description="Empty for all.")
    filter: ShownFilter = Field(description="Which dead letters are meant.")
    letters: int = Field(description="How many were named one by one; 0 where a filter decides.")
    max_per_second: float | None = Field(
        description="Letters per second at most; null for no limit."
    )
    limit: int | None = Field(description="How many letters are taken at most; null for all.")
    reason: str = Field(description="Why, as it was given.")
    created_at: datetime = Field(description="When it was ordered.")
    created_by: str = Field(description="Who ordered it.")
    updated_at: datetime = Field(description="When its progress was written last.")
    ended_at: datetime | None = Field(description="When it ended; null while it runs.")
    records_total: int = Field(description="To be looked at when it was ordered, about.")
    progress: Progress = Field(description="What has become of its records.")
    share: float = Field(description="How much is done, 0 to 1: of the records or of the limit.")
    rate_per_second: float = Field(description="Letters per second, of late.")
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
            share=round(view.share, 4),
            rate_per_second=view.rate_per_second,
            eta_seconds=view.eta_s,
            waiting_for=view.waiting_for,
            error=view.error,
        )


class Redrives(Document):
    """The redrives that are known, the newest first."""

    redrives: tuple[Redrive, ...] = Field(description="The newest first.")
    next_page_token: str | None = Field(
        description="Give it as `page_token` for the next page; null at the end."
    )
    complete: bool = Field(description="False: there may be more.")


class RedrivePreview(Document):
    """What a redrive would be about: counted as far as one request goes, and samples."""

    records_total: int = Field(description="To be looked at, about.")
    scanned: int = Field(description="How many records were looked at.")
    matched: int = Field(description="How many of them match.")
    skipped: dict[str, int] = Field(description="What cannot be redriven, by reason.")
    redrives: int = Field(
        description="How many will be redriven, `limit` considered; without `complete`, or with "
        "both a limit and `skipped`, it may be more or fewer."
    )
    doubles: int = Field(
        description="How many of these were refused as duplicates and will go out by this mode: "
        "the output will then hold them twice."
    )
    by_reason: dict[str, int] = Field(description="Dead letters by reason.")
    by_address: dict[str, int] = Field(description="Dead letters by address.")
    by_topic: dict[str, int] = Field(description="Dead letters by dead-letter topic.")
    by_hour: tuple[HourCount, ...] = Field(description="Dead letters by the hour of the decision.")
    samples: tuple[DeadLetter, ...] = Field(description="Some of those that match.")
    complete: bool = Field(description="False: there are more records than were looked at.")

    @classmethod
    def of(cls, preview: letter_values.RedriveEstimate) -> Self:
        """Describe it."""
        counts = preview.counts
        hours = sorted(counts.by_hour_ms.items())
        return cls(
            records_total=preview.records_total,
            scanned=counts.scanned,
            matched=counts.matched,
            skipped=preview.skipped,
            redrives=preview.redrives,
            doubles=preview.doubles,
            by_reason=counts.by_reason,
            by_address=counts.by_address,
            by_topic=counts.by_topic,
            by_hour=tuple(HourCount(hour=time_of(at), dead_letters=n) for at, n in hours),
            samples=tuple(map(DeadLetter.of, preview.samples)),
            complete=counts.place is None,
        )


def _place(letter: LetterAt) -> tuple[str, int, int]:
    return letter.topic, letter.partition, letter.offset


def _shown(found: letter_values.DeadLetterFilter, *, with_payload: bool) -> ShownFilter:
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


OnceKey = Annotated[
    str | None,
    Header(
        alias=HEADER,
        min_length=1,
        max_length=KEY_CHARS_MAX,
        description="A name for this redrive: sent again under it, on any instance, it is not begun"
        " again for as long as it is known.",
    ),
]

Name = Annotated[str, Path(max_length=100, description="The name of the redrive.")]

_CREATED: Final = {
    **errors(NOT_POSSIBLE, UNAVAILABLE),
    200: {"model": RedrivePreview, "description": "With `dry_run`: what it would be about."},
    202: {
        "model": Redrive,
        "description": "It runs.",
        "headers": {"Location": {"description": "Of the job.", "schema": {"type": "string"}}},
    },
}


def router(view: ServiceView) -> APIRouter:
    """Return the routes of redrives."""
    routes = APIRouter(tags=["dead letters"])
    redrives = view.redrives
    assert redrives is not None  # who has dead letters redrives them

    @routes.post("/v1/redrives", response_model=None, status_code=202, responses=_CREATED)
    async def begin(
        request: Request,
        order: RedriveOrder,
        dry_run: Annotated[bool, Query(description="Count and show samples only.")] = False,  # noqa: FBT002
        reason: Reason = "",
        key: OnceKey = None,
    ) -> Response:
        """Redrive dead letters; they stay where they are, a log of what was not accepted."""
        known = order.known(reason, actor_of(request))
        if known.filter.looks_into_payload and not may_read_payload(request):
            detail = "To filter by key or header is to learn of them; ask for payload:read."
            raise ProblemError(FORBIDDEN, detail)
        if dry_run:
            preview = RedrivePreview.of(await run_in_threadpool(redrives.preview, known))
            return _document(preview, 200)
        begun = await run_in_threadpool(redrives.order, known, key)
        if begun.order != known:
            detail = "Another redrive was begun under this key; make a key for each change."
            raise ProblemError(KEY_REUSED, detail)
        # The audit is read by more than may see payloads.
        after = Redrive.of(begun).model_dump(mode="json", by_alias=True)
        changed(request, before=None, after=after)
        return _document(_redrive_of(begun, request), 202, Location=f"/v1/redrives/{begun.id}")

    @routes.get("/v1/redrives", responses=errors(NOT_POSSIBLE, UNAVAILABLE))
    async def all_redrives(
        request: Request, page_size: PageSize = 100, page_token: PageToken = ""
    ) -> Redrives:
        """Return the redrives that are known, the newest first."""
        after = name_of(page_token)
        found = [_redrive_of(each, request) for each in await run_in_threadpool(redrives.all)]
        left = [each for each in found if after is None or _order(each) < after]
        page = left[:page_size]
        token = token_of(_order(page[-1])) if len(left) > page_size else None
        return Redrives(redrives=tuple(page), next_page_token=token, complete=token is None)

    @routes.get("/v1/redrives/{id}", responses=errors(NO_REDRIVE, UNAVAILABLE))
    async def redrive(request: Request, id: Name) -> Redrive:  # noqa: A002 - the name in the path
        """Return a redrive and how far it has come."""
        return _redrive_of(await _known(redrives.get, id), request)

    @routes.post("/v1/redrives/{id}:cancel", responses=errors(NO_REDRIVE, UNAVAILABLE))
    async def cancel(id: Name, how: Reasoned) -> Redrive:  # noqa: A002 - as above
        """End a redrive; what was redriven stays so. Of one that has ended nothing changes."""
        before = await _known(redrives.get, id)
        found = await _known(redrives.cancel, id)
        how.changed(before={"state": before.state}, after={"state": found.state})
        return _redrive_of(found, how.request)

    return routes


def _redrive_of(view: RedriveView, request: Request) -> Redrive:
    return Redrive.of(view, with_payload=may_read_payload(request))


def _order(redrive: Redrive) -> str:
    """Ids are given out in the order of time."""
    return redrive.id


def _document(document: Redrive | RedrivePreview, status: int, **headers: str) -> Response:
    content = document.model_dump(mode="json", by_alias=True)
    return JSONResponse(content, status_code=status, headers=headers)


async def _known(step: Callable[[str], RedriveView | None], name: str) -> RedriveView:
    found = await run_in_threadpool(step, name)
    if found is None:
        detail = f"No redrive {name} is known; those of long ago are forgotten, see /v1/redrives."
        raise ProblemError(NO_REDRIVE, detail)
    return found
