"""Console routes: the pages and their static files.

The routes are not part of the OpenAPI document: they are for people, and may change at any time.
The samples for the charts and the last answers of the loops are kept in memory.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ringfence_api.console.client import ApiProblem, PageFailed
from ringfence_api.console.history import History, sample_periodically
from ringfence_api.console.last_answers import LastAnswers
from ringfence_api.console.pages import (
    addresses,
    audit,
    find,
    flow,
    ids,
    letters,
    login,
    partitions,
    redrives,
    settings,
)
from ringfence_api.console.render import ASSETS, MEDIA_TYPES, shows_problems
from ringfence_api.ports import ServiceView
from ringfence_api.problems import NOT_FOUND

PAGES: Final = (partitions, letters, redrives, settings, audit, login)
_CACHE_CONTROL: Final = "private, max-age=31536000, immutable"
"""The path of an asset contains its version, so it changes with the content."""


def router(view: ServiceView) -> APIRouter:
    """Build the router for the console."""
    history, last = History(), LastAnswers()

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        sampler = asyncio.create_task(sample_periodically(view, history))
        yield
        sampler.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampler

    routes = APIRouter(lifespan=lifespan, include_in_schema=False)
    flow.add(routes, history)
    addresses.add(routes, history, last)
    ids.add(routes, last)
    find.add(routes, last)
    for page in PAGES:
        page.add(routes)

    @routes.get("/console/assets/{version}/{name}")
    async def asset(version: str, name: str) -> Response:  # noqa: ARG001 - makes the path unique
        """Return a static file."""
        if name not in ASSETS:
            raise HTTPException(404)
        headers = {"Cache-Control": _CACHE_CONTROL}
        return Response(ASSETS[name], media_type=MEDIA_TYPES[name], headers=headers)

    routes.add_route("/console/{rest:path}", _not_found, include_in_schema=False)
    return routes


@shows_problems("")
async def _not_found(_: Request) -> Response:
    detail = "There is no page of the console at this URL; the navigation lists all pages."
    raise PageFailed(ApiProblem(NOT_FOUND.status, NOT_FOUND.name, NOT_FOUND.title, detail))
