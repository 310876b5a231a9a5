"""`/v1/addresses…`: addresses, and whether an id is remembered there.

Each query goes to the loop, which alone owns the state. Every resource can be addressed by path or
by query, because a proxy may decode or refuse a path. Kafka has no list of addresses: one that was
never seen has its settings and holds nothing.
"""

import asyncio
from datetime import datetime
from typing import Annotated, Literal, NamedTuple, Self, cast

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from api.openapi import errors
from api.parameters import (
    ADDRESS_WAYS,
    AddressInPath,
    IdInPath,
    OneAddressInQuery,
    PageSize,
    PageToken,
    place_of,
    token_of,
)
from api.ports import ServiceView
from api.problems import NOT_POSSIBLE, UNAVAILABLE
from api.resources.address_directory import (
    FIRST,
    AddressDirectoryCache,
    AddressOrder,
    RankedAddress,
)
from api.resources.sizing import Need, SizingPlan
from api.restored import require_restored
from api.schemas import Address, Document, Held, Identifier, maybe_time
from service.queries.addresses import AddressesQuery, AddressQuery, AddressRow, SortKey
from service.queries.errors import NotPossible
from service.queries.ids import IdQuery


class AddressItem(Document):
    """An address in a list: what is known of it without loading it into memory."""

    address: str = Field(description="The address.")
    strategy: str = Field(description="How duplicates are recognised: `ring`, `window` and so on.")
    ids_held: int | None = Field(
        description="Or publishers. Null where only loading it into memory would tell."
    )
    capacity: int = Field(description="Of all partitions that hold something of it.")
    fill: float | None = Field(description="From 0 to 1, of the fullest partition.")
    bytes: int = Field(description="Of memory; 0 where it is not in memory.")
    horizon_ms: int | None = Field(
        description="How far back it remembers, where it remembers least; null until it forgot."
    )
    oldest_time: datetime | None = Field(
        description="Time of the oldest id held; null without one."
    )
    newest_time: datetime | None = Field(
        description="Time of the newest id held; null without one."
    )
    accepted: int = Field(description="Records since the time of `counted_since`.")
    duplicates: int = Field(description="Duplicates since the time of `counted_since`.")
    partitions: int = Field(description="How many partitions hold something of it.")

    @classmethod
    def of(cls, row: AddressRow) -> Self:
        """Describe it."""
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

    addresses: tuple[AddressItem, ...] = Field(description="In the order that was asked for.")
    as_of: datetime = Field(
        description="When it was asked which addresses there are and in which order they stand:"
        " just now where they are few, up to a minute ago where they are a million or more."
        " What each one holds is read now."
    )
    counted_since: datetime | None = Field(
        description="When the last of the processes started that count."
    )
    next_page_token: str | None = Field(description="Null at the end.")
    complete: bool = Field(description="False: other instances may know more.")


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
        description="`-` is the largest first; `horizon` is the shortest first, where ids are"
        " forgotten soonest. Who has no such number comes last."
    ),
]

Prefix = Annotated[str, Query(max_length=4096, description="What the names begin with.")]


class AddressListing(NamedTuple):
    """What is listed."""

    prefix: str
    sort: Sort
    page_size: int
    page_token: str


async def list_addresses(
    view: ServiceView, directories: AddressDirectoryCache, listing: AddressListing
) -> Addresses:
    """Return one page."""
    key = cast("SortKey", listing.sort.removeprefix("-"))
    order, after = AddressOrder(key, listing.sort.startswith("-")), _after(listing)
    directory = await directories.newest()
    page = await asyncio.to_thread(directory.page, listing.prefix, order, after, listing.page_size)
    names = tuple(place.address for place in page.places)
    answer = await view.inbox.ask(AddressesQuery(names), view.ask_timeout_s)
    rows = {row.address: row for row in answer.rows}
    last = None if page.is_last else page.places[-1]
    return Addresses(
        addresses=tuple(AddressItem.of(rows[name]) for name in names if name in rows),
        as_of=directory.as_of,
        counted_since=maybe_time(answer.counted_since_ms or None),
        next_page_token=None if last is None else token_of([listing.sort, *last]),
        complete=directory.complete and answer.complete,
    )


def _after(listing: AddressListing) -> RankedAddress:
    if not listing.page_token:
        return FIRST
    match place_of(listing.page_token):
        case [listing.sort, bool(is_unknown), float() | int() as value, str(address)]:
            return RankedAddress(is_unknown, value, address)
        case _:
            sentence = (
                f"The page token is of no list that is sorted by {listing.sort}; "
                "begin with the first page."
            )
            raise NotPossible(sentence)


_READ = {"x-role": "viewer"}


def router(view: ServiceView) -> APIRouter:
    """Return the routes of addresses and ids."""
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
        """Return the addresses that anything is known of; of one that is named, all that is."""
        if name is not None:
            return await _address(view, name)
        require_restored(view.board.read())
        return await list_addresses(
            view, directories, AddressListing(prefix, sort, page_size, page_token)
        )

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
