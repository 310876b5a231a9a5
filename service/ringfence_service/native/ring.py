"""Rings in compiled form: what `ringfence_state.strategies.ring_memory` does, in less time.

Invariant: a ring of either form judges like an `InMemoryRing`, and its drafts write the same.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from ringfence_service.native.compiled import (
    CompiledDraft,
    CompiledIds,
    StoredCompiledIds,
    module,
)
from ringfence_state.id_index import MakeIndex
from ringfence_state.keys import SEGMENTS
from ringfence_state.model import Claim, PackedPositions
from ringfence_state.segment import EVICTED, remembered
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.base import Admit, StateChange, StoredSize, StrategySettings
from ringfence_state.strategies.ring import RingDraft, RingState
from ringfence_state.strategies.ring_memory import RingForms


class NativeRing(CompiledIds):
    """A ring with its segments in memory."""

    __slots__ = ()

    def draft(self, capacity: int, packed_positions: PackedPositions) -> "NativeRingDraft":
        """Begin a batch with this capacity; at most one draft is open at a time."""
        self._row = None
        return NativeRingDraft(self, capacity, packed_positions)

    def begin(
        self, settings: StrategySettings, packed_positions: PackedPositions
    ) -> "NativeRingDraft":
        """Begin the draft of a batch; at most one is open at a time."""
        return self.draft(settings.capacity, packed_positions)


class NativeStoredRing(StoredCompiledIds):
    """A ring whose segments stay in the store, and whose older ids are in runs."""

    __slots__ = ()

    def draft(self, capacity: int, packed_positions: PackedPositions) -> "NativeRingDraft":
        """Begin a batch, without the segments that were read for the one before."""
        self.table.drop(0)
        self._row = None
        return NativeRingDraft(self, capacity, packed_positions)

    begin = NativeRing.begin


AnyRing = NativeRing | NativeStoredRing


class NativeRingDraft(CompiledDraft, RingDraft):
    """The draft of a batch on a ring."""

    __slots__ = ("_judge", "native")

    kind = SEGMENTS

    def __init__(self, ring: AnyRing, capacity: int, packed_positions: PackedPositions) -> None:
        super().__init__(cast("RingState", ring), 0, packed_positions)
        self._capacity = capacity
        bounds = ring.next, ring.floor, capacity
        self.native: Any = module().Draft(ring.table, packed_positions.sources, *bounds)
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
        return not self.renewed and bool(self._ring.fetch(identifier))

    @property
    def _next(self) -> int:
        return int(self._ring.next) + len(self.native)

    def judge(self, identifier: bytes) -> int | None:
        """Return the number of a known id, or None."""
        return self._judge(remembered(identifier))

    def judge_at(self, identifier: bytes, _time_ms: int) -> int | None:
        """Return the number of a known id, or None: time does not matter."""
        return self.judge(identifier)

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
        is_resized = self._ring.capacity not in {None, self._capacity}
        capacity = self._capacity | (EVICTED if self.has_evicted else 0)
        return self._change(address, capacity, is_moved=is_resized, may_join=not self.renewed)


# The functions of a draft do not refer to it: in a reference cycle it would stay in memory until
# the next garbage collection.


def _make_judge(
    ring: AnyRing, native: Any, capacity: int, renewed: Sequence[int]
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
