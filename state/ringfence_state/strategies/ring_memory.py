"""Ring strategy, and a ring with all its ids in memory as Python objects.

`InMemoryRing` says what the rule is: a dict of numbers, and the segments in order. It decides where
there is no compiled code, and what compiled code decides is compared with it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

from ringfence_state.keys import SEGMENTS
from ringfence_state.model import Claim, Edit, Origin, PackedPositions
from ringfence_state.ring_sizes import ID_OVERHEAD_BYTES
from ringfence_state.segment import FORGOTTEN, Segment, decode, evicted
from ringfence_state.store import Store
from ringfence_state.strategies import ring_admin
from ringfence_state.strategies.base import (
    Draft,
    DuplicateKey,
    Forms,
    HasForms,
    HeldId,
    Occupancy,
    StrategySettings,
    newest_in_segments,
)
from ringfence_state.strategies.ring import RingContent, RingDraft
from ringfence_state.strategies.ring_admin import StoredRing


class InMemoryRing:
    """A ring with its ids and their origins in memory."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        """The newest number by id; it may be below the floor while its segment is kept."""
        self._segments: list[Segment] = []
        self._firsts: list[int] = []
        """The first numbers of the segments."""
        self.next = 0
        self.floor = 0
        self.capacity: int | None = None
        self.has_evicted = False
        self.memory_bytes = 0

    def __len__(self) -> int:
        """Return how many ids are held."""
        return self.next - self.floor

    @property
    def ids_held(self) -> int:
        """How many ids are held."""
        return self.next - self.floor

    @property
    def ids_evicted(self) -> int:
        """How many ids were evicted: the floor rises by one with each."""
        return self.floor

    def has_outgrown(self, _whole_ids_max: int) -> bool:
        """No: there is no other form."""
        return False

    def reread(self) -> bool:
        """Return False: its ids are in memory."""
        return False

    def shrink(self) -> bool:
        """Return False: every id is needed."""
        return False

    def draft(self, capacity: int, packed_positions: PackedPositions) -> RingDraft:
        """Begin a batch with this capacity; at most one draft is open at a time."""
        return RingDraft(self, capacity, packed_positions)

    def begin(self, settings: StrategySettings, packed_positions: PackedPositions) -> RingDraft:
        """Begin the draft of a batch; at most one is open at a time."""
        return self.draft(settings.capacity, packed_positions)

    def apply(self, content: object) -> None:
        """Apply the content of a committed change."""
        self.absorb(*cast("RingContent", content))

    def absorb(self, segments: Sequence[Segment], deleted: int = 0) -> None:
        """Take over committed segments, oldest first, and drop the first `deleted` ones."""
        for segment in segments:
            self.next, self.capacity = segment.end, segment.capacity
            self.floor = max(self.floor, segment.floor)
            self.has_evicted = segment.has_evicted
            if segment.ids:
                numbers = range(segment.first, segment.end)
                self._numbers.update(zip(segment.ids, numbers, strict=True))
                self._segments.append(segment)
                self._firsts.append(segment.first)
                self.memory_bytes += _memory_bytes(segment)
        for segment in self._segments[:deleted]:
            self.memory_bytes -= _memory_bytes(segment)
            for identifier in segment.ids:
                if self._numbers.get(identifier, segment.end) < segment.end:
                    del self._numbers[identifier]
        del self._segments[:deleted], self._firsts[:deleted]

    def committed(self, identifier: bytes) -> int | None:
        """Return the newest number of an id in stored form, or None; it may be below the floor."""
        return self._numbers.get(identifier)

    def origin(self, number: int) -> Origin:
        """Return the origin of the committed id with this number."""
        return self._segments[bisect_right(self._firsts, number) - 1].origin(number)

    def evicted(self) -> Sequence[int]:
        """Return the first numbers of the evicted segments that are not yet deleted."""
        return evicted(self._firsts, self.floor, self.next)


def _memory_bytes(segment: Segment) -> int:
    return sum(map(len, segment.ids)) + ID_OVERHEAD_BYTES * len(segment.ids)


def _whole(entries: Iterable[tuple[bytes, bytes]]) -> InMemoryRing:
    ring = InMemoryRing()
    ring.absorb([decode(value) for _, value in entries])
    return ring


PYTHON: Final = Forms(_whole)


class RingStrategy(HasForms):
    """The strategies `ring` and `off`: a ring without a size remembers nothing."""

    kind = SEGMENTS
    time_key = ""
    holds_ids = True
    publisher_headers = frozenset[str]()
    required_headers: tuple[str, ...] = ()
    refreshes = False
    identity = DuplicateKey(("identifier",))
    numbers = None

    forms = PYTHON

    def __init__(self, size_key: str) -> None:
        self.size_key = size_key

    def claims(self, claim: Claim) -> bool:
        """Return whether the claim has what the strategy needs."""
        return claim.identifier is not None

    def extent(self, store: Store, address: str, settings: StrategySettings) -> Occupancy:
        """Return the occupancy, read from the first and the last segment."""
        return ring_admin.extent(store, address, settings.capacity)

    def stored_ids(self, store: Store, address: str, settings: StrategySettings) -> StoredRing:
        """Return the list of its ids."""
        return StoredRing.of(store, address, settings.capacity)

    def renewals(self, store: Store, address: str, draft: Draft) -> list[Edit]:
        """Return the edits that remove what the draft has renewed from its segments."""
        renewed = cast("RingDraft", draft).renewed
        return ring_admin.forget_all(store, address, renewed) if renewed else []

    def newest_ms(self, store: Store, address: str, enough_ms: int) -> int | None:
        """Return when an id was accepted last, as `Strategy.newest_ms` describes."""
        return newest_in_segments(store, self.kind, address, enough_ms)

    def clear(self, store: Store, address: str) -> list[Edit]:
        """Return the edits that leave a ring empty; its numbers go on."""
        return ring_admin.clear(store, address)

    def held_ids(
        self, entries: Iterable[tuple[bytes, bytes]], settings: StrategySettings
    ) -> Iterator[HeldId]:
        """Yield the ids, oldest first."""
        segments = [decode(value) for _, value in entries]
        for segment in segments:
            floor = max(segments[-1].floor, segments[-1].end - settings.capacity)
            for number in range(max(segment.first, floor), segment.end):
                identifier = segment.ids[number - segment.first]
                if identifier != FORGOTTEN:
                    yield HeldId(identifier, segment.origin(number))
