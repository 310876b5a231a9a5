"""Rings in compiled form: what `ringfence_state.strategies.ring_memory` does, in less time.

Invariant: a ring of either form judges like an `InMemoryRing`, and its drafts write the same.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, cast

from ringfence_service.native.compiled import (
    CompiledDraft,
    CompiledIds,
    StoredCompiledIds,
    check,
    module,
    replayed,
)
from ringfence_state.keys import SEGMENTS
from ringfence_state.model import Claim, PackedPositions
from ringfence_state.segment import EVICTED, remembered
from ringfence_state.strategies.base import Forms, StateChange, StrategySettings
from ringfence_state.strategies.ring import RingDraft


class _Ring(CompiledIds):
    """What is the same for all rings, wherever their segments are."""

    __slots__ = ()

    def draft(self, capacity: int, packed_positions: PackedPositions) -> "NativeRingDraft":
        """Begin a batch, without the segments that were read for the one before."""
        self.table.drop(0)
        self._row = None
        return NativeRingDraft(self, capacity, packed_positions)

    def begin(
        self, settings: StrategySettings, packed_positions: PackedPositions
    ) -> "NativeRingDraft":
        """Begin the draft of a batch; at most one is open at a time."""
        return self.draft(settings.capacity, packed_positions)


class NativeRing(_Ring):
    """A ring with its segments in memory."""

    __slots__ = ()


class NativeStoredRing(_Ring, StoredCompiledIds):
    """A ring whose segments stay in the store, and whose older ids are in runs."""

    __slots__ = ()


AnyRing = NativeRing | NativeStoredRing


class NativeRingDraft(CompiledDraft, RingDraft):
    """The draft of a batch on a ring."""

    kind = SEGMENTS

    def __init__(self, ring: _Ring, capacity: int, packed_positions: PackedPositions) -> None:
        super().__init__(ring, capacity, packed_positions)
        bounds = ring.next, ring.floor, capacity
        self.native: Any = module().Draft(ring.table, packed_positions.sources, *bounds)

    def admit(self, identifier: bytes, packed_position: int, time_ms: int) -> int | None:
        """Return the number of a known id; add a new one, and return None."""
        identifier = remembered(identifier)
        number = self._judge(identifier)
        if number is None and self._capacity:
            self.native.add(identifier, *PackedPositions.parts(packed_position), time_ms)
        return number

    def fetch(self, identifier: bytes, wanted: Sequence[tuple[int, int]]) -> bool:
        """Read the segments that show whether an id is known; return False if all are at hand."""
        return not self.renewed and cast("_Ring", self._ring).fetch(identifier, wanted)

    @property
    def _next(self) -> int:
        return int(self._ring.next) + len(self.native)

    def _judge(self, identifier: bytes) -> int | None:
        row = self.native.find(identifier)
        if row is not None:
            return int(self._ring.next + row)
        number = cast("_Ring", self._ring).committed(identifier)
        if number is None or number in self.renewed:
            return None
        return number if number >= self._floor else None

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


def whole(entries: Iterable[tuple[bytes, bytes]]) -> NativeRing:
    """Load a ring with its segments in memory."""
    ring = NativeRing()
    for _, value in entries:
        ring.load(value)
    return ring


FORMS: Final = Forms(
    whole, NativeStoredRing, check, partial(replayed, kind=SEGMENTS, is_window=False)
)
