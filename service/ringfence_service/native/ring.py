"""Rings in compiled form: what `ringfence_state.strategies.ring_memory` does, in less time.

The extension has a table of hashes and numbers, 12 to 24 bytes for each id, and the segments as
they are stored, or the newest of them if they stay in the store. It has the rows of a batch too,
and writes them as segments. Invariant: a `NativeRing` judges like an `InMemoryRing`, and its drafts
write the same bytes.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from ringfence_service.native.extension import loaded
from ringfence_state.id_index import MakeIndex
from ringfence_state.keys import UnknownFormatError, unknown
from ringfence_state.model import Claim, Edit, Origin, PackedPositions, PartitionId
from ringfence_state.segment import EVICTED, SEGMENT_IDS_MAX, key, remembered, row_of
from ringfence_state.strategies.base import Admit, ReadSegment, StateChange, StoredSize
from ringfence_state.strategies.ring import RingDraft
from ringfence_state.strategies.ring_memory import IndexedRing, RingForms


class _Content(NamedTuple):
    """What a committed batch has written, and how many of the oldest segments it has deleted."""

    values: Sequence[bytes]
    deleted: int


class NativeRing(IndexedRing):
    """A ring with a table of the extension; `read` is given if its segments stay in the store."""

    __slots__ = ("_is_whole", "table")

    def __init__(self, read: ReadSegment | None = None) -> None:
        self._is_whole = read is None
        self.table: Any = cast("Any", loaded().module).Table(self._is_whole)
        super().__init__(read or _reader(self.table), self.table)

    def has_outgrown(self, whole_ids_max: int) -> bool:
        """Whether it holds more segments than one in memory should."""
        return self._is_whole and len(self) > whole_ids_max

    def reread(self) -> bool:
        """Drop the segments that are kept unless they are all; then return False."""
        if not self._is_whole:
            self.table.drop(sys.maxsize)
        return not self._is_whole

    def draft(self, capacity: int, packed_positions: PackedPositions) -> "NativeRingDraft":
        """Begin a batch with this capacity; at most one draft is open at a time."""
        self._row = None
        return NativeRingDraft(self, capacity, packed_positions)

    def load(self, value: bytes) -> None:
        """Take over the next segment; UnknownFormatError if it is none."""
        try:
            first, floor, capacity, count = self.table.add(value)
        except ValueError as error:
            raise unknown(value) from error
        except OverflowError as error:
            raise UnknownFormatError(str(error)) from error
        self.next, self.capacity = first + count, capacity & ~EVICTED
        self.has_evicted = bool(capacity & EVICTED)
        self.floor = max(self.floor, floor)
        if count:
            self._firsts.append(first)

    def apply(self, content: object) -> None:
        """Apply the content of a committed change."""
        values, deleted = cast("_Content", content)
        for value in values:
            self.load(value)
        del self._firsts[:deleted]
        if self._is_whole:
            self.table.drop(deleted)

    def committed(self, identifier: bytes) -> int | None:
        """Return the number of a committed id in stored form, or None."""
        return self._committed(identifier)


class NativeRingDraft(RingDraft):
    """The draft of a batch, whose rows the extension has."""

    __slots__ = ("_judge", "native")

    def __init__(self, ring: NativeRing, capacity: int, packed_positions: PackedPositions) -> None:
        super().__init__(ring, 0, packed_positions)
        self._capacity = capacity
        bounds = ring.next, ring.floor, capacity
        self.native: Any = cast("Any", loaded().module).Draft(
            ring.table, packed_positions.sources, *bounds
        )
        self._judge = _make_judge(ring, self.native, capacity, self.renewed)
        if capacity:
            self.admit = _make_admit(self._judge, self.native)

    def admit_run(
        self, identifiers: Sequence[bytes], packed_positions: Sequence[int], times_ms: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Admit ids in order; return the index and the number of each that is known."""
        numbers = map(self.admit, identifiers, packed_positions, times_ms)
        return [(at, number) for at, number in enumerate(numbers) if number is not None]

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
        return cast("Any", loaded().module).Lane(draft, *target, drops, passes, letter)

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
        edits = [Edit(key(address, first), value) for first, value in sealed]
        if sealed and sealed[0][0] != ring.next:
            # A batch longer than the ring skips numbers, and so the key of an earlier resize.
            edits.append(Edit(key(address, ring.next), None))
        return StateChange(edits, _Content([value for _, value in sealed], deleted))


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


def _reader(table: Any) -> ReadSegment:
    return lambda _first, number: row_of(table.value(number), number)


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
