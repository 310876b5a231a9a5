"""Metric aggregation: metrics as values that can be sent, summed and exposed."""

from collections.abc import Callable, Iterable, Iterator
from operator import add
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ringfence_service.telemetry.gauges import OTHER

Labels = tuple[tuple[str, str], ...]

_COUNTING: Final = frozenset({"counter", "histogram"})
_OF_ALL: Final = frozenset(
    {
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
        "ringfence_fast_path_info",
        "ringfence_compressing_processes",
        "ringfence_held_back_partitions",
        "ringfence_cache_memory_bytes",
        "ringfence_cache_excess_bytes",
        "ringfence_state_bytes",
        "ringfence_ring_capacity_ids",
        "ringfence_ring_used_ids",
        "ringfence_rocksdb_block_cache_usage_bytes",
        "ringfence_rocksdb_memtable_bytes",
        "ringfence_rocksdb_sst_bytes",
        "ringfence_rocksdb_pending_compaction_bytes",
        "ringfence_rocksdb_estimated_keys",
    }
)
"""Gauges that are summed over the processes."""
_OF_THE_LEAST: Final = frozenset({"ringfence_ring_horizon_seconds"})
"""Gauges of which the smallest value is taken."""


class MetricPoint(NamedTuple):
    """One sample."""

    name: str
    labels: Labels
    value: float


class MetricFamily(NamedTuple):
    """All samples of one metric."""

    name: str
    help: str
    kind: str
    points: tuple[MetricPoint, ...]


def families_of(registry: CollectorRegistry) -> tuple[MetricFamily, ...]:
    """Return the current metrics of a registry."""
    return tuple(
        MetricFamily(
            metric.name,
            metric.documentation,
            metric.type,
            tuple(
                MetricPoint(sample.name, tuple(sample.labels.items()), sample.value)
                for sample in metric.samples
            ),
        )
        for metric in registry.collect()
    )


def counted(families: Iterable[MetricFamily]) -> tuple[MetricFamily, ...]:
    """Return the counters and histograms, which remain when their process has ended."""
    return tuple(family for family in families if family.kind in _COUNTING)


def joined(
    own: Iterable[MetricFamily], others: Iterable[Iterable[MetricFamily]]
) -> tuple[MetricFamily, ...]:
    """Return our own families combined with those of other processes.

    Counters and the gauges listed above are combined. Other gauges of theirs are left out, since
    ours are computed from the reports of all processes.
    """
    found = {family.name: family for family in own}
    for families in others:
        for family in families:
            if family.kind in _COUNTING or family.name in _OF_ALL:
                found[family.name] = _combined(found.get(family.name), family, add)
            elif family.name in _OF_THE_LEAST:
                found[family.name] = _combined(found.get(family.name), family, min)
    return tuple(found.values())


def _combined(
    one: MetricFamily | None, other: MetricFamily, combine: Callable[[float, float], float]
) -> MetricFamily:
    if one is None:
        return other
    values = {(point.name, point.labels): point.value for point in one.points}
    for name, labels, value in other.points:
        series = (name, labels)
        values[series] = combine(values[series], value) if series in values else value
    points = (MetricPoint(name, labels, value) for (name, labels), value in values.items())
    return one._replace(points=tuple(points))


def without_addresses(families: Iterable[MetricFamily]) -> Iterator[MetricFamily]:
    """Yield the families with one series for all addresses, which may contain customer names."""
    for family in families:
        combine = min if family.name in _OF_THE_LEAST else add
        values: dict[tuple[str, Labels], float] = {}
        for name, labels, value in family.points:
            hidden = tuple((key, OTHER if key == "address" else label) for key, label in labels)
            series = (name, hidden)
            values[series] = combine(values[series], value) if series in values else value
        points = (MetricPoint(name, labels, value) for (name, labels), value in values.items())
        yield family._replace(points=tuple(points))


def written(families: Iterable[MetricFamily]) -> bytes:
    """Return the families in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_FamilyCollector(families))
    return generate_latest(registry)


class _FamilyCollector(Collector):
    """Collects the given families."""

    def __init__(self, families: Iterable[MetricFamily]) -> None:
        self._families = tuple(families)

    def describe(self) -> Iterator[Metric]:
        """Describe no metrics in advance."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the families as metrics of the library."""
        for name, help_text, kind, points in self._families:
            metric = Metric(name, help_text, kind)
            for point in points:
                metric.add_sample(point.name, dict(point.labels), point.value)
            yield metric
