"""Addresses: `/v1/addresses…`, and whether an id is remembered there.

Each question goes to the loop, which alone owns the state. Every resource can be asked for in the
path or by query, because a proxy may decode or refuse what the path may hold.
Kafka keeps no list of addresses: one that was never seen has its settings and holds nothing.
"""

from typing import Annotated

from fastapi import APIRouter, Depends

from api.address_list import Listing, Prefix, SortInQuery, list_addresses
from api.address_schemas import Addresses
from api.directory import Directories
from api.documents import errors
from api.paging import PageSize, PageToken
from api.parameters import (
    ADDRESS_WAYS,
    AddressInPath,
    IdInPath,
    OneAddressInQuery,
)
from api.problems import NOT_POSSIBLE, UNAVAILABLE
from api.restored import require_restored
from api.schemas import Address, Identifier
from api.sizing_schemas import Need, SizingPlan
from api.view import ServiceView
from service.queries.addresses import AddressQuery
from service.queries.ids import IdQuery

_READ = {"x-role": "viewer"}


def router(view: ServiceView) -> APIRouter:
    """Return the routes of addresses and ids."""
    routes = APIRouter(tags=["addresses"])
    directories = Directories(view.inbox, view.ask_timeout_s)
    checked = errors(UNAVAILABLE)
    possible = errors(NOT_POSSIBLE, UNAVAILABLE)

    @routes.get("/v1/addresses", responses=possible)
    async def addresses(
        name: OneAddressInQuery = None,
        prefix: Prefix = "",
        sort: SortInQuery = "name",
        page_size: PageSize = 100,
        page_token: PageToken = "",
    ) -> Addresses | Address:
        """Return the addresses that anything is known of; of one that is named, all that is."""
        if name is not None:
            return await _address(view, name)
        require_restored(view.board.read())
        return await list_addresses(view, directories, Listing(prefix, sort, page_size, page_token))

    @routes.get("/v1/addresses/{address}", responses=errors(UNAVAILABLE))
    async def address_by_path(address: AddressInPath) -> Address:
        """Return one address: effective settings, and what its rings hold."""
        return await _address(view, address)

    for way in ADDRESS_WAYS:

        @routes.post(
            f"/v1/addresses{way.step}:plan",
            name=f"plan_by_{way.name}",
            responses=possible,
            openapi_extra=_READ,
        )
        async def plan(address: Annotated[str, Depends(way.read)], need: Need) -> SizingPlan:
            """Turn a rate and a retry window into a size; nothing is changed."""
            require_restored(view.board.read())
            answer = await view.inbox.ask(AddressQuery(address), view.ask_timeout_s)
            return SizingPlan.of(answer, need)

    @routes.get("/v1/addresses/{address}/ids/{id}", responses=checked)
    async def id_by_path(address: AddressInPath, id: IdInPath) -> Identifier:  # noqa: A002 - the name in the path
        """Tell whether an id is remembered, since which message, and for how long."""
        return await _identifier(view, IdQuery(address, id))

    return routes


async def _address(view: ServiceView, address: str) -> Address:
    require_restored(view.board.read())
    return Address.of(await view.inbox.ask(AddressQuery(address), view.ask_timeout_s))


async def _identifier(view: ServiceView, query: IdQuery) -> Identifier:
    require_restored(view.board.read())
    return Identifier.of(query, await view.inbox.ask(query, view.ask_timeout_s))
