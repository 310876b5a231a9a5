"""Address queries: the remembered ids of one or all addresses, and how several answers merge."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import chain
from operator import add
from typing import Final, Literal, NamedTuple

from ringfence_service.queries.settings import EffectiveSetting

SortKey = Literal["name", "ids_held", "fill", "horizon", "accepted", "duplicates"]


class MemoryStatus(NamedTuple):
    """The cache of an address on one deciding partition."""

    topic: str
    partition: int
    ids_held: int | None
    """The number of ids, or of publishers with a strategy of sequence numbers. None if the cache
    is not in memory and would have to be loaded to count them."""
    capacity: int
    bytes: int
    """Memory used; 0 if the cache is not in memory."""
    oldest_time_ms: int | None
    newest_time_ms: int | None
    horizon_ms: int | None
    """The time from the oldest id to the newest; None until a ring has evicted an id since it was
    empty, and while a window has lost none by number, since it then forgets by time alone."""
    runs: int = 0
    """The number of files that find its older ids; 0 if they are found in memory."""
    disk_bytes: int | None = None
    """Disk used: an estimate for stored ids, and its files. None if it is unknown until the cache
    is loaded, and for strategies of sequence numbers."""


class AddressAnswer(NamedTuple):
    """An address as this instance knows it; an empty address also has settings."""

    address: str
    settings: Mapping[str, EffectiveSetting]
    partitions: tuple[MemoryStatus, ...]
    accepted: int = 0
    duplicates: int = 0
    """Both counted since the workers started."""
    counted_since_ms: int = 0
    """When the last of the counting workers started; 0 if none counts."""
    complete: bool = False
    """True when no deciding partition of the address belongs to another instance."""
    shares: int = 1
    """Over how many partitions the size of its ring is divided."""


class DirectoryAnswer(NamedTuple):
    """All addresses without order, as columns, since there may be very many.

    An address appears once for each partition that has a cache of it, and once for each loop that
    has counted its records. The reader combines these values with the functions of `RANKING`.
    """

    addresses: tuple[str, ...]
    ids_held: tuple[int | None, ...]
    fill: tuple[float | None, ...]
    horizon: tuple[int | None, ...]
    counted: tuple[str, ...]
    """Addresses again, the first column of the counts; it has another length than those above."""
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
    """Addresses sorted by name, without those that are unknown here."""

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
"""How the sort keys of two partitions combine: sums, or else the worse value."""


def rings_in_order(rings: Iterable[MemoryStatus]) -> tuple[MemoryStatus, ...]:
    """Return one entry for each partition, sorted by partition."""
    by_partition = {(ring.topic, ring.partition): ring for ring in rings}
    return tuple(by_partition[key] for key in sorted(by_partition))


def _combined(one: AddressRow, other: AddressRow) -> AddressRow:
    return one._replace(
        partitions=rings_in_order((*one.partitions, *other.partitions)),
        accepted=one.accepted + other.accepted,
        duplicates=one.duplicates + other.duplicates,
    )


def first_after(names: Iterable[str], after: str, limit: int) -> list[str]:
    """Return up to `limit` distinct names after `after`, in order."""
    return nsmallest(limit, {name for name in names if name > after})


class AddressQuery(NamedTuple):
    """Asks for the remembered ids and the settings of an address."""

    address: str

    def merge(self, answers: Sequence[AddressAnswer]) -> AddressAnswer:
        """Return all partitions of the address, and the sums of the counts."""
        rings = chain.from_iterable(answer.partitions for answer in answers)
        return answers[0]._replace(
            partitions=rings_in_order(rings),
            accepted=sum(answer.accepted for answer in answers),
            duplicates=sum(answer.duplicates for answer in answers),
            counted_since_ms=max(answer.counted_since_ms for answer in answers),
        )


class DirectoryQuery(NamedTuple):
    """Asks for all addresses with all their sort keys."""

    def merge(self, answers: Sequence[DirectoryAnswer]) -> DirectoryAnswer:
        """Concatenate the columns."""
        columns = zip(*(answer[:-1] for answer in answers), strict=True)
        return DirectoryAnswer._make(
            (*(tuple(chain.from_iterable(each)) for each in columns), False)
        )


class AddressesQuery(NamedTuple):
    """Asks how full these addresses are, as far as it is known without loading them."""

    addresses: tuple[str, ...]

    def merge(self, answers: Sequence[AddressesAnswer]) -> AddressesAnswer:
        """Return each address once, with all its partitions."""
        rows: dict[str, AddressRow] = {}
        for row in chain.from_iterable(answer.rows for answer in answers):
            before = rows.get(row.address)
            rows[row.address] = row if before is None else _combined(before, row)
        since_ms = max(answer.counted_since_ms for answer in answers)
        return AddressesAnswer(tuple(rows[name] for name in sorted(rows)), since_ms)
