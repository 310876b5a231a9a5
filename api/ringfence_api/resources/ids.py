"""`/v1/addresses/{address}/ids…`: lists, looks up and forgets the ids of an address.

With the address in the query, the path is `/v1/ids…?address=`; a single id is named in the path or
by `?name=`.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Depends

from ringfence_api.audit_context import RequestedChange, WithDryRun
from ringfence_api.openapi import errors
from ringfence_api.parameters import (
    ADDRESS_MODES,
    ID_MODES,
    AddressingMode,
    AddressInPath,
    IdInPath,
    IdInQuery,
    OneIdInQuery,
    PageSize,
    PageToken,
)
from ringfence_api.ports import ServiceView
from ringfence_api.problems import NOT_POSSIBLE, UNAVAILABLE
from ringfence_api.resources.id_schemas import Changed, FoundIds, Ids, Lookup, cursor_of
from ringfence_api.restored import require_restored
from ringfence_api.schemas import Identifier
from ringfence_service.queries.addresses import AddressQuery
from ringfence_service.queries.ids import ClearAddress, ForgetId, IdQuery, IdsLookup, IdsQuery

_CHANGES = errors(NOT_POSSIBLE, UNAVAILABLE)
_READ: Final = {"x-role": "viewer"}


def router(view: ServiceView) -> APIRouter:
    """Build the router for the ids of addresses."""
    routes = APIRouter(tags=["addresses"])
    for mode in ID_MODES:
        _add_reads(view, routes, mode)
        _add_forgetting(view, routes, mode)
    for mode in ADDRESS_MODES:
        _add_clearing(view, routes, mode)

    @routes.delete("/v1/addresses/{address}/ids/{id}", responses=_CHANGES)
    async def forget_id(
        address: AddressInPath,
        id: IdInPath,  # noqa: A002 - the name in the path
        requested: WithDryRun,
    ) -> Changed:
        """Forget an id: the next message with it is accepted."""
        return await _forget(view, IdQuery(address, id), requested)

    return routes


def _add_reads(view: ServiceView, routes: APIRouter, mode: AddressingMode) -> None:
    @routes.get(f"/v1{mode.segment}", name=f"ids_by_{mode.name}", responses=_CHANGES)
    async def ids(
        address: Annotated[str, Depends(mode.read)],
        name: OneIdInQuery = None,
        page_size: PageSize = 100,
        page_token: PageToken = "",
    ) -> Ids | Identifier:
        """List the remembered ids, newest first; or return whether `name` is remembered."""
        require_restored(view.board.read())
        if name is None:
            query = IdsQuery(address, cursor_of(page_token), page_size)
            return Ids.of(address, await view.inbox.ask(query, view.ask_timeout_s))
        id_query = IdQuery(address, name)
        return Identifier.of(id_query, await view.inbox.ask(id_query, view.ask_timeout_s))

    @routes.post(
        f"/v1{mode.segment}:lookup",
        name=f"look_up_by_{mode.name}",
        responses=_CHANGES,
        openapi_extra=_READ,
    )
    async def look_up(address: Annotated[str, Depends(mode.read)], ids: Lookup) -> FoundIds:
        """Return for many ids whether they are remembered, and since which messages."""
        require_restored(view.board.read())
        query = IdsLookup(address, ids.ids)
        return FoundIds.of(query, await view.inbox.ask(query, view.ask_timeout_s))


def _add_forgetting(view: ServiceView, routes: APIRouter, mode: AddressingMode) -> None:
    @routes.delete(
        f"/v1{mode.segment}", name=f"forget_id_with_address_by_{mode.name}", responses=_CHANGES
    )
    async def forget_id_by_query(
        address: Annotated[str, Depends(mode.read)], name: IdInQuery, requested: WithDryRun
    ) -> Changed:
        """Forget an id: the next message with it is accepted."""
        return await _forget(view, IdQuery(address, name), requested)


def _add_clearing(view: ServiceView, routes: APIRouter, mode: AddressingMode) -> None:
    @routes.post(
        f"/v1/addresses{mode.segment}:clear", name=f"clear_by_{mode.name}", responses=_CHANGES
    )
    async def clear(address: Annotated[str, Depends(mode.read)], requested: WithDryRun) -> Changed:
        """Forget all ids of an address."""
        require_restored(view.board.read())
        before = await view.inbox.ask(AddressQuery(address), view.ask_timeout_s)
        change = ClearAddress(address, requested.dry_run)
        done = Changed.of(await view.inbox.ask(change, view.ask_timeout_s))
        held = [ring.ids_held for ring in before.partitions]
        requested.changed(before={"address": address, "ids_held": held}, after={"ids_held": []})
        return done


async def _forget(view: ServiceView, query: IdQuery, requested: RequestedChange) -> Changed:
    require_restored(view.board.read())
    before = Identifier.of(query, await view.inbox.ask(query, view.ask_timeout_s))
    change = ForgetId(query.address, query.identifier, requested.dry_run)
    done = Changed.of(await view.inbox.ask(change, view.ask_timeout_s))
    fields = {"address", "id", "known", "sightings"}
    requested.changed(before=before.model_dump(mode="json", include=fields))
    return done
