"""Redrives: `/v1/redrives…`: dead letters sent on their way again, as jobs.

A job is written to the config topic and carried out by one of the instances; see
`service/redrive`. It survives restarts, and nothing is sent twice.
"""

from collections.abc import Callable
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from api.documents import errors
from api.idempotency import HEADER, KEY_CHARS_MAX
from api.letter_view import may_read_payload
from api.paging import PageSize, PageToken, name_of, token_of
from api.problems import (
    FORBIDDEN,
    KEY_REUSED,
    NO_REDRIVE,
    NOT_POSSIBLE,
    UNAVAILABLE,
    Refusal,
)
from api.redrive_schemas import Redrive, RedriveOrder, RedrivePreview, Redrives
from api.view import ServiceView
from api.writes import Reason, Reasoned, actor_of, changed
from service.letter_values import RedriveView

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
            raise Refusal(FORBIDDEN, detail)
        if dry_run:
            preview = RedrivePreview.of(await run_in_threadpool(redrives.preview, known))
            return _document(preview, 200)
        begun = await run_in_threadpool(redrives.order, known, key)
        if begun.order != known:
            detail = "Another redrive was begun under this key; make a key for each change."
            raise Refusal(KEY_REUSED, detail)
        # The audit is read by more than may see payloads.
        after = Redrive.of(begun).model_dump(mode="json", by_alias=True)
        changed(request, before=None, after=after)
        return _document(_shown(begun, request), 202, Location=f"/v1/redrives/{begun.id}")

    @routes.get("/v1/redrives", responses=errors(NOT_POSSIBLE, UNAVAILABLE))
    async def all_redrives(
        request: Request, page_size: PageSize = 100, page_token: PageToken = ""
    ) -> Redrives:
        """Return the redrives that are known, the newest first."""
        after = name_of(page_token)
        found = [_shown(each, request) for each in await run_in_threadpool(redrives.all)]
        left = [each for each in found if after is None or _order(each) < after]
        page = left[:page_size]
        token = token_of(_order(page[-1])) if len(left) > page_size else None
        return Redrives(redrives=tuple(page), next_page_token=token, complete=token is None)

    @routes.get("/v1/redrives/{id}", responses=errors(NO_REDRIVE, UNAVAILABLE))
    async def redrive(request: Request, id: Name) -> Redrive:  # noqa: A002 - the name in the path
        """Return a redrive and how far it has come."""
        return _shown(await _known(redrives.get, id), request)

    @routes.post("/v1/redrives/{id}:cancel", responses=errors(NO_REDRIVE, UNAVAILABLE))
    async def cancel(id: Name, how: Reasoned) -> Redrive:  # noqa: A002 - as above
        """End a redrive; what was redriven stays so. Of one that has ended nothing changes."""
        before = await _known(redrives.get, id)
        found = await _known(redrives.cancel, id)
        how.changed(before={"state": before.state}, after={"state": found.state})
        return _shown(found, how.request)

    return routes


def _shown(view: RedriveView, request: Request) -> Redrive:
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
        raise Refusal(NO_REDRIVE, detail)
    return found
