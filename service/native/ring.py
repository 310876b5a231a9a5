"""Rings of the extension: what `state.strategies.ring_memory` does, in compiled form.

A `NativeRing` keeps its committed segments as they are in the changelog, or leaves them in the
store and keeps hashes alone; both take some 16 bytes for each id besides. Invariant: it judges
like an `InMemoryRing`, and its drafts write the same bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from service.native.extension import loaded
from state import segment
from state.id_index import MakeIndex
from state.keys import unknown
from state.model import Claim, Edit, Origin, PackedPositions, PartitionId
from state.segment import _packed_source, decode, key, remembered, row_of
from state.strategies.base import ReadSegment, StateChange, StoredSize, StrategySettings
from state.strategies.ring import RingDraft
from state.strategies.ring_memory import RingForms

_WIDTH: Final = 63
_HALF: Final = 1 << (_WIDTH - 1)


class _Content(NamedTuple):
    """What a draft hands to its ring after the commit."""

    values: list[bytes]
    deleted: int


class NativeRing:
    """A ring of the extension; `read` is given where its segments stay in the store."""

    __slots__ = ("_read", "ring")

    def __init__(self, read: ReadSegment | None = None) -> None:
        self._read = read
        self.ring: Any = cast("Any", loaded().module).Ring(read)

    def __len__(self) -> int:
        """Return how many ids are held."""
        return self.ids_held

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        return int(self.ring.memory_bytes)

    @property
    def ids_held(self) -> int:
        """How many ids are held."""
        return int(self.ring.next - self.ring.floor)

    @property
    def ids_evicted(self) -> int:
        """How many ids were evicted: the floor rises by one with each."""
        return int(self.ring.floor)

    def has_outgrown(self, whole_ids_max: int) -> bool:
        """Whether it holds more segments than one in memory should."""
        return self._read is None and self.ids_held > whole_ids_max

    @property
    def reads_store(self) -> bool:
        """Whether its segments stay in the store."""
        return self._read is not None

    def begin(
        self, settings: StrategySettings, packed_positions: PackedPositions
    ) -> "NativeRingDraft":
        """Begin the draft of a batch; at most one is open at a time."""
        return self.draft(settings.capacity, packed_positions)

    def draft(self, capacity: int, packed_positions: PackedPositions) -> "NativeRingDraft":
        """Begin a batch with this capacity."""
        self.ring.begin(capacity)
        return NativeRingDraft(self, capacity, packed_positions)

    def apply(self, content: object) -> None:
        """Apply the content of a committed change."""
        values, deleted = cast("_Content", content)
        self._absorb(values, is_own=True)
        self.ring.drop(deleted)

    def load(self, values: Iterable[bytes]) -> None:
        """Take over the segments of the store, oldest first."""
        for value in values:
            self._absorb([value], is_own=False)

    def _absorb(self, values: list[bytes], *, is_own: bool) -> None:
        if not self.ring.absorb(values, is_own):
            for value in values:
                decode(value)  # names what is wrong
            raise unknown(b"".join(values))

    def forget(self) -> None:
        """Do nothing: what is dead is dropped when room is needed."""

    def origin(self, number: int) -> Origin:
        """Return the origin of the committed id with this number."""
        first, value = self.ring.segment(number)
        if value is None:
            assert self._read is not None
            return self._read(first, number).origin
        return row_of(value, number).origin


class NativeRingDraft(RingDraft):
    """The draft of a batch; what it adds is kept in the extension."""

    __slots__ = ("memory", "native")

    def __init__(
        self, memory: NativeRing, capacity: int, packed_positions: PackedPositions
    ) -> None:
        self.memory, self.native = memory, memory.ring
        self._capacity, self._packed_positions = capacity, packed_positions
        self.evicted = self.native.evicted()
        self.renewed = []
        self.admit = self._admit if capacity else _admit_nothing

    def lane(self, topic: str, keyed: int, unkeyed: int, owner: object) -> object:
        """Return what compiled code needs of a fast path: this ring, and where records go."""
        return cast("Any", loaded().module).Lane(self.native, topic, keyed, unkeyed, owner)

    def _admit(self, identifier: bytes, packed_position: int, time_ms: int) -> int | None:
        index = (packed_position + _HALF) >> _WIDTH
        offset = packed_position - (index << _WIDTH)
        found = self.native.admit(remembered(identifier), index, offset, time_ms)
        return cast("int | None", found)

    def admit_run(
        self, identifiers: Sequence[bytes], packed_positions: Sequence[int], times_ms: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Admit ids in order; return the index and the number of each that is known."""
        numbers = map(self.admit, identifiers, packed_positions, times_ms)
        return [(at, number) for at, number in enumerate(numbers) if number is not None]

    def accepted(self) -> Mapping[PartitionId, int]:
        """Return how many ids were added, by source partition, those since evicted included."""
        return {
            self._packed_positions.sources[index]: count
            for index, count in self.native.counts().items()
        }

    @property
    def _next(self) -> int:
        return int(self.native.next + self.native.drafted)

    @property
    def _floor(self) -> int:
        return max(int(self.native.floor), self._next - self._capacity)

    def judge(self, identifier: bytes) -> int | None:
        """Return the number of a known id, or None."""
        return cast("int | None", self.native.find(remembered(identifier)))

    def origin(self, number: int) -> Origin:
        """Return the origin of a known id, this batch included."""
        row = number - self.native.next
        if row < 0:
            return self.memory.origin(number)
        index, offset, time_ms = self.native.row(row)
        source = self._packed_positions.sources[index]
        return Origin(source.topic, source.partition, offset, time_ms)

    def renew(self, claim: Claim) -> Claim:
        """Make a known claim new; the caller remembers it before any other call."""
        identifier = claim.identifier
        if identifier is not None and (number := self.judge(identifier)) is not None:
            self.native.renew(number)
            if number < self.native.next:
                self.renewed.append(number)
        return claim

    def change(self, address: str) -> StateChange | None:
        """Return what to write and to apply after the commit; None without a change."""
        values, deleted = self._values(), len(self.evicted)
        if not values and not deleted:
            return None
        following, first = self.native.next, min(values, default=None)
        edits = [Edit(key(address, number), value) for number, value in values.items()]
        if first is not None and first != following:
            # A batch longer than the ring skips numbers, and so the key of an earlier resize.
            edits.append(Edit(key(address, following), None))
        return StateChange(edits, _Content(list(values.values()), deleted))

    def _values(self) -> dict[int, bytes]:
        """Return the segments to write, by their first numbers."""
        floor, count, following = self._floor, self.native.drafted, self.native.next
        sources = list(map(_packed_source, self._packed_positions.sources))
        starts = [
            start
            for start in range(0, count, segment.SEGMENT_IDS_MAX)
            if following + min(start + segment.SEGMENT_IDS_MAX, count) > floor
        ]
        if not starts and self.native.capacity not in {None, self._capacity}:
            starts = [count]  # a resize alone
        return {
            following + start: self.native.encode(
                start, min(segment.SEGMENT_IDS_MAX, count - start), floor, sources
            )
            for start in starts
        }


def whole(entries: Iterable[tuple[bytes, bytes]]) -> NativeRing:
    """Load a ring that keeps its segments."""
    ring = NativeRing()
    ring.load(value for _, value in entries)
    return ring


def indexed(
    entries: Iterable[tuple[bytes, bytes]],
    _size: StoredSize,
    read: ReadSegment,
    _make_index: MakeIndex,
) -> NativeRing:
    """Load a ring whose segments stay in the store."""
    ring = NativeRing(read)
    ring.load(value for _, value in entries)
    return ring


FORMS: Final = RingForms(whole, indexed)


def _admit_nothing(_identifier: bytes, _packed_position: int, _time_ms: int) -> int | None:
    """Judge ids for a ring of capacity 0: no id is known or remembered."""
    return None
