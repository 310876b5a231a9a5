"""Gauges: values that are read at the scrape, from the status board and the latest sample.

Therefore no gauge outlives the partition that it describes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ringfence_service.queries.status import ServiceStatus
from ringfence_state.store import StoreStats


class AddressFill(NamedTuple):
    """The fill level of one address over all partitions."""

    capacity: int
    used: int
    horizon_ms: int | None = None
    """The shortest of its partitions; None until an id was evicted, and after a clear."""

    def plus(self, other: "AddressFill") -> "AddressFill":
        """Return the sums, and the shorter horizon."""
        known = [each.horizon_ms for each in (self, other) if each.horizon_ms is not None]
        used = self.used + other.used
        return AddressFill(self.capacity + other.capacity, used, min(known, default=None))


class StateSample(NamedTuple):
    """A sample of the local state."""

    fills: Mapping[str, AddressFill] = {}
    """By address, for addresses that have a label."""
    others_used: int = 0
    """Ids of all other addresses, as far as they are in memory."""
    evicted: Mapping[str, int] = {}
    """Ids evicted or cleared from rings since the last sample, by address."""
    stalls: int = 0
    """Writes that had to wait, since the last sample."""
    lookups: int = 0
    """Ids of large rings that were looked for, since the last sample."""
    lookups_in_files: int = 0
    """Those for which a file was read."""
    stores: StoreStats = StoreStats(0)
    cache_bytes: int = 0
    """Approximate memory for ids."""
    cache_excess_bytes: int = 0
    """How much of it is above the limit."""


OTHER: Final = "_other"
"""The label of all addresses without a label of their own."""

_LIKE_OTHER: Final = re.compile("_+other")


def label_of(address: str) -> str:
    """Return the label of an address: itself, with another `_` if it would look like `_other`."""
    return f"_{address}" if _LIKE_OTHER.fullmatch(address) else address


class StatusSource(Protocol):
    """A source of the current status: a board, or the supervisor."""

    def read(self) -> ServiceStatus:
        """Return the latest status."""
        ...

    def heartbeat_age_ms(self) -> int:
        """Return the age of the oldest heartbeat among the loops."""
        ...


class StatusGauges(Collector):
    """The gauges of the service status."""

    def __init__(self, board: StatusSource) -> None:
        self._board = board

    def describe(self) -> Iterator[Metric]:
        """Describe no metrics in advance, since the board is read only at the scrape."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the current gauges."""
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
            "1 while it is blocked and processes nothing; /readyz says what it waits for.",
            float(status.waiting_for is not None),
        )
        yield _gauge(
            "blocked_partitions",
            "Partitions that wait for a topic or a schema while others are decided.",
            sum(each.waiting_for is not None for each in owned),
        )
        yield _gauge(
            "heartbeat_age_seconds",
            "Time since the last heartbeat of a loop.",
            self._board.heartbeat_age_ms() / 1000,
        )
        yield _gauge(
            "missing_inputs",
            "Inputs that do not exist, or may not be read.",
            len(status.inputs_missing),
        )
        if status.counts.last_commit_at is not None:
            at_s = status.counts.last_commit_at.timestamp()
            help_text = "When the last transaction committed."
            yield _gauge("last_commit_timestamp_seconds", help_text, at_s)
        yield from _lags(status)
        yield from _standbys(status)


def _standbys(status: ServiceStatus) -> Iterator[Metric]:
    warm = _labelled(
        "standby_warm",
        "1 while the standby copy of a partition that another instance owns is up to date.",
        "topic",
        "partition",
    )
    lag = _labelled(
        "standby_lag_records",
        "Offsets of the changelog that the standby copy of a partition is behind.",
        "topic",
        "partition",
    )
    for each in status.standbys:
        labels = (each.topic, str(each.partition))
        warm.add_metric(labels, each.warm)
        if each.lag_records is not None:
            lag.add_metric(labels, each.lag_records)
    yield warm
    yield lag


def _lags(status: ServiceStatus) -> Iterator[Metric]:
    records = _labelled(
        "consumer_lag_records",
        "Records between the position and the end of the partition, including open transactions.",
        "topic",
        "partition",
    )
    seconds = _labelled(
        "consumer_lag_seconds",
        "The longest time that the next record may have waited; 0 if there is none.",
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
    """The gauges of the latest sample; none before the first."""

    def __init__(self, sample: Callable[[], StateSample | None]) -> None:
        self._sample = sample

    def describe(self) -> Iterator[Metric]:
        """Describe no metrics in advance, since there may be no sample."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of the latest sample."""
        sample = self._sample()
        if sample is None:
            return
        yield from _fills(sample)
        stores = sample.stores
        yield _gauge("cache_memory_bytes", "Approximate memory for ids.", sample.cache_bytes)
        help_text = "Memory for ids above its limit, for one address that needs more."
        yield _gauge("cache_excess_bytes", help_text, sample.cache_excess_bytes)
        yield _gauge("state_bytes", "Size of the files of the stores.", stores.disk_bytes)
        for name, help_text, value in (
            ("block_cache_usage_bytes", "Size of the block cache.", stores.cache_bytes),
            ("memtable_bytes", "Size of the memtables.", stores.memory_bytes),
            ("sst_bytes", "Size of the SST files.", stores.table_bytes),
            ("pending_compaction_bytes", "Bytes to be compacted.", stores.compaction_bytes),
            ("estimated_keys", "Estimated number of keys.", stores.keys),
        ):
            yield _gauge(f"rocksdb_{name}", f"RocksDB: {help_text}", value)


def _fills(sample: StateSample) -> Iterator[Metric]:
    capacity = _labelled("ring_capacity_ids", "Ids that an address may hold.", "address")
    used = _labelled("ring_used_ids", "Ids that an address holds.", "address")
    horizon = _labelled(
        "ring_horizon_seconds",
        "Time from the oldest id to the newest, from the first evicted id on.",
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
