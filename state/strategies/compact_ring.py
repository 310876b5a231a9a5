"""CompactRing: a ring too large for memory. It knows where its ids stand, and reads to be sure.

The same rule as `WholeRing`, in a twentieth of the memory. A new id costs a look into the index;
only what the index takes for known is read from the store, and a duplicate's origin with it.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

from state.edit import Origin
from state.run import ID_BYTES_MAX, Outline, Row, Run, outlived, remembered
from state.spots import Spots
from state.strategies.ring import Additions, Admit, RingContent, RingDraft
from state.strategies.ring_index import Index
from state.strategies.strategy import Settings

# An index that is made for a growing ring has room for so many times what it holds.
_ROOM: Final = 8
_NO_NUMBER: Final = -1
"""Below every floor."""


class CompactRing:
    """See `Committed`. `read` takes the first number of a run and one of its numbers."""

    __slots__ = (
        "_drafted",
        "_firsts",
        "_index",
        "_read",
        "_row",
        "capacity",
        "floor",
        "next",
    )

    def __init__(self, read: Callable[[int, int], Row], ids: int, capacity: int) -> None:
        self._read = read
        self._index = Index(min(capacity, _ROOM * ids))
        self._firsts = array("Q")
        self._drafted: dict[bytes, int] = {}
        self._row: tuple[int, Row] | None = None
        """The last row that was read, with its number: a verdict is followed by its origin."""
        self.next = 0
        self.floor = 0
        self.capacity: int | None = None

    def __len__(self) -> int:
        """How many ids it holds."""
        return self.next - self.floor

    @property
    def memory_bytes(self) -> int:
        """What it takes, about."""
        return self._index.memory_bytes + len(self._firsts) * self._firsts.itemsize

    @property
    def is_crowded(self) -> bool:
        """Whether it has outgrown its index."""
        return len(self) > self._index.ids_max

    def draft(self, capacity: int, spots: Spots) -> RingDraft:
        """Begin a batch under the capacity in force; there is one at a time."""
        self._drafted, self._row = {}, None
        return RingDraft(self, capacity, spots)

    def begin(self, settings: Settings, spots: Spots) -> RingDraft:
        """See `Memory.begin`."""
        return self.draft(settings.capacity, spots)

    def apply(self, content: object) -> None:
        """See `Memory.apply`."""
        self.absorb(*cast("RingContent", content))

    def number_of(self, identifier: bytes) -> int | None:
        """See `Committed.number_of`."""
        number = self._drafted.get(identifier)
        return self._committed(identifier) if number is None else number

    def admitter(self, capacity: int, added: Additions) -> Admit:
        """See `Committed.admitter`."""
        drafted, committed, floor = self._drafted, self._committed, self.floor
        may_hold = self._index.asker()
        following = self.next
        add_id, add_spot = added.ids.append, added.spots.append
        add_time = added.times_ms.append

        def admit(identifier: bytes, spot: int, time_ms: int) -> int | None:
            nonlocal following
            if len(identifier) > ID_BYTES_MAX:
                identifier = remembered(identifier)
            number = drafted.get(identifier)
            if number is None and may_hold(identifier):
                number = committed(identifier)
            if number is not None and number >= following - capacity and number >= floor:
                return number
            drafted[identifier] = following
            following += 1
            add_id(identifier)
            add_spot(spot)
            add_time(time_ms)
            return None

        return admit

    def let_go(self, identifier: bytes) -> None:
        """See `Committed.let_go`."""
        self._drafted[identifier] = _NO_NUMBER

    def origin(self, number: int) -> Origin:
        """See `Committed.origin`."""
        return self._row_of(number).origin

    def absorb(self, runs: Iterable[Run], deleted: int = 0) -> None:
        """See `Committed.absorb`."""
        self._drafted = {}
        for run in runs:
            self.take(Outline(run.first, run.floor, run.capacity, run.ids))
        del self._firsts[:deleted]

    def take(self, run: Outline) -> None:
        """One run, in order: of most of it, its place is enough."""
        self.next, self.capacity = run.first + len(run.ids), run.capacity
        self.floor = max(self.floor, run.floor)
        if run.ids:
            self._index.add(run.ids, run.first, self.floor)
            self._firsts.append(run.first)

    def outlived(self) -> Sequence[int]:
        """See `Committed.outlived`."""
        return outlived(self._firsts, self.floor, self.next)

    def forget(self) -> None:
        """The index drops what is dead when it needs the room."""

    def _committed(self, identifier: bytes) -> int | None:
        for number in self._index.numbers(identifier, self.floor, self.next):
            if self._row_of(number).identifier == identifier:
                return number
        return None

    def _row_of(self, number: int) -> Row:
        if self._row is None or self._row[0] != number:
            first = self._firsts[bisect_right(self._firsts, number) - 1]
            self._row = (number, self._read(first, number))
        return self._row[1]
