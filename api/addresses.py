"""Addresses and their ids: `/v1/addresses…` and `/v1/ids`.

Each question goes to the loop, which alone owns the state. Every resource can be asked for in the
path or by query, because a proxy may decode or refuse what the path may hold.
Kafka keeps no list of addresses: one that was never seen has its settings and holds nothing.
"""

from fastapi import APIRouter

from api.documents import errors
from api.parameters import AddressInPath, AddressInQuery, IdInPath, IdInQuery
from api.problems import INVALID, UNAVAILABLE
from api.schemas import Address, Identifier
from api.view import ServiceView
from service.control import AddressQuery, IdQuery, NotRestored
from service.status import Status


def router(view: ServiceView) -> APIRouter:
    """Return the routes of addresses and ids."""
    routes = APIRouter(tags=["addresses"])
    checked = errors(INVALID, UNAVAILABLE)

    @routes.get("/v1/addresses", responses=checked)
    async def address_by_query(name: AddressInQuery) -> Address:
        """Return one address: effective settings, and what its rings hold."""
        return await _address(view, name)

    @routes.get("/v1/addresses/{address}", responses=errors(UNAVAILABLE))
    async def address_by_path(address: AddressInPath) -> Address:
        """Return one address: effective settings, and what its rings hold."""
        return await _address(view, address)

    @routes.get("/v1/addresses/{address}/ids", responses=checked)
    async def id_by_query(address: AddressInPath, name: IdInQuery) -> Identifier:
        """Tell whether an id is remembered, since which message, and for how long."""
        return await _identifier(view, IdQuery(address, name))

    @routes.get("/v1/addresses/{address}/ids/{id}", responses=checked)
    async def id_by_path(address: AddressInPath, id: IdInPath) -> Identifier:  # noqa: A002 - the name in the path
        """Tell whether an id is remembered, since which message, and for how long."""
        return await _identifier(view, IdQuery(address, id))

    @routes.get("/v1/ids", responses=checked)
    async def id_and_address_by_query(address: AddressInQuery, name: IdInQuery) -> Identifier:
        """Tell whether an id is remembered, since which message, and for how long."""
        return await _identifier(view, IdQuery(address, name))

    return routes


async def _address(view: ServiceView, address: str) -> Address:
    _require_restored(view.board.read())
    return Address.of(await view.inbox.ask(AddressQuery(address), view.ask_timeout_s))


async def _identifier(view: ServiceView, query: IdQuery) -> Identifier:
    _require_restored(view.board.read())
    return Identifier.of(query, await view.inbox.ask(query, view.ask_timeout_s))


def _require_restored(status: Status) -> None:
    """Refuse to answer from a state that is not whole: `not known` would be a guess."""
    if status.phase in {"starting", "stopping"}:
        sentence = f"The service is {status.phase} and owns no partition now; see /readyz."
        raise NotRestored(sentence, retry_after_s=2)
    behind = sum(each.phase != "running" for each in status.partitions)
    if behind:
        sentence = (
            f"Not restored: {behind} of {len(status.partitions)} partitions owned; see /readyz."
        )
        raise NotRestored(sentence, retry_after_s=2)
