"""Gauges: values that are read at the scrape, from the status board and the newest sample.

So no gauge outlives the partition that it describes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.queries.status import ServiceStatus
from state.store import StoreStats


class AddressFill(NamedTuple):
    """How full the caches of one address are, all partitions together."""

    capacity: int
    used: int
    horizon_ms: int | None = None
    """The shortest of its partitions; None until one has let go of an id for its number."""

    def plus(self, other: "AddressFill") -> "AddressFill":
        """Both."""
        known = [each.horizon_ms for each in (self, other) if each.horizon_ms is not None]
        used = self.used + other.used
        return AddressFill(self.capacity + other.capacity, used, min(known, default=None))


class StateSample(NamedTuple):
    """See the module."""

    fills: Mapping[str, AddressFill] = {}
    """By address, of those that are labels."""
    others_used: int = 0
    """Ids of all others, as far as they are in memory."""
    evicted: Mapping[str, int] = {}
    """Ids that rings have let go of since the last sample, by address."""
    stalls: int = 0
    """Writes that had to wait, since the last sample."""
    stores: StoreStats = StoreStats(0)
    cache_bytes: int = 0
    """What memory for ids takes, about."""


OTHER: Final = "_other"
"""The label of all addresses that have none of their own."""

_LIKE_OTHER: Final = re.compile("_+other")


def label_of(address: str) -> str:
    """The label of an address: itself, with a `_` more where it would be taken for `_other`."""
    return f"_{address}" if _LIKE_OTHER.fullmatch(address) else address


class StatusSource(Protocol):
    """What is pinned for others to read."""

    def read(self) -> ServiceStatus:
        """The latest status."""
        ...


class StatusGauges(Collector):
    """Of the status."""

    def __init__(self, board: StatusSource) -> None:
        self._board = board

    def describe(self) -> Iterator[Metric]:
        """Name the metrics without reading the board."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the gauges of this moment."""
        status = self._board.read()
        owned = status.partitions
        yield _gauge("assigned_partitions", "Input partitions owned.", len(owned))
        yield _gauge(
            "restore_remaining_records",
            "Changelog records still to replay.",
            sum(each.restore_remaining_records or 0 for each in owned),
        )
        yield _gauge(
            "groups_open",
            "Transaction groups that wait for the rest of their records.",
            sum(each.groups_open for each in owned),
        )
        yield _gauge("config_revision", "Newest settings document applied.", status.config_revision)
        yield _gauge(
            "waiting",
            "1 while it waits for the world and decides nothing; /readyz tells for what.",
            float(status.waiting_for is not None),
        )
        if status.last_commit_at is not None:
            at_s = status.last_commit_at.timestamp()
            what = "When the last transaction committed."
            yield _gauge("last_commit_timestamp_seconds", what, at_s)
        yield from _lags(status)


def _lags(status: ServiceStatus) -> Iterator[Metric]:
    records = _labelled(
        "consumer_lag_records",
        "Records between the position and the end of the partition, open transactions and all.",
        "topic",
        "partition",
    )
    seconds = _labelled(
        "consumer_lag_seconds",
        "For how long the next record may have waited; 0 where there is none.",
        "topic",
        "partition",
    )
    for each in status.partitions:
        labels = (each.topic, str(each.partition))
        if each.lag_records is not None:
            records.add_metric(labels, each.lag_records)
        if each.lag_ms is not None:
            seconds.add_metric(labels, each.lag_ms / 1000)
    yield records
    yield seconds


class OccupancyGauges(Collector):
    """Of the last sample; none before there is one."""

    def __init__(self, sample: Callable[[], StateSample | None]) -> None:
        self._sample = sample

    def describe(self) -> Iterator[Metric]:
        """Name the metrics without a sample."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return what was measured last."""
        sample = self._sample()
        if sample is None:
            return
        yield from _fills(sample)
        stores = sample.stores
        yield _gauge("cache_memory_bytes", "Memory that ids take, about.", sample.cache_bytes)
        yield _gauge("state_bytes", "Files of the stores.", stores.disk_bytes)
        for name, help_text, value in (
            ("block_cache_usage_bytes", "Blocks of files held in memory.", stores.cache_bytes),
            ("memtable_bytes", "Written, and not in files yet.", stores.memory_bytes),
            ("sst_bytes", "Files of keys.", stores.table_bytes),
            ("pending_compaction_bytes", "To be written anew.", stores.compaction_bytes),
            ("estimated_keys", "Keys, about.", stores.keys),
        ):
            yield _gauge(f"rocksdb_{name}", f"RocksDB: {help_text}", value)


def _fills(sample: StateSample) -> Iterator[Metric]:
    capacity = _labelled("ring_capacity_ids", "Ids that an address may hold.", "address")
    used = _labelled("ring_used_ids", "Ids that an address holds.", "address")
    horizon = _labelled(
        "ring_horizon_seconds",
        "Time from the oldest id held to the newest, once one had to go for its number.",
        "address",
    )
    for address, fill in sample.fills.items():
        label = (label_of(address),)
        capacity.add_metric(label, fill.capacity)
        used.add_metric(label, fill.used)
        if fill.horizon_ms is not None:
            horizon.add_metric(label, fill.horizon_ms / 1000)
    if sample.others_used:
        used.add_metric((OTHER,), sample.others_used)
    yield capacity
    yield used
    yield horizon


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"ringfence_{name}", help_text, value=value)


def _labelled(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"ringfence_{name}", help_text, labels=labels)
