"""WholeRing: a ring with its ids and their origins in memory, for addresses that are small or busy.

Invariant: what a batch adds has numbers from `next` on until it is absorbed. Dropping the draft is
the abort: the next draft first takes back what the last one left.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final, cast

from state.claim import Claim
from state.edit import Origin
from state.keys import RUNS
from state.run import ID_BYTES_MAX, Run, decode, outlived, remembered
from state.spots import Spots
from state.strategies.ring import Additions, Admit, RingContent, RingDraft
from state.strategies.strategy import Settings

# Measured: dict entry, bytes object, number, pointer, offset and time of one id, without its text.
_ID_OVERHEAD_BYTES: Final = 190


class WholeRing:
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

    def draft(self, capacity: int, spots: Spots) -> RingDraft:
        """Begin a batch under the capacity in force; there is one at a time."""
        self._take_back()
        return RingDraft(self, capacity, spots)

    def begin(self, settings: Settings, spots: Spots) -> RingDraft:
        """See `Memory.begin`."""
        return self.draft(settings.capacity, spots)

    def apply(self, content: object) -> None:
        """See `Memory.apply`."""
        self.absorb(*cast("RingContent", content))

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
        add_id, add_spot = added.ids.append, added.spots.append
        add_time = added.times_ms.append
        self._drafted = added.ids

        def admit(identifier: bytes, spot: int, time_ms: int) -> int | None:
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
            add_spot(spot)
            add_time(time_ms)
            return None

        return admit

    def let_go(self, identifier: bytes) -> None:
        """See `Committed.let_go`."""
        number = self._known.pop(identifier)
        if number < self.next:
            self._overwritten[identifier] = number

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
                offsets, times_ms = array("q", run.offsets), array("q", run.times_ms)
                self._runs.append(run._replace(offsets=offsets, times_ms=times_ms))
                self._firsts.append(run.first)
                size_bytes = _memory_bytes(run)
                self._sizes_bytes.append(size_bytes)
                self.memory_bytes += size_bytes
        dead = self._runs[:deleted]
        self.memory_bytes -= sum(self._sizes_bytes[:deleted])
        del self._runs[:deleted], self._firsts[:deleted], self._sizes_bytes[:deleted]
        self._dead += dead

    def outlived(self) -> Sequence[int]:
        """See `Committed.outlived`."""
        return outlived(self._firsts, self.floor, self.next)

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


class Rings:
    """See `Strategy`: the last ids of an address."""

    kind = RUNS

    def claims(self, claim: Claim) -> bool:
        """See `Strategy.claims`."""
        return claim.identifier is not None

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> WholeRing:
        """See `Strategy.load`; UnknownFormatError for what is not ours."""
        ring = WholeRing()
        ring.absorb([decode(value) for _, value in entries])
        return ring


def _memory_bytes(run: Run) -> int:
    return sum(map(len, run.ids)) + _ID_OVERHEAD_BYTES * len(run.ids)
