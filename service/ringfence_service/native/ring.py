"""Rings in compiled form: what `ringfence_state.strategies.ring_memory` does, in less time.

The extension has a table of hashes and numbers, and the segments as they are stored. A larger ring
leaves its segments in the store, but for the newest, and its older ids to runs. The extension has
the rows of a batch too, and writes them as segments. Invariant: a ring of either form judges like
an `InMemoryRing`, and its drafts write the same bytes.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, cast

from ringfence_service.native.extension import loaded
from ringfence_service.native.runs import RingRuns
from ringfence_state.id_index import MakeIndex
from ringfence_state.keys import UnknownFormatError, unknown
from ringfence_state.model import Claim, Edit, Origin, PackedPositions, PartitionId
from ringfence_state.segment import (
    EVICTED,
    SEGMENT_IDS_MAX,
    SegmentEntry,
    key,
    remembered,
    row_of,
)
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.base import Admit, ReadSegment, StateChange, StoredSize
from ringfence_state.strategies.ring import RingDraft
from ringfence_state.strategies.ring_admin import stored_bounds
from ringfence_state.strategies.ring_memory import IndexedRing, RingForms

_SMALL: Final = (8, 64, 256)
"""Sizes of segments, in ids: eight that are smaller, the newest ones, are joined.

An address that gets an id in a batch would have a segment, and a tombstone later, for each id. So
each id is written at most four times in all. One of 256 ids is large enough to stay.
"""
_JOINED: Final = 8
"""How many small segments are joined: with fewer, ids are written more often."""


class _Content(NamedTuple):
    """What a committed batch has written, and how many of the oldest segments it has deleted.

    The first value takes the place of the newest `joined` segments.
    """

    values: Sequence[bytes]
    deleted: int
    joined: int = 0


class _Tail(NamedTuple):
    """A segment at the end of a ring."""

    first: int
    ids: int
    value: bytes


_NUMBERS_MAX: Final = 1 << 62
"""The extension refuses a segment that begins there: its numbers have a sign."""
_SEED: Final = os.urandom(16)
"""The secret of hashes that do not outlive the process."""


class NativeRing(IndexedRing):
    """A ring with a table of the extension; its segments are in memory."""

    __slots__ = ("ends_empty", "table")

    is_whole: ClassVar = True
    """Whether the table has all segments."""

    def __init__(self, seed: bytes | None = None) -> None:
        """Have runs, whose hashes have this secret, if there is one."""
        has_runs = seed is not None
        self.table: Any = _module().Table(self.is_whole, has_runs, seed or _SEED)
        super().__init__(_reader(self.table), self.table)
        self.ends_empty = False
        """Whether the last segment has no ids."""

    def has_outgrown(self, whole_ids_max: int) -> bool:
        """Whether it holds more segments than one in memory should."""
        return len(self) > whole_ids_max

    def reread(self) -> bool:
        """Return False: its segments are in memory."""
        return False

    def draft(self, capacity: int, packed_positions: PackedPositions) -> "NativeRingDraft":
        """Begin a batch with this capacity; at most one draft is open at a time."""
        self._row = None
        return NativeRingDraft(self, capacity, packed_positions)

    def load(self, value: bytes, joined: int = 0) -> None:
        """Take over the next segment, in place of so many; UnknownFormatError if it is none."""
        try:
            first, floor, capacity, count = self.table.join(joined, value)
        except ValueError as error:
            raise unknown(value) from error
        except OverflowError as error:
            raise UnknownFormatError(str(error)) from error
        self.next, self.capacity = first + count, capacity & ~EVICTED
        self.has_evicted = bool(capacity & EVICTED)
        self.floor = max(self.floor, floor)
        self.ends_empty = not count
        if count:
            self._added(first, joined)

    def _added(self, first: int, joined: int) -> None:
        """Note that a segment with ids was added, in place of so many."""
        if joined:
            del self._firsts[-joined:]
        self._firsts.append(first)

    def apply(self, content: object) -> None:
        """Apply the content of a committed change."""
        values, deleted, joined = cast("_Content", content)
        for value in values:
            self.load(value, joined)
            joined = 0
        self._deleted(deleted)

    def _deleted(self, count: int) -> None:
        """Note that the oldest segments were deleted."""
        del self._firsts[:count]
        self.table.drop(count)

    def committed(self, identifier: bytes) -> int | None:
        """Return the number of a committed id in stored form, or None."""
        return self._committed(identifier)

    def _committed(self, identifier: bytes) -> int | None:
        for number, _ in self.table.numbers(identifier, self.floor, self.next):
            if self._row_of(number).identifier == identifier:
                return cast("int", number)
        return None


class NativeStoredRing(NativeRing):
    """A ring whose segments stay in the store, and whose older ids are in runs."""

    __slots__ = ("_runs", "_segments", "_start")

    is_whole = False

    def __init__(self, segments: StoredSegments) -> None:
        folder = segments.folder
        self._segments = segments
        self._runs = None if folder is None else RingRuns(segments, folder)
        super().__init__(None if self._runs is None else self._runs.seed)
        self._start = 0
        """No segment begins before this number."""
        self.next, self.floor, self.capacity, self.has_evicted = stored_bounds(
            segments.store, segments.address
        )
        if self.next > _NUMBERS_MAX:
            raise UnknownFormatError(f"number {self.next}")
        start = self.floor
        if self._runs is not None:
            start = self._runs.load(self.table, self.floor, self.next)
        if start < self.next:
            start = segments.first_with(start)
        for _, value in segments.entries(start):
            self.load(value)

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        runs_bytes = 0 if self._runs is None else self._runs.memory_bytes
        return cast("int", self.table.memory_bytes) + runs_bytes

    @property
    def runs(self) -> int:
        """How many runs it has."""
        return 0 if self._runs is None else len(self._runs)

    def draft(self, capacity: int, packed_positions: PackedPositions) -> "NativeRingDraft":
        """Begin a batch, without the segments that were read for the one before."""
        self.table.drop(0)
        return super().draft(capacity, packed_positions)

    def settle(self) -> None:
        """Wait until no run is due to be written or merged."""
        if self._runs is not None:
            self._runs.settle(self.table, self.floor)

    def has_outgrown(self, _whole_ids_max: int) -> bool:
        """No: it may have any size."""
        return False

    def shrink(self) -> bool:
        """Read filters from disk from now on; return False if none is in memory."""
        return self._runs is not None and self._runs.shrink()

    def reread(self) -> bool:
        """Drop the segments that are kept; return True."""
        self.table.drop(sys.maxsize)
        self._row = None
        return True

    def apply(self, content: object) -> None:
        """Apply the content of a committed change."""
        super().apply(content)
        if self._runs is not None:
            self._runs.advance(self.table, self.floor)

    def evicted(self) -> Sequence[int]:
        """Return the first numbers of the evicted segments that are not yet deleted.

        Only as many of the oldest segments are known as it takes to tell.
        """
        while (self._firsts[-1] if self._firsts else -1) <= self.floor:
            after = self._firsts[-1] + 1 if self._firsts else self._start
            following = self._segments.first_from(after)
            if following is None or following == self.next:
                break  # one without ids, which has the floor, stays
            self._firsts.append(following)
        return super().evicted()

    def _added(self, first: int, joined: int) -> None:
        """Forget the segments in whose place it is; the store has the others."""
        if joined:
            self._segments.forget_from(first)
            while self._firsts and self._firsts[-1] > first:
                self._firsts.pop()

    def _deleted(self, count: int) -> None:
        """Note that the oldest segments were deleted."""
        if count:
            self._start = self._firsts[count - 1] + 1
        del self._firsts[:count]

    def fetch(self, identifier: bytes) -> bool:
        """Have the segments at hand that tell whether an id is known; return False if all are."""
        return sum(self._lend(*found) for found in self._found(identifier)) > 0

    def _committed(self, identifier: bytes) -> int | None:
        for number, first in self._found(identifier):
            self._lend(number, first)
            if self._row_of(number).identifier == identifier:
                return number
        return None

    def _found(self, identifier: bytes) -> Sequence[tuple[int, int]]:
        """Return the numbers that an id may have, each with where its segment began."""
        try:
            found = self.table.numbers(identifier, self.floor, self.next)
        except ValueError as error:
            raise self._segments.damage(error) from error
        return cast("Sequence[tuple[int, int]]", found)

    def _row_of(self, number: int) -> SegmentEntry:
        if self._row is None or self._row[0] != number:
            self._lend(number, number)
            self._row = (number, self._segments.row(self.table.value(number), number))
        return self._row[1]

    def _lend(self, number: int, first: int) -> bool:
        """Have the table keep the segment with a number for now; return False if it does."""
        if self.table.has(number):
            return False
        try:
            self.table.lend(self._segments.with_number(number, first))
        except (ValueError, OverflowError) as error:
            raise self._segments.damage(error) from error
        return True


class NativeRingDraft(RingDraft):
    """The draft of a batch, whose rows the extension has."""

    __slots__ = ("_judge", "native")

    def __init__(self, ring: NativeRing, capacity: int, packed_positions: PackedPositions) -> None:
        super().__init__(ring, 0, packed_positions)
        self._capacity = capacity
        bounds = ring.next, ring.floor, capacity
        self.native: Any = _module().Draft(ring.table, packed_positions.sources, *bounds)
        self._judge = _make_judge(ring, self.native, capacity, self.renewed)
        if capacity:
            self.admit = _make_admit(self._judge, self.native)

    def admit_run(
        self, identifiers: Sequence[bytes], packed_positions: Sequence[int], times_ms: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Admit ids in order; return the index and the number of each that is known."""
        numbers = map(self.admit, identifiers, packed_positions, times_ms)
        return [(at, number) for at, number in enumerate(numbers) if number is not None]

    def fetch(self, identifier: bytes) -> bool:
        """Read the segments that show whether an id is known; return False if all are at hand."""
        ring = self._ring
        return isinstance(ring, NativeStoredRing) and not self.renewed and ring.fetch(identifier)

    def accepted(self) -> Mapping[PartitionId, int]:
        """Return how many ids were added, by source partition, those since evicted included."""
        counts = zip(self._packed_positions.sources, self.native.counts(), strict=True)
        return {source: count for source, count in counts if count}

    def lane(
        self,
        target: tuple[str, int, int],
        letter: tuple[object, ...] | None,
        *,
        drops: bool,
        admits: bool = True,
        passes: bool = False,
    ) -> Any:
        """Return what compiled code needs for the plain records of the address.

        `target` is a topic, and a partition for records with a key and one for those without;
        `letter` is the same for dead letters, with their headers; None if Python writes them. It
        `admits` records with an id, and `passes` on those without.
        """
        draft = self.native if admits else None
        return _module().Lane(draft, *target, drops, passes, letter)

    @property
    def _next(self) -> int:
        return self._ring.next + len(self.native)

    def judge(self, identifier: bytes) -> int | None:
        """Return the number of a known id, or None."""
        return self._judge(remembered(identifier))

    def origin(self, number: int) -> Origin:
        """Return the origin of a known id, this batch included."""
        row = number - self._ring.next
        if row < 0:
            return self._ring.origin(number)
        index, offset, time_ms = self.native.row(row)
        source = self._packed_positions.sources[index]
        return Origin(source.topic, source.partition, offset, time_ms)

    def renew(self, claim: Claim) -> Claim:
        """Make a known claim new; the caller remembers it before any other call."""
        identifier = claim.identifier
        if identifier is not None and (number := self.judge(identifier)) is not None:
            self.native.renew(number - self._ring.next)
            if number < self._ring.next:
                self.renewed.append(number)
        return claim

    def change(self, address: str) -> StateChange | None:
        """Return what to write and to apply after the commit; None without a change."""
        ring, deleted = self._ring, len(self.evicted)
        is_resized = ring.capacity not in {None, self._capacity}
        mark = EVICTED if self.has_evicted else 0
        sealed = self.native.seal(SEGMENT_IDS_MAX, is_resized, mark)
        if not sealed and not deleted:
            return None
        if len(sealed) == 1 and (tail := self._joinable(sealed[0][0])):
            return self._joined(address, tail, sealed[0][1])
        edits = [Edit(key(address, first), value) for first, value in sealed]
        if sealed and sealed[0][0] != ring.next:
            # A batch longer than the ring skips numbers, and so the key of an earlier resize.
            edits.append(Edit(key(address, ring.next), None))
        return StateChange(edits, _Content([value for _, value in sealed], deleted))

    def _joinable(self, first: int) -> Sequence[_Tail]:
        """Return the newest segments of the ring that a new one is to be joined with."""
        ring = cast("NativeRing", self._ring)
        if self.renewed or first != ring.next or not len(self.native):
            return ()
        floor = self.evicted[-1] + 1 if self.evicted else 0
        added = len(self.native)
        count, found = added, list[_Tail]()
        for ids_max in _SMALL:
            if count >= ids_max:
                continue
            newest = ring.table.tail(ids_max, floor, SEGMENT_IDS_MAX - added)
            tail = [_Tail(*each) for each in newest]
            if len(tail) - len(found) + 1 < _JOINED or tail[-1].first + tail[-1].ids != first:
                break
            found, count = tail, sum(each.ids for each in tail) + added
        return found

    def _joined(self, address: str, tail: Sequence[_Tail], value: bytes) -> StateChange:
        """Return the change that writes new ids and the segments before them as one."""
        ring = cast("NativeRing", self._ring)
        joined = _module().joined([*(each.value for each in tail), value])
        edits = [Edit(key(address, tail[0].first), joined)]
        edits += [Edit(key(address, each.first), None) for each in tail[1:]]
        if ring.ends_empty:
            edits.append(Edit(key(address, ring.next), None))
        return StateChange(edits, _Content([joined], len(self.evicted), len(tail)))


# The functions of a draft do not refer to it: in a reference cycle it would stay in memory until
# the next garbage collection.


def _make_judge(
    ring: NativeRing, native: Any, capacity: int, renewed: Sequence[int]
) -> Callable[[bytes], int | None]:
    find, committed, following, floor = native.find, ring.committed, ring.next, ring.floor

    def judge(identifier: bytes) -> int | None:
        row = find(identifier)
        if row is not None:
            return following + cast("int", row)
        number = committed(identifier)
        if number is None or number in renewed:
            return None
        return number if number >= max(floor, following + len(native) - capacity) else None

    return judge


def _make_admit(judge: Callable[[bytes], int | None], native: Any) -> Admit:
    add = native.add

    def admit(identifier: bytes, packed_position: int, time_ms: int) -> int | None:
        identifier = remembered(identifier)
        number = judge(identifier)
        if number is None:
            add(identifier, *PackedPositions.parts(packed_position), time_ms)
        return number

    return admit


def _module() -> Any:
    return loaded().module


def _reader(table: Any) -> ReadSegment:
    return lambda _first, number: row_of(table.value(number), number)


def whole(entries: Iterable[tuple[bytes, bytes]]) -> NativeRing:
    """Load a ring with its segments in memory."""
    ring = NativeRing()
    for _, value in entries:
        ring.load(value)
    return ring


def indexed(
    segments: StoredSegments, _size: StoredSize, _make_index: MakeIndex
) -> NativeStoredRing:
    """Load a ring whose segments stay in the store."""
    return NativeStoredRing(segments)


FORMS: Final = RingForms(whole, indexed)
