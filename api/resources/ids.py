"""`/v1/addresses/{address}/ids…`: the ids of an address, listed, looked up and forgotten.

By query they are `/v1/ids…?address=`; one id is named in the path, or by `?name=`.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Depends

from api.audit_context import RequestedChange, Tried
from api.openapi import errors
from api.parameters import (
    ADDRESS_WAYS,
    ID_WAYS,
    AddressingMode,
    AddressInPath,
    IdInPath,
    IdInQuery,
    OneIdInQuery,
    PageSize,
    PageToken,
)
from api.ports import ServiceView
from api.problems import NOT_POSSIBLE, UNAVAILABLE
from api.resources.id_schemas import Changed, FoundIds, Ids, Lookup, cursor_of
from api.restored import require_restored
from api.schemas import Identifier
from service.queries.addresses import AddressQuery
from service.queries.ids import ClearAddress, ForgetId, IdQuery, IdsLookup, IdsQuery

_CHANGES = errors(NOT_POSSIBLE, UNAVAILABLE)
_READ: Final = {"x-role": "viewer"}


def router(view: ServiceView) -> APIRouter:
    """Return the routes that tell and change what an address remembers."""
    routes = APIRouter(tags=["addresses"])
    for way in ID_WAYS:
        _add_reads(view, routes, way)
        _add_forgetting(view, routes, way)
    for way in ADDRESS_WAYS:
        _add_clearing(view, routes, way)

    @routes.delete("/v1/addresses/{address}/ids/{id}", responses=_CHANGES)
    async def forget_id(
        address: AddressInPath,
        id: IdInPath,  # noqa: A002 - the name in the path
        how: Tried,
    ) -> Changed:
        """Forget an id: its next message is accepted."""
        return await _forget(view, IdQuery(address, id), how)

    return routes


def _add_reads(view: ServiceView, routes: APIRouter, way: AddressingMode) -> None:
    @routes.get(f"/v1{way.step}", name=f"ids_by_{way.name}", responses=_CHANGES)
    async def ids(
        address: Annotated[str, Depends(way.read)],
        name: OneIdInQuery = None,
        page_size: PageSize = 100,
        page_token: PageToken = "",
    ) -> Ids | Identifier:
        """Return the ids that are remembered, the newest first; of one that is named, whether."""
        require_restored(view.board.read())
        if name is None:
            query = IdsQuery(address, cursor_of(page_token), page_size)
            return Ids.of(address, await view.inbox.ask(query, view.ask_timeout_s))
        one = IdQuery(address, name)
        return Identifier.of(one, await view.inbox.ask(one, view.ask_timeout_s))

    @routes.post(
        f"/v1{way.step}:lookup",
        name=f"look_up_by_{way.name}",
        responses=_CHANGES,
        openapi_extra=_READ,
    )
    async def look_up(address: Annotated[str, Depends(way.read)], ids: Lookup) -> FoundIds:
        """Tell of many ids whether they are remembered, and since which messages."""
        require_restored(view.board.read())
        query = IdsLookup(address, ids.ids)
        return FoundIds.of(query, await view.inbox.ask(query, view.ask_timeout_s))


def _add_forgetting(view: ServiceView, routes: APIRouter, way: AddressingMode) -> None:
    @routes.delete(
        f"/v1{way.step}", name=f"forget_id_with_address_by_{way.name}", responses=_CHANGES
    )
    async def forget_id_by_query(
        address: Annotated[str, Depends(way.read)], name: IdInQuery, how: Tried
    ) -> Changed:
        """Forget an id: its next message is accepted."""
        return await _forget(view, IdQuery(address, name), how)


def _add_clearing(view: ServiceView, routes: APIRouter, way: AddressingMode) -> None:
    @routes.post(f"/v1/addresses{way.step}:clear", name=f"clear_by_{way.name}", responses=_CHANGES)
    async def clear(address: Annotated[str, Depends(way.read)], how: Tried) -> Changed:
        """Forget all that an address remembers."""
        require_restored(view.board.read())
        before = await view.inbox.ask(AddressQuery(address), view.ask_timeout_s)
        change = ClearAddress(address, how.dry_run)
        done = Changed.of(await view.inbox.ask(change, view.ask_timeout_s))
        held = [ring.ids_held for ring in before.partitions]
        how.changed(before={"address": address, "ids_held": held}, after={"ids_held": []})
        return done


async def _forget(view: ServiceView, query: IdQuery, how: RequestedChange) -> Changed:
    require_restored(view.board.read())
    before = Identifier.of(query, await view.inbox.ask(query, view.ask_timeout_s))
    change = ForgetId(query.address, query.identifier, how.dry_run)
    done = Changed.of(await view.inbox.ask(change, view.ask_timeout_s))
    told = {"address", "id", "known", "sightings"}
    how.changed(before=before.model_dump(mode="json", include=told))
    return done
