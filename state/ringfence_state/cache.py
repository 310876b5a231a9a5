"""Cache of the committed state of addresses, loaded from their stores on demand.

A cached state equals the store's entries of its address: it is loaded from them, and each commit
applies to it what was written to the store. Where a strategy has an indexed form, which leaves ids
in the store, large states have it, and all but the smallest when memory is short. The cache is
bounded in bytes, also while a transaction is decided: addresses that the transaction does not use
are evicted, those that it uses give back what they can do without, and a transaction that still
needs more memory has to be read again in smaller pieces.

The limit counts all states but the largest one, if that is a large one: evicting it would save
nothing, since its next record loads it again. So the cache takes at most the limit and one state.
What all states take is the sum of what each says: after every call that may change a state,
`_count` asks it again.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from ringfence_state.keys import UnknownFormatError
from ringfence_state.model import PartitionId
from ringfence_state.segment import SEGMENT_IDS_MAX, first_of
from ringfence_state.store import Store, StoreCorruptError
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.base import CommittedState, Strategy

WHOLE_IDS_MAX: Final = 100_000
"""A state with more ids has the indexed form, however much memory there is."""
SMALL_IDS_MAX: Final = 1_000
"""A state with at most this many ids gains nothing by the indexed form."""
_FEW_SEGMENTS: Final = 64
"""Fewer segments are read without a look at how many ids they have: most addresses have few."""
FULL: Final = 0.75
"""A transaction that uses more of the memory, as a factor, reads no further slice."""
_CROWDED: Final = 1.125
"""A transaction that uses more of the memory, as a factor, fails."""
_LARGE: Final = 0.5
"""A state that takes more of the memory, as a factor, is large; few can be, so they are listed."""
_Name = tuple[PartitionId, str]
"""A deciding partition and an address on it."""


class BatchTooLargeError(Exception):
    """A transaction needs more memory or loading time than allowed: read it in smaller pieces."""


class OversizedState(NamedTuple):
    """A state that takes more memory than the limit for all."""

    source: PartitionId
    address: str
    memory_bytes: int


class Cache:
    """The cached state of all partitions of a worker, in LRU order. Used by one thread."""

    def __init__(
        self,
        memory_bytes_max: int,
        on_load: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_load` is called for each entry read from a store, since loading may take long."""
        self.memory_bytes_max = memory_bytes_max
        self._on_load = on_load
        self._memories: OrderedDict[_Name, CommittedState] = OrderedDict()
        self._counted: dict[_Name, int] = {}
        """What each of them takes, in bytes."""
        self._memory_bytes = 0
        """The sum of these."""
        self._large: set[_Name] = set()
        self._used: set[_Name] = set()
        """The addresses that the current transaction uses."""
        self.begin()

    @property
    def memory_bytes(self) -> int:
        """Estimated size in bytes."""
        return self._memory_bytes

    @property
    def is_full(self) -> bool:
        """Whether the current transaction uses so much memory that it should end."""
        return self._is_above(FULL, self.used_bytes, self._used)

    @property
    def oversized(self) -> OversizedState | None:
        """The largest state if it alone exceeds the limit, else None."""
        name = max(self._large, key=self._counted.__getitem__, default=None)
        if name is None or self._counted[name] <= self.memory_bytes_max:
            return None
        return OversizedState(*name, self._counted[name])

    def begin(
        self, *, is_bounded: bool = False, is_late: Callable[[], bool] = lambda: False
    ) -> None:
        """Begin a transaction; it may use the states that it requests until the next call.

        With `is_bounded`, `memory` raises BatchTooLargeError when a transaction requests too much,
        or requests a state that is not cached while `is_late` reports that no time is left to load.
        """
        self._used.clear()
        self.used_bytes, self._is_bounded, self._is_late = 0, is_bounded, is_late

    def memory(
        self, source: PartitionId, store: Store, address: str, strategy: Strategy
    ) -> CommittedState:
        """Return the committed state of an address on a deciding partition, and mark it as used.

        Raises BatchTooLargeError, see `begin`, and StoreCorruptError.
        """
        name = (source, address)
        memory = self._memories.get(name)
        if memory is None:
            if self._is_bounded and self._is_late():
                raise BatchTooLargeError
            memory = self._memories[name] = self._loaded(source, store, address, strategy)
            self._count(name)
        self._memories.move_to_end(name)
        if name not in self._used:
            self._used.add(name)
            self.used_bytes += self._counted[name]
            self._make_room()
        return memory

    def _make_room(self) -> None:
        """Evict the least recently used states that the current transaction does not use."""
        while self._is_above(1, self._memory_bytes, self._memories):
            eldest = next(iter(self._memories), None)
            if eldest is None or eldest in self._used:  # and so are all that follow
                break
            self._forget(*eldest)
        if self._is_crowded():
            for name in self._used & self._memories.keys():
                if self._memories[name].shrink():
                    self._count(name)
            if self._is_crowded():
                raise BatchTooLargeError

    def _is_crowded(self) -> bool:
        """Whether the current transaction uses more memory than it may."""
        return self._is_bounded and self._is_above(_CROWDED, self.used_bytes, self._used)

    def _is_above(self, factor: float, total_bytes: int, names: Container[_Name]) -> bool:
        """Whether these states, but for the largest one if it is large, take more of the memory."""
        limit_bytes = factor * self.memory_bytes_max
        if total_bytes <= limit_bytes:
            return False
        large = (self._counted[name] for name in self._large if name in names)
        return total_bytes - max(large, default=0) > limit_bytes

    def _count(self, name: _Name) -> None:
        """Ask a state what it takes, after a call that may have changed it, and add it up."""
        memory, before = self._memories.get(name), self._counted.pop(name, 0)
        now = 0
        if memory is not None:
            now = self._counted[name] = memory.memory_bytes
        self._memory_bytes += now - before
        if name in self._used:
            self.used_bytes += now - before
        if now > _LARGE * self.memory_bytes_max:
            self._large.add(name)
        else:
            self._large.discard(name)

    def look(self, source: PartitionId, address: str) -> CommittedState | None:
        """Return the cached state of an address, or None, without marking it as used."""
        return self._memories.get((source, address))

    def recent(self, count: int) -> Iterator[tuple[str, CommittedState]]:
        """Yield the most recently used addresses and their cached states."""
        for (_, address), memory in islice(reversed(self._memories.items()), count):
            yield address, memory

    def apply(
        self, source: PartitionId, address: str, memory: CommittedState, content: object
    ) -> None:
        """Apply a committed change to the state that the batch was decided on."""
        memory.apply(content)
        self._count((source, address))
        if (source, address) in self._memories and memory.has_outgrown(WHOLE_IDS_MAX):
            self._forget(source, address)  # the next use loads it in the right form

    def reread(self, source: PartitionId, address: str) -> None:
        """Drop what was read from segments of an address that have been rewritten."""
        memory = self._memories.get((source, address))
        if memory is None:
            return
        if memory.reread():
            self._count((source, address))
        else:
            self._forget(source, address)

    def dismiss(self, source: PartitionId, address: str) -> None:
        """Drop the cached state of an address whose stored state was replaced."""
        if (source, address) in self._memories:
            self._forget(source, address)

    def dismiss_where(self, is_other: Callable[[str], bool]) -> None:
        """Drop the states of addresses whose strategy has changed."""
        for name in [name for name in self._memories if is_other(name[1])]:
            self.dismiss(*name)

    def shrink(self) -> None:
        """Evict the least recently used states until the rest fits; call it between batches."""
        self.begin()
        self._make_room()

    def drop(self, source: PartitionId) -> None:
        """Drop all states of a partition that was revoked or is to be restored again."""
        for name in [name for name in self._memories if name[0] == source]:
            self._forget(*name)

    def _forget(self, source: PartitionId, address: str) -> None:
        del self._memories[source, address]
        self._count((source, address))

    def _loaded(
        self, source: PartitionId, store: Store, address: str, strategy: Strategy
    ) -> CommittedState:
        try:
            segments = StoredSegments(
                source,
                store,
                strategy.kind,
                address,
                memory_bytes_max=self.memory_bytes_max,
                on_read=self._on_load,
            )
            stored = strategy.forms.stored
            if stored is not None:
                is_short = self._is_above(0.5, self._memory_bytes, self._memories)
                ids_max = SMALL_IDS_MAX if is_short else WHOLE_IDS_MAX
                oldest = segments.oldest(_FEW_SEGMENTS)
                may_be_large = len(oldest) == _FEW_SEGMENTS or _ids_of(oldest) > ids_max
                if may_be_large and segments.span() > ids_max:
                    return stored(segments)
            segments.discard()
            return strategy.load(segments.entries())
        except UnknownFormatError as error:
            # Changelog records are checked before they are applied, so this copy is damaged.
            raise StoreCorruptError(source, error) from error


def _ids_of(entries: Sequence[tuple[bytes, bytes]]) -> int:
    """Return how many ids the segments of an address may span, by their keys."""
    return first_of(entries[-1][0]) - first_of(entries[0][0]) + SEGMENT_IDS_MAX if entries else 0
