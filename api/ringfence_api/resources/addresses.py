"""`/v1/addresses…`: addresses, and which of them remember an id.

Each query goes to the loop, which alone owns the state. Every resource can be named in the path or
in the query, because a proxy may decode or refuse a path. An address need not be registered: one
that was never seen has effective settings and no state.
"""

import asyncio
from datetime import datetime
from typing import Annotated, Literal, NamedTuple, Self, cast

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from ringfence_api.openapi import errors
from ringfence_api.parameters import (
    ADDRESS_MODES,
    AddressInPath,
    IdInPath,
    IdInQuery,
    OneAddressInQuery,
    PageSize,
    PageToken,
    position_of,
    token_of,
)
from ringfence_api.ports import ServiceView
from ringfence_api.problems import NOT_POSSIBLE, UNAVAILABLE
from ringfence_api.resources.address_directory import (
    FIRST,
    AddressDirectoryCache,
    AddressOrder,
    RankedAddress,
)
from ringfence_api.resources.sizing import Need, SizingPlan
from ringfence_api.restored import require_restored
from ringfence_api.schemas import Address, Document, Held, Identifier, Sighting, maybe_time
from ringfence_client.headers import id_text
from ringfence_service.queries.addresses import AddressesQuery, AddressQuery, AddressRow, SortKey
from ringfence_service.queries.errors import NotPossible
from ringfence_service.queries.ids import IdQuery, IdSearch


class AddressItem(Document):
    """An address in a list: what is known without loading its ids into memory."""

    address: str = Field(description="The address.")
    strategy: str = Field(
        description="The strategy that recognises duplicates, such as `ring` or `window`."
    )
    ids_held: int | None = Field(
        description="Number of ids held (or of publishers); null if unknown until it is loaded."
    )
    capacity: int = Field(description="Number of ids that all of its partitions can hold.")
    fill: float | None = Field(
        description="Fill of the fullest partition, 0 to 1; null if unknown."
    )
    bytes: int = Field(description="Memory used, in bytes; 0 if it is not loaded.")
    horizon_ms: int | None = Field(
        description="How far back the partition with the shortest history remembers, in ms; null "
        "until an id was evicted."
    )
    oldest_time: datetime | None = Field(
        description="Time of the oldest id held; null if none is held."
    )
    newest_time: datetime | None = Field(
        description="Time of the newest id held; null if none is held."
    )
    accepted: int = Field(description="Records accepted since `counted_since`, with redrives.")
    duplicates: int = Field(description="Duplicates since `counted_since`, with redrives.")
    partitions: int = Field(description="Number of partitions that hold state of it.")

    @classmethod
    def of(cls, row: AddressRow) -> Self:
        """Build the document from a row of the answer."""
        held = Held.of(row.partitions)
        return cls(
            address=row.address,
            strategy=row.strategy,
            ids_held=held.ids_held,
            capacity=held.capacity,
            fill=held.fill,
            bytes=held.bytes,
            horizon_ms=held.horizon_ms,
            oldest_time=maybe_time(held.oldest_time_ms),
            newest_time=maybe_time(held.newest_time_ms),
            accepted=row.accepted,
            duplicates=row.duplicates,
            partitions=len(row.partitions),
        )


class Addresses(Document):
    """A page of addresses."""

    addresses: tuple[AddressItem, ...] = Field(description="In the requested order.")
    as_of: datetime = Field(
        description="When the addresses and their order were read: now for a short list, up to a"
        " minute ago for a million addresses or more. The values of an address are current."
    )
    counted_since: datetime | None = Field(
        description="Start of the most recently started process that counts."
    )
    next_page_token: str | None = Field(
        description="Send it as `page_token` to get the next page; null on the last page."
    )
    complete: bool = Field(description="If false, other instances may have more.")


Sort = Literal[
    "name",
    "ids_held",
    "-ids_held",
    "fill",
    "-fill",
    "horizon",
    "-horizon",
    "accepted",
    "-accepted",
    "duplicates",
    "-duplicates",
]

SortInQuery = Annotated[
    Sort,
    Query(
        description="`-` sorts in descending order; `horizon` lists first the addresses that evict"
        " ids soonest. Addresses without a value come last."
    ),
]

Prefix = Annotated[str, Query(max_length=4096, description="Prefix of the names.")]


class HoldingAddress(Document):
    """An address that remembers an id."""

    address: str = Field(description="The address.")
    sightings: tuple[Sighting, ...] = Field(description="The accepted messages with this id.")


class IdSearchResult(Document):
    """The addresses that remember an id, among those that one request searched."""

    id: str = Field(description="The id as text, or as `hex:` if it is not printable text.")
    addresses: tuple[HoldingAddress, ...] = Field(description="Sorted by name.")
    searched: int = Field(description="Number of addresses searched.")
    next_page_token: str | None = Field(
        description="Send it as `page_token` to search more addresses; null after the last."
    )
    complete: bool = Field(description="If false, other instances may have more.")


class AddressListing(NamedTuple):
    """The parameters of a list."""

    prefix: str
    sort: Sort
    page_size: int
    page_token: str


async def list_addresses(
    view: ServiceView, directories: AddressDirectoryCache, listing: AddressListing
) -> Addresses:
    """Return one page of addresses."""
    key = cast("SortKey", listing.sort.removeprefix("-"))
    order, after = AddressOrder(key, listing.sort.startswith("-")), _after(listing)
    directory = await directories.newest()
    page = await asyncio.to_thread(directory.page, listing.prefix, order, after, listing.page_size)
    names = tuple(each.address for each in page.positions)
    answer = await view.inbox.ask(AddressesQuery(names), view.ask_timeout_s)
    rows = {row.address: row for row in answer.rows}
    last = None if page.is_last else page.positions[-1]
    return Addresses(
        addresses=tuple(AddressItem.of(rows[name]) for name in names if name in rows),
        as_of=directory.as_of,
        counted_since=maybe_time(answer.counted_since_ms or None),
        next_page_token=None if last is None else token_of([listing.sort, *last]),
        complete=directory.complete and answer.complete,
    )


async def search_id(
    view: ServiceView,
    directories: AddressDirectoryCache,
    identifier: bytes,
    listing: AddressListing,
) -> IdSearchResult:
    """Return which addresses of one page of the list of all addresses remember an id."""
    directory = await directories.newest()
    order, after = AddressOrder("name", descends=False), _after(listing)
    page = await asyncio.to_thread(directory.page, listing.prefix, order, after, listing.page_size)
    names = tuple(each.address for each in page.positions)
    answer = await view.inbox.ask(IdSearch(identifier, names), view.ask_timeout_s)
    last = None if page.is_last else page.positions[-1]
    return IdSearchResult(
        id=id_text(identifier),
        addresses=tuple(
            HoldingAddress(address=name, sightings=tuple(map(Sighting.of, seen)))
            for name, seen in zip(names, answer.sightings, strict=True)
            if seen
        ),
        searched=len(names),
        next_page_token=None if last is None else token_of([listing.sort, *last]),
        complete=directory.complete and answer.complete,
    )


def _after(listing: AddressListing) -> RankedAddress:
    if not listing.page_token:
        return FIRST
    match position_of(listing.page_token):
        case [listing.sort, bool(is_unknown), float() | int() as value, str(address)]:
            return RankedAddress(is_unknown, value, address)
        case _:
            sentence = (
                f"The page token is not of a list sorted by {listing.sort}; "
                "start with the first page."
            )
            raise NotPossible(sentence)


_READ = {"x-role": "viewer"}


def router(view: ServiceView) -> APIRouter:
    """Build the router for addresses and single ids."""
    routes = APIRouter(tags=["addresses"])
    directories = AddressDirectoryCache(view.inbox, view.ask_timeout_s)
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
        """List the addresses that have state, or return the one that `name` names."""
        if name is not None:
            return await _address(view, name)
        require_restored(view.board.read())
        return await list_addresses(
            view, directories, AddressListing(prefix, sort, page_size, page_token)
        )

    @routes.get("/v1/addresses/{address}", responses=errors(UNAVAILABLE))
    async def address_by_path(address: AddressInPath) -> Address:
        """Return an address: its effective settings, and its state by partition."""
        return await _address(view, address)

    @routes.get("/v1/ids:search", responses=possible)
    async def search_ids(
        id: IdInQuery,  # noqa: A002 - the name in the query
        prefix: Prefix = "",
        page_size: PageSize = 100,
        page_token: PageToken = "",
    ) -> IdSearchResult:
        """Search the addresses for an id, in the order of their names, `page_size` at a time."""
        require_restored(view.board.read())
        listing = AddressListing(prefix, "name", page_size, page_token)
        return await search_id(view, directories, id, listing)

    for mode in ADDRESS_MODES:

        @routes.post(
            f"/v1/addresses{mode.segment}:plan",
            name=f"plan_by_{mode.name}",
            responses=possible,
            openapi_extra=_READ,
        )
        async def plan(address: Annotated[str, Depends(mode.read)], need: Need) -> SizingPlan:
            """Calculate the cache size for a rate and a retry window; nothing is changed."""
            require_restored(view.board.read())
            answer = await view.inbox.ask(AddressQuery(address), view.ask_timeout_s)
            return SizingPlan.of(answer, need, view.info().fast_path)

    @routes.get("/v1/addresses/{address}/ids/{id}", responses=checked)
    async def id_by_path(address: AddressInPath, id: IdInPath) -> Identifier:  # noqa: A002 - the name in the path
        """Return whether an id is remembered, since which message, and for how long."""
        return await _identifier(view, IdQuery(address, id))

    return routes


async def _address(view: ServiceView, address: str) -> Address:
    require_restored(view.board.read())
    return Address.of(await view.inbox.ask(AddressQuery(address), view.ask_timeout_s))


async def _identifier(view: ServiceView, query: IdQuery) -> Identifier:
    require_restored(view.board.read())
    return Identifier.of(query, await view.inbox.ask(query, view.ask_timeout_s))
