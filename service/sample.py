"""Sample: what is held locally and what it takes, measured every few seconds between two batches.

Nothing is loaded for it: what an address holds is told as to whoever lists addresses. Invariant:
what one sample costs is bounded, however much is held.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from service.addresses import AddressBook
from service.caches import settings_of
from service.partition import Partition
from service.surveyor import Surveyor
from state.cache import Cache
from state.edit import Source
from state.store import Figures, StoreCorruptError
from state.strategies.compact_ring import CompactRing
from state.strategies.strategy import Memory
from state.strategies.whole_ring import WholeRing

PERIOD_S: Final = 5.0
_OTHERS_MAX: Final = 5_000
_WITH_IDS: Final = frozenset({"ring", "window"})


class Fill(NamedTuple):
    """How full the caches of one address are, all partitions together."""

    capacity: int
    used: int
    horizon_ms: int | None = None
    """The shortest of its partitions; None until one has let go of an id for its number."""

    def plus(self, other: "Fill") -> "Fill":
        """Both."""
        known = [each.horizon_ms for each in (self, other) if each.horizon_ms is not None]
        used = self.used + other.used
        return Fill(self.capacity + other.capacity, used, min(known, default=None))


class Sample(NamedTuple):
    """See the module."""

    fills: Mapping[str, Fill] = {}
    """By address, of those that are labels."""
    others_used: int = 0
    """Ids of all others, as far as they are in memory."""
    evicted: Mapping[str, int] = {}
    """Ids that rings have let go of since the last sample, by address."""
    stalls: int = 0
    """Writes that had to wait, since the last sample."""
    stores: Figures = Figures(0)
    cache_bytes: int = 0
    """What memory for ids takes, about."""


class Sampler:
    """Remembers what it measured last."""

    def __init__(self) -> None:
        self._floors: dict[tuple[Source, str], int] = {}
        self._stalls: dict[Source, int] = {}

    def take(
        self,
        running: Mapping[Source, Partition],
        surveyor: Surveyor,
        book: AddressBook,
        labels: set[str],
    ) -> Sample:
        """Measure; between two batches."""
        cache, evicted = surveyor.cache, Counter[str]()
        fills: dict[str, Fill] = {}
        deciding = [p for p in running.values() if p.changelog is not None]
        for partition in deciding:
            for address in partition.addresses & labels:
                told = _fill(partition, address, surveyor, book)
                if told is not None:
                    fills[address] = fills[address].plus(told) if address in fills else told
                memory = cache.look(partition.source, address)
                evicted[address] += self._evicted(partition.source, address, memory)
        self._forget_all_but({partition.source for partition in deciding})
        stores = {p.source: p.store.figures() for p in deciding if p.store is not None}
        return Sample(
            fills=fills,
            others_used=_others(cache, labels),
            evicted=evicted,
            stalls=self._new_stalls(stores),
            stores=_sum(stores),
            cache_bytes=cache.memory_bytes,
        )

    def _evicted(self, source: Source, address: str, memory: Memory | None) -> int:
        """How many ids a ring in memory has let go of since the last time."""
        if not isinstance(memory, WholeRing | CompactRing):
            return 0
        before = self._floors.get((source, address), memory.floor)
        self._floors[source, address] = memory.floor
        return max(0, memory.floor - before)

    def _forget_all_but(self, sources: set[Source]) -> None:
        """Of partitions that are somebody else's now, nothing is told."""
        self._floors = {place: at for place, at in self._floors.items() if place[0] in sources}
        self._stalls = {source: n for source, n in self._stalls.items() if source in sources}

    def _new_stalls(self, stores: Mapping[Source, Figures]) -> int:
        new = sum(max(0, each.stalls - self._stalls.get(s, 0)) for s, each in stores.items())
        self._stalls = {source: each.stalls for source, each in stores.items()}
        return new


def _fill(partition: Partition, address: str, surveyor: Surveyor, book: AddressBook) -> Fill | None:
    """How full one cache is, where it holds ids and that is known."""
    settings = settings_of(book, address)
    if settings.strategy not in _WITH_IDS:
        return None
    # What is damaged or contradicts itself, the next batch finds; to measure it ends nothing.
    with suppress(StoreCorruptError, LookupError):
        told = surveyor.look(partition, address, book)
        return None if told is None else Fill(settings.room, told.held, told.horizon_ms)
    return None


def _others(cache: Cache, labels: set[str]) -> int:
    """Of those that were used last, so that many addresses take no longer than a few."""
    rings = cache.recent(_OTHERS_MAX)
    return sum(
        len(memory)
        for address, memory in rings
        if address not in labels and isinstance(memory, WholeRing | CompactRing)
    )


def _sum(stores: Mapping[Source, Figures]) -> Figures:
    """All of them; they share one cache of blocks."""
    if not stores:
        return Figures(0)
    total = Figures(*map(sum, zip(*stores.values(), strict=True)))
    return total._replace(cache_bytes=max(each.cache_bytes for each in stores.values()))
