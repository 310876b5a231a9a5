"""Rings whose ids the extension finds: what `state.strategies.ring_memory` does, in less time.

The extension has a table of hashes and numbers, some 16 bytes for each id; what it may know is
compared with the id in its segment, which is in memory in packed form, or in the store. Invariant:
a `NativeRing` judges like an `InMemoryRing`, and its drafts write the same bytes.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

from service.native.extension import loaded
from state.id_index import MakeIndex
from state.keys import UnknownFormatError
from state.model import Origin, PackedPositions, PartitionId
from state.segment import Segment, SegmentEntry, SegmentSummary, decode, remembered, summary
from state.strategies.base import Admit, ReadSegment, StoredSize
from state.strategies.ring import RingAdditions, RingDraft
from state.strategies.ring_memory import IndexedRing, RingForms

# Measured: the objects of a segment, and its place in the dict.
_SEGMENT_OVERHEAD_BYTES: Final = 600
_ROW_BYTES: Final = 20
"""Numbers of a row: of two bytes its bound and source, of eight its offset and time."""

_NUMBER_MAX: Final = (1 << 62) - 1
"""The extension has numbers with a sign."""


class _PackedSegment(NamedTuple):
    """The rows of a segment in few objects."""

    sources: Sequence[PartitionId]
    ids: bytes
    bounds: Sequence[int]
    """Where ids begin, and where the last one ends."""
    source_indexes: Sequence[int]
    offsets: Sequence[int]
    times_ms: Sequence[int]

    @classmethod
    def of(cls, segment: Segment) -> "_PackedSegment":
        """Pack the rows of a segment."""
        return cls(
            segment.sources,
            b"".join(segment.ids),
            array("H", accumulate(map(len, segment.ids), initial=0)),
            array("H", list(segment.source_indexes)),
            array("q", segment.offsets),
            array("q", segment.times_ms),
        )

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        return len(self.ids) + _ROW_BYTES * len(self.offsets) + _SEGMENT_OVERHEAD_BYTES

    def entry(self, row: int) -> SegmentEntry:
        """Return the id in a row, and its origin."""
        source = self.sources[self.source_indexes[row]]
        origin = Origin(*source, self.offsets[row], self.times_ms[row])
        return SegmentEntry(self.ids[self.bounds[row] : self.bounds[row + 1]], origin)


class NativeRing(IndexedRing):
    """A ring with a table of the extension; `read` is given if its segments stay in the store."""

    __slots__ = ("_is_whole", "_segments", "_segments_bytes", "table")

    def __init__(self, read: ReadSegment | None = None) -> None:
        self.table: Any = cast("Any", loaded().module).Table()
        self._segments: dict[int, _PackedSegment] = {}
        """Segments in memory, by their first numbers."""
        self._segments_bytes = 0
        self._is_whole = read is None
        super().__init__(read or _reader(self._segments), self.table)

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        return super().memory_bytes + self._segments_bytes

    def has_outgrown(self, whole_ids_max: int) -> bool:
        """Whether it holds more segments than one in memory should."""
        return self._is_whole and len(self) > whole_ids_max

    @property
    def reads_store(self) -> bool:
        """Whether its segments stay in the store."""
        return not self._is_whole

    def draft(self, capacity: int, packed_positions: PackedPositions) -> "NativeRingDraft":
        """Begin a batch with this capacity; at most one draft is open at a time."""
        self._drafted, self._row = {}, None
        return NativeRingDraft(self, capacity, packed_positions)

    def load(self, value: bytes) -> None:
        """Take over the next segment of the store."""
        if self._is_whole:
            self.absorb([decode(value)])
        else:
            self.take(summary(value))

    def absorb(self, segments: Iterable[Segment], deleted: int = 0) -> None:
        """Take over committed segments, oldest first, and drop the first `deleted` ones."""
        if self._is_whole:
            segments = list(segments)
            for segment in segments:
                if segment.ids:
                    packed = self._segments[segment.first] = _PackedSegment.of(segment)
                    self._segments_bytes += packed.memory_bytes
            for first in self._firsts[:deleted]:
                self._segments_bytes -= self._segments.pop(first).memory_bytes
        super().absorb(segments, deleted)

    def take(self, segment: SegmentSummary) -> None:
        """Add the next segment to the table."""
        if segment.first > _NUMBER_MAX:
            raise UnknownFormatError(f"a segment from {segment.first} on")
        super().take(segment)

    def committed(self, identifier: bytes) -> int | None:
        """Return the number of a committed id in stored form, or None."""
        return self._committed(identifier)


class NativeRingDraft(RingDraft):
    """The draft of a batch; the extension finds the rows of the ids that it adds."""

    __slots__ = ("_judge", "native")

    def __init__(self, ring: NativeRing, capacity: int, packed_positions: PackedPositions) -> None:
        super().__init__(ring, 0, packed_positions)
        self._capacity = capacity
        bounds = ring.next, ring.floor, capacity
        self.native: Any = cast("Any", loaded().module).Draft(ring.table, *self._added, *bounds)
        self._judge = _make_judge(ring, self.native, self._added, capacity, self.renewed)
        if capacity:
            self.admit = _make_admit(self._judge, self.native)

    def admit_run(
        self, identifiers: Sequence[bytes], packed_positions: Sequence[int], times_ms: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Admit ids in order; return the index and the number of each that is known."""
        numbers = map(self.admit, identifiers, packed_positions, times_ms)
        return [(at, number) for at, number in enumerate(numbers) if number is not None]

    def judge(self, identifier: bytes) -> int | None:
        """Return the number of a known id, or None."""
        return self._judge(remembered(identifier))


# The functions of a draft do not refer to it: in a reference cycle it would stay in memory until
# the next garbage collection.


def _make_judge(
    ring: NativeRing, native: Any, added: RingAdditions, capacity: int, renewed: Sequence[int]
) -> Callable[[bytes], int | None]:
    find, committed, ids, following, floor = (
        native.find,
        ring.committed,
        added.ids,
        ring.next,
        ring.floor,
    )

    def judge(identifier: bytes) -> int | None:
        row = find(identifier)
        if row is not None:
            return following + cast("int", row)
        number = committed(identifier)
        if number is None or number in renewed:
            return None
        return number if number >= max(floor, following + len(ids) - capacity) else None

    return judge


def _make_admit(judge: Callable[[bytes], int | None], native: Any) -> Admit:
    add = native.add

    def admit(identifier: bytes, packed_position: int, time_ms: int) -> int | None:
        identifier = remembered(identifier)
        number = judge(identifier)
        if number is None:
            add(identifier, packed_position, time_ms)
        return number

    return admit


def _reader(segments: Mapping[int, _PackedSegment]) -> ReadSegment:
    return lambda first, number: segments[first].entry(number - first)


def _loaded(ring: NativeRing, entries: Iterable[tuple[bytes, bytes]]) -> NativeRing:
    for _, value in entries:
        ring.load(value)
    return ring


def whole(entries: Iterable[tuple[bytes, bytes]]) -> NativeRing:
    """Load a ring with its segments in memory."""
    return _loaded(NativeRing(), entries)


def indexed(
    entries: Iterable[tuple[bytes, bytes]],
    _size: StoredSize,
    read: ReadSegment,
    _make_index: MakeIndex,
) -> NativeRing:
    """Load a ring whose segments stay in the store."""
    return _loaded(NativeRing(read), entries)


FORMS: Final = RingForms(whole, indexed)
