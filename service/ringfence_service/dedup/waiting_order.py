"""Waiting order: names of groups by age or time, of which the first is found without a scan.

`HeapOrder` is a heap whose entries stay when their group ends: the reader skips stale entries, and
`thin_out` removes them once they are the larger part. `EldestOrder` is the view of one transaction,
which changes no heap of the committed groups. `AddressCounts` has the number of groups by address.
Invariant: to add an entry, or to read one, costs the logarithm of the number of entries.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

_SPARE_MAX: Final = 64
"""Up to so many stale entries are not worth removing."""


class GroupName(NamedTuple):
    """The name of a group within an address."""

    address: str
    group: bytes


K = TypeVar("K", int, float)

Age = tuple[int, GroupName]
"""The offset at which a group began, and its name."""


class HeapOrder(Generic[K]):
    """Names by a key, the lowest first."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[K, GroupName]] = []

    def __iter__(self) -> Iterator[tuple[K, GroupName]]:
        """Yield all entries in order; the heap must not change meanwhile."""
        heap = self._heap
        front = [(heap[0], 0)] if heap else []
        while front:
            entry, at = heappop(front)
            yield entry
            for child in range(2 * at + 1, min(2 * at + 3, len(heap))):
                heappush(front, (heap[child], child))

    def add(self, entry: tuple[K, GroupName]) -> None:
        """Add an entry."""
        heappush(self._heap, entry)

    def first(self, counts: Callable[[tuple[K, GroupName]], bool]) -> tuple[K, GroupName] | None:
        """Return the first entry that counts, or None; remove those before it."""
        heap = self._heap
        while heap and not counts(heap[0]):
            heappop(heap)
        return heap[0] if heap else None

    def thin_out(self, live: int, counts: Callable[[tuple[K, GroupName]], bool]) -> None:
        """Remove what does not count, if that is more than the `live` entries that do."""
        if len(self._heap) > 2 * live + _SPARE_MAX:
            self._heap = list(filter(counts, self._heap))
            heapify(self._heap)


class EldestOrder:
    """The groups of a transaction, the eldest first: committed ones, and those that it begins."""

    __slots__ = ("_begun", "_committed", "_next")

    def __init__(self, committed: Iterator[Age]) -> None:
        self._committed = committed
        self._next = next(committed, None)
        self._begun = HeapOrder[int]()

    def begin(self, age: Age) -> None:
        """Add a group that the transaction begins."""
        self._begun.add(age)

    def first(self, is_open: Callable[[Age], bool]) -> Age:
        """Return the eldest group that is open; there is one. One that has ended never is again."""
        while self._next is not None and not is_open(self._next):
            self._next = next(self._committed, None)
        begun = self._begun.first(is_open)
        return min(age for age in (self._next, begun) if age is not None)


class AddressCounts:
    """How many groups of each address wait in a transaction, over those of the committed state."""

    def __init__(self, committed: Mapping[str, int]) -> None:
        self._committed = committed
        self._more = Counter[str]()
        self._addresses = len(committed)
        self._crossed: set[str] = set()

    def __len__(self) -> int:
        """Return how many addresses have waiting groups."""
        return self._addresses

    def __iter__(self) -> Iterator[str]:
        """Yield these addresses."""
        yield from (address for address in self._committed if self.of(address))
        yield from (a for a, more in self._more.items() if more and a not in self._committed)

    def of(self, address: str) -> int:
        """Return how many groups of an address wait."""
        return self._committed.get(address, 0) + self._more[address]

    def add(self, address: str, number: int) -> None:
        """Count a group that begins, 1, or ends, -1."""
        before = self.of(address)
        self._more[address] += number
        if not before or not before + number:
            self._addresses += number
            self._crossed.add(address)

    def crossed(self) -> Iterator[str]:
        """Yield the addresses that have begun or ceased to wait since the last call."""
        while self._crossed:
            yield self._crossed.pop()
