"""Window strategy: remember ids for a time and up to a count, as MSMQ does outside transactions.

An id is known if it was seen within the last `window_ms` and is among the `window_size` ids seen
last; if a record names its publisher, its id counts for that publisher alone. With `refresh_on_hit`
a duplicate counts as seen, so an id that is repeated without end never expires. MSMQ removes
evicted ids at intervals, so there an id lives for one to two windows, and its list is gone after a
restart. (MS-MQQB 3.1.5.8.1)

An id is stored with its publisher's name, each hashed if it is long. So a lookup by id alone finds
it for every publisher.

The ids of a batch are stored in segments, in order, with the times when they were seen. Each time
an id is seen it gets a number, as an id does in a ring. Invariant: only the last number of an id
counts.

A segment of a window that has forgotten an id has the time at which the newest of those was seen in
place of its capacity: whatever was forgotten, by number or by time, is known to be older than that.
"""

import hashlib
import struct
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, cast

from ringfence_client.headers import PUBLISHER
from ringfence_state.keys import address_of, prefix
from ringfence_state.model import (
    Claim,
    Edit,
    Origin,
    PackedPositions,
    PartitionId,
    Rejection,
    repetition_of,
)
from ringfence_state.segment import SEGMENT_IDS_MAX, Segment, decode, encode, evicted, remembered
from ringfence_state.store import Store
from ringfence_state.strategies.base import (
    DuplicateKey,
    Forms,
    HasForms,
    HeldId,
    HeldInMemory,
    Hit,
    Occupancy,
    StateChange,
    StrategySettings,
    WholeState,
    newest_in_segments,
    verdicts_by_name,
)

_ENTRY_BYTES: Final = 450
"""Measured roughly: id, origin, time and number in two tables."""
_LENGTH: Final = struct.Struct(">H")
_PUBLISHER_BYTES_MAX: Final = 31
"""Longer names are hashed; a SHA-256 is longer than any name that is stored unchanged."""
_NUMBER: Final = struct.Struct(">Q")


WINDOW: Final = b"w"
"""The kind of the keys of windows."""


class WindowStrategy(HasForms, HeldInMemory):
    """The strategy `window`."""

    kind = WINDOW
    size_key = "window_size"
    time_key = "window_ms"
    holds_ids = True
    publisher_headers = frozenset({PUBLISHER})
    required_headers: tuple[str, ...] = ()
    refreshes = True
    identity = DuplicateKey(("identifier",), ("publisher",))
    numbers = None

    def claims(self, claim: Claim) -> bool:
        """Return whether the claim has what the strategy needs."""
        return claim.identifier is not None

    def newest_ms(self, store: Store, address: str, enough_ms: int) -> int | None:
        """Return when an id was seen last, as `Strategy.newest_ms` describes."""
        return newest_in_segments(store, self.kind, address, enough_ms)

    def held_ids(
        self, entries: Iterable[tuple[bytes, bytes]], _settings: StrategySettings
    ) -> Iterator[HeldId]:
        """Yield the ids, in the order in which they were last seen."""
        for name, origin in _whole(entries).ids.items():
            publisher, identifier = _parts_of(name)
            yield HeldId(identifier, origin, publisher)


class WindowState(WholeState):
    """The committed ids of an address, in the order in which they were last seen."""

    def __init__(self, kind: bytes) -> None:
        self.kind = kind
        self.ids: OrderedDict[bytes, Origin] = OrderedDict()
        """Origins by id; the time is when the id was last seen."""
        self.numbers: dict[bytes, int] = {}
        self.firsts = array("Q")
        """The first numbers of the segments."""
        self.next = 0
        self.lost_ms: int | None = None
        """When the newest of the ids that were forgotten was seen; None if there are none."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ids_held(self) -> int:
        """How many ids are held."""
        return len(self.ids)

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        return _ENTRY_BYTES * len(self.ids)

    def begin(
        self, settings: StrategySettings, _packed_positions: PackedPositions
    ) -> "WindowDraft":
        """Begin the draft of a batch; at most one is open at a time."""
        return WindowDraft(self, settings)

    def apply(self, content: object) -> None:
        """Apply the content of a committed change."""
        segments, deleted = cast("_WindowContent", content)
        for segment in segments:
            self.take(segment)
        del self.firsts[:deleted]

    def take(self, segment: Segment) -> None:
        """Add the next segment, and forget the ids below its floor."""
        for number, identifier in enumerate(segment.ids, segment.first):
            self.ids[identifier] = segment.origin(number)
            self.ids.move_to_end(identifier)
            self.numbers[identifier] = number
        self.next = segment.end
        self.lost_ms = segment.capacity if segment.has_evicted else None
        if segment.ids:
            self.firsts.append(segment.first)
        while self.ids and self.numbers[eldest := next(iter(self.ids))] < segment.floor:
            del self.ids[eldest], self.numbers[eldest]


class _WindowContent(NamedTuple):
    segments: tuple[Segment, ...]
    deleted: int


class WindowDraft:
    """One batch on the window of one address."""

    def __init__(self, window: WindowState, settings: StrategySettings) -> None:
        self._window = window
        self._settings = settings
        self._seen: OrderedDict[bytes, Origin] = OrderedDict()
        self._gone: set[bytes] = set()
        self._count = len(window)
        self._lost_ms = window.lost_ms
        self._names: Iterator[bytes] = iter(window.ids)
        self._front = next(self._names, None)
        self._accepted = Counter[PartitionId]()
        while self._count > settings.window_size:  # which may have been larger before a restart
            self._forget_eldest()

    @property
    def by_id(self) -> None:
        """None: an id may count for its publisher alone, and time decides too."""
        return

    def accepted(self) -> Mapping[PartitionId, int]:
        """Return how many records were accepted, by source partition."""
        return self._accepted

    def deletions(self, _address: str) -> list[Edit]:
        """Return the deletions that are known before the first record: none."""
        return []

    def verdict(self, claim: Claim, at: Origin) -> Rejection | None:
        """Return why the claim is rejected, or None."""
        known = self._known(name_of(claim))
        return None if known is None or self._is_old(known, at.time_ms) else repetition_of(known)

    def verdicts(self, claims: Sequence[Claim], at: Sequence[Origin]) -> list[Rejection | None]:
        """Return the verdicts of a group whose records are judged together."""
        return verdicts_by_name(self, claims, at, name_of)

    def repeated(self, claim: Claim, at: Origin) -> None:
        """Note a duplicate; with `refresh_on_hit`, restart the time of its id."""
        name = name_of(claim)
        known = self._known(name)
        assert known is not None  # a repetition repeats something
        if self._settings.refresh_on_hit:
            self._see(name, known._replace(time_ms=at.time_ms))

    def remember(self, claim: Claim, at: Origin) -> None:
        """Add an accepted record."""
        self._accepted[PartitionId(at.topic, at.partition)] += 1
        self._see(name_of(claim), at)
        self._forget_old(at.time_ms)

    def renew(self, claim: Claim) -> Claim:
        """Return the claim: remembering it again restarts the time of its id."""
        return claim

    def covered(self) -> Mapping[str, int]:
        """Return nothing: a window holds no numbers of publishers."""
        return {}

    def time_of(self, rank: int) -> int | None:
        """Return when a held id was last seen; `rank` counts from the oldest, 0."""
        return next(islice(self._window.ids.values(), rank, None)).time_ms

    def sightings(self, identifiers: Sequence[bytes], time_ms: int) -> list[list[Hit]]:
        """Return the hits of each id, one per publisher, in one pass over all ids held."""
        ids = self._window.ids
        found: dict[bytes, list[Hit]] = {remembered(each): [] for each in identifiers}
        held = (name for name in reversed(ids) if name not in self._gone)
        for later, name in enumerate(held, -self._settings.window_size):
            seen = found.get(_parts_of(name)[1])
            if seen is not None and not self._is_old(ids[name], time_ms):
                seen.append(Hit(ids[name], -later))
        return [found[remembered(each)] for each in identifiers]

    def extent(self) -> Occupancy:
        """Return what is held before the batch adds anything."""
        eldest = self._eldest()
        if eldest is None:
            return occupancy_of(self._settings, self._lost_ms)
        ids = self._window.ids
        times_ms = ids[eldest].time_ms, ids[next(reversed(ids))].time_ms
        return occupancy_of(self._settings, self._lost_ms, self._count, *times_ms)

    def change(self, address: str) -> StateChange | None:
        """Return what to write and to apply after the commit; None without a change."""
        if not self._seen and not self._gone:
            return None
        eldest = self._eldest()
        floor = self._window.next
        if eldest is not None and eldest not in self._seen:
            floor = self._window.numbers[eldest]
        # A resize alone is written as an empty segment; the next segment reuses its key.
        empty = self._marked(Segment(self._window.next, floor, 0, (), (), (), (), ()))
        segments = tuple(self._segments(floor)) or (empty,)
        dead = evicted(self._window.firsts, floor, self._window.next)
        begin = prefix(self._window.kind, address)
        edits = [Edit(begin + _NUMBER.pack(first), None) for first in dead]
        edits += [
            Edit(begin + _NUMBER.pack(segment.first), encode(segment)) for segment in segments
        ]
        return StateChange(edits, _WindowContent(segments, len(dead)))

    def _marked(self, segment: Segment) -> Segment:
        if self._lost_ms is None:
            return segment._replace(capacity=self._settings.window_size, held=self._count)
        lost_ms = max(0, self._lost_ms)
        return segment._replace(capacity=lost_ms, has_evicted=True, held=self._count)

    def _segments(self, floor: int) -> Iterator[Segment]:
        rows = list(self._seen.items())
        for start in range(0, len(rows), SEGMENT_IDS_MAX):
            part = rows[start : start + SEGMENT_IDS_MAX]
            sources = tuple({PartitionId(at.topic, at.partition): None for _, at in part})
            segment = Segment(
                first=self._window.next + start,
                floor=floor,
                capacity=0,
                sources=sources,
                ids=tuple([identifier for identifier, _ in part]),
                source_indexes=[
                    sources.index(PartitionId(at.topic, at.partition)) for _, at in part
                ],
                offsets=[at.offset for _, at in part],
                times_ms=[at.time_ms for _, at in part],
            )
            is_last = start + len(part) == len(rows)
            yield self._marked(segment)._replace(held=self._count if is_last else None)

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
        """Forget the ids beyond the count, and those beyond the time."""
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
        at = None if eldest is None else self._known(eldest)
        assert eldest is not None  # the caller has counted
        assert at is not None  # it is held
        self._lost_ms = at.time_ms if self._lost_ms is None else max(self._lost_ms, at.time_ms)
        self._seen.pop(eldest, None)
        if eldest in self._window.ids:
            self._gone.add(eldest)
        self._count -= 1

    def _eldest(self) -> bytes | None:
        """Return the id that was last seen before all others; None if none is held."""
        while self._front in self._seen or self._front in self._gone:
            self._front = next(self._names, None)
        return next(iter(self._seen), None) if self._front is None else self._front


def _whole(entries: Iterable[tuple[bytes, bytes]]) -> WindowState:
    window = WindowState(WINDOW)
    for key, value in entries:
        address_of(key)
        window.take(decode(value))
    return window


PYTHON: Final = Forms(_whole)
WindowStrategy.forms = PYTHON


def occupancy_of(
    settings: StrategySettings,
    lost_ms: int | None,
    held: int = 0,
    oldest_ms: int = 0,
    newest_ms: int = 0,
) -> Occupancy:
    """Return the occupancy of a window from the times of its oldest and its newest id.

    `lost_ms` is when the newest of the ids that were forgotten was seen; None if none was.
    """
    if not held:
        is_empty = lost_ms is not None and settings.window_size > 0
        return Occupancy(0, horizon_ms=0 if is_empty else None)
    is_full = held == settings.window_size
    is_short = is_full or (lost_ms is not None and newest_ms - lost_ms <= settings.window_ms)
    return Occupancy(held, oldest_ms, newest_ms, newest_ms - oldest_ms if is_short else None)


def name_of(claim: Claim) -> bytes:
    """Return the stored form of an id together with its publisher, empty if none is named."""
    publisher = (claim.publisher or "").encode()
    if len(publisher) > _PUBLISHER_BYTES_MAX:
        publisher = hashlib.sha256(publisher).digest()
    return _LENGTH.pack(len(publisher)) + publisher + remembered(claim.identifier or b"")


def _parts_of(name: bytes) -> tuple[bytes, bytes]:
    """Return the publisher of a name, empty if there is none, and the id, both in stored form."""
    (length,) = _LENGTH.unpack_from(name)
    return name[_LENGTH.size : _LENGTH.size + length], name[_LENGTH.size + length :]
