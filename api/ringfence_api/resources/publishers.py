"""`/v1/publishers…`: publishers, their sequence numbers and their sessions.

A session is opened on all instances; the response is sent once every deciding partition uses it.
"""

from datetime import datetime
from typing import Annotated, Self
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from pydantic import FailFast, Field
from starlette.concurrency import run_in_threadpool

from ringfence_api.audit_context import WithDryRun, WithReason
from ringfence_api.openapi import created, errors, tagged
from ringfence_api.parameters import PageSize, PageToken, PublisherInPath, position_of, token_of
from ringfence_api.ports import ServiceView
from ringfence_api.preconditions import IfMatch, Preconditions, check, etag_of, set_etag
from ringfence_api.problems import (
    MATCH_REQUIRED,
    NAME_IN_USE,
    NOT_POSSIBLE,
    STALE,
    UNAVAILABLE,
)
from ringfence_api.restored import require_restored
from ringfence_api.schemas import Document, Given, time_of
from ringfence_client.headers import NUMBER_MAX, bookmark
from ringfence_service.metadata.sessions import SessionRecord
from ringfence_service.queries.errors import NotPossible
from ringfence_service.queries.publishers import (
    PublisherAnswer,
    PublisherProgress,
    PublisherQuery,
    PublishersAnswer,
    PublishersQuery,
    SetSequence,
)

_Number = Annotated[int, Field(ge=1, le=NUMBER_MAX)]


class Opening(Given):
    """A request to open a session."""

    user: str = Field(
        default="",
        max_length=256,
        description="Who opens the session; the same user may replace an open one.",
    )


class Number(Given):
    """A sequence number to set for a publisher."""

    address: str = Field(min_length=1, description="The address that it writes to.")
    sequence: int = Field(
        ge=1, le=NUMBER_MAX, description="The highest sequence number that counts as accepted."
    )
    stream: int | None = Field(
        default=None, ge=0, le=NUMBER_MAX, description="The stream; with strategy `ordered`."
    )
    topic: str | None = Field(default=None, description="The input that it writes to.")
    partition: int | None = Field(
        default=None, ge=0, description="The partition that it writes to."
    )
    missing: Annotated[tuple[_Number, ...], FailFast()] = Field(
        default=(),
        max_length=1_000_000,
        description="With strategy `audit`: lower numbers that were not accepted; by default none.",
    )


class PublisherSequence(Document):
    """The progress of a publisher on one address."""

    address: str = Field(description="The address.")
    topic: str = Field(description="The topic whose records are decided.")
    partition: int = Field(description="The number of the partition.")
    sequence: int = Field(description="The highest accepted sequence number.")
    stream: int | None = Field(
        description="With strategy `ordered`: the number of the stream; else null."
    )
    bookmark: str = Field(description="The position as in the header `_BOOKMARK`.")

    @classmethod
    def of(cls, publisher: str, progress: PublisherProgress) -> Self:
        """Build the document from the progress of a publisher."""
        return cls(
            address=progress.address,
            topic=progress.topic,
            partition=progress.partition,
            sequence=progress.number,
            stream=progress.stream,
            bookmark=bookmark(publisher, progress.number).decode(),
        )


class Publisher(Document):
    """A publisher; an unknown one has no sequences."""

    publisher: str = Field(description="The name of the publisher.")
    epoch: int | None = Field(description="Epoch of its session; null without one.")
    user: str | None = Field(description="Who opened its session; null without one.")
    sequences: tuple[PublisherSequence, ...] = Field(description="Its progress, by address.")
    complete: bool = Field(description="If false, another instance may know more of it.")

    @property
    def is_known(self) -> bool:
        """Whether it has sent records or opened a session."""
        return bool(self.sequences) or self.epoch is not None

    @classmethod
    def of(cls, answer: PublisherAnswer) -> Self:
        """Build the document from the answer of the loops."""
        return cls(
            publisher=answer.publisher,
            epoch=answer.epoch,
            user=answer.user,
            sequences=tuple(
                PublisherSequence.of(answer.publisher, each) for each in answer.positions
            ),
            complete=answer.complete,
        )


class PublisherSession(Document):
    """An opened session, and the progress of its publisher at that time."""

    publisher: str = Field(description="The name of the publisher.")
    epoch: int = Field(description="Epoch of the session.")
    user: str = Field(description="Who opened the session.")
    opened_at: datetime = Field(description="When it was opened.")
    sequences: tuple[PublisherSequence, ...] = Field(description="Its progress, by address.")
    complete: bool = Field(description="If false, another instance may know more of it.")

    @classmethod
    def of(cls, name: str, session: SessionRecord, answer: PublisherAnswer) -> Self:
        """Build the document from a session and the answer of the loops."""
        return cls(
            publisher=name,
            epoch=session.epoch,
            user=session.user,
            opened_at=time_of(session.opened_at_ms),
            sequences=tuple(PublisherSequence.of(name, each) for each in answer.positions),
            complete=answer.complete,
        )


class Publishers(Document):
    """A page of publisher names."""

    publishers: tuple[str, ...] = Field(description="Names of publishers, sorted.")
    next_page_token: str | None = Field(
        description="Send it as `page_token` to get the next page; null on the last page."
    )
    complete: bool = Field(description="If false, other instances may have more.")

    @classmethod
    def of(cls, answer: PublishersAnswer, page_size: int) -> Self:
        """Build a page from an answer, which has one more name if there is a next page."""
        names = answer.publishers[:page_size]
        is_last = len(answer.publishers) <= page_size
        return cls(
            publishers=names,
            next_page_token=None if is_last else token_of([names[-1]]),
            complete=answer.complete,
        )


_SETTING = {**errors(NOT_POSSIBLE, STALE, MATCH_REQUIRED, UNAVAILABLE), **created(Publisher)}


def router(view: ServiceView) -> APIRouter:
    """Build the router for `/v1/publishers`."""
    routes = APIRouter(tags=["publishers"])
    registry = view.registry
    assert registry is not None  # set in a program that has state

    @routes.get("/v1/publishers", responses=errors(NOT_POSSIBLE, UNAVAILABLE))
    async def publishers(page_size: PageSize = 100, page_token: PageToken = "") -> Publishers:
        """List the names of known publishers, sorted."""
        require_restored(view.board.read())
        query = PublishersQuery(_after(page_token), page_size + 1)
        return Publishers.of(await view.inbox.ask(query, view.ask_timeout_s), page_size)

    @routes.get("/v1/publishers/{name}", responses=tagged(UNAVAILABLE))
    async def publisher(name: PublisherInPath, response: Response) -> Publisher:
        """Return the progress of a publisher on each address, and its session."""
        found = await _publisher(view, name)
        set_etag(response, _etag(found))
        return found

    @routes.put("/v1/publishers/{name}", responses=_SETTING)
    async def set_number(
        name: PublisherInPath,
        number: Number,
        response: Response,
        requested: WithDryRun,
        if_match: IfMatch = None,
    ) -> Publisher:
        """Set the sequence number of a publisher on an address, regardless of its progress.

        An unknown publisher has no state that could be lost, so it needs no `If-Match`.
        """
        before = await _publisher(view, name)
        if before.is_known or if_match is not None:
            check(Preconditions(if_match), _etag(before), f"The publisher {name}")
        change = SetSequence(
            publisher=name,
            address=number.address,
            number=number.sequence,
            stream=number.stream,
            topic=number.topic,
            partition=number.partition,
            missing=number.missing,
            dry_run=requested.dry_run,
        )
        after = Publisher.of(await view.inbox.ask(change, view.ask_timeout_s))
        requested.changed(
            before=before.model_dump(mode="json"), after=after.model_dump(mode="json")
        )
        if not requested.dry_run:
            set_etag(response, _etag(after))
            if not before.is_known:
                response.status_code = 201
                response.headers["Location"] = f"/v1/publishers/{quote(name, safe='')}"
        return after

    @routes.put("/v1/publishers/{name}/session", responses=errors(NAME_IN_USE, UNAVAILABLE))
    async def open_session(
        name: PublisherInPath, opening: Opening, requested: WithReason
    ) -> PublisherSession:
        """Open a session for a user; from then on, records of earlier epochs are refused."""
        require_restored(view.board.read())
        session = await run_in_threadpool(registry.open, name, opening.user)
        requested.changed(after=session._asdict())
        answer = await view.inbox.ask(PublisherQuery(name), view.ask_timeout_s)
        return PublisherSession.of(name, session, answer)

    @routes.delete(
        "/v1/publishers/{name}/session",
        status_code=204,
        responses=errors(NAME_IN_USE, UNAVAILABLE),
    )
    async def end_session(
        name: PublisherInPath,
        requested: WithReason,
        user: Annotated[str, Query(max_length=256, description="Who opened the session.")] = "",
    ) -> None:
        """End the session; until the next one, epochs of this publisher are not checked."""
        await run_in_threadpool(registry.end, name, user)
        requested.changed(before={"user": user})

    return routes


def _etag(publisher: Publisher) -> str:
    """Return the ETag; it does not depend on which instances have responded."""
    return etag_of(publisher.model_dump(mode="json", exclude={"complete"}))


async def _publisher(view: ServiceView, name: str) -> Publisher:
    require_restored(view.board.read())
    return Publisher.of(await view.inbox.ask(PublisherQuery(name), view.ask_timeout_s))


def _after(page_token: str) -> str:
    if not page_token:
        return ""
    match position_of(page_token):
        case [str(name)]:
            return name
        case _:
            raise NotPossible("The page token is not one that a page of publishers returned.")
