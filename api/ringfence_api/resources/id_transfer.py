"""ID export and import of an address, as JSON and as NDJSON.

An export can be imported unchanged into another service. It can also be requested by POST, for
clients that expect this method for `:export`.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Depends, Query, Request
from pydantic import ValidationError
from starlette.responses import StreamingResponse

from ringfence_api.audit_context import WithDryRun
from ringfence_api.content import (
    NDJSON,
    NdjsonAnswerRoute,
    NdjsonRequestRoute,
    lines_of,
    read_lines,
)
from ringfence_api.openapi import errors
from ringfence_api.parameters import ID_MODES, AddressingMode, PageSize, PageToken
from ringfence_api.ports import ServiceView
from ringfence_api.problems import NOT_POSSIBLE, UNAVAILABLE
from ringfence_api.resources.id_schemas import (
    Ids,
    Import,
    Imported,
    ImportedLine,
    Remembered,
    cursor_of,
)
from ringfence_api.restored import require_restored
from ringfence_service.dedup.record import KnownId
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_service.queries.ids import IdsAnswer, IdsQuery, ImportAnswer, ImportIds
from ringfence_state.model import PartitionId

_EXPORT_PAGE: Final = 2_000

_IMPORT_BATCH: Final = 4_000

_IMPORT_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the lines of a batch, of which each may have an id of 64 KiB: it is held whole."""


class ImportTarget(NamedTuple):
    """The address and input that ids are imported into."""

    address: str
    input: str | None
    """The input that replaces the topic of each line; None to use the topic of the line."""
    dry_run: bool


async def first_page(view: ServiceView, address: str) -> IdsAnswer:
    """Return the first page of an export, so that errors are reported before the first line."""
    return await view.inbox.ask(_page(address), view.ask_timeout_s)


async def export_stream(view: ServiceView, address: str, page: IdsAnswer) -> AsyncIterator[bytes]:
    """Yield the NDJSON of this page and of all later pages."""
    while True:
        rows = [Remembered.of(each) for each in page.ids]
        yield lines_of([row.model_dump(mode="json", exclude=_NOT_EXPORTED) for row in rows])
        if page.cursor is None:
            return
        query = _page(address)._replace(cursor=page.cursor)
        page = await view.inbox.ask(query, view.ask_timeout_s)


async def import_stream(
    view: ServiceView, target: ImportTarget, stream: AsyncIterator[bytes]
) -> Imported:
    """Import the NDJSON lines of a stream, in batches.

    Raise NotPossible or Unavailable, with the number of ids that were already imported.
    """
    done = Imported(ids=0, new=0, complete=True)
    seen: set[PartitionId] = set()
    try:
        async for batch in _batches(stream):
            answer = await _import_batch(view, target, batch, seen)
            done = Imported(
                ids=done.ids + answer.ids,
                new=done.new + answer.new,
                complete=done.complete and answer.complete,
            )
    except (Unavailable, NotPossible) as error:
        if done.ids and not target.dry_run:
            retry = "send the whole import again: ids that are already known do not change"
            error.args = (f"{error} {done.ids} ids were imported before; {retry}.",)
        raise
    return done


async def _batches(stream: AsyncIterator[bytes]) -> AsyncIterator[list[KnownId]]:
    batch, size_bytes = list[KnownId](), 0
    async for number, line in read_lines(stream):
        batch.append(_known(number, line))
        size_bytes += len(line)
        if len(batch) == _IMPORT_BATCH or size_bytes >= _IMPORT_BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


async def _import_batch(
    view: ServiceView, target: ImportTarget, batch: list[KnownId], seen: set[PartitionId]
) -> ImportAnswer:
    """Import a batch; a dry run precedes it if it names new partitions, so it is all or nothing."""
    partitions = {PartitionId(each.topic or "", each.partition or 0) for each in batch}
    change = ImportIds(target.address, target.input, None, tuple(batch), dry_run=True)
    if target.dry_run or not partitions <= seen:
        answer = await view.inbox.ask(change, view.ask_timeout_s)
        if answer.ids < len(batch):
            raise NotPossible(_foreign(len(batch) - answer.ids, partitions))
        seen |= partitions
        if target.dry_run:
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


def _foreign(count: int, partitions: set[PartitionId]) -> str:
    names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(partitions)[:5])
    return (
        f"{count} ids belong to partitions that this service does not decide ({names}). "
        "Name the input that replaces their topic with ?input=."
    )


def _page(address: str) -> IdsQuery:
    return IdsQuery(address, None, _EXPORT_PAGE, oldest_first=True)


_NOT_EXPORTED: Final = {"slots_to_eviction"}
"""Fields that describe the exporting service and are not imported."""

COMPLETE: Final = "Ringfence-Complete"

_CHANGES = errors(NOT_POSSIBLE, UNAVAILABLE)

_READ: Final = {"x-role": "viewer"}

_LINES: Final = {"content": {NDJSON: {"schema": {"type": "string"}}}}

InputOverride = Annotated[
    str | None,
    Query(
        alias="input",
        max_length=249,
        description="The input that replaces the topic of the ids, if they come from another one.",
    ),
]


def router(view: ServiceView) -> APIRouter:
    """Build the router for exports and imports of ids."""
    routes = APIRouter(tags=["addresses"])
    for mode in ID_MODES:
        _add_lines(view, routes, mode)
        _add_export(view, routes, mode)
        _add_import(view, routes, mode)
    return routes


def _add_lines(view: ServiceView, routes: APIRouter, mode: AddressingMode) -> None:
    async def export_lines(
        address: Annotated[str, Depends(mode.read)],
    ) -> StreamingResponse:
        """Return all remembered ids as NDJSON, oldest first."""
        require_restored(view.board.read())
        page = await first_page(view, address)
        headers = {COMPLETE: str(page.complete).lower()}
        lines = export_stream(view, address, page)
        return StreamingResponse(lines, media_type=NDJSON, headers=headers)

    async def import_lines(
        request: Request,
        address: Annotated[str, Depends(mode.read)],
        requested: WithDryRun,
        input_override: InputOverride = None,
    ) -> Imported:
        """Import ids as NDJSON, as if they had been accepted."""
        require_restored(view.board.read())
        done = await import_stream(
            view, ImportTarget(address, input_override, requested.dry_run), request.stream()
        )
        requested.changed(after={"address": address, "imported": done.ids, "new": done.new})
        return done

    for verb, handler, methods, route in (
        ("export", export_lines, ["GET", "POST"], NdjsonAnswerRoute),
        ("import", import_lines, ["POST"], NdjsonRequestRoute),
    ):
        routes.add_api_route(
            f"/v1{mode.segment}:{verb}",
            handler,
            methods=methods,
            responses=_CHANGES,
            response_model=Imported if route is NdjsonRequestRoute else None,
            include_in_schema=False,  # described by the JSON routes
            openapi_extra=_READ if route is NdjsonAnswerRoute else None,
            route_class_override=route,
        )


def _add_export(view: ServiceView, routes: APIRouter, mode: AddressingMode) -> None:
    path, read = f"/v1{mode.segment}:export", {**_READ, "responses": {"200": _LINES}}

    @routes.get(path, name=f"export_ids_by_{mode.name}", responses=_CHANGES, openapi_extra=read)
    @routes.post(
        path, name=f"post_export_ids_by_{mode.name}", responses=_CHANGES, openapi_extra=read
    )
    async def export_ids(
        address: Annotated[str, Depends(mode.read)],
        page_size: PageSize = 1_000,
        page_token: PageToken = "",
    ) -> Ids:
        """Export the remembered ids, oldest first, in the format of an import.

        JSON is paged; with `Accept: application/x-ndjson`, all ids are returned as lines.
        """
        require_restored(view.board.read())
        query = IdsQuery(address, cursor_of(page_token), page_size, oldest_first=True)
        return Ids.of(address, await view.inbox.ask(query, view.ask_timeout_s))


def _add_import(view: ServiceView, routes: APIRouter, mode: AddressingMode) -> None:
    extra = {"requestBody": _LINES}

    @routes.post(
        f"/v1{mode.segment}:import",
        name=f"import_ids_by_{mode.name}",
        responses=_CHANGES,
        openapi_extra=extra,
    )
    async def import_ids(
        address: Annotated[str, Depends(mode.read)], ids: Import, requested: WithDryRun
    ) -> Imported:
        """Import ids, as if they had been accepted.

        JSON imports into one partition of an input; NDJSON (`application/x-ndjson`) has the format
        of an export, names the partition on each line, and may have any number of lines.
        """
        require_restored(view.board.read())
        change = ImportIds(address, ids.topic, ids.partition, ids.known(), requested.dry_run)
        answer = await view.inbox.ask(change, view.ask_timeout_s)
        requested.changed(after={"address": address, "imported": answer.ids, "new": answer.new})
        return Imported(ids=answer.ids, new=answer.new, complete=answer.complete)
