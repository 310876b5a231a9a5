"""Publishers: `/v1/publishers…`, their numbers and their sessions.

A session is opened for all instances, and answered when every deciding partition decides by it.
"""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from api.documents import errors, made, tagged
from api.paging import PageSize, PageToken, place_of
from api.parameters import PublisherInPath
from api.preconditions import IfMatch, Preconditions, check, etag_of, tell_etag
from api.problems import (
    MATCH_REQUIRED,
    NAME_IN_USE,
    NOT_POSSIBLE,
    STALE,
    UNAVAILABLE,
)
from api.publisher_schemas import Number, Opening, Publisher, Publishers, PublisherSession
from api.restored import require_restored
from api.view import ServiceView
from api.writes import Reasoned, Tried
from service.control import NotPossible
from service.queries.publishers import NumberChange, PublisherQuery, PublishersQuery

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
        change = NumberChange(
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
