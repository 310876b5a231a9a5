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
from typing import Final

from state.edit import Edit, Origin, Source
from state.run import RUN_IDS_MAX, Run, key, put

ID_BYTES_MAX: Final = 64
"""Longer ids are remembered by their SHA-256."""

# Measured: dict entry, bytes object, number, pointer, offset and time of one id, without its text.
_ID_OVERHEAD_BYTES: Final = 190


class Ring:
    """What one address of one deciding partition has accepted, as far as it still counts."""

    __slots__ = (
        "_drafted",
        "_firsts",
        "_overwritten",
        "capacity",
        "floor",
        "known",
        "memory_bytes",
        "next",
        "runs",
    )

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        """Ids by their newest number; those of an open draft among them."""
        self._drafted: list[bytes] = []
        self._overwritten: dict[bytes, int] = {}
        """Committed numbers of ids that the draft accepted anew."""
        self.runs: list[Run] = []
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
        return RingDraft(self, capacity, source, self._drafted, self._overwritten)

    def origin(self, number: int) -> Origin:
        """Where the id with this number, which must be held, came from."""
        return self.runs[bisect_right(self._firsts, number) - 1].origin(number)

    def absorb(self, runs: Sequence[Run]) -> None:
        """Take over what was committed, oldest first; used after a commit and when loading."""
        if sum(len(run.ids) for run in runs) == len(self._drafted):
            self._drafted, self._overwritten = [], {}  # all of it is known already
        else:
            self._take_back()
            for run in runs:
                self.known.update(zip(run.ids, range(run.first, run.end), strict=True))
        for run in runs:
            self.next, self.capacity = run.end, run.capacity
            self.floor = max(self.floor, run.floor)
            if run.ids:
                columns = array("q", run.offsets), array("q", run.times_ms)
                self.runs.append(run._replace(offsets=columns[0], times_ms=columns[1]))
                self._firsts.append(run.first)
                self.memory_bytes += _memory_bytes(run)
        self._forget()

    def outlived(self, floor: int) -> list[Run]:
        """The runs that lie wholly below a floor."""
        return self.runs[: bisect_right(self.runs, floor, key=_end)]

    def _take_back(self) -> None:
        for identifier in self._drafted:
            self.known.pop(identifier, None)
        self.known.update(self._overwritten)
        self._drafted, self._overwritten = [], {}

    def _forget(self) -> None:
        dead = self.outlived(self.floor)
        del self.runs[: len(dead)], self._firsts[: len(dead)]
        for run in dead:
            self.memory_bytes -= _memory_bytes(run)
            numbers = list(map(self.known.pop, run.ids, repeat(-1)))
            if max(numbers) >= self.floor:
                # An id accepted again since then belongs to its newer number.
                pairs = zip(run.ids, numbers, strict=True)
                self.known.update(pair for pair in pairs if pair[1] >= self.floor)


class RingDraft:
    """One batch of one source on one ring: it sees its own additions, and nobody else does.

    `admit(identifier, offset, time_ms)` judges an id and remembers it if it is new: it gives the
    number under which the id is known, or None.
    """

    __slots__ = ("_capacity", "_ids", "_offsets", "_ring", "_source", "_times_ms", "admit")

    def __init__(
        self,
        ring: Ring,
        capacity: int,
        source: Source,
        ids: list[bytes],
        overwritten: dict[bytes, int],
    ) -> None:
        self._ring = ring
        self._capacity = capacity
        self._source = source
        self._ids = ids
        self._offsets: list[int] = []
        self._times_ms: list[int] = []
        self.admit = self._admitter(overwritten)

    def __len__(self) -> int:
        """How many ids it has added, those included that it outlived itself."""
        return len(self._ids)

    @property
    def _next(self) -> int:
        return self._ring.next + len(self._ids)

    @property
    def _floor(self) -> int:
        """The lowest number that is held: the oldest is forgotten when the ring is full."""
        return max(self._ring.floor, self._next - self._capacity)

    def judge(self, identifier: bytes) -> int | None:
        """The number under which the id is known, or None."""
        number = self._ring.known.get(_remembered(identifier))
        return number if number is not None and number >= self._floor else None

    def _admitter(self, overwritten: dict[bytes, int]) -> Callable[[bytes, int, int], int | None]:
        """`judge` and an append, in a closure: it runs once for each record of a topic.

        An attribute of `self` costs as much as a comparison. One access to the table both asks
        and remembers: an id that was not in it gets the next number.
        """
        ring, capacity = self._ring, self._capacity
        if not capacity:
            return _forgetful
        known, committed, floor = ring.known, ring.next, ring.floor
        number_of, following = known.setdefault, committed
        add_id, add_offset, add_time = self._ids.append, self._offsets.append, self._times_ms.append

        def admit(identifier: bytes, offset: int, time_ms: int) -> int | None:
            nonlocal following
            if len(identifier) > ID_BYTES_MAX:
                identifier = _remembered(identifier)
            number = number_of(identifier, following)
            if number != following:
                if number >= following - capacity and number >= floor:
                    return number
                if number < committed:
                    overwritten[identifier] = number
                known[identifier] = following
            following += 1
            add_id(identifier)
            add_offset(offset)
            add_time(time_ms)
            return None

        return admit

    def origin(self, number: int) -> Origin:
        """Where a known id came from, this batch included."""
        row = number - self._ring.next
        if row < 0:
            return self._ring.origin(number)
        return Origin(*self._source, self._offsets[row], self._times_ms[row])

    def seal(self) -> tuple[Run, ...]:
        """What to write and, after the commit, to absorb: nothing when nothing changed."""
        runs = [self._run(start) for start in range(0, len(self._ids), RUN_IDS_MAX)]
        held = tuple(run for run in runs if run.end > self._floor)
        if not held and self._ring.capacity not in {None, self._capacity}:
            # A resize alone: an empty run carries the floor; the next run takes its key.
            return (self._run(len(self._ids)),)
        return held

    def edits(self, address: str, runs: Iterable[Run]) -> list[Edit]:
        """The sealed runs as edits, and a tombstone for each run that the ring outlived."""
        written = [put(address, run) for run in runs]
        if not written:
            return []
        dead = [key(address, run.first) for run in self._ring.outlived(self._floor)]
        marker = key(address, self._ring.next)
        if written[0].key != marker:
            # A batch longer than the ring skips numbers, and with them the key of a former resize.
            dead.append(marker)
        return written + [Edit(dead_key, None) for dead_key in dead]

    def _run(self, start: int) -> Run:
        end = start + RUN_IDS_MAX
        ids = tuple(self._ids[start:end])
        return Run(
            first=self._ring.next + start,
            floor=self._floor,
            capacity=self._capacity,
            sources=(self._source,) if ids else (),
            ids=ids,
            places=bytes(len(ids)),
            offsets=self._offsets[start:end],
            times_ms=self._times_ms[start:end],
        )


def _forgetful(_identifier: bytes, _offset: int, _time_ms: int) -> int | None:
    """Of size 0: nothing is known, and nothing remembered."""
    return None


def _remembered(identifier: bytes) -> bytes:
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
