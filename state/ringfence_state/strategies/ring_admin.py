"""Ring administration: measure, list, forget and clear a ring by its segments.

A forgotten id leaves its number behind, so the others are evicted no sooner. A cleared ring keeps
counting, so later ids are never taken for older ones.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ringfence_state.keys import SEGMENTS, UnknownFormatError, after, prefix
from ringfence_state.model import Edit
from ringfence_state.segment import (
    FORGOTTEN,
    Segment,
    decode,
    encode,
    key,
    put,
    row_of,
    summary,
)
from ringfence_state.store import Store
from ringfence_state.strategies.base import Occupancy, RankedId
from ringfence_state.strategies.ring import extent_of, has_evicted


@dataclass(frozen=True, slots=True)
class StoredRing:
    """A ring as stored in its segments; it need not be in memory."""

    store: Store
    address: str
    floor: int
    """The number of the oldest id."""
    following: int
    """The number after the newest id."""
    capacity: int

    @classmethod
    def of(cls, store: Store, address: str, capacity: int) -> "StoredRing":
        """Read the ring of an address."""
        return cls(store, address, *bounds(store, address, capacity), capacity)

    def newest_first(self, below: int) -> Iterator[RankedId]:
        """Yield the ids with numbers below `below`."""
        return entries(self.store, self.address, min(below, self.following), self.floor)

    def oldest_first(self, first: int, end: int) -> Iterator[RankedId]:
        """Yield the ids with numbers from `first` to below `end`."""
        return entries_upwards(self.store, self.address, max(first, self.floor), end)

    def slots_to_eviction(self, number: int) -> int:
        """Return how many other ids may be added before capacity evicts this one."""
        return number - (self.following - self.capacity) + 1


def entries(store: Store, address: str, below: int, floor: int) -> Iterator[RankedId]:
    """Yield the entries of a ring, newest first, with numbers from `below` - 1 down to `floor`."""
    begin = prefix(SEGMENTS, address)
    segment_key = store.previous_key(key(address, below))
    while segment_key is not None and segment_key.startswith(begin):
        segment = decode(store.get(segment_key) or b"")
        for number in range(min(segment.end, below) - 1, max(segment.first, floor) - 1, -1):
            identifier = segment.ids[number - segment.first]
            if identifier != FORGOTTEN:
                yield RankedId(number, identifier, segment.origin(number))
        if segment.first <= floor:
            return
        segment_key = store.previous_key(segment_key)


def entries_upwards(store: Store, address: str, first: int, end: int) -> Iterator[RankedId]:
    """Yield the entries of a ring, oldest first, with numbers from `first` to below `end`."""
    begin = prefix(SEGMENTS, address)
    segment_key = store.previous_key(key(address, first + 1))
    if segment_key is None or not segment_key.startswith(begin):
        segment_key = store.next_key(begin)
    while segment_key is not None and segment_key.startswith(begin):
        segment = decode(store.get(segment_key) or b"")
        if segment.first >= end:
            return
        for number in range(max(segment.first, first), min(segment.end, end)):
            identifier = segment.ids[number - segment.first]
            if identifier != FORGOTTEN:
                yield RankedId(number, identifier, segment.origin(number))
        segment_key = store.next_key(segment_key + b"\0")


class StoredBounds(NamedTuple):
    """The bounds of a ring, as its newest segment has them."""

    next: int = 0
    floor: int = 0
    capacity: int | None = None
    has_evicted: bool = False
    held: int | None = None
    """How many ids a window holds; None if its newest segment does not say."""


def stored_bounds(store: Store, address: str, kind: bytes = SEGMENTS) -> StoredBounds:
    """Return the bounds of a ring or a window; those of an empty one if nothing is stored."""
    newest = store.previous_key(after(kind, address))
    if newest is None or not newest.startswith(prefix(kind, address)):
        return StoredBounds()
    last = summary(store.get(newest) or b"")
    following = last.first + len(last.ids)
    return StoredBounds(following, last.floor, last.capacity, last.has_evicted, last.held)


def bounds(store: Store, address: str, capacity: int) -> tuple[int, int]:
    """Return the number of the oldest id that a ring holds, and the number after its newest."""
    stored = stored_bounds(store, address)
    return max(stored.floor, stored.next - capacity), stored.next


def extent(store: Store, address: str, capacity: int) -> Occupancy:
    """Return the occupancy of a ring, read from its first and last segment in the store.

    Raises UnknownFormatError if a segment is damaged or missing.
    """
    stored = stored_bounds(store, address)
    floor = max(stored.floor, stored.next - capacity)
    evicted = has_evicted(stored, floor)
    time_ms_of = partial(_time_ms, store, address)
    return extent_of(floor, stored.next, capacity, time_ms_of, evicted=evicted)


def _time_ms(store: Store, address: str, number: int) -> int:
    segment_key = store.previous_key(key(address, number + 1))
    if segment_key is None or not segment_key.startswith(prefix(SEGMENTS, address)):
        raise UnknownFormatError(f"no segment holds number {number}")
    return row_of(store.get(segment_key) or b"", number).origin.time_ms


def forget_all(store: Store, address: str, numbers: Iterable[int]) -> list[Edit]:
    """Return the edits that remove the ids with these numbers from their segments."""
    segments: dict[bytes, list[int]] = {}
    for number in sorted(numbers):
        segment_key = store.previous_key(key(address, number + 1))
        assert segment_key is not None  # the ring holds the number
        segments.setdefault(segment_key, []).append(number)
    return [
        _without(segment_key, decode(store.get(segment_key) or b""), gone)
        for segment_key, gone in segments.items()
    ]


def _without(segment_key: bytes, segment: Segment, numbers: Iterable[int]) -> Edit:
    ids = list(segment.ids)
    for number in numbers:
        ids[number - segment.first] = FORGOTTEN
    return Edit(segment_key, encode(segment._replace(ids=tuple(ids))))


def clear(store: Store, address: str) -> list[Edit]:
    """Return the edits that leave a ring empty; its numbers go on."""
    keys = [segment_key for segment_key, _ in store.scan(prefix(SEGMENTS, address))]
    if not keys:
        return []
    newest = decode(store.get(keys[-1]) or b"")
    empty = Segment(newest.end, newest.end, newest.capacity, (), (), (), (), ())
    return [Edit(segment_key, None) for segment_key in keys] + [put(address, empty)]
