"""Ring strategy: an address remembers its last `capacity` ids; the oldest is evicted first.

The rule of HornetQ and Artemis (circular cache, a hit refreshes nothing) without their slots:
ids are numbered, and an id is known iff its number is not below the floor. The floor is the next
number less the capacity and never goes back, so growing counts only from what was held.
Invariant: what a batch adds counts for its `RingDraft` alone, and dropping the draft is the abort.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from state.model import Claim, Edit, Origin, PackedPositions, PartitionId, Rejection, repetition_of
from state.segment import FORGOTTEN, RUN_IDS_MAX, Segment, key, put, remembered
from state.strategies.base import Hit, Occupancy, StateChange, verdicts_by_name


class RingAdditions(NamedTuple):
    """What a draft has added, in columns of equal length."""

    ids: list[bytes]
    packed_positions: list[int]
    times_ms: list[int]


Admit = Callable[[bytes, int, int], int | None]
"""Of an id, its spot and its time: the number under which it is known, else it is added."""


class RingState(Protocol):
    """What an address has accepted, as far as it still counts: a `WholeRing` or a `CompactRing`."""

    next: int
    floor: int
    capacity: int | None

    def number_of(self, identifier: bytes) -> int | None:
        """The newest number of an id, an open draft included; it may lie below the floor."""
        ...

    def admitter(self, capacity: int, added: RingAdditions) -> Admit:
        """Judges ids and fills `added`."""
        ...

    def let_go(self, identifier: bytes) -> None:
        """Have the open draft take an id for new; it has to be admitted again."""
        ...

    def origin(self, number: int) -> Origin:
        """Where the id with this number, which must be held and committed, came from."""
        ...

    def outlived(self) -> Sequence[int]:
        """The first numbers of the runs that lie wholly below the floor, still to be deleted."""
        ...

    def absorb(self, runs: Sequence[Segment], deleted: int = 0) -> None:
        """Take over what was committed, oldest first: after a commit, and when loading.

        `deleted` of the outlived runs are gone.
        """
        ...

    def forget(self) -> None:
        """Let go what no verdict depends on any more; there is no hurry."""
        ...


class RingContent(NamedTuple):
    """What `RingState.absorb` takes."""

    runs: tuple[Segment, ...]
    deleted: int


class RingDraft:
    """One batch on one ring: it sees its own additions, and nobody else does.

    `admit(identifier, spot, time_ms)` judges an id and remembers it if it is new: it gives the
    number under which the id is known, or None.
    """

    __slots__ = ("_added", "_capacity", "_packed_positions", "_ring", "admit", "outlived")

    def __init__(self, ring: RingState, capacity: int, packed_positions: PackedPositions) -> None:
        self._ring = ring
        self._capacity = capacity
        self._packed_positions = packed_positions
        self._added = RingAdditions([], [], [])
        self.outlived = ring.outlived()
        """The first numbers of runs that this batch deletes, whatever it adds."""
        self.admit = ring.admitter(capacity, self._added) if capacity else _forgetful

    def accepted(self) -> Mapping[PartitionId, int]:
        """See `Draft.accepted`; those included that it outlived itself."""
        return self._packed_positions.count(self._added.packed_positions)

    @property
    def _next(self) -> int:
        return self._ring.next + len(self._added.ids)

    @property
    def _floor(self) -> int:
        """The lowest number that is held: the oldest is forgotten when the ring is full."""
        return max(self._ring.floor, self._next - self._capacity)

    def judge(self, identifier: bytes) -> int | None:
        """The number under which the id is known, or None."""
        number = self._ring.number_of(remembered(identifier))
        return number if number is not None and number >= self._floor else None

    def origin(self, number: int) -> Origin:
        """Where a known id came from, this batch included."""
        row = number - self._ring.next
        if row < 0:
            return self._ring.origin(number)
        source, offset = self._packed_positions.place(self._added.packed_positions[row])
        return Origin(*source, offset, self._added.times_ms[row])

    def verdict(self, claim: Claim, _at: Origin) -> Rejection | None:
        """See `Draft.verdict`."""
        number = None if claim.identifier is None else self.judge(claim.identifier)
        return None if number is None else repetition_of(self.origin(number))

    def verdicts(self, claims: Sequence[Claim], at: Sequence[Origin]) -> list[Rejection | None]:
        """See `Draft.verdicts`."""
        return verdicts_by_name(self, claims, at, lambda claim: claim.identifier)

    def let_go(self, identifier: bytes) -> int | None:
        """Take a known id for new; it has to be remembered anew before anything else is done.

        Gives the number that the id had, where that is committed: its run is to be rewritten.
        """
        number = self.judge(identifier)
        if number is None:
            return None
        row = number - self._ring.next
        self._ring.let_go(remembered(identifier))
        if row < 0:
            return number
        self._added.ids[row] = FORGOTTEN
        return None

    def repeated(self, claim: Claim, _at: Origin) -> None:
        """See `Draft.repeated`: a hit refreshes nothing."""

    def remember(self, claim: Claim, at: Origin) -> None:
        """See `Draft.remember`."""
        if claim.identifier is not None:
            packed_position = (
                self._packed_positions.base(PartitionId(at.topic, at.partition)) + at.offset
            )
            self.admit(claim.identifier, packed_position, at.time_ms)

    def sightings(self, identifiers: Sequence[bytes], _time_ms: int) -> list[list[Hit]]:
        """See `Draft.sightings`."""
        return [list(self._sightings(identifier)) for identifier in identifiers]

    def _sightings(self, identifier: bytes) -> Iterator[Hit]:
        number = self.judge(identifier)
        if number is not None:
            yield Hit(self.origin(number), number - (self._next - self._capacity) + 1)

    def extent(self) -> Occupancy:
        """See `Draft.extent`."""
        bounds = self._floor, self._next
        return extent_of(*bounds, self._capacity, lambda number: self.origin(number).time_ms)

    def time_of(self, place: int) -> int:
        """When one that is held was accepted, counted from the oldest."""
        return self.origin(self._floor + place).time_ms

    def change(self, address: str) -> StateChange | None:
        """See `Draft.change`."""
        runs, deleted = self.seal(), len(self.outlived)
        if not runs and not deleted:
            return None
        return StateChange(self.edits(address, runs), RingContent(runs, deleted))

    def seal(self) -> tuple[Segment, ...]:
        """What to write and, after the commit, to absorb: nothing when nothing changed."""
        floor, count = self._floor, len(self._added.ids)
        starts = range(0, count, RUN_IDS_MAX)
        held = tuple(run for start in starts if (run := self._run(start, floor)).end > floor)
        if not held and self._ring.capacity not in {None, self._capacity}:
            # A resize alone: an empty run carries the floor; the next run takes its key.
            return (self._run(count, floor),)
        return held

    def deletions(self, address: str) -> list[Edit]:
        """A tombstone for each run that the ring has outlived; known before the first record."""
        return [Edit(key(address, first), None) for first in self.outlived]

    def edits(self, address: str, runs: Sequence[Segment]) -> list[Edit]:
        """The sealed runs as edits."""
        written = [put(address, run) for run in runs]
        if runs and runs[0].first != self._ring.next:
            # A batch longer than the ring skips numbers, and with them the key of a former resize.
            written.append(Edit(key(address, self._ring.next), None))
        return written

    def _run(self, start: int, floor: int) -> Segment:
        end = start + RUN_IDS_MAX
        ids = tuple(self._added.ids[start:end])
        sources, places, offsets = self._packed_positions.columns(
            self._added.packed_positions[start:end]
        )
        return Segment(
            first=self._ring.next + start,
            floor=floor,
            capacity=self._capacity,
            sources=sources if ids else (),
            ids=ids,
            places=places,
            offsets=offsets,
            times_ms=self._added.times_ms[start:end],
        )


def extent_of(
    floor: int, following: int, capacity: int, time_ms_of: Callable[[int], int]
) -> Occupancy:
    """How much a ring holds, from its lowest number and the one after its highest."""
    if floor >= following:
        return Occupancy(0)
    oldest_ms, newest_ms = time_ms_of(floor), time_ms_of(following - 1)
    # A clearing raises the floor too.
    has_evicted = floor and following - floor == capacity
    horizon_ms = newest_ms - oldest_ms if has_evicted else None
    return Occupancy(following - floor, oldest_ms, newest_ms, horizon_ms)


def _forgetful(_identifier: bytes, _packed_position: int, _time_ms: int) -> int | None:
    """Of size 0: nothing is known, and nothing remembered."""
    return None
