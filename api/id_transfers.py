"""Transfers: ids of an address exported and imported, as JSON and as lines of it.

What is exported by one service is imported by another as it is. An export may be asked for by POST
too, for clients that know no other verb of `:export`.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import StreamingResponse

from api.documents import errors
from api.id_lines import Taking, exported, first_page, take_in
from api.id_schemas import Ids, Import, Imported, cursor_of
from api.media import NDJSON, AsksForLines, GivesLines
from api.paging import PageSize, PageToken
from api.parameters import ID_WAYS, Way
from api.problems import NOT_POSSIBLE, UNAVAILABLE
from api.restored import require_restored
from api.view import ServiceView
from api.writes import Tried
from service.queries.ids import IdsImport, IdsQuery

COMPLETE: Final = "Ringfence-Complete"
_CHANGES = errors(NOT_POSSIBLE, UNAVAILABLE)
_READ: Final = {"x-role": "viewer"}
_LINES: Final = {"content": {NDJSON: {"schema": {"type": "string"}}}}
InsteadOf = Annotated[
    str | None,
    Query(
        alias="input",
        max_length=249,
        description="The input in whose stead ids are taken that come from another topic.",
    ),
]


def router(view: ServiceView) -> APIRouter:
    """Return the routes that hand ids out and take them in."""
    routes = APIRouter(tags=["addresses"])
    for way in ID_WAYS:
        _add_lines(view, routes, way)
        _add_export(view, routes, way)
        _add_import(view, routes, way)
    return routes


def _add_lines(view: ServiceView, routes: APIRouter, way: Way) -> None:
    async def export_lines(
        address: Annotated[str, Depends(way.read)],
    ) -> StreamingResponse:
        """Return all ids that are remembered, the oldest first, as lines."""
        require_restored(view.board.read())
        page = await first_page(view, address)
        headers = {COMPLETE: str(page.complete).lower()}
        lines = exported(view, address, page)
        return StreamingResponse(lines, media_type=NDJSON, headers=headers)

    async def import_lines(
        request: Request,
        address: Annotated[str, Depends(way.read)],
        how: Tried,
        instead_of: InsteadOf = None,
    ) -> Imported:
        """Have an address know the ids of these lines, as if they had been accepted."""
        require_restored(view.board.read())
        done = await take_in(view, Taking(address, instead_of, how.dry_run), request.stream())
        how.changed(after={"address": address, "imported": done.ids, "new": done.new})
        return done

    for verb, handler, methods, route in (
        ("export", export_lines, ["GET", "POST"], AsksForLines),
        ("import", import_lines, ["POST"], GivesLines),
    ):
        routes.add_api_route(
            f"/v1{way.step}:{verb}",
            handler,
            methods=methods,
            responses=_CHANGES,
            response_model=Imported if route is GivesLines else None,
            include_in_schema=False,  # the routes of JSON describe these too
            openapi_extra=_READ if route is AsksForLines else None,
            route_class_override=route,
        )


def _add_export(view: ServiceView, routes: APIRouter, way: Way) -> None:
    path, read = f"/v1{way.step}:export", {**_READ, "responses": {"200": _LINES}}

    @routes.get(path, name=f"export_ids_by_{way.name}", responses=_CHANGES, openapi_extra=read)
    @routes.post(
        path, name=f"post_export_ids_by_{way.name}", responses=_CHANGES, openapi_extra=read
    )
    async def export_ids(
        address: Annotated[str, Depends(way.read)],
        page_size: PageSize = 1_000,
        page_token: PageToken = "",
    ) -> Ids:
        """Return the ids that are remembered, the oldest first, as they can be imported.

        In pages as JSON, all of them as lines where `application/x-ndjson` is accepted.
        """
        require_restored(view.board.read())
        query = IdsQuery(address, cursor_of(page_token), page_size, oldest_first=True)
        return Ids.of(address, await view.inbox.ask(query, view.ask_timeout_s))


def _add_import(view: ServiceView, routes: APIRouter, way: Way) -> None:
    taken = {"requestBody": _LINES}

    @routes.post(
        f"/v1{way.step}:import",
        name=f"import_ids_by_{way.name}",
        responses=_CHANGES,
        openapi_extra=taken,
    )
    async def import_ids(
        address: Annotated[str, Depends(way.read)], ids: Import, how: Tried
    ) -> Imported:
        """Have an address know these ids, as if they had been accepted.

        As JSON on one partition of an input; as lines (`application/x-ndjson`) as they were
        exported, each with its own, however many there are.
        """
        require_restored(view.board.read())
        change = IdsImport(address, ids.topic, ids.partition, ids.known(), how.dry_run)
        answer = await view.inbox.ask(change, view.ask_timeout_s)
        how.changed(after={"address": address, "imported": answer.ids, "new": answer.new})
        return Imported(ids=answer.ids, new=answer.new, complete=answer.complete)
