"""Cache: what addresses remember, in memory, loaded from their store on demand.

A memory equals the content of the store for its address: it is loaded from the store's entries,
and after each commit takes over what was written to the store. Small rings are held whole; large
ones, and all but the smallest when memory is short, as a `IndexedRing`. Bounded in bytes, also
while a transaction is decided: addresses that it does not use are evicted, and a transaction that
needs more memory has to be read again in smaller pieces.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, cast

from state.keys import RUNS, UnknownFormatError, after, prefix
from state.model import PartitionId
from state.segment import SegmentEntry, first_of, key, row_of, summary
from state.store import Store, StoreCorruptError
from state.strategies.base import CommittedState, Strategy
from state.strategies.registry import RING
from state.strategies.ring_memory import IndexedRing, InMemoryRing

AnyRing = InMemoryRing | IndexedRing

WHOLE_IDS_MAX: Final = 100_000
"""A ring of more ids is held compact, however much memory there is."""
SMALL_IDS_MAX: Final = 1_000
"""A ring of so few ids gains nothing by being compact."""
_RECENT_MAX: Final = 128
_FULL: Final = 0.75
_CROWDED: Final = 1.125
"""Parts of the memory that one transaction may use: to read on, and at all."""


class BatchTooLargeError(Exception):
    """A transaction needs more memory, or time to load, than it may: read it in smaller pieces."""


class Cache:
    """Of all partitions of a worker, least recently used first."""

    def __init__(self, memory_bytes_max: int, on_load: Callable[[], None] = lambda: None) -> None:
        """`on_load` is called for each entry that is read from a store, which may take long."""
        self._memory_bytes_max = memory_bytes_max
        self._on_load = on_load
        self._memory_bytes = 0
        self._memories: OrderedDict[tuple[PartitionId, str], CommittedState] = OrderedDict()
        self._used: set[tuple[PartitionId, str]] = set()
        """What the transaction in hand holds."""
        self.begin()
        self._untidy: dict[tuple[PartitionId, str], CommittedState] = {}
        self._recent: OrderedDict[tuple[object, bytes], bytes] = OrderedDict()
        """Runs that compact rings read last, by who reads for the ring and the key.

        A ring reads only what it read itself. Another ring under the same name, loaded later or
        kept in another store, may have other runs under the same keys.
        """

    @property
    def memory_bytes(self) -> int:
        """What all of it takes, estimated."""
        return self._memory_bytes

    @property
    def is_full(self) -> bool:
        """Whether the transaction in hand uses so much that it should end."""
        return self._used_bytes > _FULL * self._memory_bytes_max

    def begin(
        self, *, is_bounded: bool = False, is_late: Callable[[], bool] = lambda: False
    ) -> None:
        """A transaction begins, and may use each memory that it asks for until the next call.

        With `is_bounded`, asking for too much raises BatchTooLargeError, and so does asking for
        what is not in memory when `is_late` says that there is no time to load it.
        """
        self._used.clear()
        self._used_bytes, self._is_bounded, self._is_late = 0, is_bounded, is_late

    def memory(
        self, source: PartitionId, store: Store, address: str, strategy: Strategy
    ) -> CommittedState:
        """What an address has committed on a deciding partition."""
        place = (source, address)
        memory = self._memories.get(place)
        if memory is None:
            if self._is_bounded and self._is_late():
                raise BatchTooLargeError
            memory = self._memories[place] = self._loaded(source, store, address, strategy)
            self._memory_bytes += memory.memory_bytes
        self._memories.move_to_end(place)
        if place not in self._used:
            self._used.add(place)
            self._used_bytes += memory.memory_bytes
            self._make_room()
        return memory

    def _make_room(self) -> None:
        """Evict what the transaction in hand does not use."""
        while self._memory_bytes > self._memory_bytes_max:
            eldest = next(iter(self._memories))
            if eldest in self._used:  # and so are all that follow
                break
            self._forget(*eldest)
        if self._is_bounded and self._used_bytes > _CROWDED * self._memory_bytes_max:
            raise BatchTooLargeError

    def look(self, source: PartitionId, address: str) -> CommittedState | None:
        """What is in memory of an address, without it counting as used."""
        return self._memories.get((source, address))

    def recent(self, count: int) -> Iterator[tuple[str, CommittedState]]:
        """The addresses that were used last, and what is in memory of them."""
        for (_, address), memory in islice(reversed(self._memories.items()), count):
            yield address, memory

    def ring(self, source: PartitionId, store: Store, address: str) -> AnyRing:
        """The memory of an address that has a ring."""
        return cast("AnyRing", self.memory(source, store, address, RING))

    def apply(
        self, source: PartitionId, address: str, memory: CommittedState, content: object
    ) -> None:
        """Bring what was committed into the memory that this batch was decided on."""
        before = memory.memory_bytes
        memory.apply(content)
        self._untidy[source, address] = memory
        if (source, address) in self._memories:
            self._memory_bytes += memory.memory_bytes - before
            if _has_outgrown(memory):
                self._forget(source, address)  # it is loaded anew, as it should be by now

    def reread(self, source: PartitionId, address: str) -> None:
        """Runs of an address were written anew: what was read of them is read again."""
        memory = self._memories.get((source, address))
        if isinstance(memory, IndexedRing) and len(memory):
            self._recent.clear()
        elif memory is not None:
            self._forget(source, address)

    def dismiss(self, source: PartitionId, address: str) -> None:
        """What an address remembers was replaced: load it anew."""
        if (source, address) in self._memories:
            self._forget(source, address)

    def dismiss_where(self, is_other: Callable[[str], bool]) -> None:
        """Load anew, when they are needed, the caches that remember in another way by now."""
        for place in [place for place in self._memories if is_other(place[1])]:
            self.dismiss(*place)

    def tidy(self) -> None:
        """What commits left to do and no verdict waits for."""
        for memory in self._untidy.values():
            memory.forget()
        self._untidy.clear()

    def shrink(self) -> None:
        """Forget the least recently used until the rest fits; call it between batches."""
        self.begin()
        self._make_room()

    def drop(self, source: PartitionId) -> None:
        """Forget all of a partition: it is owned by somebody else now, or read anew."""
        for place in [place for place in self._memories if place[0] == source]:
            self._forget(*place)

    def _forget(self, source: PartitionId, address: str) -> None:
        self._memory_bytes -= self._memories.pop((source, address)).memory_bytes
        self._untidy.pop((source, address), None)

    def _loaded(
        self, source: PartitionId, store: Store, address: str, strategy: Strategy
    ) -> CommittedState:
        try:
            if strategy is not RING:
                return strategy.load(self._scanned(store, prefix(strategy.kind, address)))
            ids, capacity = _extent(store, address)
            is_short = self._memory_bytes > self._memory_bytes_max / 2
            if ids > WHOLE_IDS_MAX or (is_short and ids > SMALL_IDS_MAX):
                compact = IndexedRing(self._reader(source, store, address), ids, capacity)
                for _, value in self._scanned(store, prefix(RUNS, address)):
                    compact.take(summary(value))
                return compact
            return RING.load(self._scanned(store, prefix(RUNS, address)))
        except UnknownFormatError as error:
            # The changelog was checked on its way in, so it is this copy that is damaged.
            raise StoreCorruptError(source, error) from error

    def _scanned(self, store: Store, begin: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._on_load()
        for entry in store.scan(begin):
            yield entry
            self._on_load()

    def _reader(
        self, source: PartitionId, store: Store, address: str
    ) -> Callable[[int, int], SegmentEntry]:
        """What reads the runs of one ring for as long as that is in memory."""
        recent, reader = self._recent, object()

        def read(first: int, number: int) -> SegmentEntry:
            run_key = key(address, first)
            value = recent.get((reader, run_key))
            if value is None:
                value = recent[reader, run_key] = _run(source, store, run_key)
                if len(recent) > _RECENT_MAX:
                    recent.popitem(last=False)
            try:
                return row_of(value, number)
            except UnknownFormatError as error:
                raise StoreCorruptError(source, error) from error

        return read


def _run(source: PartitionId, store: Store, run_key: bytes) -> bytes:
    value = store.get(run_key)
    if value is None:
        raise StoreCorruptError(source, f"there is no run {run_key.hex()}")
    return value


def _extent(store: Store, address: str) -> tuple[int, int]:
    """How many ids the runs of an address span, outlived ones included, and its newest capacity.

    Never less than its ring holds: a ring that was dropped for its size must not come back whole.
    """
    begin = prefix(RUNS, address)
    oldest, newest = store.next_key(begin), store.previous_key(after(RUNS, address))
    if oldest is None or newest is None or not oldest.startswith(begin):
        return 0, 0
    last = summary(store.get(newest) or b"")
    return last.first + len(last.ids) - first_of(oldest), last.capacity


def _has_outgrown(memory: CommittedState) -> bool:
    if isinstance(memory, IndexedRing):
        return memory.is_crowded
    return isinstance(memory, InMemoryRing) and len(memory) > WHOLE_IDS_MAX
