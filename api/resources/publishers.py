"""`/v1/publishers…`: publishers, their numbers and their sessions.

A session is opened for all instances, and answered when every deciding partition uses it.
"""

from datetime import datetime
from typing import Annotated, Self
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from api.audit_context import Reasoned, Tried
from api.openapi import errors, made, tagged
from api.parameters import PageSize, PageToken, PublisherInPath, place_of, token_of
from api.ports import ServiceView
from api.preconditions import IfMatch, Preconditions, check, etag_of, tell_etag
from api.problems import (
    MATCH_REQUIRED,
    NAME_IN_USE,
    NOT_POSSIBLE,
    STALE,
    UNAVAILABLE,
)
from api.restored import require_restored
from api.schemas import Document, Given, time_of
from ringfence.headers import NUMBER_MAX, bookmark
from service.metadata.sessions import SessionRecord
from service.queries.errors import NotPossible
from service.queries.publishers import (
    PublisherAnswer,
    PublisherProgress,
    PublisherQuery,
    PublishersAnswer,
    PublishersQuery,
    SetSequence,
)


class Opening(Given):
    """Who opens a session."""

    user: str = Field(default="", max_length=256, description="The same user may take over.")


class Number(Given):
    """Where a publisher is to stand."""

    address: str = Field(min_length=1, description="The address that it writes to.")
    sequence: int = Field(
        ge=1, le=NUMBER_MAX, description="The highest number that counts as accepted."
    )
    stream: int | None = Field(default=None, ge=0, le=NUMBER_MAX, description="With `ordered`.")
    topic: str | None = Field(default=None, description="The input that it writes.")
    partition: int | None = Field(default=None, ge=0, description="The partition that it writes.")
    missing: tuple[Annotated[int, Field(ge=1, le=NUMBER_MAX)], ...] = Field(
        default=(),
        max_length=1_000_000,
        description="With `audit`: numbers before it that were never accepted; else it covers all.",
    )


class Standing(Document):
    """How far a publisher has come on one address."""

    address: str = Field(description="The address.")
    topic: str = Field(description="The topic that is decided.")
    partition: int = Field(description="The number of the partition.")
    sequence: int = Field(description="The highest number that was accepted.")
    stream: int | None = Field(description="With `ordered`: the number in its stream; else null.")
    bookmark: str = Field(description="As the header `_BOOKMARK` has it.")

    @classmethod
    def of(cls, publisher: str, place: PublisherProgress) -> Self:
        """Describe it."""
        return cls(
            address=place.address,
            topic=place.topic,
            partition=place.partition,
            sequence=place.number,
            stream=place.stream,
            bookmark=bookmark(publisher, place.number).decode(),
        )


class Publisher(Document):
    """A publisher; one that is not known has come nowhere."""

    publisher: str = Field(description="The name of the publisher.")
    epoch: int | None = Field(description="Of its session; null without one.")
    user: str | None = Field(description="Who opened its session; null without one.")
    sequences: tuple[Standing, ...] = Field(description="How far it has come, by address.")
    complete: bool = Field(description="False: another instance may know more of it.")

    @property
    def is_known(self) -> bool:
        """Whether it has come anywhere, or opened a session."""
        return bool(self.sequences) or self.epoch is not None

    @classmethod
    def of(cls, answer: PublisherAnswer) -> Self:
        """Describe a publisher."""
        return cls(
            publisher=answer.publisher,
            epoch=answer.epoch,
            user=answer.user,
            sequences=tuple(Standing.of(answer.publisher, place) for place in answer.positions),
            complete=answer.complete,
        )


class PublisherSession(Document):
    """A session that was opened, and how far its publisher had come then."""

    publisher: str = Field(description="The name of the publisher.")
    epoch: int = Field(description="The number of the session.")
    user: str = Field(description="Who opened its session.")
    opened_at: datetime = Field(description="When it was opened.")
    sequences: tuple[Standing, ...] = Field(description="How far it has come, by address.")
    complete: bool = Field(description="False: another instance may know more of it.")

    @classmethod
    def of(cls, name: str, session: SessionRecord, answer: PublisherAnswer) -> Self:
        """Describe a session."""
        return cls(
            publisher=name,
            epoch=session.epoch,
            user=session.user,
            opened_at=time_of(session.opened_at_ms),
            sequences=tuple(Standing.of(name, place) for place in answer.positions),
            complete=answer.complete,
        )


class Publishers(Document):
    """A page of names."""

    publishers: tuple[str, ...] = Field(description="Names, in order.")
    next_page_token: str | None = Field(description="Null at the end.")
    complete: bool = Field(description="False: other instances may know more.")

    @classmethod
    def of(cls, answer: PublishersAnswer, page_size: int) -> Self:
        """Describe a page of an answer that may hold a name more."""
        names = answer.publishers[:page_size]
        is_last = len(answer.publishers) <= page_size
        return cls(
            publishers=names,
            next_page_token=None if is_last else token_of([names[-1]]),
            complete=answer.complete,
        )


_SETTING = {**errors(NOT_POSSIBLE, STALE, MATCH_REQUIRED, UNAVAILABLE), **made(Publisher)}


def router(view: ServiceView) -> APIRouter:
    """Return the routes of publishers."""
    routes = APIRouter(tags=["publishers"])
    registry = view.registry
    assert registry is not None  # who has publishers has one

    @routes.get("/v1/publishers", responses=errors(NOT_POSSIBLE, UNAVAILABLE))
    async def publishers(page_size: PageSize = 100, page_token: PageToken = "") -> Publishers:
        """Return names of publishers that are known, in order."""
        require_restored(view.board.read())
        query = PublishersQuery(_after(page_token), page_size + 1)
        return Publishers.of(await view.inbox.ask(query, view.ask_timeout_s), page_size)

    @routes.get("/v1/publishers/{name}", responses=tagged(UNAVAILABLE))
    async def publisher(name: PublisherInPath, response: Response) -> Publisher:
        """Return how far a publisher has come on each address, and whether it has a session."""
        found = await _publisher(view, name)
        tell_etag(response, _etag(found))
        return found

    @routes.put("/v1/publishers/{name}", responses=_SETTING)
    async def set_number(
        name: PublisherInPath,
        number: Number,
        response: Response,
        how: Tried,
        if_match: IfMatch = None,
    ) -> Publisher:
        """Have a publisher stand at a number of an address, whatever it did before.

        One that is not known yet has nothing that could be lost, and needs no `If-Match`.
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
            dry_run=how.dry_run,
        )
        after = Publisher.of(await view.inbox.ask(change, view.ask_timeout_s))
        how.changed(before=before.model_dump(mode="json"), after=after.model_dump(mode="json"))
        if not how.dry_run:
            tell_etag(response, _etag(after))
            if not before.is_known:
                response.status_code = 201
                response.headers["Location"] = f"/v1/publishers/{quote(name, safe='')}"
        return after

    @routes.put("/v1/publishers/{name}/session", responses=errors(NAME_IN_USE, UNAVAILABLE))
    async def open_session(
        name: PublisherInPath, opening: Opening, how: Reasoned
    ) -> PublisherSession:
        """Give the name to a user; from then on what is of an earlier epoch is refused."""
        require_restored(view.board.read())
        session = await run_in_threadpool(registry.open, name, opening.user)
        how.changed(after=session._asdict())
        answer = await view.inbox.ask(PublisherQuery(name), view.ask_timeout_s)
        return PublisherSession.of(name, session, answer)

    @routes.delete(
        "/v1/publishers/{name}/session",
        status_code=204,
        responses=errors(NAME_IN_USE, UNAVAILABLE),
    )
    async def end_session(
        name: PublisherInPath,
        how: Reasoned,
        user: Annotated[str, Query(max_length=256, description="Who opened it.")] = "",
    ) -> None:
        """Give the name back; nothing is checked under it until the next session."""
        await run_in_threadpool(registry.end, name, user)
        how.changed(before={"user": user})

    return routes


def _etag(publisher: Publisher) -> str:
    """Which instances have answered is nothing of the publisher's."""
    return etag_of(publisher.model_dump(mode="json", exclude={"complete"}))


async def _publisher(view: ServiceView, name: str) -> Publisher:
    require_restored(view.board.read())
    return Publisher.of(await view.inbox.ask(PublisherQuery(name), view.ask_timeout_s))


def _after(page_token: str) -> str:
    if not page_token:
        return ""
    match place_of(page_token):
        case [str(name)]:
            return name
        case _:
            raise NotPossible("The page token is none that a page of publishers has given.")
