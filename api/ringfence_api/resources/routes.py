"""`/v1/routes…`: routes, changed while the service runs.

A route that is set here replaces the route of that name in the file as a whole.
"""

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Body, Response
from pydantic import BeforeValidator

from ringfence_api.content import well_formed
from ringfence_api.openapi import created, errors, tagged
from ringfence_api.parameters import PageSize, PageToken, RouteInPath, position_of, token_of
from ringfence_api.ports import ServiceView
from ringfence_api.preconditions import (
    check,
    check_match,
    set_etag,
)
from ringfence_api.problems import NO_SUCH_ROUTE, NOT_POSSIBLE, UNAVAILABLE, ProblemError
from ringfence_api.resources.settings_change import (
    ADMIN,
    WRITES,
    Describe,
    Options,
    Outcome,
    PutOptions,
    Route,
    Routes,
    SettingsWrite,
    WriteTarget,
    route_of,
    settings_editor,
    write,
)
from ringfence_service.config.model import Config
from ringfence_service.metadata.settings import SettingsOverlay
from ringfence_service.metadata.settings_change import Change, SettingsSnapshot

_READ_ONLY: Final = ("source", "paused", "etag")
_CHANGES = {**WRITES, **errors(NO_SUCH_ROUTE)}
_MAKES = {**_CHANGES, **created(Outcome)}

RouteBody = Annotated[
    dict[str, Any],
    BeforeValidator(well_formed),
    Body(
        description="The keys of `[[routes]]` in the file, without the name.",
        examples=[{"inputs": ["orders"]}],
    ),
]


def router(view: ServiceView) -> APIRouter:
    """Build the router for `/v1/routes`."""
    api = APIRouter(tags=["routes"])

    @api.get("/v1/routes", responses=errors(NOT_POSSIBLE, UNAVAILABLE))
    async def routes(page_size: PageSize = 100, page_token: PageToken = "") -> Routes:
        """List the effective routes, in the order in which they match topics."""
        snapshot = settings_editor(view).read()
        start = _start(page_token)
        found = snapshot.effective.config.routes
        page = found[start : start + page_size]
        ends = start + page_size >= len(found)
        return Routes(
            routes=tuple(Route.of(route, snapshot.holding) for route in page),
            revision=snapshot.revision,
            next_page_token=None if ends else token_of(start + page_size),
        )

    @api.get("/v1/routes/{name}", responses=tagged(NO_SUCH_ROUTE, UNAVAILABLE))
    async def route(name: RouteInPath, response: Response) -> Route:
        """Return an effective route."""
        found = _found(settings_editor(view).read(), name)
        set_etag(response, found.etag)
        return found

    @api.put("/v1/routes/{name}", responses=_MAKES, openapi_extra=ADMIN)
    async def put_route(name: RouteInPath, keys: RouteBody, options: PutOptions) -> Outcome:
        """Create a route, or replace one; its scope, address and id cannot change."""
        given = {key: value for key, value in keys.items() if key not in _READ_ONLY}

        def change(snapshot: SettingsSnapshot) -> SettingsOverlay:
            check(options.preconditions, _etag(snapshot, name), f"The route {name}")
            return snapshot.overlay.with_route(name, given, in_file=_in_file(snapshot, name))

        target = WriteTarget("routes", name, f"/v1/routes/{quote(name, safe='')}")
        return await write(view, options, change, _describe(name), target)

    @api.delete("/v1/routes/{name}", responses=_CHANGES, openapi_extra=ADMIN)
    async def delete_route(name: RouteInPath, options: Options) -> Outcome:
        """Delete a route; its inputs are no longer read."""

        def change(snapshot: SettingsSnapshot) -> SettingsOverlay:
            check(options.preconditions, _found(snapshot, name).etag, f"The route {name}")
            return snapshot.overlay.with_route(name, None, in_file=_in_file(snapshot, name))

        return await write(view, options, change, _describe(name))

    @api.post("/v1/routes/{name}:pause", responses=_CHANGES)
    async def pause_route(name: RouteInPath, options: Options) -> Outcome:
        """Stop reading the inputs of a route, on all instances and across restarts."""
        change = _pausing(name, options, paused=True)
        return await write(view, options, change, _describe(name))

    @api.post("/v1/routes/{name}:resume", responses=_CHANGES)
    async def resume_route(name: RouteInPath, options: Options) -> Outcome:
        """Resume reading the inputs of a route, from where reading stopped."""
        change = _pausing(name, options, paused=False)
        return await write(view, options, change, _describe(name))

    return api


def _pausing(name: str, options: SettingsWrite, *, paused: bool) -> Change:
    def change(snapshot: SettingsSnapshot) -> SettingsOverlay:
        check_match(
            options.preconditions.if_match, _found(snapshot, name).etag, f"The route {name}"
        )
        return snapshot.overlay.with_pause(name, paused=paused)

    return change


def _describe(name: str) -> Describe:
    def describe(config: Config, overlay: SettingsOverlay, _revision: int) -> dict[str, Any] | None:
        found = route_of(config, overlay, name)
        return None if found is None else found.model_dump(mode="json")

    return describe


def _found(snapshot: SettingsSnapshot, name: str) -> Route:
    found = route_of(snapshot.effective.config, snapshot.holding, name)
    if found is None:
        names = ", ".join(route.name for route in snapshot.effective.config.routes)
        raise ProblemError(NO_SUCH_ROUTE, f"There is no route {name}; existing routes: {names}.")
    return found


def _etag(snapshot: SettingsSnapshot, name: str) -> str | None:
    found = route_of(snapshot.effective.config, snapshot.holding, name)
    return None if found is None else found.etag


def _in_file(snapshot: SettingsSnapshot, name: str) -> bool:
    return any(route.name == name for route in snapshot.file.routes)


def _start(token: str) -> int:
    position = position_of(token)
    return position if isinstance(position, int) and position >= 0 else 0
