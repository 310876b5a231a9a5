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
from collections.abc import Iterable
from typing import Final

from state.edit import Edit, Origin, Source
from state.run import RUN_IDS_MAX, Run, key, put

ID_BYTES_MAX: Final = 64
"""Longer ids are remembered by their SHA-256."""

# Measured: dict entry, bytes object, number, pointer, offset and time of one id, without its text.
_ID_OVERHEAD_BYTES: Final = 190


class Ring:
    """What one address of one deciding partition has accepted, as far as it still counts."""

    __slots__ = ("capacity", "floor", "known", "memory_bytes", "next", "runs")

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.runs: list[Run] = []
        self.next = 0
        self.floor = 0
        self.capacity: int | None = None
        self.memory_bytes = 0

    def __len__(self) -> int:
        """How many ids it holds."""
        return self.next - self.floor

    def draft(self, capacity: int) -> "RingDraft":
        """Begin a batch under the capacity in force."""
        return RingDraft(self, capacity)

    def origin(self, number: int) -> Origin:
        """Where the id with this number, which must be held, came from."""
        return self.runs[bisect_right(self.runs, number, key=_first) - 1].origin(number)

    def absorb(self, runs: Iterable[Run]) -> None:
        """Take over what was committed, oldest first; used after a commit and when loading."""
        for run in runs:
            self.next, self.capacity = run.end, run.capacity
            self.floor = max(self.floor, run.floor)
            if run.ids:
                self.runs.append(run)
                self.known.update(zip(run.ids, range(run.first, run.end), strict=True))
                self.memory_bytes += _memory_bytes(run)
        self._forget()

    def outlived(self, floor: int) -> list[Run]:
        """The runs that lie wholly below a floor."""
        return self.runs[: bisect_right(self.runs, floor, key=_end)]

    def _forget(self) -> None:
        dead = self.outlived(self.floor)
        del self.runs[: len(dead)]
        for run in dead:
            self.memory_bytes -= _memory_bytes(run)
            for identifier in run.ids:
                # An id accepted again since then belongs to its newer number.
                if self.known.get(identifier, self.floor) < self.floor:
                    del self.known[identifier]


class RingDraft:
    """One batch on one ring: it sees its own additions, and nobody else does.

    Each id is judged first and remembered only if its record is accepted.
    """

    __slots__ = ("_capacity", "_floor", "_fresh", "_known", "_next", "_ring", "_rows")

    def __init__(self, ring: Ring, capacity: int) -> None:
        self._ring = ring
        self._capacity = capacity
        self._known = ring.known.get
        self._fresh: dict[bytes, int] = {}
        self._rows: list[tuple[bytes, Source, int, int]] = []
        self._next = ring.next
        self._floor = max(ring.floor, ring.next - capacity)

    def judge(self, identifier: bytes) -> int | None:
        """The number under which the id is known, or None."""
        identifier = _remembered(identifier)
        number = self._fresh.get(identifier)
        if number is None:
            number = self._known(identifier)
        return number if number is not None and number >= self._floor else None

    def remember(self, identifier: bytes, source: Source, offset: int, time_ms: int) -> None:
        """Add an id that `judge` did not know; the oldest is forgotten when the ring is full."""
        if not self._capacity:
            return
        identifier = _remembered(identifier)
        self._fresh[identifier] = self._next
        self._rows.append((identifier, source, offset, time_ms))
        self._next += 1
        self._floor = max(self._floor, self._next - self._capacity)

    def origin(self, number: int) -> Origin:
        """Where a known id came from, this batch included."""
        row = number - self._ring.next
        if row < 0:
            return self._ring.origin(number)
        _, source, offset, time_ms = self._rows[row]
        return Origin(source.topic, source.partition, offset, time_ms)

    def seal(self) -> tuple[Run, ...]:
        """What to write and, after the commit, to absorb: nothing when nothing changed."""
        runs = [self._run(start, rows) for start, rows in self._pieces()]
        held = tuple(run for run in runs if run.end > self._floor)
        if not held and self._ring.capacity not in {None, self._capacity}:
            # A resize alone: an empty run carries the floor; the next run takes its key.
            return (self._run(self._next, []),)
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

    def _pieces(self) -> list[tuple[int, list[tuple[bytes, Source, int, int]]]]:
        """Rows cut where a run is full, each piece with the number of its first row."""
        return [
            (self._ring.next + start, self._rows[start : start + RUN_IDS_MAX])
            for start in range(0, len(self._rows), RUN_IDS_MAX)
        ]

    def _run(self, first: int, rows: list[tuple[bytes, Source, int, int]]) -> Run:
        sources = tuple(dict.fromkeys(row[1] for row in rows))
        place_of = {source: place for place, source in enumerate(sources)}
        return Run(
            first=first,
            floor=self._floor,
            capacity=self._capacity,
            sources=sources,
            ids=tuple(row[0] for row in rows),
            places=array("H", [place_of[row[1]] for row in rows]),
            offsets=array("q", [row[2] for row in rows]),
            times_ms=array("q", [row[3] for row in rows]),
        )


def _remembered(identifier: bytes) -> bytes:
    """An id as it is kept: long ones by their SHA-256, so that memory and disk stay bounded.

    The beginning before the digest makes it longer than any id that is kept as it came.
    """
    if len(identifier) <= ID_BYTES_MAX:
        return identifier
    return identifier[: ID_BYTES_MAX - 31] + hashlib.sha256(identifier).digest()


def _first(run: Run) -> int:
    return run.first


def _end(run: Run) -> int:
    return run.end


def _memory_bytes(run: Run) -> int:
    return sum(map(len, run.ids)) + _ID_OVERHEAD_BYTES * len(run.ids)
