"""Ring: an address remembers its last `capacity` ids; the oldest is forgotten first.

The rule of HornetQ and Artemis (circular cache, a hit refreshes nothing) without their slots:
ids are numbered, and an id is known iff its number is not below the floor. The floor is the next
number less the capacity and never goes back, so growing counts only from what was held.
Invariant: a `Ring` holds committed ids only; what a batch adds lives in its `RingDraft`, and
dropping the draft is the abort.
"""

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Final, NamedTuple, Protocol

from state.edit import Edit, Origin, Source
from state.run import RUN_IDS_MAX, Run, key, put

ID_BYTES_MAX: Final = 64
"""Longer ids are remembered by their SHA-256."""

# Measured: dict entry, bytes object, number, pointer, offset and time of one id, without its text.
_ID_OVERHEAD_BYTES: Final = 190


class Additions(NamedTuple):
    """What a draft has added, in columns of equal length."""

    ids: list[bytes]
    offsets: list[int]
    times_ms: list[int]


Admit = Callable[[bytes, int, int], int | None]
"""Of an id, its offset and its time: the number under which it is known, else it is added."""


class Committed(Protocol):
    """What an address has accepted, as far as it still counts: a `Ring` or a `CompactRing`."""

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


class Ring:
    """See `Committed`: ids and runs in memory, for addresses that are small or busy."""

    __slots__ = (
        "_dead",
        "_drafted",
        "_firsts",
        "_known",
        "_overwritten",
        "_runs",
        "_sizes_bytes",
        "capacity",
        "floor",
        "memory_bytes",
        "next",
    )

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        """Ids by their newest number; those of an open draft among them."""
        self._drafted: list[bytes] = []
        self._overwritten: dict[bytes, int] = {}
        """Committed numbers of ids that the draft accepted anew."""
        self._runs: list[Run] = []
        self._sizes_bytes: list[int] = []
        """What the runs take; the ids of an old one would have to be fetched into the cache."""
        self._dead: list[Run] = []
        """Deleted runs whose ids are still to be forgotten."""
        self._firsts: list[int] = []
        """The numbers that the runs begin with: what a bisection compares fastest."""
        self.next = 0
        self.floor = 0
        self.capacity: int | None = None
        self.memory_bytes = 0

    def __len__(self) -> int:
        """How many ids it holds."""
        return self.next - self.floor

    def draft(self, capacity: int, source: Source) -> "RingDraft":
        """Begin a batch of one source under the capacity in force; there is one at a time."""
        self._take_back()
        return RingDraft(self, capacity, source)

    def number_of(self, identifier: bytes) -> int | None:
        """See `Committed.number_of`."""
        return self._known.get(identifier)

    def admitter(self, capacity: int, added: Additions) -> Admit:
        """See `Committed.admitter`.

        A closure, because it runs once for each record of a topic, and an attribute costs as much
        as a comparison. One access to the table both asks and remembers: an id that was not in it
        gets the next number.
        """
        known, overwritten = self._known, self._overwritten
        committed, following, floor = self.next, self.next, self.floor
        number_of = known.setdefault
        add_id, add_offset = added.ids.append, added.offsets.append
        add_time = added.times_ms.append
        self._drafted = added.ids

        def admit(identifier: bytes, offset: int, time_ms: int) -> int | None:
            nonlocal following
            if len(identifier) > ID_BYTES_MAX:
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
            add_offset(offset)
            add_time(time_ms)
            return None

        return admit

    def origin(self, number: int) -> Origin:
        """See `Committed.origin`."""
        return self._runs[bisect_right(self._firsts, number) - 1].origin(number)

    def absorb(self, runs: Sequence[Run], deleted: int = 0) -> None:
        """See `Committed.absorb`."""
        if sum(len(run.ids) for run in runs) == len(self._drafted):
            self._drafted, self._overwritten = [], {}  # all of it is known already
        else:
            self._take_back()
            for run in runs:
                self._known.update(zip(run.ids, range(run.first, run.end), strict=True))
        for run in runs:
            self.next, self.capacity = run.end, run.capacity
            self.floor = max(self.floor, run.floor)
            if run.ids:
                columns = array("q", run.offsets), array("q", run.times_ms)
                self._runs.append(run._replace(offsets=columns[0], times_ms=columns[1]))
                self._firsts.append(run.first)
                self._sizes_bytes.append(_memory_bytes(run))
                self.memory_bytes += self._sizes_bytes[-1]
        dead = self._runs[:deleted]
        self.memory_bytes -= sum(self._sizes_bytes[:deleted])
        del self._runs[:deleted], self._firsts[:deleted], self._sizes_bytes[:deleted]
        self._dead += dead

    def outlived(self) -> Sequence[int]:
        """See `Committed.outlived`."""
        return self._firsts[: bisect_right(self._runs, self.floor, key=_end)]

    def forget(self) -> None:
        """See `Committed.forget`: the ids of deleted runs."""
        for run in self._dead:
            numbers = list(map(self._known.pop, run.ids, repeat(-1)))
            if max(numbers) >= self.floor:
                # An id accepted again since then belongs to its newer number.
                pairs = zip(run.ids, numbers, strict=True)
                self._known.update(pair for pair in pairs if pair[1] >= self.floor)
        self._dead = []

    def _take_back(self) -> None:
        for identifier in self._drafted:
            self._known.pop(identifier, None)
        self._known.update(self._overwritten)
        self._drafted, self._overwritten = [], {}


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


def _end(run: Run) -> int:
    return run.end


def _memory_bytes(run: Run) -> int:
    return sum(map(len, run.ids)) + _ID_OVERHEAD_BYTES * len(run.ids)
