"""Console routes: the pages and their static files.

The routes are not part of the OpenAPI document: they are for people, and change when people need
it. The samples behind the charts are kept here, from the start of the server to its end.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from api.console.client import ApiProblem, PageFailed
from api.console.history import History, sample_for_ever
from api.console.pages import (
    addresses,
    audit,
    flow,
    ids,
    letters,
    login,
    partitions,
    redrives,
    settings,
)
from api.console.render import ASSETS, MEDIA_TYPES, shown
from api.ports import ServiceView
from api.problems import NOT_FOUND

PAGES: Final = (partitions, ids, letters, redrives, settings, audit, login)
_FOR_EVER: Final = "private, max-age=31536000, immutable"
"""Its address changes with it."""


def router(view: ServiceView) -> APIRouter:
    """Return the routes of the console."""
    history = History()

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        sampler = asyncio.create_task(sample_for_ever(view, history))
        yield
        sampler.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampler

    routes = APIRouter(lifespan=lifespan, include_in_schema=False)
    flow.add(routes, history)
    addresses.add(routes, history)
    for page in PAGES:
        page.add(routes)

    @routes.get("/console/assets/{version}/{name}")
    async def asset(version: str, name: str) -> Response:  # noqa: ARG001 - it makes the address new
        """Something that a page loads."""
        if name not in ASSETS:
            raise HTTPException(404)
        headers = {"Cache-Control": _FOR_EVER}
        return Response(ASSETS[name], media_type=MEDIA_TYPES[name], headers=headers)

    routes.add_route("/console/{rest:path}", _nothing, include_in_schema=False)
    return routes


@shown("")
async def _nothing(_: Request) -> Response:
    detail = "No page of the console is at this address; the list of pages names all there are."
    raise PageFailed(ApiProblem(NOT_FOUND.status, NOT_FOUND.name, NOT_FOUND.title, detail))
