"""Windows in compiled form: what `ringfence_state.strategies.window` does, with ids as in a ring.

An id that is seen again gets another number, and the last one counts. So how many ids are held is
not the number of numbers: the extension counts, and the newest segment has the count. Old ids are
forgotten when a batch ends, as long as few segments have to be read for it; a verdict compares the
time itself. Invariant: a window judges like a `WindowState`, and each reads what the other wrote.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, cast

from ringfence_service.native.compiled import (
    CompiledDraft,
    CompiledIds,
    StoredCompiledIds,
    check,
    module,
    replayed,
)
from ringfence_state.keys import address_of
from ringfence_state.model import (
    Claim,
    Origin,
    PackedPositions,
    PartitionId,
    Rejection,
    repetition_of,
)
from ringfence_state.segment import EVICTED, end_of, remembered, summary
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.base import (
    Forms,
    Hit,
    Occupancy,
    StateChange,
    StrategySettings,
    verdicts_by_name,
)
from ringfence_state.strategies.window import WINDOW, name_of, occupancy_of

_READ_MAX: Final = 64
"""How many segments a batch reads, beside one for each of its ids, to forget old ids.

So that the end of a long pause, after which all ids are old, takes many batches. What is not
forgotten yet is not known either, since its time is compared.
"""


class _Window(CompiledIds):
    """What windows have beyond rings, wherever their segments are."""

    __slots__ = ()

    is_window = True

    @property
    def lost_ms(self) -> int:
        """When the newest of the ids that were forgotten was seen; -1 if none was."""
        return (self.capacity or 0) if self.has_evicted else -1

    def begin(
        self, settings: StrategySettings, packed_positions: PackedPositions
    ) -> "NativeWindowDraft":
        """Begin a batch, without the segments that were read for the one before."""
        self.table.drop(0)
        self._row = None
        return NativeWindowDraft(self, settings, packed_positions)

    def oldest(self, number: int) -> bytes | None:
        """Return the stored segment that has a number; None if that is for the next batch."""
        if number >= self.next:
            return None
        first, end, value = self._oldest
        if not first <= number < end:
            value = self.value(number)
            self._oldest = number, end_of(value), value
        return value

    def names(self, ids: frozenset[bytes]) -> Iterator[bytes]:
        """Yield the committed names with these ids, whatever their publisher is; reads all."""
        for value in self.values():
            yield from module().names_with_ids(value, ids)

    def count(self) -> None:
        """Count the ids if the newest segment does not say how many there are.

        Versions before did not write it, and had windows in memory.
        """
        if self.held < 0:
            names = set[bytes]()
            for value in self.values():
                part = summary(value)
                names.update(tuple(part.ids)[max(0, self.floor - part.first) :])
            self.held = len(names)


class NativeWindow(_Window):
    """A window with its segments in memory."""

    __slots__ = ()


class NativeStoredWindow(_Window, StoredCompiledIds):
    """A window whose segments stay in the store, and whose older ids are in runs."""

    __slots__ = ()

    def __init__(self, segments: StoredSegments) -> None:
        super().__init__(segments)
        self.count()


class NativeWindowDraft(CompiledDraft):
    """The draft of a batch on a window."""

    __slots__ = ("_packed_positions", "_ring", "_settings", "evicted", "native")

    kind: ClassVar = WINDOW

    def __init__(
        self, window: _Window, settings: StrategySettings, packed_positions: PackedPositions
    ) -> None:
        self._ring = window
        self._settings = settings
        self._packed_positions = packed_positions
        self.evicted = window.evicted()
        bounds = window.next, window.floor, 0
        self.native: Any = module().Draft(window.table, packed_positions.sources, *bounds)
        limits = settings.window_size, settings.window_ms, settings.refresh_on_hit
        self.native.limit(*limits, window.held, window.lost_ms)
        if window.held > settings.window_size:  # which may have been larger before a restart
            while not self.native.expire():  # no record of the batch may know what is beyond it
                self._supply()

    @property
    def by_id(self) -> "NativeWindowDraft | None":
        """The draft itself, unless its window holds nothing."""
        return self if self._settings.window_size else None

    def admit(self, identifier: bytes, packed_position: int, time_ms: int) -> int | None:
        """Return the number of an id without a publisher that is known; add one that is new."""
        name = name_of(Claim(identifier))
        number = self._number(name)
        if number is not None and not self._is_old(number, time_ms):
            return number
        self._see(name, *PackedPositions.parts(packed_position), time_ms, number)
        return None

    def judge_at(self, identifier: bytes, time_ms: int) -> int | None:
        """Return the number of an id without a publisher that is known at a time, or None."""
        return self._known(name_of(Claim(identifier)), time_ms)

    def refresh(self, identifier: bytes, number: int, time_ms: int) -> None:
        """Restart the time of a known id without a publisher, if windows of the address do so."""
        self._refresh(name_of(Claim(identifier)), number, time_ms)

    def fetch(self, identifier: bytes, wanted: Sequence[tuple[int, int]]) -> bool:
        """Read what shows whether an id is known, and which is the eldest of a full window."""
        is_read = bool(self._ring.fetch(name_of(Claim(identifier)), wanted))
        _, held, _ = self.native.standing()
        while held >= self._settings.window_size and self.native.eldest() is None:
            self._supply()
            is_read = True
        return is_read

    def verdict(self, claim: Claim, at: Origin) -> Rejection | None:
        """Return why the claim is rejected, or None."""
        number = self._known(name_of(claim), at.time_ms)
        return None if number is None else repetition_of(self.origin(number))

    def verdicts(self, claims: Sequence[Claim], at: Sequence[Origin]) -> list[Rejection | None]:
        """Return the verdicts of a group whose records are judged together."""
        return verdicts_by_name(self, claims, at, name_of)

    def repeated(self, claim: Claim, at: Origin) -> None:
        """Note a duplicate; with `refresh_on_hit`, restart the time of its id."""
        name = name_of(claim)
        number = self._number(name)
        assert number is not None  # a repetition repeats something
        self._refresh(name, number, at.time_ms)

    def remember(self, claim: Claim, at: Origin) -> None:
        """Add an accepted record."""
        name = name_of(claim)
        base = self._packed_positions.base(PartitionId(at.topic, at.partition))
        place = PackedPositions.parts(base + at.offset)
        self._see(name, *place, at.time_ms, self._number(name))

    def renew(self, claim: Claim) -> Claim:
        """Return the claim: remembering it again restarts the time of its id."""
        return claim

    def covered(self) -> Mapping[str, int]:
        """Return nothing: a window holds no numbers of publishers."""
        return {}

    def sightings(self, identifiers: Sequence[bytes], time_ms: int) -> list[list[Hit]]:
        """Return the hits of each id, one per publisher; all segments are read for it.

        An id that was seen again makes `slots_to_eviction` the least that it can be.
        """
        ring, size = self._ring, self._settings.window_size
        _, held, _ = self.native.standing()
        found: dict[bytes, list[Hit]] = {remembered(each): [] for each in identifiers}
        for name in dict.fromkeys(ring.names(frozenset(found))):
            number = self._known(name, time_ms)
            if number is not None:
                slots = max(size - (ring.next - 1 - number), size - held + 1)
                found[name[_head_of(name) :]].append(Hit(self.origin(number), slots))
        return [found[remembered(each)] for each in identifiers]

    def extent(self) -> Occupancy:
        """Return what is held before the batch adds anything."""
        _, held, lost_ms = self.native.standing()
        lost = None if lost_ms < 0 else lost_ms
        if not held:
            return occupancy_of(self._settings, lost)
        while (oldest_ms := self.native.eldest()) is None:
            self._supply()
        newest_ms = self._ring.origin(self._ring.next - 1).time_ms
        return occupancy_of(self._settings, lost, held, oldest_ms, newest_ms)

    def time_of(self, rank: int) -> int | None:
        """Return when a held id was last seen; `rank` counts from the oldest, 0.

        Where ids were seen again, it is the time of about this rank.
        """
        floor, held, _ = self.native.standing()
        number = floor + rank * (self._ring.next - floor) // held
        return cast("int", self._ring.origin(number).time_ms)

    def change(self, address: str) -> StateChange | None:
        """Return what to write and to apply after the commit; None without a change."""
        self._expire()
        _, held, lost_ms = self.native.standing()
        capacity = self._settings.window_size if lost_ms < 0 else lost_ms | EVICTED
        is_moved = held < self._ring.held
        return self._change(address, capacity, is_moved=is_moved, may_join=True)

    def _expire(self) -> None:
        """Forget old ids, and those beyond the size."""
        for _ in range(_READ_MAX + len(self.native)):
            if self.native.expire():
                break
            self._supply()

    def _number(self, name: bytes) -> int | None:
        """Return the last number of a name that is held, or None."""
        row = self.native.find(name)
        if row is not None:
            return cast("int", self._ring.next + row)
        number = self._ring.committed(name)
        floor, _, _ = self.native.standing()
        return None if number is None or number < floor else number

    def _known(self, name: bytes, time_ms: int) -> int | None:
        number = self._number(name)
        return None if number is None or self._is_old(number, time_ms) else number

    def _is_old(self, number: int, time_ms: int) -> bool:
        return time_ms - self.origin(number).time_ms > self._settings.window_ms

    def _refresh(self, name: bytes, number: int, time_ms: int) -> None:
        if self._settings.refresh_on_hit:
            at = self.origin(number)
            base = self._packed_positions.base(PartitionId(at.topic, at.partition))
            place = PackedPositions.parts(base + at.offset)
            self._see(name, *place, time_ms, number, is_refreshed=True)

    def _see(
        self,
        name: bytes,
        source: int,
        offset: int,
        time_ms: int,
        known: int | None,
        *,
        is_refreshed: bool = False,
    ) -> None:
        number = -1 if known is None else known
        while not self.native.see(name, source, offset, time_ms, number, is_refreshed):
            self._supply()

    def _supply(self) -> None:
        """Have the extension read the segments that show which id is the eldest."""
        name = self.native.unread()
        if name is None or not self._ring.fetch(name):
            floor, _, _ = self.native.standing()
            self.native.supply(self._ring.oldest(floor))


def _head_of(name: bytes) -> int:
    """Return how many bytes of a name are before its id."""
    return 2 + int.from_bytes(name[:2])


def whole(entries: Iterable[tuple[bytes, bytes]]) -> NativeWindow:
    """Load a window with its segments in memory."""
    window = NativeWindow()
    for key, value in entries:
        address_of(key)
        window.load(value)
    window.count()
    return window


FORMS: Final = Forms(
    whole, NativeStoredWindow, check, partial(replayed, kind=WINDOW, is_window=True)
)
