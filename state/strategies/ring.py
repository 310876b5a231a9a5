"""Ring: an address remembers its last `capacity` ids; the oldest is forgotten first.

The rule of HornetQ and Artemis (circular cache, a hit refreshes nothing) without their slots:
ids are numbered, and an id is known iff its number is not below the floor. The floor is the next
number less the capacity and never goes back, so growing counts only from what was held.
Invariant: what a batch adds counts for its `RingDraft` alone, and dropping the draft is the abort.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from state.edit import Edit, Origin, Source
from state.run import RUN_IDS_MAX, Run, key, put

ID_BYTES_MAX: Final = 64
"""Longer ids are remembered by their SHA-256."""


class Additions(NamedTuple):
    """What a draft has added, in columns of equal length."""

    ids: list[bytes]
    offsets: list[int]
    times_ms: list[int]


Admit = Callable[[bytes, int, int], int | None]
"""Of an id, its offset and its time: the number under which it is known, else it is added."""


class Committed(Protocol):
    """What an address has accepted, as far as it still counts: a `WholeRing` or a `CompactRing`."""

    next: int
    floor: int
    capacity: int | None

    def number_of(self, identifier: bytes) -> int | None:
        """The newest number of an id, an open draft included; it may lie below the floor."""
        ...

    def admitter(self, capacity: int, added: Additions) -> Admit:
        """Judges ids and fills `added`."""
        ...

    def origin(self, number: int) -> Origin:
        """Where the id with this number, which must be held and committed, came from."""
        ...

    def outlived(self) -> Sequence[int]:
        """The first numbers of the runs that lie wholly below the floor, still to be deleted."""
        ...

    def absorb(self, runs: Sequence[Run], deleted: int = 0) -> None:
        """Take over what was committed, oldest first: after a commit, and when loading.

        `deleted` of the outlived runs are gone.
        """
        ...

    def forget(self) -> None:
        """Let go what no verdict depends on any more; there is no hurry."""
        ...


class RingDraft:
    """One batch of one source on one ring: it sees its own additions, and nobody else does.

    `admit(identifier, offset, time_ms)` judges an id and remembers it if it is new: it gives the
    number under which the id is known, or None.
    """

    __slots__ = ("_added", "_capacity", "_ring", "_source", "admit", "outlived")

    def __init__(self, ring: Committed, capacity: int, source: Source) -> None:
        self._ring = ring
        self._capacity = capacity
        self._source = source
        self._added = Additions([], [], [])
        self.outlived = ring.outlived()
        """The first numbers of runs that this batch deletes, whatever it adds."""
        self.admit = ring.admitter(capacity, self._added) if capacity else _forgetful

    def __len__(self) -> int:
        """How many ids it has added, those included that it outlived itself."""
        return len(self._added.ids)

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
        return Origin(*self._source, self._added.offsets[row], self._added.times_ms[row])

    def seal(self) -> tuple[Run, ...]:
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

    def edits(self, address: str, runs: Iterable[Run]) -> list[Edit]:
        """The sealed runs as edits."""
        written = [put(address, run) for run in runs]
        marker = key(address, self._ring.next)
        if written and written[0].key != marker:
            # A batch longer than the ring skips numbers, and with them the key of a former resize.
            written.append(Edit(marker, None))
        return written

    def _run(self, start: int, floor: int) -> Run:
        end = start + RUN_IDS_MAX
        ids = tuple(self._added.ids[start:end])
        return Run(
            first=self._ring.next + start,
            floor=floor,
            capacity=self._capacity,
            sources=(self._source,) if ids else (),
            ids=ids,
            places=bytes(len(ids)),
            offsets=self._added.offsets[start:end],
            times_ms=self._added.times_ms[start:end],
        )


def outlived(firsts: Sequence[int], floor: int, following: int) -> Sequence[int]:
    """Those of the runs that begin with these numbers which lie wholly below a floor.

    A run ends, at the latest, where the next one begins; the last one at `following`.
    """
    count = bisect_right(firsts, floor) - (floor < following)
    return firsts[: max(0, count)]


def _forgetful(_identifier: bytes, _offset: int, _time_ms: int) -> int | None:
    """Of size 0: nothing is known, and nothing remembered."""
    return None


def remembered(identifier: bytes) -> bytes:
    """An id as it is kept: long ones by their SHA-256, so that memory and disk stay bounded.

    The beginning before the digest makes it longer than any id that is kept as it came.
    """
    if len(identifier) <= ID_BYTES_MAX:
        return identifier
    return identifier[: ID_BYTES_MAX - 31] + hashlib.sha256(identifier).digest()
