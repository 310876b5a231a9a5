"""Metrics: every metric of the service, with one method per event.

The loop calls a method with numbers once per batch, never per record. Values that can be read at
the scrape are in `gauges.py`. docs/metrics.md lists all metrics.
Invariant: labels are bounded. No id is a label, and beyond the addresses that the configuration
names (`NAMED_MAX`) and the first `addresses_max` of all others, addresses share the label
`_other`.
"""

import collections
import shutil
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Final, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ringfence_service.kafka.compression import CODECS
from ringfence_service.telemetry.aggregation import (
    MetricFamily,
    families_of,
    without_addresses,
    written,
)
from ringfence_service.telemetry.gauges import (
    OTHER,
    OccupancyGauges,
    StateSample,
    StatusGauges,
    StatusSource,
    label_of,
)


class BatchHistogram(Collector):
    """A histogram that is updated per batch. Values are in milliseconds, and exposed in seconds."""

    def __init__(self, name: str, help_text: str, bounds_s: Sequence[float]) -> None:
        self._name, self._help = name, help_text
        self._labels = [*map(floatToGoString, bounds_s), "+Inf"]
        self._bucket = partial(bisect_left, [round(bound * 1000) for bound in bounds_s])
        self._counts = [0] * len(self._labels)
        self._sum_ms = 0
        self._lock = threading.Lock()

    def observe(self, values_ms: Collection[int]) -> None:
        """Add the values of a batch."""
        found = collections.Counter(map(self._bucket, values_ms))
        with self._lock:
            for bucket, count in found.items():
                self._counts[bucket] += count
            self._sum_ms += sum(values_ms)

    def describe(self) -> Iterator[Metric]:
        """Describe no metrics in advance."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram with its current cumulative buckets."""
        with self._lock:
            counts, sum_ms = list(self._counts), self._sum_ms
        buckets = list(zip(self._labels, map(float, accumulate(counts)), strict=True))
        yield HistogramMetricFamily(self._name, self._help, buckets, sum_value=sum_ms / 1000)


def valid_until_s(path: Path) -> float:
    """Return when the first certificate of a chain expires, in seconds since the epoch.

    Return NaN while the file cannot be read: the server continues with the chain that it has
    loaded.
    """
    from cryptography.x509 import (  # noqa: PLC0415 - workers do not need it, and it loads slowly
        load_pem_x509_certificates,
    )

    try:
        chain = load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return float("nan")
    return min(each.not_valid_after_utc.timestamp() for each in chain)


Stage = Literal["poll", "lookup", "produce", "commit", "apply"]

RebalanceKind = Literal["assigned", "revoked", "lost"]

NAMED_MAX: Final = 100
"""How many addresses may have a label because the configuration names them."""

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_STAGE_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

_TRANSACTION_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_LATENCY_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0)

_DISTANCE_SECONDS: Final = (
    *(0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0),
    *(3600.0, 4 * 3600.0, 12 * 3600.0, 86_400.0, 7 * 86_400.0, 30 * 86_400.0),
)

_HTTP_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """The counters, histograms and gauges of a process, on a registry of their own."""

    def __init__(
        self, board: StatusSource, build: Mapping[str, str], *, addresses_max: int
    ) -> None:
        """`build` becomes the labels of `ringfence_build_info`."""
        # Process-wide: a `_created` gauge per series would double the size of a scrape.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it untyped
        self._registry = CollectorRegistry()
        self._addresses_max = addresses_max
        self._named: set[str] = set()
        self._seen: set[str] = set()
        self._declare_flow()
        self._declare_time()
        self._declare_kafka()
        self._declare_http()
        self._declare_state()
        self._declare_certificate()
        self._declare_process()
        info = self._gauge("build_info", "Versions of what runs; always 1.", *build)
        info.labels(**build).set(1)
        self._sample: StateSample | None = None
        self._registry.register(StatusGauges(board))
        self._registry.register(OccupancyGauges(lambda: self._sample))
        ProcessCollector(registry=self._registry)

    def consumed(self, route: str, records: int, size_bytes: int) -> None:
        """Count the records and bytes that a batch has read from the inputs of a route."""
        self._records_consumed.labels(route).inc(records)
        self._bytes_consumed.inc(size_bytes)

    def carried(self, route: str, records: int) -> None:
        """Count records that were repartitioned by address."""
        self._records_carried.labels(route).inc(records)

    def forwarded(self, route: str, label: str, records: int) -> None:
        """Count accepted records of a committed batch; `label` is an `address_label`."""
        self._records_forwarded.labels(route, label).inc(records)

    def unchecked(self, route: str, reason: str, records: int) -> None:
        """Count accepted records of a committed batch that no address could check."""
        self._unchecked.labels(route, reason).inc(records)

    def stamped(self, route: str, records: int) -> None:
        """Count accepted records of a committed batch that got an id made of their position."""
        self._stamped.labels(route).inc(records)

    def duplicates(self, route: str, label: str, records: int) -> None:
        """Count duplicates of a committed batch, whether or not they were written to a topic."""
        self._duplicates.labels(route, label).inc(records)

    def compared(self, route: str, result: str) -> None:
        """Count a duplicate that was to be compared with its original, by what was found."""
        self._compared.labels(route, result).inc()

    def dead_letters(self, route: str, reason: str, records: int) -> None:
        """Count dead letters of a committed batch."""
        self._dead_letters.labels(route, reason).inc(records)

    def replies(self, route: str, result: str, records: int) -> None:
        """Count the records of a committed batch that asked for a reply."""
        self._replies.labels(route, result).inc(records)

    def redriven(self, mode: str, result: str, records: int) -> None:
        """Count dead letters that were decided again in a committed transaction."""
        self._redriven.labels(mode, result).inc(records)

    def bridged(self, topic: str, records: int, stamped: int) -> None:
        """Count records of a source topic that a bridge has delivered, and those it stamped."""
        self._records_bridged.labels(topic).inc(records)
        self._records_stamped.labels(topic).inc(stamped)

    def addresses_expired(self, addresses: int) -> None:
        """Count addresses that were idle for so long that a deciding partition forgot them."""
        self._addresses_expired.inc(addresses)

    def stage(self, stage: Stage, duration_s: float) -> None:
        """Time one stage of a batch."""
        self._batch_duration.labels(stage).observe(duration_s)

    def committed(self, duration_s: float) -> None:
        """Count a transaction that committed, and time it from its begin to its end."""
        self._transactions.labels("committed").inc()
        self._transaction_duration.observe(duration_s)

    def not_committed(self, result: Literal["aborted", "unknown"]) -> None:
        """Count a transaction that was aborted, or whose outcome only the broker knows."""
        self._transactions.labels(result).inc()

    def latency(self, oldest_s: float, newest_s: float) -> None:
        """Time a committed batch since the timestamps of its oldest and newest record."""
        self._end_to_end_latency.labels("oldest").observe(oldest_s)
        self._end_to_end_latency.labels("newest").observe(newest_s)

    def distances(self, times_ms: Collection[int]) -> None:
        """Record the times between duplicates of a committed batch and the accepted records."""
        self._duplicate_distance.observe(times_ms)

    def sampled(self, sample: StateSample) -> None:
        """Publish a new sample of the local state."""
        for address, count in sample.evicted.items():
            self._evictions.labels(self.address_label(address)).inc(count)
        self._stalls.inc(sample.stalls)
        self._lookups.inc(sample.lookups)
        self._lookups_in_files.inc(sample.lookups_in_files)
        self._sample = sample

    def certificate(self, path: Path) -> None:
        """Expose the expiry time of a certificate, read at each scrape."""
        self._certificate.labels(path.name).set_function(lambda: valid_until_s(path))

    def watched_file(self, name: str, is_refused: Callable[[], bool]) -> None:
        """Expose whether the last content of a file is refused, checked at each scrape."""
        self._file_refused.labels(name).set_function(lambda: float(is_refused()))

    def disk(self, folder: Path) -> None:
        """Expose the free space and the size of a folder's disk, read at each scrape."""
        free = self._gauge("state_disk_free_bytes", "Free space on the disk of the state folder.")
        size = self._gauge("state_disk_size_bytes", "Size of the disk of the state folder.")
        free.set_function(lambda: _disk_bytes(folder)[0])
        size.set_function(lambda: _disk_bytes(folder)[1])

    def fast_path(self, path: str, wanted: str) -> None:
        """Expose which fast path this process runs, and which one the configuration names."""
        self._fast_path.labels(path, wanted).set(1)

    def fenced(self) -> None:
        """Count an event in which another producer took over our transactional id."""
        self._fenced.inc()

    def rebalance(self, kind: RebalanceKind, count: int = 1) -> None:
        """Count changes of the partitions that this instance owns."""
        self._rebalances.labels(kind).inc(count)

    def held_back(self, partitions: int) -> None:
        """Set how many inputs cannot be read because of a hanging transaction."""
        self._held_back.set(partitions)

    def config_not_applied(self) -> None:
        """Count a settings document that is invalid here."""
        self._config_apply_failures.inc()

    def client_error(self, code: str) -> None:
        """Count an error that the Kafka client reported, by its name."""
        self._client_errors.labels(code).inc()

    def throttled(self, duration_s: float) -> None:
        """Add the time for which a quota of the broker delays a client."""
        self._throttled.inc(duration_s)

    def compresses(self, codec: str | None) -> None:
        """Expose the codec that was chosen for the producer of this process; None for none."""
        for each in CODECS:
            self._compressing.labels(each).set(each == codec)

    def schema_lookup(self, result: str) -> None:
        """Count a schema that the registry was asked for: found, unknown, unusable or failed."""
        self._schema_lookups.labels(result).inc()

    def http_request(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count and time a request that was answered; `route` is the template, not the path."""
        self._http_requests.labels(route, method, str(status)).inc()
        self._http_duration.labels(route, method).observe(duration_s)

    def http_auth_failure(self, reason: str) -> None:
        """Count a request that failed authentication or authorisation; few reasons exist."""
        self._http_auth_failures.labels(reason).inc()

    def http_connection_refused(self, reason: str) -> None:
        """Count a connection that the server refused or closed; few reasons exist."""
        self._http_refused.labels(reason).inc()

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format, of type `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    async def scrape(self, *, addresses: bool = True) -> bytes:
        """Return the same as `exposition`; async, since a supervisor queries its workers for it.

        Without `addresses`, all addresses share one series.
        """
        return self.exposition() if addresses else written(without_addresses(self.families()))

    def families(self) -> tuple[MetricFamily, ...]:
        """Return all metrics as values."""
        return families_of(self._registry)

    def has_worker(self, worker: int, hop: str) -> None:
        """Initialise its restart counter at 0, so that the first restart shows as an increase."""
        self._worker_restarts.labels(str(worker), hop)

    def worker_restarted(self, worker: int, hop: str) -> None:
        """Count a process that replaced one that had ended."""
        self._worker_restarts.labels(str(worker), hop).inc()

    @property
    def labelled_addresses(self) -> set[str]:
        """The addresses that have a label of their own."""
        return self._named | self._seen

    def name_addresses(self, addresses: Iterable[str]) -> None:
        """Reserve labels for these addresses, up to `NAMED_MAX` over all calls.

        An address that has a label keeps it, named or not.
        """
        new = (address for address in addresses if address not in self._named)
        self._named.update(islice(new, NAMED_MAX - len(self._named)))
        self._seen -= self._named

    def address_label(self, address: str) -> str:
        """Return the label of an address: its own, or `_other` once all labels are taken."""
        if address not in self._named and address not in self._seen:
            if len(self._seen) >= self._addresses_max:
                return OTHER
            self._seen.add(address)
        return label_of(address)

    def forget_addresses(self, addresses: Iterable[str]) -> None:
        """Remove the series of these addresses; their labels are free for others."""
        for address in addresses:
            if address in self._seen or address in self._named:
                self._seen.discard(address)
                for counter in (self._records_forwarded, self._duplicates, self._evictions):
                    counter.remove_by_labels({"address": label_of(address)})

    def _declare_flow(self) -> None:
        self._records_consumed = self._counter("records_consumed", "Records decided.", "route")
        self._records_carried = self._counter(
            "records_carried", "Records repartitioned by their address.", "route"
        )
        self._bytes_consumed = self._counter("bytes_consumed", "Bytes of the values read.")
        self._records_forwarded = self._counter(
            "records_forwarded", "Records accepted and written to an output.", "route", "address"
        )
        self._unchecked = self._counter(
            "unchecked", "Records accepted without a check for duplicates.", "route", "reason"
        )
        self._stamped = self._counter(
            "stamped", "Records accepted with an id made of their position.", "route"
        )
        self._duplicates = self._counter("duplicates", "Duplicates found.", "route", "address")
        self._compared = self._counter(
            "duplicates_compared", "Duplicates compared with their originals.", "route", "result"
        )
        self._dead_letters = self._counter(
            "dead_letters", "Records written to a dead-letter topic.", "route", "reason"
        )
        self._replies = self._counter(
            "replies", "Records that asked for a reply, by whether it was sent.", "route", "result"
        )
        self._redriven = self._counter(
            "redriven", "Dead letters decided again, by their result.", "mode", "result"
        )
        self._records_bridged = self._counter(
            "records_bridged", "Records delivered to the target of a bridge.", "topic"
        )
        self._records_stamped = self._counter(
            "records_stamped", "Records that got an id made of their position.", "topic"
        )

    def _declare_time(self) -> None:
        self._batch_duration = self._histogram(
            "batch_duration_seconds", "Duration of a batch's stages.", _STAGE_SECONDS, "stage"
        )
        self._transaction_duration = self._histogram(
            "transaction_duration_seconds",
            "Duration of a transaction.",
            _TRANSACTION_SECONDS,
        )
        self._end_to_end_latency = self._histogram(
            "end_to_end_latency_seconds",
            "From the timestamps of a batch's oldest and newest record to its commit.",
            _LATENCY_SECONDS,
            "record",
        )

    def _declare_kafka(self) -> None:
        self._transactions = self._counter("transactions", "Transactions ended.", "result")
        self._fenced = self._counter("fenced", "Times that another producer fenced ours.")
        self._rebalances = self._counter("rebalances", "Changes of the assignment.", "kind")
        self._held_back = self._gauge(
            "held_back_partitions", "Input partitions blocked by a hanging transaction."
        )
        self._client_errors = self._counter(
            "client_errors", "Errors reported by the Kafka client.", "code"
        )
        self._throttled = self._counter(
            "throttled_seconds", "Time for which quotas of the broker delayed the Kafka clients."
        )
        self._compressing = self._gauge(
            "compressing_processes",
            "Processes whose producer compresses, since records fit their topics only so.",
            "codec",
        )
        self.compresses(None)
        self._schema_lookups = self._counter(
            "schema_lookups", "Schemas that a process asked the registry for.", "result"
        )

    def _declare_certificate(self) -> None:
        self._file_refused = self._gauge(
            "file_refused",
            "1 if the content of a file is refused and an earlier one holds.",
            "file",
        )
        self._certificate = self._gauge(
            "api_certificate_expiry_timestamp_seconds",
            "When the certificate of the API expires.",
            "file",
        )

    def _declare_state(self) -> None:
        self._evictions = self._counter("ring_evictions", "Ids evicted from rings.", "address")
        self._addresses_expired = self._counter(
            "addresses_expired", "Idle addresses that deciding partitions forgot."
        )
        self._lookups = self._counter("ring_lookups", "Ids of large rings that were looked for.")
        self._lookups_in_files = self._counter(
            "ring_lookups_in_files", "Ids of large rings for which a file was read."
        )
        self._stalls = self._counter(
            "rocksdb_write_stalls", "RocksDB: Writes that were slowed down or stopped."
        )
        self._duplicate_distance = BatchHistogram(
            "ringfence_duplicate_distance_seconds",
            "Time from an accepted record to its duplicate.",
            _DISTANCE_SECONDS,
        )
        self._registry.register(self._duplicate_distance)

    def _declare_process(self) -> None:
        self._config_apply_failures = self._counter(
            "config_apply_failures", "Settings documents that could not be applied."
        )
        self._worker_restarts = self._counter(
            "worker_restarts", "Restarts of worker processes.", "worker", "hop"
        )
        self._fast_path = self._gauge(
            "fast_path_info", "Worker processes by the fast path that they run.", "path", "wanted"
        )

    def _declare_http(self) -> None:
        self._http_requests = self._counter(
            "http_requests", "Requests answered.", "route", "method", "status"
        )
        self._http_auth_failures = self._counter(
            "http_auth_failures", "Requests that failed authentication or authorisation.", "reason"
        )
        self._http_refused = self._counter(
            "http_connections_refused", "Connections refused or closed by the server.", "reason"
        )
        self._http_duration = self._histogram(
            "http_request_duration_seconds", "Time to answer.", _HTTP_SECONDS, "route", "method"
        )

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"ringfence_{name}", help_text, labels, registry=self._registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(f"ringfence_{name}", help_text, labels, registry=self._registry)

    def _histogram(
        self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(
            f"ringfence_{name}", help_text, labels, registry=self._registry, buckets=buckets
        )


def _disk_bytes(folder: Path) -> tuple[float, float]:
    """Return the free space and the size of a folder's disk; NaN if they cannot be read."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return float("nan"), float("nan")
    return usage.free, usage.total
