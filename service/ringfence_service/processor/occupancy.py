"""Occupancy scanner: measures what addresses hold, without loading them.

A ring is measured by its first and last segment, in some thirty microseconds, in memory or not. A
window and publishers are measured in memory, and are unknown otherwise. Each turn of the loop scans
only some addresses, so that many of them delay no record.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from typing import Final

from ringfence_service.config.addresses import AddressBook, AddressSettings, settings_of
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.native.runs import lookups
from ringfence_service.telemetry.gauges import AddressFill, StateSample
from ringfence_state.cache import Cache
from ringfence_state.keys import UnknownFormatError
from ringfence_state.model import PackedPositions, PartitionId
from ringfence_state.store import StoreCorruptError, StoreStats
from ringfence_state.strategies.base import CommittedState, Occupancy

_BUSY_SCANS_MAX: Final = 32
"""Addresses of one scan while records arrive: they wait for it, about a millisecond."""

_IDLE_SCANS_MAX: Final = 128
"""Addresses of one scan while none arrive: a record may wait for some four milliseconds."""

_BUSY_PAUSE_S: Final = 0.25
"""Least time between two scans while records arrive: below half a percent of the loop's time."""


class OccupancyScanner:
    """Measures the addresses on all partitions of a loop."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._scanned_s = float("-inf")

    def scan(
        self,
        partitions: Iterable[OwnedPartition],
        book: AddressBook,
        now_s: float,
        *,
        is_busy: bool,
    ) -> None:
        """Measure some of the addresses that have changed; rarely while records arrive."""
        if is_busy and now_s - self._scanned_s < _BUSY_PAUSE_S:
            return
        self._scanned_s = now_s
        to_do = [each for each in partitions if each.survey.begin(each.addresses, book)]
        limit = _BUSY_SCANS_MAX if is_busy else _IDLE_SCANS_MAX
        for partition in to_do:
            for address in partition.survey.next(max(1, limit // len(to_do))):
                self.measure(partition, address, book)

    def measure(
        self,
        partition: OwnedPartition,
        address: str,
        book: AddressBook,
        memory: CommittedState | None = None,
    ) -> Occupancy | None:
        """Return the occupancy of an address; None if it is unknown until the address is loaded.

        `memory` is its committed state, if the caller has loaded it.
        """
        survey = partition.survey
        if not survey.is_current(address, book):
            if memory is None:
                memory = self.cache.look(partition.source, address)
            settings = settings_of(book, address)
            occupancy = _measure(partition, address, settings, memory)
            survey.found(address, occupancy, settings.share_room)
        return survey.extents.get(address)


def _measure(
    partition: OwnedPartition,
    address: str,
    settings: AddressSettings,
    memory: CommittedState | None,
) -> Occupancy | None:
    store = partition.store_of(settings)
    try:
        found = settings.remembered_by.extent(store, address, settings)
    except UnknownFormatError:
        return None  # the store is damaged: the next decision finds and restores it
    if found is None and memory is not None:
        return memory.begin(settings, PackedPositions(partition.source)).extent()
    return found


PERIOD_S: Final = 5.0
"""How often caches and stores are measured for metrics, between two batches.

As often as the console takes a sample of the metrics (`api/ringfence_api/console/history.py`).
"""

_OTHERS_MAX: Final = 5_000
"""Cached addresses whose ids are counted for the label `_other`: records wait for each measurement.

The ids of addresses that were used less recently are missing from that metric.
"""


class StateSampler:
    """Samples the state of a loop for metrics; keeps the previous sample for differences."""

    def __init__(self) -> None:
        self._evictions: dict[tuple[PartitionId, str], int] = {}
        self._stalls: dict[PartitionId, int] = {}
        self._lookups = lookups()

    def take(
        self,
        running: Mapping[PartitionId, OwnedPartition],
        scanner: OccupancyScanner,
        book: AddressBook,
        labels: set[str],
    ) -> StateSample:
        """Take a sample; call it between two batches."""
        cache, evicted = scanner.cache, Counter[str]()
        fills: dict[str, AddressFill] = {}
        deciding = [p for p in running.values() if p.changelog is not None]
        for partition in deciding:
            for address in partition.addresses & labels:
                fill = _fill(partition, address, scanner, book)
                if fill is not None:
                    fills[address] = fills[address].plus(fill) if address in fills else fill
                memory = cache.look(partition.source, address)
                evicted[address] += self._evicted(partition.source, address, memory)
        self._forget_all_but({partition.source: partition.addresses for partition in deciding})
        before, self._lookups = self._lookups, lookups()
        stores = {p.source: p.store.figures() for p in deciding if p.store is not None}
        return StateSample(
            fills=fills,
            others_used=_others(cache, labels),
            evicted=evicted,
            stalls=self._new_stalls(stores),
            lookups=self._lookups.all - before.all,
            lookups_in_files=self._lookups.in_files - before.in_files,
            stores=_sum(stores),
            cache_bytes=cache.memory_bytes,
            cache_excess_bytes=max(0, cache.memory_bytes - cache.memory_bytes_max),
        )

    def _evicted(self, source: PartitionId, address: str, memory: CommittedState | None) -> int:
        """Return how many ids a state in memory has evicted since the last sample."""
        if memory is None:
            return 0
        before = self._evictions.get((source, address), memory.ids_evicted)
        self._evictions[source, address] = memory.ids_evicted
        return max(0, memory.ids_evicted - before)

    def _forget_all_but(self, held: Mapping[PartitionId, Container[str]]) -> None:
        """Forget the samples of partitions that we no longer own, and of expired addresses."""
        self._evictions = {
            (source, address): n
            for (source, address), n in self._evictions.items()
            if address in held.get(source, ())
        }
        self._stalls = {source: n for source, n in self._stalls.items() if source in held}

    def _new_stalls(self, stores: Mapping[PartitionId, StoreStats]) -> int:
        new = sum(max(0, each.stalls - self._stalls.get(s, 0)) for s, each in stores.items())
        self._stalls = {source: each.stalls for source, each in stores.items()}
        return new


def _fill(
    partition: OwnedPartition, address: str, scanner: OccupancyScanner, book: AddressBook
) -> AddressFill | None:
    """Return how full a cache of ids is; None for other caches, and if it is unknown."""
    settings = settings_of(book, address)
    if not settings.size_of_ids:
        return None
    # The next batch finds a damaged or inconsistent store; a measurement must not end the loop.
    with suppress(StoreCorruptError, LookupError):
        occupancy = scanner.measure(partition, address, book)
        if occupancy is not None:
            return AddressFill(settings.share_room, occupancy.held, occupancy.horizon_ms)
    return None


def _others(cache: Cache, labels: set[str]) -> int:
    """Return the ids held by the most recently used unlabelled addresses.

    Bounded, so that many addresses take no longer than a few.
    """
    recent = cache.recent(_OTHERS_MAX)
    return sum(memory.ids_held for address, memory in recent if address not in labels)


def _sum(stores: Mapping[PartitionId, StoreStats]) -> StoreStats:
    """Return the sum of the stores' figures; the block cache is shared and counts once."""
    if not stores:
        return StoreStats(0)
    total = StoreStats(*map(sum, zip(*stores.values(), strict=True)))
    return total._replace(cache_bytes=max(each.cache_bytes for each in stores.values()))
