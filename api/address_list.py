"""The list of addresses: sorted by what matters, a page at a time.

The directory tells in which order the addresses stand; then the loops are asked what those of one
page hold. A page begins after the last address of the one before it, by what it was sorted by then;
so an address whose place changes meanwhile may be seen twice or not at all, and by name none ever
is.
"""

import asyncio
from typing import Annotated, Literal, NamedTuple, cast

from fastapi import Query

from api.address_schemas import Addresses, AddressItem
from api.directory import FIRST, Directories, Order, Place
from api.paging import place_of, token_of
from api.schemas import maybe_time
from api.view import ServiceView
from service.control import NotPossible
from service.queries.addresses import AddressesQuery, SortKey

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


class Listing(NamedTuple):
    """What is listed."""

    prefix: str
    sort: Sort
    page_size: int
    page_token: str


async def list_addresses(
    view: ServiceView, directories: Directories, listing: Listing
) -> Addresses:
    """Return one page."""
    key = cast("SortKey", listing.sort.removeprefix("-"))
    order, after = Order(key, listing.sort.startswith("-")), _after(listing)
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


def _after(listing: Listing) -> Place:
    if not listing.page_token:
        return FIRST
    match place_of(listing.page_token):
        case [listing.sort, bool(is_unknown), float() | int() as value, str(address)]:
            return Place(is_unknown, value, address)
        case _:
            sentence = (
                f"The page token is of no list that is sorted by {listing.sort}; "
                "begin with the first page."
            )
            raise NotPossible(sentence)
