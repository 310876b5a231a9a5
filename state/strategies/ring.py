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
from collections.abc import Callable, Iterable
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

    __slots__ = ("_firsts", "capacity", "floor", "known", "memory_bytes", "next", "runs")

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
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
        """Begin a batch of one source under the capacity in force."""
        return RingDraft(self, capacity, source)

    def origin(self, number: int) -> Origin:
        """Where the id with this number, which must be held, came from."""
        return self.runs[bisect_right(self._firsts, number) - 1].origin(number)

    def absorb(self, runs: Iterable[Run]) -> None:
        """Take over what was committed, oldest first; used after a commit and when loading."""
        for run in runs:
            self.next, self.capacity = run.end, run.capacity
            self.floor = max(self.floor, run.floor)
            if run.ids:
                self.runs.append(run)
                self._firsts.append(run.first)
                self.known.update(zip(run.ids, range(run.first, run.end), strict=False))
                self.memory_bytes += _memory_bytes(run)
        self._forget()

    def outlived(self, floor: int) -> list[Run]:
        """The runs that lie wholly below a floor."""
        return self.runs[: bisect_right(self.runs, floor, key=_end)]

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

    __slots__ = (
        "_capacity",
        "_fresh",
        "_ids",
        "_offsets",
        "_ring",
        "_source",
        "_times_ms",
        "admit",
    )

    def __init__(self, ring: Ring, capacity: int, source: Source) -> None:
        self._ring = ring
        self._capacity = capacity
        self._source = source
        self._fresh: dict[bytes, int] = {}
        self._ids: list[bytes] = []
        self._offsets: list[int] = []
        self._times_ms: list[int] = []
        self.admit = self._admitter()

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
        identifier = _remembered(identifier)
        number = self._fresh.get(identifier)
        if number is None:
            number = self._ring.known.get(identifier)
        return number if number is not None and number >= self._floor else None

    def _admitter(self) -> Callable[[bytes, int, int], int | None]:
        """`judge` and an append, in a closure: it runs once for each record of a topic.

        An attribute of `self` costs as much as a comparison, and the floor matters only for an id
        that was found.
        """
        ring, capacity = self._ring, self._capacity
        known, base, floor = ring.known.get, ring.next, ring.floor
        fresh, ids = self._fresh, self._ids
        seen, add_id = fresh.get, ids.append
        add_offset, add_time = self._offsets.append, self._times_ms.append

        def admit(identifier: bytes, offset: int, time_ms: int) -> int | None:
            if len(identifier) > ID_BYTES_MAX:
                identifier = _remembered(identifier)
            number = known(identifier)
            if number is None or number < floor or number < base + len(ids) - capacity:
                number = seen(identifier)
            if number is not None and number >= base + len(ids) - capacity:
                return number
            if capacity:
                fresh[identifier] = base + len(ids)
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
            offsets=array("q", self._offsets[start:end]),
            times_ms=array("q", self._times_ms[start:end]),
        )


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
