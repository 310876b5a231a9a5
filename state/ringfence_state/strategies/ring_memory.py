"""Rings in memory: `InMemoryRing` with ids and origins, `IndexedRing` with hashes and numbers.

Invariant: what a batch adds to an `InMemoryRing` has numbers from `next` on until it is applied.
Dropping the draft is the abort: the next draft first removes what the last one has left.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count, repeat
from typing import ClassVar, Final, NamedTuple, cast

from ringfence_state.id_index import IdIndex, MakeIndex
from ringfence_state.keys import SEGMENTS
from ringfence_state.model import Claim, Edit, Origin, PackedPositions
from ringfence_state.ring_sizes import ID_OVERHEAD_BYTES
from ringfence_state.segment import (
    FORGOTTEN,
    STORED_ID_BYTES_MAX,
    Segment,
    SegmentEntry,
    SegmentSummary,
    decode,
    evicted,
    remembered,
    summary,
)
from ringfence_state.store import Store
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies import ring_admin
from ringfence_state.strategies.base import (
    Admit,
    CommittedState,
    Draft,
    DuplicateKey,
    HeldId,
    Occupancy,
    ReadSegment,
    StoredSize,
    StrategySettings,
    newest_in_segments,
)
from ringfence_state.strategies.ring import RingAdditions, RingContent, RingDraft
from ringfence_state.strategies.ring_admin import StoredRing


class InMemoryRing:
    """A ring with its ids and segments in memory, for addresses that are small or busy."""

    __slots__ = (
        "_dead",
        "_drafted",
        "_firsts",
        "_known",
        "_overwritten",
        "_segments",
        "_sizes_bytes",
        "capacity",
        "floor",
        "has_evicted",
        "memory_bytes",
        "next",
    )

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        """The newest number by id, those of an open draft included."""
        self._drafted: list[bytes] = []
        self._overwritten: dict[bytes, int] = {}
        """The committed numbers of ids that the open draft has accepted again."""
        self._segments: list[Segment] = []
        self._sizes_bytes: list[int] = []
        """Bytes per segment, so that dropping one does not pull its ids into the CPU cache."""
        self._dead: list[Segment] = []
        """Deleted segments whose ids are still to be forgotten."""
        self._firsts: list[int] = []
        """The first numbers of the segments: plain numbers make bisection fastest."""
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

    def has_outgrown(self, whole_ids_max: int) -> bool:
        """Whether it holds more ids than an `InMemoryRing` should."""
        return len(self) > whole_ids_max

    def reread(self) -> bool:
        """Return False: its ids are in memory."""
        return False

    def shrink(self) -> bool:
        """Return False: every id is needed."""
        return False

    def draft(self, capacity: int, packed_positions: PackedPositions) -> RingDraft:
        """Begin a batch with this capacity; at most one draft is open at a time."""
        self._take_back()
        return RingDraft(self, capacity, packed_positions)

    def begin(self, settings: StrategySettings, packed_positions: PackedPositions) -> RingDraft:
        """Begin the draft of a batch; at most one is open at a time."""
        return self.draft(settings.capacity, packed_positions)

    def apply(self, content: object) -> None:
        """Apply the content of a committed change."""
        self.absorb(*cast("RingContent", content))

    def number_of(self, identifier: bytes) -> int | None:
        """Return the newest number of an id, an open draft included, or None."""
        return self._known.get(identifier)

    def make_admit(self, capacity: int, added: RingAdditions) -> Admit:
        """Return a function that judges ids and adds new ones to `added`.

        It is a closure because it runs once per record, and an attribute lookup costs as much as
        a comparison. `setdefault` looks up and adds in one step: a new id gets the next number.
        """
        known, overwritten = self._known, self._overwritten
        committed, floor = self.next, self.floor
        following = committed + len(added.ids)
        number_of = known.setdefault
        add_id, add_position = added.ids.append, added.packed_positions.append
        add_time = added.times_ms.append
        self._drafted = added.ids

        def admit(identifier: bytes, packed_position: int, time_ms: int) -> int | None:
            nonlocal following
            if len(identifier) > STORED_ID_BYTES_MAX:
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
            add_position(packed_position)
            add_time(time_ms)
            return None

        return admit

    def may_know(self, identifiers: Sequence[bytes]) -> Collection[bytes]:
        """Return those of these distinct ids that are in memory."""
        return self._known.keys() & identifiers

    def add_new(self, identifiers: Sequence[bytes], first: int) -> None:
        """Add ids to the open draft, with numbers from `first` on."""
        self._known.update(zip(identifiers, count(first)))

    def let_go(self, identifier: bytes) -> None:
        """Make the open draft treat an id as new."""
        number = self._known.pop(identifier)
        if number < self.next:
            self._overwritten[identifier] = number

    def origin(self, number: int) -> Origin:
        """Return the origin of the committed id with this number."""
        return self._segments[bisect_right(self._firsts, number) - 1].origin(number)

    def absorb(self, segments: Sequence[Segment], deleted: int = 0) -> None:
        """Take over committed segments, oldest first, and drop the first `deleted` ones."""
        if sum(len(segment.ids) for segment in segments) == len(self._drafted):
            self._drafted, self._overwritten = [], {}  # `_known` already contains all of it
        else:
            self._take_back()
            for segment in segments:
                self._known.update(zip(segment.ids, range(segment.first, segment.end), strict=True))
        for segment in segments:
            self.next, self.capacity = segment.end, segment.capacity
            self.floor = max(self.floor, segment.floor)
            self.has_evicted = segment.has_evicted
            if segment.ids:
                offsets, times_ms = array("q", segment.offsets), array("q", segment.times_ms)
                self._segments.append(segment._replace(offsets=offsets, times_ms=times_ms))
                self._firsts.append(segment.first)
                size_bytes = _memory_bytes(segment)
                self._sizes_bytes.append(size_bytes)
                self.memory_bytes += size_bytes
        dead = self._segments[:deleted]
        self.memory_bytes -= sum(self._sizes_bytes[:deleted])
        del self._segments[:deleted], self._firsts[:deleted], self._sizes_bytes[:deleted]
        self._dead += dead

    def evicted(self) -> Sequence[int]:
        """Return the first numbers of the evicted segments that are not yet deleted."""
        return evicted(self._firsts, self.floor, self.next)

    def forget(self) -> None:
        """Forget the ids of deleted segments."""
        for segment in self._dead:
            numbers = list(map(self._known.pop, segment.ids, repeat(-1)))
            if max(numbers) >= self.floor:
                # An id that was accepted again since keeps its newer number.
                pairs = zip(segment.ids, numbers, strict=True)
                self._known.update(pair for pair in pairs if pair[1] >= self.floor)
        self._dead = []

    def _take_back(self) -> None:
        for identifier in self._drafted:
            self._known.pop(identifier, None)
        self._known.update(self._overwritten)
        self._drafted, self._overwritten = [], {}


def _memory_bytes(segment: Segment) -> int:
    return sum(map(len, segment.ids)) + ID_OVERHEAD_BYTES * len(segment.ids)


# The index of a growing ring has room for this many times the ids it holds.
_ROOM: Final = 8

_NO_NUMBER: Final = -1
"""Below every floor."""


class IndexedRing:
    """A ring with hashes and numbers in memory; ids and origins are read from the store.

    `read` takes the first number of a segment and the number of one of its entries.
    """

    __slots__ = (
        "_drafted",
        "_firsts",
        "_index",
        "_read",
        "_row",
        "capacity",
        "floor",
        "has_evicted",
        "next",
    )

    def __init__(self, read: ReadSegment, index: IdIndex) -> None:
        self._read = read
        self._index = index
        self._firsts = array("Q")
        self._drafted: dict[bytes, int] = {}
        self._row: tuple[int, SegmentEntry] | None = None
        """The entry read last, with its number: a verdict is followed by its origin."""
        self.next = 0
        self.floor = 0
        self.capacity: int | None = None
        self.has_evicted = False

    def __len__(self) -> int:
        """Return how many ids are held."""
        return self.next - self.floor

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        return self._index.memory_bytes + len(self._firsts) * self._firsts.itemsize

    @property
    def ids_held(self) -> int:
        """How many ids are held."""
        return self.next - self.floor

    @property
    def ids_evicted(self) -> int:
        """How many ids were evicted: the floor rises by one with each."""
        return self.floor

    def has_outgrown(self, _whole_ids_max: int) -> bool:
        """Whether the ring has outgrown its index."""
        return len(self) > self._index.ids_max

    def reread(self) -> bool:
        """Return True: the index has only hashes."""
        return True

    def shrink(self) -> bool:
        """Return False: the index is needed."""
        return False

    def draft(self, capacity: int, packed_positions: PackedPositions) -> RingDraft:
        """Begin a batch with this capacity; at most one draft is open at a time."""
        self._drafted, self._row = {}, None
        return RingDraft(self, capacity, packed_positions)

    def begin(self, settings: StrategySettings, packed_positions: PackedPositions) -> RingDraft:
        """Begin the draft of a batch; at most one is open at a time."""
        return self.draft(settings.capacity, packed_positions)

    def apply(self, content: object) -> None:
        """Apply the content of a committed change."""
        self.absorb(*cast("RingContent", content))

    def number_of(self, identifier: bytes) -> int | None:
        """Return the newest number of an id, an open draft included, or None."""
        number = self._drafted.get(identifier)
        return self._committed(identifier) if number is None else number

    def make_admit(self, capacity: int, added: RingAdditions) -> Admit:
        """Return a function that judges ids and adds new ones to `added`."""
        drafted, committed, floor = self._drafted, self._committed, self.floor
        may_hold = self._index.membership_test()
        following = self.next + len(added.ids)
        add_id, add_position = added.ids.append, added.packed_positions.append
        add_time = added.times_ms.append

        def admit(identifier: bytes, packed_position: int, time_ms: int) -> int | None:
            nonlocal following
            if len(identifier) > STORED_ID_BYTES_MAX:
                identifier = remembered(identifier)
            number = drafted.get(identifier)
            if number is None and may_hold(identifier):
                number = committed(identifier)
            if number is not None and number >= following - capacity and number >= floor:
                return number
            drafted[identifier] = following
            following += 1
            add_id(identifier)
            add_position(packed_position)
            add_time(time_ms)
            return None

        return admit

    def may_know(self, identifiers: Sequence[bytes]) -> Collection[bytes]:
        """Return those of these distinct ids that the draft has or the index may hold."""
        held = self._index.may_hold(identifiers)
        return {*held, *(self._drafted.keys() & identifiers)} if self._drafted else held

    def add_new(self, identifiers: Sequence[bytes], first: int) -> None:
        """Add ids to the open draft, with numbers from `first` on."""
        self._drafted.update(zip(identifiers, count(first)))

    def let_go(self, identifier: bytes) -> None:
        """Make the open draft treat an id as new."""
        self._drafted[identifier] = _NO_NUMBER

    def origin(self, number: int) -> Origin:
        """Return the origin of the committed id with this number."""
        return self._row_of(number).origin

    def absorb(self, segments: Iterable[Segment], deleted: int = 0) -> None:
        """Take over committed segments, oldest first, and drop the first `deleted` ones."""
        self._drafted = {}
        for segment in segments:
            self.take(SegmentSummary(*segment[:3], segment.ids, segment.has_evicted))
        del self._firsts[:deleted]

    def take(self, segment: SegmentSummary) -> None:
        """Add the next segment; only its ids' hashes and its first number are kept."""
        self.next, self.capacity = segment.first + len(segment.ids), segment.capacity
        self.floor = max(self.floor, segment.floor)
        self.has_evicted = segment.has_evicted
        if segment.ids:
            self._index.add(segment.ids, segment.first, self.floor)
            self._firsts.append(segment.first)

    def evicted(self) -> Sequence[int]:
        """Return the first numbers of the evicted segments that are not yet deleted."""
        return evicted(self._firsts, self.floor, self.next)

    def forget(self) -> None:
        """Do nothing: the index drops dead entries when it needs room."""

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


class RingForms(NamedTuple):
    """How rings are loaded: with their ids in memory, and with their ids in the store."""

    whole: Callable[[Iterable[tuple[bytes, bytes]]], CommittedState]
    indexed: Callable[[StoredSegments, StoredSize, MakeIndex], CommittedState]


def _whole(entries: Iterable[tuple[bytes, bytes]]) -> InMemoryRing:
    ring = InMemoryRing()
    ring.absorb([decode(value) for _, value in entries])
    return ring


def _indexed(segments: StoredSegments, size: StoredSize, make_index: MakeIndex) -> IndexedRing:
    ring = IndexedRing(segments.read, make_index(min(size.capacity, _ROOM * size.ids)))
    for _, value in segments.entries():
        ring.take(summary(value))
    return ring


PYTHON: Final = RingForms(_whole, _indexed)


class RingStrategy:
    """The strategies `ring` and `off`: a ring without a size remembers nothing."""

    kind = SEGMENTS
    time_key = ""
    holds_ids = True
    publisher_headers = frozenset[str]()
    required_headers: tuple[str, ...] = ()
    refreshes = False
    identity = DuplicateKey(("identifier",))
    numbers = None

    forms: ClassVar = PYTHON
    """A process may replace them before it loads the first ring."""

    def __init__(self, size_key: str) -> None:
        self.size_key = size_key

    @property
    def indexed(self) -> "RingStrategy":
        """The strategy itself: an `IndexedRing` leaves its ids in the store."""
        return self

    def claims(self, claim: Claim) -> bool:
        """Return whether the claim has what the strategy needs."""
        return claim.identifier is not None

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> CommittedState:
        """Return the ring of an address; raise UnknownFormatError as `Strategy.load` does."""
        return self.forms.whole(entries)

    def stored_size(self, store: Store, address: str) -> StoredSize:
        """Return how many ids the segments of an address span, and its newest capacity."""
        return ring_admin.stored_size(store, self.kind, address)

    def load_indexed(
        self, segments: StoredSegments, size: StoredSize, make_index: MakeIndex
    ) -> CommittedState:
        """Return the ring of an address with its ids in the store."""
        return self.forms.indexed(segments, size, make_index)

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
