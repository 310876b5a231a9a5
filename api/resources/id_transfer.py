"""ID export and import of an address, as JSON and as lines of it.

An export can be imported unchanged by another service. An export may also be requested by POST, for
clients that know no other verb of `:export`.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Depends, Query, Request
from pydantic import ValidationError
from starlette.responses import StreamingResponse

from api.audit_context import Tried
from api.content import NDJSON, NdjsonAnswerRoute, NdjsonRequestRoute, lines_of, read_lines
from api.openapi import errors
from api.parameters import ID_WAYS, AddressingMode, PageSize, PageToken
from api.ports import ServiceView
from api.problems import NOT_POSSIBLE, UNAVAILABLE
from api.resources.id_schemas import Ids, Import, Imported, ImportedLine, Remembered, cursor_of
from api.restored import require_restored
from service.dedup.record import KnownId
from service.queries.errors import NotPossible, Unavailable
from service.queries.ids import IdsAnswer, IdsQuery, ImportAnswer, ImportIds
from state.model import PartitionId

_EXPORTED_AT_ONCE: Final = 2_000

_IMPORTED_AT_ONCE: Final = 4_000


class ImportTarget(NamedTuple):
    """Where lines are taken in."""

    address: str
    input: str | None
    """The topic in whose stead they are taken; None where each line names an input."""
    dry_run: bool


async def first_page(view: ServiceView, address: str) -> IdsAnswer:
    """Return how an export begins: whatever is wrong is told before the first line."""
    return await view.inbox.ask(_page(address), view.ask_timeout_s)


async def exported(view: ServiceView, address: str, page: IdsAnswer) -> AsyncIterator[bytes]:
    """Give the lines of this page and of all that follow it."""
    while True:
        rows = [Remembered.of(each) for each in page.ids]
        yield lines_of([row.model_dump(mode="json", exclude=_NOT_WRITTEN) for row in rows])
        if page.cursor is None:
            return
        query = _page(address)._replace(cursor=page.cursor)
        page = await view.inbox.ask(query, view.ask_timeout_s)


async def take_in(
    view: ServiceView, taking: ImportTarget, stream: AsyncIterator[bytes]
) -> Imported:
    """Import the lines of a stream."""
    done = Imported(ids=0, new=0, complete=True)
    seen: set[PartitionId] = set()
    try:
        async for part in _parts(stream):
            told = await _taken(view, taking, part, seen)
            done = Imported(
                ids=done.ids + told.ids,
                new=done.new + told.new,
                complete=done.complete and told.complete,
            )
    except (Unavailable, NotPossible) as error:
        if done.ids and not taking.dry_run:
            again = "send all of it again, since what is known stays as it is"
            error.args = (f"{error} {done.ids} ids were taken in before; {again}.",)
        raise
    return done


async def _parts(stream: AsyncIterator[bytes]) -> AsyncIterator[list[KnownId]]:
    part: list[KnownId] = []
    async for number, line in read_lines(stream):
        part.append(_known(number, line))
        if len(part) == _IMPORTED_AT_ONCE:
            yield part
            part = []
    if part:
        yield part


async def _taken(
    view: ServiceView, taking: ImportTarget, part: list[KnownId], seen: set[PartitionId]
) -> ImportAnswer:
    """Take in a part; one that names new places is looked at first, so that it is all or none."""
    places = {PartitionId(each.topic or "", each.partition or 0) for each in part}
    change = ImportIds(taking.address, taking.input, None, tuple(part), dry_run=True)
    if taking.dry_run or not places <= seen:
        answer = await view.inbox.ask(change, view.ask_timeout_s)
        if answer.ids < len(part):
            raise NotPossible(_foreign(len(part) - answer.ids, places))
        seen |= places
        if taking.dry_run:
            return answer
    return await view.inbox.ask(change._replace(dry_run=False), view.ask_timeout_s)


def _known(number: int, line: bytes) -> KnownId:
    try:
        return ImportedLine.model_validate_json(line).placed()
    except ValidationError as error:
        fault = error.errors()[0]
        where = "".join(f" {step}" for step in fault["loc"])
        what = fault["msg"].removeprefix("Value error, ")
        raise NotPossible(f"Line {number}{where}: {what}.") from None


def _foreign(count: int, places: set[PartitionId]) -> str:
    names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places)[:5])
    return (
        f"{count} ids belong to partitions that nobody here decides; their places are {names}. "
        "Name the input in whose stead they are taken with ?input=."
    )


def _page(address: str) -> IdsQuery:
    return IdsQuery(address, None, _EXPORTED_AT_ONCE, oldest_first=True)


_NOT_WRITTEN: Final = {"slots_to_eviction"}
"""It tells of the ring that they come from."""

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


def _add_lines(view: ServiceView, routes: APIRouter, way: AddressingMode) -> None:
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
        done = await take_in(view, ImportTarget(address, instead_of, how.dry_run), request.stream())
        how.changed(after={"address": address, "imported": done.ids, "new": done.new})
        return done

    for verb, handler, methods, route in (
        ("export", export_lines, ["GET", "POST"], NdjsonAnswerRoute),
        ("import", import_lines, ["POST"], NdjsonRequestRoute),
    ):
        routes.add_api_route(
            f"/v1{way.step}:{verb}",
            handler,
            methods=methods,
            responses=_CHANGES,
            response_model=Imported if route is NdjsonRequestRoute else None,
            include_in_schema=False,  # the routes of JSON describe these too
            openapi_extra=_READ if route is NdjsonAnswerRoute else None,
            route_class_override=route,
        )


def _add_export(view: ServiceView, routes: APIRouter, way: AddressingMode) -> None:
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


def _add_import(view: ServiceView, routes: APIRouter, way: AddressingMode) -> None:
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
        change = ImportIds(address, ids.topic, ids.partition, ids.known(), how.dry_run)
        answer = await view.inbox.ask(change, view.ask_timeout_s)
        how.changed(after={"address": address, "imported": answer.ids, "new": answer.new})
        return Imported(ids=answer.ids, new=answer.new, complete=answer.complete)
