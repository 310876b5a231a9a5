"""`/v1/routes…`: the routes, changed while the service runs.

An entry that is set here replaces the file's entry of its name as a whole.
"""

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Body, Response
from pydantic import BeforeValidator

from api.content import well_formed
from api.openapi import errors, made, tagged
from api.parameters import PageSize, PageToken, RouteInPath, place_of, token_of
from api.ports import ServiceView
from api.preconditions import (
    check,
    check_match,
    tell_etag,
)
from api.problems import NO_SUCH_ROUTE, NOT_POSSIBLE, UNAVAILABLE, ProblemError
from api.resources.settings_change import (
    ADMIN,
    WRITES,
    Describe,
    How,
    HowMade,
    Outcome,
    Route,
    Routes,
    SettingsWrite,
    WriteTarget,
    desk_of,
    route_of,
    write,
)
from service.config.load import Config
from service.metadata.settings import SettingsOverlay
from service.metadata.settings_change import Change, SettingsSnapshot

_READ_ONLY: Final = ("source", "paused", "etag")
_CHANGES = {**WRITES, **errors(NO_SUCH_ROUTE)}
_MAKES = {**_CHANGES, **made(Outcome)}

RouteBody = Annotated[
    dict[str, Any],
    BeforeValidator(well_formed),
    Body(
        description="The keys of `[[routes]]` in the file, without the name.",
        examples=[{"inputs": ["orders"]}],
    ),
]


def router(view: ServiceView) -> APIRouter:
    """Return the routes of routes."""
    api = APIRouter(tags=["routes"])

    @api.get("/v1/routes", responses=errors(NOT_POSSIBLE, UNAVAILABLE))
    async def routes(page_size: PageSize = 100, page_token: PageToken = "") -> Routes:
        """Return the routes in force, in the order in which topics are matched."""
        standing = desk_of(view).read()
        start = _start(page_token)
        found = standing.effective.config.routes
        page = found[start : start + page_size]
        ends = start + page_size >= len(found)
        return Routes(
            routes=tuple(Route.of(route, standing.holding) for route in page),
            revision=standing.revision,
            next_page_token=None if ends else token_of(start + page_size),
        )

    @api.get("/v1/routes/{name}", responses=tagged(NO_SUCH_ROUTE, UNAVAILABLE))
    async def route(name: RouteInPath, response: Response) -> Route:
        """Return a route in force."""
        found = _found(desk_of(view).read(), name)
        tell_etag(response, found.etag)
        return found

    @api.put("/v1/routes/{name}", responses=_MAKES, openapi_extra=ADMIN)
    async def put_route(name: RouteInPath, keys: RouteBody, how: HowMade) -> Outcome:
        """Make a route, or put another in its place; scope, address and id never change."""
        given = {key: value for key, value in keys.items() if key not in _READ_ONLY}

        def change(standing: SettingsSnapshot) -> SettingsOverlay:
            check(how.preconditions, _etag(standing, name), f"The route {name}")
            return standing.overlay.with_route(name, given, in_file=_in_file(standing, name))

        place = WriteTarget("routes", name, f"/v1/routes/{quote(name, safe='')}")
        return await write(view, how, change, _describe(name), place)

    @api.delete("/v1/routes/{name}", responses=_CHANGES, openapi_extra=ADMIN)
    async def delete_route(name: RouteInPath, how: How) -> Outcome:
        """Read the inputs of a route no more, and forget that there was one of this name."""

        def change(standing: SettingsSnapshot) -> SettingsOverlay:
            check(how.preconditions, _found(standing, name).etag, f"The route {name}")
            return standing.overlay.with_route(name, None, in_file=_in_file(standing, name))

        return await write(view, how, change, _describe(name))

    @api.post("/v1/routes/{name}:pause", responses=_CHANGES)
    async def pause_route(name: RouteInPath, how: How) -> Outcome:
        """Read its inputs no further, on all instances and over restarts, until it is resumed."""
        change = _pausing(name, how, paused=True)
        return await write(view, how, change, _describe(name))

    @api.post("/v1/routes/{name}:resume", responses=_CHANGES)
    async def resume_route(name: RouteInPath, how: How) -> Outcome:
        """Read its inputs again, from where they were left."""
        change = _pausing(name, how, paused=False)
        return await write(view, how, change, _describe(name))

    return api


def _pausing(name: str, how: SettingsWrite, *, paused: bool) -> Change:
    def change(standing: SettingsSnapshot) -> SettingsOverlay:
        check_match(how.preconditions.if_match, _found(standing, name).etag, f"The route {name}")
        return standing.overlay.with_pause(name, paused=paused)

    return change


def _describe(name: str) -> Describe:
    def describe(config: Config, overlay: SettingsOverlay, _revision: int) -> dict[str, Any] | None:
        found = route_of(config, overlay, name)
        return None if found is None else found.model_dump(mode="json")

    return describe


def _found(standing: SettingsSnapshot, name: str) -> Route:
    found = route_of(standing.effective.config, standing.holding, name)
    if found is None:
        names = ", ".join(route.name for route in standing.effective.config.routes)
        raise ProblemError(NO_SUCH_ROUTE, f"There is no route {name}; there are {names}.")
    return found


def _etag(standing: SettingsSnapshot, name: str) -> str | None:
    found = route_of(standing.effective.config, standing.holding, name)
    return None if found is None else found.etag


def _in_file(standing: SettingsSnapshot, name: str) -> bool:
    return any(route.name == name for route in standing.file.routes)


def _start(token: str) -> int:
    place = place_of(token)
    return place if isinstance(place, int) and place >= 0 else 0
