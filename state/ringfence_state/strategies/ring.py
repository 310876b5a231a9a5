"""Ring strategy: an address remembers its last `capacity` ids; the oldest is evicted first.

The rule is that of HornetQ and Artemis (a circular cache; a hit refreshes nothing) without their
slots: ids are numbered, and an id is known iff its number is not below the floor. The floor is the
next number minus the capacity and never goes back, so when the capacity is raised a ring grows
only from what it held before.
Invariant: what a batch adds is visible to its `RingDraft` alone; dropping the draft is the abort.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from ringfence_state.model import (
    Claim,
    Edit,
    Origin,
    PackedPositions,
    PartitionId,
    Rejection,
    repetition_of,
)
from ringfence_state.segment import (
    FORGOTTEN,
    SEGMENT_IDS_MAX,
    Segment,
    key,
    put,
    remembered,
)
from ringfence_state.strategies.base import Hit, Occupancy, StateChange, verdicts_by_name

_NO_NUMBER: Final = -1
"""Below every floor."""


class RingState(Protocol):
    """The committed ids of an address, in any form."""

    next: int
    floor: int
    capacity: int | None
    has_evicted: bool
    """Whether an id was evicted since the ring was empty; see `RingDraft.has_evicted`."""

    def committed(self, identifier: bytes) -> int | None:
        """Return the newest number of an id in stored form, or None; it may be below the floor."""
        ...

    def origin(self, number: int) -> Origin:
        """Return the origin of the id with this number, which must be held and committed."""
        ...

    def evicted(self) -> Sequence[int]:
        """Return the first numbers of the segments wholly below the floor, still to be deleted."""
        ...


class RingContent(NamedTuple):
    """The segments that a change has written, and how many of the oldest it has deleted."""

    segments: tuple[Segment, ...]
    deleted: int


class RingDraft:
    """The uncommitted additions of one batch to one ring; only the batch sees them."""

    def __init__(self, ring: RingState, capacity: int, packed_positions: PackedPositions) -> None:
        self._ring = ring
        self._capacity = capacity
        self._packed_positions = packed_positions
        self._ids: list[bytes] = []
        """The ids that were added; the next two are as long."""
        self._positions: list[int] = []
        self._times_ms: list[int] = []
        self._numbers: dict[bytes, int] = {}
        """The newest numbers of these ids, and `_NO_NUMBER` for committed ids that were renewed."""
        self.evicted = ring.evicted()
        """The first numbers of the segments that this batch deletes, whatever it adds."""
        self.renewed: list[int] = []
        """The committed numbers of ids that were made new; their segments are to be rewritten."""

    def admit(self, identifier: bytes, packed_position: int, time_ms: int) -> int | None:
        """Return the number of a known id; add a new one, and return None."""
        identifier = remembered(identifier)
        number = self._judge(identifier)
        if number is None and self._capacity:
            self._numbers[identifier] = self._next
            self._ids.append(identifier)
            self._positions.append(packed_position)
            self._times_ms.append(time_ms)
        return number

    @property
    def by_id(self) -> "RingDraft | None":
        """The draft itself, unless its ring remembers nothing."""
        return self if self._capacity else None

    def accepted(self) -> Mapping[PartitionId, int]:
        """Return how many ids were added, by source partition, those since evicted included."""
        return self._packed_positions.count(self._positions)

    @property
    def _next(self) -> int:
        return self._ring.next + len(self._ids)

    @property
    def _floor(self) -> int:
        """The lowest number that is held; a full ring forgets its oldest id."""
        return max(self._ring.floor, self._next - self._capacity)

    @property
    def has_evicted(self) -> bool:
        """Whether an id was evicted since the ring was empty, growth or not."""
        return has_evicted(self._ring, self._floor)

    def judge(self, identifier: bytes) -> int | None:
        """Return the number of a known id, or None."""
        return self._judge(remembered(identifier))

    def _judge(self, identifier: bytes) -> int | None:
        number = self._numbers.get(identifier)
        if number is None:
            number = self._ring.committed(identifier)
        return number if number is not None and number >= self._floor else None

    def origin(self, number: int) -> Origin:
        """Return the origin of a known id, this batch included."""
        row = number - self._ring.next
        if row < 0:
            return self._ring.origin(number)
        source, offset = self._packed_positions.unpack(self._positions[row])
        return Origin(*source, offset, self._times_ms[row])

    def refresh(self, _identifier: bytes, _number: int, _time_ms: int) -> None:
        """Do nothing: a hit refreshes nothing."""

    def verdict(self, claim: Claim, _at: Origin) -> Rejection | None:
        """Return why the claim is rejected, or None."""
        number = None if claim.identifier is None else self.judge(claim.identifier)
        return None if number is None else repetition_of(self.origin(number))

    def verdicts(self, claims: Sequence[Claim], at: Sequence[Origin]) -> list[Rejection | None]:
        """Return the verdicts of a group whose records are judged together."""
        return verdicts_by_name(self, claims, at, lambda claim: claim.identifier)

    def renew(self, claim: Claim) -> Claim:
        """Make a known claim new; the caller remembers it before any other call."""
        identifier = claim.identifier
        if identifier is not None and (number := self.judge(identifier)) is not None:
            row = number - self._ring.next
            self._numbers[remembered(identifier)] = _NO_NUMBER
            if row < 0:
                self.renewed.append(number)
            else:
                self._ids[row] = FORGOTTEN
        return claim

    def covered(self) -> Mapping[str, int]:
        """Return nothing: a ring holds no numbers of publishers."""
        return {}

    def repeated(self, claim: Claim, _at: Origin) -> None:
        """Do nothing: a hit refreshes nothing."""

    def remember(self, claim: Claim, at: Origin) -> None:
        """Add an accepted record."""
        if claim.identifier is not None:
            packed_position = (
                self._packed_positions.base(PartitionId(at.topic, at.partition)) + at.offset
            )
            self.admit(claim.identifier, packed_position, at.time_ms)

    def sightings(self, identifiers: Sequence[bytes], _time_ms: int) -> list[list[Hit]]:
        """Return the hits of each id, one list per id."""
        return [list(self._sightings(identifier)) for identifier in identifiers]

    def _sightings(self, identifier: bytes) -> Iterator[Hit]:
        number = self.judge(identifier)
        if number is not None:
            yield Hit(self.origin(number), number - (self._next - self._capacity) + 1)

    def extent(self) -> Occupancy:
        """Return what is held before the batch adds anything."""
        bounds = self._floor, self._next, self._capacity
        return extent_of(*bounds, self._time_ms_of, evicted=self.has_evicted)

    def time_of(self, rank: int) -> int | None:
        """Return when a held id was accepted; `rank` counts from the oldest, 0."""
        return self._time_ms_of(self._floor + rank)

    def _time_ms_of(self, number: int) -> int:
        return self.origin(number).time_ms

    def change(self, address: str) -> StateChange | None:
        """Return what to write and to apply after the commit; None without a change."""
        segments, deleted = self.seal(), len(self.evicted)
        if not segments and not deleted:
            return None
        return StateChange(self.edits(address, segments), RingContent(segments, deleted))

    def seal(self) -> tuple[Segment, ...]:
        """Return the segments to write and, after the commit, to absorb; none without a change."""
        floor, count = self._floor, len(self._ids)
        starts = range(0, count, SEGMENT_IDS_MAX)
        held = tuple(
            segment for start in starts if (segment := self._segment(start, floor)).end > floor
        )
        if not held and self._ring.capacity not in {None, self._capacity}:
            # A resize alone: an empty segment carries the floor; the next segment takes its key.
            return (self._segment(count, floor),)
        return held

    def deletions(self, address: str) -> list[Edit]:
        """Return a tombstone for each evicted segment; known before the first record."""
        return [Edit(key(address, first), None) for first in self.evicted]

    def edits(self, address: str, segments: Sequence[Segment]) -> list[Edit]:
        """Return the edits that write the sealed segments."""
        written = [put(address, segment) for segment in segments]
        if segments and segments[0].first != self._ring.next:
            # A batch longer than the ring skips numbers, and so the key of an earlier resize.
            written.append(Edit(key(address, self._ring.next), None))
        return written

    def _segment(self, start: int, floor: int) -> Segment:
        end = start + SEGMENT_IDS_MAX
        ids = tuple(self._ids[start:end])
        sources, source_indexes, offsets = self._packed_positions.columns(
            self._positions[start:end]
        )
        return Segment(
            first=self._ring.next + start,
            floor=floor,
            capacity=self._capacity,
            sources=sources if ids else (),
            ids=ids,
            source_indexes=source_indexes,
            offsets=offsets,
            times_ms=self._times_ms[start:end],
            has_evicted=self.has_evicted,
        )


class RingBounds(Protocol):
    """What is known of a ring without its ids."""

    @property
    def next(self) -> int:
        """The number after the newest id."""
        ...

    @property
    def floor(self) -> int:
        """The lowest number that is held."""
        ...

    @property
    def capacity(self) -> int | None:
        """The size when the ring was last written; None before."""
        ...

    @property
    def has_evicted(self) -> bool:
        """Whether the newest segment says that an id was evicted."""
        ...


def has_evicted(ring: RingBounds, floor: int) -> bool:
    """Whether a ring has evicted an id since it was empty, with its floor raised to this one.

    Clearing raises the floor too, and the ring is empty again. Versions before `has_evicted` was
    stored leave a sign only while the ring is full.
    """
    was_full = 0 < ring.floor < ring.next and ring.next - ring.floor == ring.capacity
    return ring.has_evicted or floor > ring.floor or was_full


def extent_of(
    floor: int, following: int, capacity: int, time_ms_of: Callable[[int], int], *, evicted: bool
) -> Occupancy:
    """Return the occupancy of a ring from its lowest number and the one after its highest.

    The horizon of a ring that was enlarged grows from what it held; that of an empty one is 0.
    """
    if floor >= following:
        return Occupancy(0, horizon_ms=0 if evicted and capacity else None)
    oldest_ms, newest_ms = time_ms_of(floor), time_ms_of(following - 1)
    return Occupancy(
        following - floor, oldest_ms, newest_ms, newest_ms - oldest_ms if evicted else None
    )
