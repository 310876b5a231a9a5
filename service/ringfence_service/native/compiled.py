"""Remembered ids in compiled form: what rings and windows on the compiled path have in common.

The extension has a table of hashes and numbers, and the segments as they are stored. Where there
are many, segments stay in the store, but for the newest, and older numbers are in runs. The
extension has the rows of a batch too, and writes them as segments.
Invariant: what is said of an id was compared with its segment.
"""

import os
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, cast

from ringfence_service.native.extension import loaded
from ringfence_service.native.runs import ReplayedRuns, RingRuns
from ringfence_state.keys import UnknownFormatError, prefix, unknown
from ringfence_state.model import Edit, Origin, PackedPositions, PartitionId
from ringfence_state.segment import (
    EVICTED,
    SEGMENT_IDS_MAX,
    SegmentEntry,
    end_of,
    evicted,
    numbered,
    row_of,
)
from ringfence_state.store import Store
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.base import StateChange
from ringfence_state.strategies.ring_admin import stored_bounds

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


def check(value: bytes) -> None:
    """Raise UnknownFormatError for a value that is no segment."""
    if not module().is_segment(value):
        raise unknown(value)


def replayed(store: Store, kind: bytes, *, is_window: bool) -> ReplayedRuns | None:
    """Return what writes runs while the changelog is replayed into a store that has a folder."""
    return None if store.derived is None else ReplayedRuns(store, kind, is_window=is_window)


def module() -> Any:
    """Return the extension, which the caller knows to be there."""
    return loaded().module


class CompiledIds:
    """The committed ids of an address: their numbers in a table, their segments in memory."""

    __slots__ = (
        "_firsts",
        "_oldest",
        "_row",
        "capacity",
        "ends_empty",
        "floor",
        "has_evicted",
        "held",
        "next",
        "table",
    )

    is_whole: ClassVar = True
    """Whether the table has all segments."""
    is_window: ClassVar = False
    """Whether ids may be seen again, under another number."""

    def __init__(self, seed: bytes | None = None) -> None:
        """Have runs, whose hashes have this secret, if there is one."""
        has_runs = seed is not None
        self.table: Any = module().Table(self.is_whole, has_runs, self.is_window, seed or _SEED)
        self._firsts = array("Q")
        self._row: tuple[int, SegmentEntry] | None = None
        """The entry read last, with its number: a verdict is followed by its origin."""
        self._oldest = (0, 0, b"")
        """The segment at the floor of a window: its numbers, from and to, and its value."""
        self.next = self.floor = 0
        self.capacity: int | None = None
        self.has_evicted = False
        self.ends_empty = False
        """Whether the last segment has no ids."""
        self.held = 0
        """How many ids a window holds; negative if its last segment does not say."""

    def __len__(self) -> int:
        """Return how many ids are held."""
        return self.ids_held

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        return cast("int", self.table.memory_bytes) + len(self._firsts) * self._firsts.itemsize

    @property
    def ids_held(self) -> int:
        """How many ids are held."""
        return self.held if self.is_window else self.next - self.floor

    @property
    def ids_evicted(self) -> int:
        """How many ids a ring has evicted: its floor rises by one with each. 0 for windows."""
        return 0 if self.is_window else self.floor

    def has_outgrown(self, whole_ids_max: int) -> bool:
        """Whether it holds more segments than one in memory should."""
        return self.next - self.floor > whole_ids_max

    def reread(self) -> bool:
        """Return False: its segments are in memory."""
        return False

    def shrink(self) -> bool:
        """Return False: its segments are needed."""
        return False

    def load(self, value: bytes, joined: int = 0) -> None:
        """Take over the next segment, in place of so many; UnknownFormatError if it is none."""
        try:
            first, floor, capacity, count, self.held = self.table.join(joined, value)
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

    def evicted(self) -> Sequence[int]:
        """Return the first numbers of the evicted segments that are not yet deleted."""
        return evicted(self._firsts, self.floor, self.next)

    def committed(self, identifier: bytes) -> int | None:
        """Return the last number of a committed id in stored form, or None."""
        for number, first in self._found(identifier):
            self._lend(number, first)
            if self._row_of(number).identifier == identifier:
                return number
        return None

    def origin(self, number: int) -> Origin:
        """Return the origin of the committed id with this number."""
        return self._row_of(number).origin

    def fetch(self, identifier: bytes, wanted: Sequence[tuple[int, int]] = ()) -> bool:
        """Have the segments at hand that tell which is an id's last number; False if all are."""
        if wanted:
            self.table.drop(0)  # so that there is room for all of them
            return sum(self._lend(*each) for each in wanted) > 0
        found, is_lent = self._found(identifier), False
        for number, first in found:
            is_lent = self._lend(number, first) or is_lent
            if len(found) > 1 and self._row_of(number).identifier == identifier:
                break
        return is_lent

    def values(self) -> Iterator[bytes]:
        """Yield the segments, oldest first."""
        return map(self.value, self._firsts)

    def value(self, number: int) -> bytes:
        """Return the segment that has a number."""
        return cast("bytes", self.table.value(number))

    def _found(self, identifier: bytes) -> Sequence[tuple[int, int]]:
        """Return the numbers that an id may have, newest first, and where their segments began."""
        found = self.table.numbers(identifier, self.floor, self.next)
        return cast("Sequence[tuple[int, int]]", found)

    def _lend(self, _number: int, _first: int) -> bool:
        """Return False: the table keeps all segments."""
        return False

    def _row_of(self, number: int) -> SegmentEntry:
        if self._row is None or self._row[0] != number:
            self._row = (number, row_of(self.table.value(number), number))
        return self._row[1]


class StoredCompiledIds(CompiledIds):
    """Ids whose segments stay in the store, and whose older numbers are in runs."""

    __slots__ = ("_runs", "_segments", "_start")

    is_whole = False

    def __init__(self, segments: StoredSegments) -> None:
        folder = segments.folder
        self._segments = segments
        self._runs = None if folder is None else RingRuns(segments, folder)
        super().__init__(None if self._runs is None else self._runs.seed)
        self._start = 0
        """No segment begins before this number."""
        stored = stored_bounds(segments.store, segments.address, segments.kind)
        self.next, self.floor, self.capacity, self.has_evicted, held = stored
        self.held = -1 if held is None else held
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
        while joined and self._firsts and self._firsts[-1] > first:
            self._firsts.pop()

    def _deleted(self, count: int) -> None:
        """Note that the oldest segments were deleted."""
        if count:
            self._start = self._firsts[count - 1] + 1
        del self._firsts[:count]

    def values(self) -> Iterator[bytes]:
        """Yield the segments, from the one at the floor on."""
        if self.floor < self.next:
            for _, value in self._segments.entries(self._segments.first_with(self.floor)):
                yield value

    def value(self, number: int) -> bytes:
        """Return the segment that has a number."""
        return self._segments.with_number(number)

    def _found(self, identifier: bytes) -> Sequence[tuple[int, int]]:
        try:
            return super()._found(identifier)
        except ValueError as error:
            raise self._segments.damage(error) from error

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
            value = self._segments.at(first)
            if value is None or not self.table.lend(value, number):
                self.table.lend(self._segments.with_number(number), number)
        except (ValueError, OverflowError) as error:
            raise self._segments.damage(error) from error
        return True


class CompiledDraft:
    """What drafts of rings and of windows have in common: the extension has their rows."""

    __slots__ = ()

    kind: ClassVar[bytes]
    """The kind of the keys of its segments."""

    native: Any
    evicted: Sequence[int]
    """The first numbers of the segments that this batch deletes, whatever it adds."""
    _ring: Any
    _packed_positions: PackedPositions

    def fetch(self, identifier: bytes, wanted: Sequence[tuple[int, int]]) -> bool:
        """Read what shows whether an id is known; return False if all of it is at hand.

        `wanted` are numbers whose segments are known to be needed, with where they probably begin.
        """
        raise NotImplementedError  # each form has its own: a window reads its oldest ids besides

    def judge_at(self, identifier: bytes, time_ms: int) -> int | None:
        """Return the number of an id that is known at a time, or None. Changes nothing."""
        raise NotImplementedError  # each form has its own: only ids of a window expire

    def accepted(self) -> Mapping[PartitionId, int]:
        """Return how many records were accepted, by source partition, since evicted ones too."""
        counts = Counter[PartitionId]()
        for source, count in zip(self._packed_positions.sources, self.native.counts(), strict=True):
            counts[source] += count
        return +counts

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
        return module().Lane(draft, *target, drops, passes, letter)

    def origin(self, number: int) -> Origin:
        """Return the origin of a known id, this batch included."""
        row = number - self._ring.next
        if row < 0:
            return cast("Origin", self._ring.origin(number))
        index, offset, time_ms = self.native.row(row)
        source = self._packed_positions.sources[index]
        return Origin(source.topic, source.partition, offset, time_ms)

    def deletions(self, address: str) -> list[Edit]:
        """Return a tombstone for each evicted segment; known before the first record."""
        begin = prefix(self.kind, address)
        return [Edit(numbered(begin, first), None) for first in self.evicted]

    def _change(
        self, address: str, capacity: int, *, is_moved: bool, may_join: bool
    ) -> StateChange | None:
        """Return what to write; `capacity` is what segments have in that place.

        If the bounds have `moved` a segment is written though it has no ids.
        """
        ring, deleted, begin = self._ring, len(self.evicted), prefix(self.kind, address)
        sealed = self.native.seal(SEGMENT_IDS_MAX, is_moved, capacity)
        if not sealed and not deleted:
            return None
        edits = [Edit(numbered(begin, first), value) for first, value in sealed]
        values, tail = [value for _, value in sealed], list[_Tail]()
        if may_join and len(sealed) == 1 and sealed[0][0] == ring.next:
            tail = self._tail(end_of(values[0]) - ring.next)
        if tail:
            values = [module().joined([*(each.value for each in tail), *values])]
            edits = [Edit(numbered(begin, tail[0].first), values[0])]
            edits += [Edit(numbered(begin, each.first), None) for each in tail[1:]]
        if sealed and (ring.ends_empty if tail else sealed[0][0] != ring.next):
            # The key of an earlier resize: a batch longer than the ring skips numbers.
            edits.append(Edit(numbered(begin, ring.next), None))
        return StateChange(edits, _Content(values, deleted, len(tail)))

    def _tail(self, added: int) -> list[_Tail]:
        """Return the newest segments that one of so many new ids is to be joined with."""
        ring, floor = self._ring, self.evicted[-1] + 1 if self.evicted else 0
        count, found = added, list[_Tail]()
        for ids_max in _SMALL if added else ():
            if count >= ids_max:
                continue
            newest = ring.table.tail(ids_max, floor, SEGMENT_IDS_MAX - added)
            tail = [_Tail(*each) for each in newest]
            if len(tail) - len(found) + 1 < _JOINED or tail[-1].first + tail[-1].ids != ring.next:
                break
            found, count = tail, sum(each.ids for each in tail) + added
        return found
