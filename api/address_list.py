"""The list of addresses: sorted by what matters, a page at a time.

Two questions: in which order the addresses stand, then what those of one page hold. A page begins
after the last address of the one before it, by what it was sorted by then; so an address whose
place changes meanwhile may be seen twice or not at all, and by name none ever is.
"""

from typing import Annotated, Final, Literal, NamedTuple, cast

from fastapi import Query

from api.address_schemas import Addresses, AddressItem
from api.paging import place_of, token_of
from api.schemas import maybe_time
from api.view import ServiceView
from service.control import NotPossible
from service.queries.addresses import AddressesQuery, AddressOrder, AddressRank, SortKey

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


class _Place(NamedTuple):
    """Where an address stands in the order."""

    is_unknown: bool
    value: float
    address: str


_FIRST: Final = _Place(is_unknown=False, value=float("-inf"), address="")


async def list_addresses(view: ServiceView, listing: Listing) -> Addresses:
    """Return one page."""
    key = cast("SortKey", listing.sort.removeprefix("-"))
    after = _after(listing)
    order = AddressOrder(listing.prefix, key, after.address, listing.page_size + 1)
    told = await view.inbox.ask(order, view.ask_timeout_s)
    sign = -1 if listing.sort.startswith("-") else 1
    places = sorted(_place(rank, sign) for rank in told.ranks)
    rest = [place for place in places if place > after]
    page = rest[: listing.page_size]
    names = tuple(place.address for place in page)
    answer = await view.inbox.ask(AddressesQuery(names), view.ask_timeout_s)
    rows = {row.address: row for row in answer.rows}
    is_last = len(rest) == len(page)
    return Addresses(
        addresses=tuple(AddressItem.of(rows[name]) for name in names if name in rows),
        counted_since=maybe_time(answer.counted_since_ms or None),
        next_page_token=None if is_last else token_of([listing.sort, *_written(page[-1])]),
        complete=answer.complete,
    )


def _place(rank: AddressRank, sign: int) -> _Place:
    if rank.value is None:
        return _Place(is_unknown=True, value=0.0, address=rank.address)
    return _Place(is_unknown=False, value=sign * rank.value, address=rank.address)


def _written(place: _Place) -> list[object]:
    return [place.is_unknown, place.value, place.address]


def _after(listing: Listing) -> _Place:
    if not listing.page_token:
        return _FIRST
    match place_of(listing.page_token):
        case [listing.sort, bool(is_unknown), float() | int() as value, str(address)]:
            return _Place(is_unknown, float(value), address)
        case _:
            sentence = (
                f"The page token is of no list that is sorted by {listing.sort}; "
                "begin with the first page."
            )
            raise NotPossible(sentence)
