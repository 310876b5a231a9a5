"""Window strategy: ids for a time and up to a number, as MSMQ does outside transactions.

An id is known while it was seen within the last `window_ms`, and is among the `window_size` that
were seen last; where a publisher is named, ids count for it alone. A hit is a sight
(`refresh_on_hit`), so an id that is repeated without end never expires. MSMQ removes expired ids at
intervals, so there an id lives for one to two windows, and its list is gone after a restart.
(MS-MQQB 3.1.5.8.1)

An id is stored under its publisher's name and its own, each as long as it may be. So a lookup by id
alone finds it for every publisher.

Kept in segments: the ids of a batch in order, with the times of the sights; the number of a sight
counts as that of an id does in a ring. Invariant: of each id only the last sight counts.
"""

import hashlib
import struct
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from state.keys import address_of, prefix
from state.model import Claim, Edit, Origin, PackedPositions, PartitionId, Rejection, repetition_of
from state.segment import RUN_IDS_MAX, Segment, decode, encode, outlived, remembered
from state.strategies.base import Hit, Occupancy, StateChange, StrategySettings, verdicts_by_name

# Measured roughly: id, place, time and number in two tables.
_ENTRY_BYTES: Final = 450
_LENGTH: Final = struct.Struct(">H")
_PUBLISHER_BYTES_MAX: Final = 31
"""Longer ones are remembered by their SHA-256, which is longer than any that is kept as it came."""
_NUMBER: Final = struct.Struct(">Q")


class WindowStrategy:
    """See `Strategy`."""

    kind = b"w"

    def claims(self, claim: Claim) -> bool:
        """See `Strategy.claims`."""
        return claim.identifier is not None

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> "WindowState":
        """See `Strategy.load`; UnknownFormatError for what is not ours."""
        window = WindowState(self.kind)
        for key, value in entries:
            address_of(key)
            window.take(decode(value))
        return window


class WindowState:
    """See `Memory`: ids in the order in which they were seen last."""

    def __init__(self, kind: bytes) -> None:
        self.kind = kind
        self.ids: OrderedDict[bytes, Origin] = OrderedDict()
        """Where each was accepted; the time is that of the last sight."""
        self.numbers: dict[bytes, int] = {}
        self.firsts = array("Q")
        """The numbers that the runs begin with."""
        self.next = 0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def memory_bytes(self) -> int:
        """See `Memory.memory_bytes`."""
        return _ENTRY_BYTES * len(self.ids)

    def begin(
        self, settings: StrategySettings, _packed_positions: PackedPositions
    ) -> "WindowDraft":
        """See `Memory.begin`."""
        return WindowDraft(self, settings)

    def apply(self, content: object) -> None:
        """See `Memory.apply`."""
        runs, deleted = cast("_WindowContent", content)
        for run in runs:
            self.take(run)
        del self.firsts[:deleted]

    def take(self, run: Segment) -> None:
        """One run, in order; what lies below its floor is forgotten."""
        for number, identifier in enumerate(run.ids, run.first):
            self.ids[identifier] = run.origin(number)
            self.ids.move_to_end(identifier)
            self.numbers[identifier] = number
        self.next = run.end
        if run.ids:
            self.firsts.append(run.first)
        while self.ids and self.numbers[eldest := next(iter(self.ids))] < run.floor:
            del self.ids[eldest], self.numbers[eldest]

    def forget(self) -> None:
        """See `Memory.forget`: nothing is kept that is not needed."""


class _WindowContent(NamedTuple):
    runs: tuple[Segment, ...]
    deleted: int


class WindowDraft:
    """See `Draft`."""

    def __init__(self, window: WindowState, settings: StrategySettings) -> None:
        self._window = window
        self._settings = settings
        self._seen: OrderedDict[bytes, Origin] = OrderedDict()
        self._gone: set[bytes] = set()
        self._count = len(window)
        self._names: Iterator[bytes] = iter(window.ids)
        self._front = next(self._names, None)
        self._accepted = Counter[PartitionId]()
        while self._count > settings.window_size:  # which may have held more in the last life
            self._forget_eldest()

    def accepted(self) -> Mapping[PartitionId, int]:
        """See `Draft.accepted`."""
        return self._accepted

    def deletions(self, _address: str) -> list[Edit]:
        """See `Draft.deletions`."""
        return []

    def verdict(self, claim: Claim, at: Origin) -> Rejection | None:
        """See `Draft.verdict`."""
        known = self._known(_name(claim))
        return None if known is None or self._is_old(known, at.time_ms) else repetition_of(known)

    def verdicts(self, claims: Sequence[Claim], at: Sequence[Origin]) -> list[Rejection | None]:
        """See `Draft.verdicts`."""
        return verdicts_by_name(self, claims, at, _name)

    def repeated(self, claim: Claim, at: Origin) -> None:
        """See `Draft.repeated`."""
        name = _name(claim)
        known = self._known(name)
        assert known is not None  # a repetition repeats something
        if self._settings.refresh_on_hit:
            self._see(name, known._replace(time_ms=at.time_ms))

    def remember(self, claim: Claim, at: Origin) -> None:
        """See `Draft.remember`."""
        self._accepted[PartitionId(at.topic, at.partition)] += 1
        self._see(_name(claim), at)
        self._forget_old(at.time_ms)

    def sightings(self, identifiers: Sequence[bytes], time_ms: int) -> list[list[Hit]]:
        """See `Draft.sightings`: one for each publisher. One pass over all that is held."""
        ids = self._window.ids
        found: dict[bytes, list[Hit]] = {remembered(each): [] for each in identifiers}
        held = (name for name in reversed(ids) if name not in self._gone)
        for later, name in enumerate(held, -self._settings.window_size):
            seen = found.get(parts_of(name)[1])
            if seen is not None and not self._is_old(ids[name], time_ms):
                seen.append(Hit(ids[name], -later))
        return [found[remembered(each)] for each in identifiers]

    def extent(self) -> Occupancy:
        """See `Draft.extent`."""
        eldest = self._eldest()
        if eldest is None:
            return Occupancy(0)
        ids = self._window.ids
        oldest_ms, newest_ms = ids[eldest].time_ms, ids[next(reversed(ids))].time_ms
        is_full = self._count == self._settings.window_size
        return Occupancy(
            self._count, oldest_ms, newest_ms, newest_ms - oldest_ms if is_full else None
        )

    def change(self, address: str) -> StateChange | None:
        """See `Draft.change`."""
        if not self._seen and not self._gone:
            return None
        eldest = self._eldest()
        floor = self._window.next
        if eldest is not None and eldest not in self._seen:
            floor = self._window.numbers[eldest]
        # Of a resize alone an empty run tells; the next run takes its key.
        runs = tuple(self._runs(floor)) or (self._empty(floor),)
        dead = outlived(self._window.firsts, floor, self._window.next)
        begin = prefix(self._window.kind, address)
        edits = [Edit(begin + _NUMBER.pack(first), None) for first in dead]
        edits += [Edit(begin + _NUMBER.pack(run.first), encode(run)) for run in runs]
        return StateChange(edits, _WindowContent(runs, len(dead)))

    def _empty(self, floor: int) -> Segment:
        return Segment(self._window.next, floor, self._settings.window_size, (), (), (), (), ())

    def _runs(self, floor: int) -> Iterator[Segment]:
        rows = list(self._seen.items())
        for start in range(0, len(rows), RUN_IDS_MAX):
            part = rows[start : start + RUN_IDS_MAX]
            sources = tuple({PartitionId(at.topic, at.partition): None for _, at in part})
            yield Segment(
                first=self._window.next + start,
                floor=floor,
                capacity=self._settings.window_size,
                sources=sources,
                ids=tuple([identifier for identifier, _ in part]),
                places=[sources.index(PartitionId(at.topic, at.partition)) for _, at in part],
                offsets=[at.offset for _, at in part],
                times_ms=[at.time_ms for _, at in part],
            )

    def _known(self, name: bytes) -> Origin | None:
        found = self._seen.get(name)
        if found is None and name not in self._gone:
            found = self._window.ids.get(name)
        return found

    def _see(self, name: bytes, at: Origin) -> None:
        self._count += self._known(name) is None
        self._seen[name] = at
        self._seen.move_to_end(name)

    def _forget_old(self, time_ms: int) -> None:
        """Those beyond the number, and those beyond the time."""
        while (eldest := self._eldest()) is not None:
            at = self._known(eldest)
            assert at is not None  # it is held
            if not self._is_old(at, time_ms) and self._count <= self._settings.window_size:
                return
            self._forget_eldest()

    def _is_old(self, at: Origin, time_ms: int) -> bool:
        return time_ms - at.time_ms > self._settings.window_ms

    def _forget_eldest(self) -> None:
        eldest = self._eldest()
        assert eldest is not None  # the caller has counted
        self._seen.pop(eldest, None)
        if eldest in self._window.ids:
            self._gone.add(eldest)
        self._count -= 1

    def _eldest(self) -> bytes | None:
        """The id that was seen before all others."""
        while self._front in self._seen or self._front in self._gone:
            self._front = next(self._names, None)
        return next(iter(self._seen), None) if self._front is None else self._front


def _name(claim: Claim) -> bytes:
    """The id, for its publisher alone where one is named."""
    publisher = (claim.publisher or "").encode()
    if len(publisher) > _PUBLISHER_BYTES_MAX:
        publisher = hashlib.sha256(publisher).digest()
    return _LENGTH.pack(len(publisher)) + publisher + remembered(claim.identifier or b"")


def parts_of(name: bytes) -> tuple[bytes, bytes]:
    """A publisher, empty where none is named, and an id: those of a name, as they are kept."""
    (length,) = _LENGTH.unpack_from(name)
    return name[_LENGTH.size : _LENGTH.size + length], name[_LENGTH.size + length :]
