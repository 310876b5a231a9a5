"""Address queries: what one or all addresses hold, and how the answers of several loops merge."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import chain
from operator import add
from typing import Final, Literal, NamedTuple

from service.queries.settings import EffectiveSetting


class AddressQuery(NamedTuple):
    """Asks what an address holds, and by which settings."""

    address: str


SortKey = Literal["name", "ids_held", "fill", "horizon", "accepted", "duplicates"]


class DirectoryQuery(NamedTuple):
    """Asks for all addresses, with all that they can be sorted by."""


class AddressesQuery(NamedTuple):
    """Asks what these addresses hold, as far as it is known without loading them."""

    addresses: tuple[str, ...]


class MemoryStatus(NamedTuple):
    """What one deciding partition remembers of an address."""

    topic: str
    partition: int
    ids_held: int | None
    """Or publishers, where an address goes by their numbers. None where it is not in memory and
    only loading it would tell."""
    capacity: int
    bytes: int
    """Of memory; 0 where it is not in memory."""
    oldest_time_ms: int | None
    newest_time_ms: int | None
    horizon_ms: int | None
    """Time of the newest id less that of the oldest; None until the ring has evicted once, and
    while a window is not full: then its time alone makes it forget."""


class AddressAnswer(NamedTuple):
    """An address as this instance knows it; one that holds nothing has settings all the same."""

    address: str
    settings: Mapping[str, EffectiveSetting]
    partitions: tuple[MemoryStatus, ...]
    accepted: int = 0
    duplicates: int = 0
    """Since the processes started."""
    counted_since_ms: int = 0
    """When the last of them started that counts; 0 where none does."""
    complete: bool = False
    """True when no deciding partition of the address belongs to another instance."""


class DirectoryAnswer(NamedTuple):
    """All addresses in no order, as columns, since they may be very many.

    An address stands once for each partition that holds something of it, and once for each loop
    that has counted what came to it. Whoever reads it brings that together, as `RANKING` says.
    """

    addresses: tuple[str, ...]
    ids_held: tuple[int | None, ...]
    fill: tuple[float | None, ...]
    horizon: tuple[int | None, ...]
    counted: tuple[str, ...]
    """Addresses again; what stands above ends here."""
    accepted: tuple[int, ...]
    duplicates: tuple[int, ...]
    complete: bool = False


class AddressRow(NamedTuple):
    """An address in a list."""

    address: str
    strategy: str
    partitions: tuple[MemoryStatus, ...]
    accepted: int
    duplicates: int


class AddressesAnswer(NamedTuple):
    """Addresses in the order of their names, those of which nothing is known left out."""

    rows: tuple[AddressRow, ...]
    counted_since_ms: int = 0
    complete: bool = False


RANKING: Final[Mapping[str, Callable[[float, float], float]]] = {
    "ids_held": add,
    "accepted": add,
    "duplicates": add,
    "fill": max,
    "horizon": min,
}
"""What an address is sorted by, of what two partitions tell: where it comes to the worst."""


def rings_in_order(rings: Iterable[MemoryStatus]) -> tuple[MemoryStatus, ...]:
    """What the partitions remember, each once."""
    by_place = {(ring.topic, ring.partition): ring for ring in rings}
    return tuple(by_place[place] for place in sorted(by_place))


def merged_address(_query: AddressQuery, answers: Sequence[AddressAnswer]) -> AddressAnswer:
    """What all partitions hold of it together."""
    rings = chain.from_iterable(answer.partitions for answer in answers)
    return answers[0]._replace(
        partitions=rings_in_order(rings),
        accepted=sum(answer.accepted for answer in answers),
        duplicates=sum(answer.duplicates for answer in answers),
        counted_since_ms=max(answer.counted_since_ms for answer in answers),
    )


def merged_directory(_query: DirectoryQuery, answers: Sequence[DirectoryAnswer]) -> DirectoryAnswer:
    """One after the other."""
    columns = zip(*(answer[:-1] for answer in answers), strict=True)
    return DirectoryAnswer._make((*(tuple(chain.from_iterable(each)) for each in columns), False))


def merged_addresses(_query: AddressesQuery, answers: Sequence[AddressesAnswer]) -> AddressesAnswer:
    """Each address once, with all partitions."""
    rows: dict[str, AddressRow] = {}
    for row in chain.from_iterable(answer.rows for answer in answers):
        before = rows.get(row.address)
        rows[row.address] = row if before is None else _together(before, row)
    since_ms = max(answer.counted_since_ms for answer in answers)
    return AddressesAnswer(tuple(rows[name] for name in sorted(rows)), since_ms)


def _together(one: AddressRow, other: AddressRow) -> AddressRow:
    return one._replace(
        partitions=rings_in_order((*one.partitions, *other.partitions)),
        accepted=one.accepted + other.accepted,
        duplicates=one.duplicates + other.duplicates,
    )


def first_after(names: Iterable[str], after: str, limit: int) -> list[str]:
    """So many names after one, each once, in order."""
    return nsmallest(limit, {name for name in names if name > after})
