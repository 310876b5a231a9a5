"""Rings in memory: whole, with ids and origins, or compact, with hashes and numbers.

Invariant: what a batch adds to a whole ring has numbers from `next` on until it is applied.
Dropping the draft is the abort: the next draft first removes what the last one left.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from struct import Struct
from typing import Final, cast

from state.keys import RUNS
from state.model import Claim, Origin, PackedPositions
from state.segment import (
    ID_BYTES_MAX,
    Segment,
    SegmentEntry,
    SegmentSummary,
    decode,
    outlived,
    remembered,
)
from state.strategies.base import StrategySettings
from state.strategies.ring import Admit, RingAdditions, RingContent, RingDraft

# Measured: dict entry, bytes object, number, pointer, offset and time of one id, without its text.
_ID_OVERHEAD_BYTES: Final = 190


class InMemoryRing:
    """See `Committed`: ids and runs in memory, for addresses that are small or busy."""

    __slots__ = (
        "_dead",
        "_drafted",
        "_firsts",
        "_known",
        "_overwritten",
        "_runs",
        "_sizes_bytes",
        "capacity",
        "floor",
        "memory_bytes",
        "next",
    )

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        """Ids by their newest number; those of an open draft among them."""
        self._drafted: list[bytes] = []
        self._overwritten: dict[bytes, int] = {}
        """Committed numbers of ids that the draft accepted anew."""
        self._runs: list[Segment] = []
        self._sizes_bytes: list[int] = []
        """What the runs take; the ids of an old one would have to be fetched into the cache."""
        self._dead: list[Segment] = []
        """Deleted runs whose ids are still to be forgotten."""
        self._firsts: list[int] = []
        """The numbers that the runs begin with: what a bisection compares fastest."""
        self.next = 0
        self.floor = 0
        self.capacity: int | None = None
        self.memory_bytes = 0

    def __len__(self) -> int:
        """How many ids it holds."""
        return self.next - self.floor

    def draft(self, capacity: int, packed_positions: PackedPositions) -> RingDraft:
        """Begin a batch under the capacity in force; there is one at a time."""
        self._take_back()
        return RingDraft(self, capacity, packed_positions)

    def begin(self, settings: StrategySettings, packed_positions: PackedPositions) -> RingDraft:
        """See `Memory.begin`."""
        return self.draft(settings.capacity, packed_positions)

    def apply(self, content: object) -> None:
        """See `Memory.apply`."""
        self.absorb(*cast("RingContent", content))

    def number_of(self, identifier: bytes) -> int | None:
        """See `Committed.number_of`."""
        return self._known.get(identifier)

    def admitter(self, capacity: int, added: RingAdditions) -> Admit:
        """See `Committed.admitter`.

        A closure, because it runs once for each record of a topic, and an attribute costs as much
        as a comparison. One access to the table both asks and remembers: an id that was not in it
        gets the next number.
        """
        known, overwritten = self._known, self._overwritten
        committed, following, floor = self.next, self.next, self.floor
        number_of = known.setdefault
        add_id, add_spot = added.ids.append, added.packed_positions.append
        add_time = added.times_ms.append
        self._drafted = added.ids

        def admit(identifier: bytes, packed_position: int, time_ms: int) -> int | None:
            nonlocal following
            if len(identifier) > ID_BYTES_MAX:
                identifier = remembered(identifier)
            number = number_of(identifier, following)
            if number != following:
                if number >= following - capacity and number >= floor:
                    return number
                if floor <= number < committed:
                    overwritten[identifier] = number
                known[identifier] = following
            following += 1
            add_id(identifier)
            add_spot(packed_position)
            add_time(time_ms)
            return None

        return admit

    def let_go(self, identifier: bytes) -> None:
        """See `Committed.let_go`."""
        number = self._known.pop(identifier)
        if number < self.next:
            self._overwritten[identifier] = number

    def origin(self, number: int) -> Origin:
        """See `Committed.origin`."""
        return self._runs[bisect_right(self._firsts, number) - 1].origin(number)

    def absorb(self, runs: Sequence[Segment], deleted: int = 0) -> None:
        """See `Committed.absorb`."""
        if sum(len(run.ids) for run in runs) == len(self._drafted):
            self._drafted, self._overwritten = [], {}  # all of it is known already
        else:
            self._take_back()
            for run in runs:
                self._known.update(zip(run.ids, range(run.first, run.end), strict=True))
        for run in runs:
            self.next, self.capacity = run.end, run.capacity
            self.floor = max(self.floor, run.floor)
            if run.ids:
                offsets, times_ms = array("q", run.offsets), array("q", run.times_ms)
                self._runs.append(run._replace(offsets=offsets, times_ms=times_ms))
                self._firsts.append(run.first)
                size_bytes = _memory_bytes(run)
                self._sizes_bytes.append(size_bytes)
                self.memory_bytes += size_bytes
        dead = self._runs[:deleted]
        self.memory_bytes -= sum(self._sizes_bytes[:deleted])
        del self._runs[:deleted], self._firsts[:deleted], self._sizes_bytes[:deleted]
        self._dead += dead

    def outlived(self) -> Sequence[int]:
        """See `Committed.outlived`."""
        return outlived(self._firsts, self.floor, self.next)

    def forget(self) -> None:
        """See `Committed.forget`: the ids of deleted runs."""
        for run in self._dead:
            numbers = list(map(self._known.pop, run.ids, repeat(-1)))
            if max(numbers) >= self.floor:
                # An id accepted again since then belongs to its newer number.
                pairs = zip(run.ids, numbers, strict=True)
                self._known.update(pair for pair in pairs if pair[1] >= self.floor)
        self._dead = []

    def _take_back(self) -> None:
        for identifier in self._drafted:
            self._known.pop(identifier, None)
        self._known.update(self._overwritten)
        self._drafted, self._overwritten = [], {}


class RingStrategy:
    """See `Strategy`: the last ids of an address."""

    kind = RUNS

    def claims(self, claim: Claim) -> bool:
        """See `Strategy.claims`."""
        return claim.identifier is not None

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> InMemoryRing:
        """See `Strategy.load`; UnknownFormatError for what is not ours."""
        ring = InMemoryRing()
        ring.absorb([decode(value) for _, value in entries])
        return ring


def _memory_bytes(run: Segment) -> int:
    return sum(map(len, run.ids)) + _ID_OVERHEAD_BYTES * len(run.ids)


# Measured: shorter buckets cost memory for each, longer ones time to search.
_IDS_PER_BUCKET: Final = 48

_ENTRY: Final = Struct("<HI")

_TAG: Final = Struct("<H")

_NUMBER: Final = Struct("<I")

_TAG_SHIFT: Final = 40

_TAG_MASK: Final = 0xFFFF

_NUMBER_MASK: Final = 0xFFFF_FFFF

_FULL_BYTES: Final = 2 * _IDS_PER_BUCKET * _ENTRY.size


# Measured: the object, its place in the list and what it has in reserve.
_BUCKET_OVERHEAD_BYTES: Final = 128


class HashIndex:
    """For a ring of about so many ids; more of them make it slow, not wrong."""

    __slots__ = ("_buckets", "_mask", "_used_bytes", "ids_max")

    def __init__(self, ids: int) -> None:
        count = 1 << max(0, (ids - 1) // _IDS_PER_BUCKET).bit_length()
        self._buckets = [bytearray() for _ in range(count)]
        self._mask = count - 1
        self._used_bytes = 0
        self.ids_max = count * _IDS_PER_BUCKET * 2
        """With more ids than these a larger index is worth its making."""

    @property
    def memory_bytes(self) -> int:
        """What it takes, about."""
        return self._used_bytes + len(self._buckets) * _BUCKET_OVERHEAD_BYTES

    def add(self, ids: Iterable[bytes], first: int, floor: int) -> None:
        """Ids with consecutive numbers, higher than all before; dead is what is below `floor`."""
        buckets, mask, pack, added = self._buckets, self._mask, _ENTRY.pack, 0
        for number, digest in enumerate(map(hash, ids), first):
            bucket = buckets[digest & mask]
            if len(bucket) >= _FULL_BYTES:
                added -= _drop_dead(bucket, floor, number)
            bucket += pack(digest >> _TAG_SHIFT & _TAG_MASK, number & _NUMBER_MASK)
            added += _ENTRY.size
        self._used_bytes += added

    def asker(self) -> Callable[[bytes], bool]:
        """Whether an id may be in it, as a closure: what is asked of every record."""
        buckets, mask, pack = self._buckets, self._mask, _TAG.pack

        def may_hold(identifier: bytes) -> bool:
            digest = hash(identifier)
            # Of all ways to search a string, measured, the one that begins at its end is fastest.
            return buckets[digest & mask].rfind(pack(digest >> _TAG_SHIFT & _TAG_MASK)) >= 0

        return may_hold

    def numbers(self, identifier: bytes, floor: int, following: int) -> Iterable[int]:
        """The numbers from `floor` to below `following` that may be this id's, newest first."""
        digest = hash(identifier)
        bucket = self._buckets[digest & self._mask]
        tag = _TAG.pack(digest >> _TAG_SHIFT & _TAG_MASK)
        place = bucket.rfind(tag)
        return () if place < 0 else _numbers(bucket, tag, place, floor, following)


def _numbers(
    bucket: bytearray, tag: bytes, place: int, floor: int, following: int
) -> Iterator[int]:
    while place >= 0:
        if place % _ENTRY.size == 0:
            number = _number_at(bucket, place, floor)
            if number < following:
                yield number
        place = bucket.rfind(tag, 0, place + len(tag) - 1)


def _number_at(bucket: bytearray, place: int, floor: int) -> int:
    """The number of an entry, if it is alive; else one that is far beyond all."""
    (low,) = _NUMBER.unpack_from(bucket, place + _TAG.size)
    return floor + (int(low) - floor & _NUMBER_MASK)


def _drop_dead(bucket: bytearray, floor: int, following: int) -> int:
    """Cut off the entries below the floor; how many bytes that were."""
    end = 0
    while end < len(bucket) and _number_at(bucket, end, floor) >= following:
        end += _ENTRY.size
    del bucket[:end]
    return end


# An index that is made for a growing ring has room for so many times what it holds.
_ROOM: Final = 8

_NO_NUMBER: Final = -1
"""Below every floor."""


class IndexedRing:
    """See `Committed`. `read` takes the first number of a run and one of its numbers."""

    __slots__ = (
        "_drafted",
        "_firsts",
        "_index",
        "_read",
        "_row",
        "capacity",
        "floor",
        "next",
    )

    def __init__(self, read: Callable[[int, int], SegmentEntry], ids: int, capacity: int) -> None:
        self._read = read
        self._index = HashIndex(min(capacity, _ROOM * ids))
        self._firsts = array("Q")
        self._drafted: dict[bytes, int] = {}
        self._row: tuple[int, SegmentEntry] | None = None
        """The last row that was read, with its number: a verdict is followed by its origin."""
        self.next = 0
        self.floor = 0
        self.capacity: int | None = None

    def __len__(self) -> int:
        """How many ids it holds."""
        return self.next - self.floor

    @property
    def memory_bytes(self) -> int:
        """What it takes, about."""
        return self._index.memory_bytes + len(self._firsts) * self._firsts.itemsize

    @property
    def is_crowded(self) -> bool:
        """Whether it has outgrown its index."""
        return len(self) > self._index.ids_max

    def draft(self, capacity: int, packed_positions: PackedPositions) -> RingDraft:
        """Begin a batch under the capacity in force; there is one at a time."""
        self._drafted, self._row = {}, None
        return RingDraft(self, capacity, packed_positions)

    def begin(self, settings: StrategySettings, packed_positions: PackedPositions) -> RingDraft:
        """See `Memory.begin`."""
        return self.draft(settings.capacity, packed_positions)

    def apply(self, content: object) -> None:
        """See `Memory.apply`."""
        self.absorb(*cast("RingContent", content))

    def number_of(self, identifier: bytes) -> int | None:
        """See `Committed.number_of`."""
        number = self._drafted.get(identifier)
        return self._committed(identifier) if number is None else number

    def admitter(self, capacity: int, added: RingAdditions) -> Admit:
        """See `Committed.admitter`."""
        drafted, committed, floor = self._drafted, self._committed, self.floor
        may_hold = self._index.asker()
        following = self.next
        add_id, add_spot = added.ids.append, added.packed_positions.append
        add_time = added.times_ms.append

        def admit(identifier: bytes, packed_position: int, time_ms: int) -> int | None:
            nonlocal following
            if len(identifier) > ID_BYTES_MAX:
                identifier = remembered(identifier)
            number = drafted.get(identifier)
            if number is None and may_hold(identifier):
                number = committed(identifier)
            if number is not None and number >= following - capacity and number >= floor:
                return number
            drafted[identifier] = following
            following += 1
            add_id(identifier)
            add_spot(packed_position)
            add_time(time_ms)
            return None

        return admit

    def let_go(self, identifier: bytes) -> None:
        """See `Committed.let_go`."""
        self._drafted[identifier] = _NO_NUMBER

    def origin(self, number: int) -> Origin:
        """See `Committed.origin`."""
        return self._row_of(number).origin

    def absorb(self, runs: Iterable[Segment], deleted: int = 0) -> None:
        """See `Committed.absorb`."""
        self._drafted = {}
        for run in runs:
            self.take(SegmentSummary(run.first, run.floor, run.capacity, run.ids))
        del self._firsts[:deleted]

    def take(self, run: SegmentSummary) -> None:
        """One run, in order: of most of it, its place is enough."""
        self.next, self.capacity = run.first + len(run.ids), run.capacity
        self.floor = max(self.floor, run.floor)
        if run.ids:
            self._index.add(run.ids, run.first, self.floor)
            self._firsts.append(run.first)

    def outlived(self) -> Sequence[int]:
        """See `Committed.outlived`."""
        return outlived(self._firsts, self.floor, self.next)

    def forget(self) -> None:
        """The index drops what is dead when it needs the room."""

    def _committed(self, identifier: bytes) -> int | None:
        for number in self._index.numbers(identifier, self.floor, self.next):
            if self._row_of(number).identifier == identifier:
                return number
        return None

    def _row_of(self, number: int) -> SegmentEntry:
        if self._row is None or self._row[0] != number:
            first = self._firsts[bisect_right(self._firsts, number) - 1]
            self._row = (number, self._read(first, number))
        return self._row[1]
