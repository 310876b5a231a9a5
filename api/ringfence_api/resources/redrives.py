"""`/v1/redrives…`: jobs that process dead letters again.

A job is written to the metadata topic and run by one of the instances
(`service/ringfence_service/dead_letters`). It survives restarts, and sends no dead letter twice.
Reading needs the role `viewer`, every other operation `operator`, as everywhere
(`ringfence_api.principal.AccessRules`).
"""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final, Self

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import AwareDatetime, Field, PlainValidator, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from ringfence_api.audit_context import Reason, WithReason, actor_of, changed
from ringfence_api.middleware.idempotency import HEADER, KEY_CHARS_MAX
from ringfence_api.openapi import errors
from ringfence_api.parameters import (
    PageSize,
    PageToken,
    name_of,
    parse_id,
    parse_position,
    token_of,
)
from ringfence_api.ports import ServiceView, may_read_payload
from ringfence_api.problems import (
    FORBIDDEN,
    KEY_REUSED,
    NO_REDRIVE,
    NOT_POSSIBLE,
    UNAVAILABLE,
    ProblemError,
)
from ringfence_api.resources.dead_letter_schemas import DeadLetter, HourCount
from ringfence_api.schemas import Document, Given, ms_of, time_of
from ringfence_client.headers import id_text
from ringfence_service.dedup import dead_letter
from ringfence_service.queries import dead_letters
from ringfence_service.queries.dead_letters import RedriveView

LETTERS_MAX = 5_000
"""Positions that one request names: the job keeps them in one record of the metadata topic.

That record is written every few seconds while the job runs, and has to fit the client's
`message.max.bytes` (1 MB): it does with topic names of up to some 180 characters.
"""

_AUDITED: Final = 3
"""How many positions of dead letters are written into the audit log."""

_Bytes = Annotated[bytes, PlainValidator(parse_id, json_schema_input_type=str)]

_Topic = Annotated[str, Field(min_length=1, max_length=249)]


class LetterAt(Given):
    """The position of a dead letter."""

    topic: _Topic = Field(description="The dead-letter topic.")
    partition: int = Field(ge=0, lt=2**31, description="The number of the partition.")
    offset: int = Field(ge=0, lt=2**63, description="The offset of the dead letter.")


class Filter(Given):
    """Criteria for dead letters; an omitted criterion matches all."""

    address: str | None = Field(
        default=None, max_length=4096, description="The address that decided."
    )
    reason: tuple[Annotated[str, Field(max_length=100)], ...] = Field(
        default=(), max_length=50, description="Any of these reasons."
    )
    from_: AwareDatetime | None = Field(
        default=None, alias="from", description="Earliest time of the decision."
    )
    to: AwareDatetime | None = Field(
        default=None, description="End of the time range of the decision, exclusive."
    )
    header: dict[str, _Bytes] = Field(
        default={}, max_length=20, description="Values of original headers, by name."
    )
    key: _Bytes | None = Field(default=None, description="The key, as text, `hex:` or `base64:`.")

    def known(self, topics: tuple[str, ...] = ()) -> dead_letters.DeadLetterFilter:
        """Return the filter as a value of the service."""
        return dead_letters.DeadLetterFilter(
            topics=topics,
            address=self.address,
            reasons=self.reason,
            from_ms=None if self.from_ is None else ms_of(self.from_),
            to_ms=None if self.to is None else ms_of(self.to),
            headers=tuple(sorted(self.header.items())),
            key=self.key,
        )


class RedriveOrder(Given):
    """A request to redrive dead letters."""

    mode: dead_letter.Mode = Field(
        description="`through` decides the record again; `forget` forgets its id first, so that it "
        "is accepted; `bypass` writes it directly to the output and keeps the id."
    )
    topics: tuple[_Topic, ...] = Field(
        default=(), max_length=1_000, description="Dead-letter topics; all if empty."
    )
    filter: Filter = Field(
        default=Filter(), description="Criteria for the dead letters of the topics; by default all."
    )
    letters: tuple[LetterAt, ...] = Field(
        default=(),
        max_length=LETTERS_MAX,
        description="Single dead letters, instead of topics and filter.",
    )
    max_per_second: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="Maximum rate in dead letters per second; by default unlimited.",
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        lt=2**53,
        description="Maximum number of dead letters to redrive; by default all that match.",
    )
    reason: str = Field(
        default="", max_length=1_000, description="Why; may also be sent as query parameter."
    )

    @model_validator(mode="after")
    def _names_letters_once(self) -> Self:
        if self.letters and (self.topics or self.filter != Filter()):
            raise ValueError("send either letters, or topics and filter, not both")
        return self

    def known(self, reason: str, actor: str) -> dead_letters.RedriveRequest:
        """Return the request as a value of the service."""
        positions = (
            dead_letters.DeadLetterPosition(*each)
            for each in sorted(set(map(_position, self.letters)))
        )
        return dead_letters.RedriveRequest(
            mode=self.mode,
            filter=self.filter.known(self.topics),
            letters=tuple(positions),
            max_per_second=self.max_per_second,
            limit=self.limit,
            reason=self.reason or reason,
            actor=actor,
        )


class ShownFilter(Document):
    """The filter of a redrive, as requested."""

    address: str | None = Field(description="The address that decided; null for any.")
    reason: tuple[str, ...] = Field(description="Any of these reasons; all if empty.")
    from_: datetime | None = Field(
        serialization_alias="from", description="Earliest time of the decision; null for no bound."
    )
    to: datetime | None = Field(
        description="End of the time range of the decision, exclusive; null for no bound."
    )
    header: dict[str, str | None] = Field(
        description="Values as text or `hex:`; null without the role `payload:read`."
    )
    has_key: bool = Field(description="Whether the filter has a key.")
    key: str | None = Field(description="The key; null without the role `payload:read`.")


class Progress(Document):
    """The progress of a redrive, in records."""

    scanned: int = Field(description="Number of records scanned.")
    matched: int = Field(description="Number of them that match.")
    sent: int = Field(description="Number sent to the owners of their partitions.")
    accepted: int = Field(description="Number written to an output.")
    refused: int = Field(
        description="Number refused again: written as another dead letter, or dropped."
    )
    waiting: int = Field(description="Number waiting until their transaction group is complete.")
    skipped: dict[str, int] = Field(description="Number not redriven, by reason.")
    failed: int = Field(
        description="Number that failed: the broker or the route does not accept them."
    )


class Redrive(Document):
    """A redrive: the request, and its progress."""

    id: str = Field(description="The id of the redrive.")
    state: dead_letters.State = Field(description="Whether it is running, or how it ended.")
    mode: dead_letter.Mode = Field(description="`through`, `forget` or `bypass`.")
    topics: tuple[str, ...] = Field(description="Dead-letter topics; all if empty.")
    filter: ShownFilter = Field(description="The criteria for dead letters.")
    letters: int = Field(description="Number of single dead letters; 0 with a filter.")
    max_per_second: float | None = Field(
        description="Maximum rate in dead letters per second; null for no limit."
    )
    limit: int | None = Field(
        description="Maximum number of dead letters to redrive; null for all."
    )
    reason: str = Field(description="The reason given with the request.")
    created_at: datetime = Field(description="When it was requested.")
    created_by: str = Field(description="Who requested it.")
    updated_at: datetime = Field(description="When its progress was last written.")
    ended_at: datetime | None = Field(description="When it ended; null while it is running.")
    records_total: int = Field(
        description="Approximate number of records to scan, at the time of the request."
    )
    progress: Progress = Field(description="The progress, in records.")
    share: float = Field(description="Completed share, 0 to 1, of the records or of the limit.")
    rate_per_second: float = Field(description="Current rate in dead letters per second.")
    eta_seconds: float | None = Field(
        description="Estimated seconds until it ends; null if unknown."
    )
    waiting_for: str | None = Field(description="What it waits for; null unless it waits.")
    error: str | None = Field(description="Why it failed; null unless it failed.")

    @classmethod
    def of(cls, view: dead_letters.RedriveView, *, with_payload: bool = False) -> Self:
        """Build the document from a redrive; `with_payload` adds keys and headers of its filter."""
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
    """A page of the known redrives, newest first."""

    redrives: tuple[Redrive, ...] = Field(description="The redrives, newest first.")
    next_page_token: str | None = Field(
        description="Send it as `page_token` to get the next page; null on the last page."
    )
    complete: bool = Field(description="If false, there are more pages.")


class RedrivePreview(Document):
    """What a redrive would affect: counts, as far as one request scans, and samples."""

    records_total: int = Field(description="Approximate number of records to scan.")
    scanned: int = Field(description="Number of records scanned.")
    matched: int = Field(description="Number of them that match.")
    skipped: dict[str, int] = Field(description="Number that cannot be redriven, by reason.")
    redrives: int = Field(
        description="Number that will be redriven, within `limit`; an estimate if `complete` is "
        "false, or if there are both a limit and `skipped`."
    )
    doubles: int = Field(
        description="Number of these that were refused as duplicates and will be written in this "
        "mode: the output will then contain them twice."
    )
    by_reason: dict[str, int] = Field(description="Dead letters by reason.")
    by_address: dict[str, int] = Field(description="Dead letters by address.")
    by_topic: dict[str, int] = Field(description="Dead letters by dead-letter topic.")
    by_hour: tuple[HourCount, ...] = Field(description="Dead letters by the hour of the decision.")
    samples: tuple[DeadLetter, ...] = Field(description="Some of the dead letters that match.")
    complete: bool = Field(description="If false, there are more records than were scanned.")

    @classmethod
    def of(cls, preview: dead_letters.RedriveEstimate) -> Self:
        """Build the document from an estimate."""
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
            complete=counts.cursor is None,
        )


def _position(letter: LetterAt) -> tuple[str, int, int]:
    return letter.topic, letter.partition, letter.offset


def _shown(found: dead_letters.DeadLetterFilter, *, with_payload: bool) -> ShownFilter:
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
        description="A unique key of this redrive: a repeated request with it, to any instance,"
        " does not start another one while the first is known.",
    ),
]

LetterOf = Annotated[
    str | None,
    Query(
        max_length=300,
        description="The position of a dead letter, as topic-partition@offset: list only the "
        "redrives that have sent it; none if no dead letter is there.",
    ),
]

Name = Annotated[str, Path(max_length=100, description="The id of the redrive.")]

_CREATED: Final = {
    **errors(NOT_POSSIBLE, UNAVAILABLE),
    200: {"model": RedrivePreview, "description": "With `dry_run`: what it would affect."},
    202: {
        "model": Redrive,
        "description": "The redrive has started.",
        "headers": {
            "Location": {"description": "Path of the redrive.", "schema": {"type": "string"}}
        },
    },
}


def router(view: ServiceView) -> APIRouter:
    """Build the router for `/v1/redrives`."""
    routes = APIRouter(tags=["dead letters"])
    redrives, letters = view.redrives, view.letters
    assert redrives is not None  # set in a program that writes dead letters
    assert letters is not None  # likewise

    def redrives_of(at: str | None) -> tuple[RedriveView, ...]:
        if at is None:
            return redrives.all()
        found = letters.one(dead_letters.DeadLetterPosition(*parse_position(at)))
        return () if isinstance(found, dead_letters.Absence) else redrives.all(found)

    @routes.post("/v1/redrives", response_model=None, status_code=202, responses=_CREATED)
    async def begin(
        request: Request,
        order: RedriveOrder,
        dry_run: Annotated[bool, Query(description="Only count, and return samples.")] = False,  # noqa: FBT002
        reason: Reason = "",
        key: OnceKey = None,
    ) -> Response:
        """Redrive dead letters. They stay in their topics, as a log of refused records."""
        known = order.known(reason, actor_of(request))
        if known.filter.looks_into_payload and not may_read_payload(request):
            detail = "A filter by key or header reveals payload; it needs the role payload:read."
            raise ProblemError(FORBIDDEN, detail)
        if dry_run:
            preview = RedrivePreview.of(await run_in_threadpool(redrives.preview, known))
            return _document(preview, 200)
        started = await run_in_threadpool(redrives.order, known, key)
        if started.order != known:
            detail = "This key was used for another redrive; use a new key for each change."
            raise ProblemError(KEY_REUSED, detail)
        # Not everyone who may read the audit log may read payload.
        after = Redrive.of(started).model_dump(mode="json", by_alias=True)
        first = [f"{topic}-{number}@{at}" for topic, number, at in known.letters[:_AUDITED]]
        changed(request, before=None, after={**after, "first_letters": first})
        return _document(_redrive_of(started, request), 202, Location=f"/v1/redrives/{started.id}")

    @routes.get("/v1/redrives", responses=errors(NOT_POSSIBLE, UNAVAILABLE))
    async def all_redrives(
        request: Request,
        letter: LetterOf = None,
        page_size: PageSize = 100,
        page_token: PageToken = "",
    ) -> Redrives:
        """List the known redrives, newest first."""
        after = name_of(page_token)
        listed = await run_in_threadpool(redrives_of, letter)
        found = [_redrive_of(each, request) for each in listed]
        left = [each for each in found if after is None or _sort_key(each) < after]
        page = left[:page_size]
        token = token_of(_sort_key(page[-1])) if len(left) > page_size else None
        return Redrives(redrives=tuple(page), next_page_token=token, complete=token is None)

    @routes.get("/v1/redrives/{id}", responses=errors(NO_REDRIVE, UNAVAILABLE))
    async def redrive(request: Request, id: Name) -> Redrive:  # noqa: A002 - the name in the path
        """Return a redrive and its progress."""
        return _redrive_of(await _found(redrives.get, id), request)

    @routes.post("/v1/redrives/{id}:cancel", responses=errors(NO_REDRIVE, UNAVAILABLE))
    async def cancel(id: Name, requested: WithReason) -> Redrive:  # noqa: A002 - the name in the path
        """Cancel a redrive. Redriven records stay so; a redrive that has ended does not change."""
        before = await _found(redrives.get, id)
        found = await _found(redrives.cancel, id)
        requested.changed(before={"state": before.state}, after={"state": found.state})
        return _redrive_of(found, requested.request)

    return routes


def _redrive_of(view: RedriveView, request: Request) -> Redrive:
    return Redrive.of(view, with_payload=may_read_payload(request))


def _sort_key(redrive: Redrive) -> str:
    """Return the id: ids sort by creation time."""
    return redrive.id


def _document(document: Redrive | RedrivePreview, status: int, **headers: str) -> Response:
    content = document.model_dump(mode="json", by_alias=True)
    return JSONResponse(content, status_code=status, headers=headers)


async def _found(operation: Callable[[str], RedriveView | None], name: str) -> RedriveView:
    found = await run_in_threadpool(operation, name)
    if found is None:
        detail = (
            f"There is no redrive {name}; old ones are removed. /v1/redrives lists the known ones."
        )
        raise ProblemError(NO_REDRIVE, detail)
    return found
