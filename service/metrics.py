"""Metrics: every metric of Ringfence in one file, one method per event.

The loop calls a method per batch with numbers, never per record. What the status board holds is
read from it at the scrape, so a gauge never outlives the partition it speaks of.
Invariant: labels are bounded: no id is one, and addresses beyond the first `addresses_max` share
the label `_other`.
"""

from collections.abc import Iterator, Mapping
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
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.status import StatusBoard

Stage = Literal["poll", "lookup", "commit"]
RebalanceKind = Literal["assigned", "revoked", "lost"]

OTHER: Final = "_other"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_STAGE_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_TRANSACTION_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LATENCY_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0)
_HTTP_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """The events that are counted, on a registry of their own."""

    def __init__(self, board: StatusBoard, build: Mapping[str, str], *, addresses_max: int) -> None:
        """`build` becomes the labels of `ringfence_build_info`."""
        # For the whole process: a `_created` gauge per series would double what is scraped.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it untyped
        self._registry = CollectorRegistry()
        self._addresses_max = addresses_max
        self._address_labels: set[str] = set()
        self._declare_flow()
        self._declare_time()
        self._declare_kafka()
        self._declare_http()
        info = self._gauge("build_info", "Versions of what runs; always 1.", *build)
        info.labels(**build).set(1)
        self._registry.register(_BoardCollector(board))
        ProcessCollector(registry=self._registry)

    def consumed(self, route: str, records: int, size_bytes: int) -> None:
        """Count what a batch read from the inputs of a route."""
        self._records_consumed.labels(route).inc(records)
        self._bytes_consumed.inc(size_bytes)

    def forwarded(self, route: str, address: str, records: int) -> None:
        """Count accepted records of a committed batch."""
        self._records_forwarded.labels(route, self.address_label(address)).inc(records)

    def duplicates(self, route: str, address: str, records: int) -> None:
        """Count duplicates of a committed batch, whatever became of them."""
        self._duplicates.labels(route, self.address_label(address)).inc(records)

    def dead_letters(self, route: str, reason: str, records: int) -> None:
        """Count dead letters of a committed batch."""
        self._dead_letters.labels(route, reason).inc(records)

    def stage(self, stage: Stage, duration_s: float) -> None:
        """Time one stage of a batch."""
        self._batch_duration.labels(stage).observe(duration_s)

    def committed(self, duration_s: float) -> None:
        """Count a transaction that committed, and time it from begin to end."""
        self._transactions.labels("committed").inc()
        self._transaction_duration.observe(duration_s)

    def not_committed(self, result: Literal["aborted", "unknown"]) -> None:
        """Count a transaction that was aborted, or whose outcome only the broker knows."""
        self._transactions.labels(result).inc()

    def latency(self, oldest_s: float) -> None:
        """Time a committed batch from its oldest record's timestamp to the commit."""
        self._end_to_end_latency.observe(oldest_s)

    def fenced(self) -> None:
        """Count a time that another producer took over our transactional id."""
        self._fenced.inc()

    def rebalance(self, kind: RebalanceKind) -> None:
        """Count a change of the partitions this instance owns."""
        self._rebalances.labels(kind).inc()

    def client_error(self, code: str) -> None:
        """Count an error that the Kafka client reported, by its name."""
        self._client_errors.labels(code).inc()

    def http_request(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count and time a request that was answered; `route` is the template, not the path."""
        self._http_requests.labels(route, method, str(status)).inc()
        self._http_duration.labels(route, method).observe(duration_s)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format, of type `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    def address_label(self, address: str) -> str:
        """The address, or `other` once there are as many labels as there may be."""
        if address in self._address_labels:
            return address
        if len(self._address_labels) >= self._addresses_max:
            return OTHER
        self._address_labels.add(address)
        return address

    def _declare_flow(self) -> None:
        self._records_consumed = self._counter("records_consumed", "Records read.", "route")
        self._bytes_consumed = self._counter("bytes_consumed", "Bytes of keys and values read.")
        self._records_forwarded = self._counter(
            "records_forwarded", "Records accepted and written to an output.", "route", "address"
        )
        self._duplicates = self._counter("duplicates", "Duplicates found.", "route", "address")
        self._dead_letters = self._counter(
            "dead_letters", "Records written to a dead-letter topic.", "route", "reason"
        )

    def _declare_time(self) -> None:
        self._batch_duration = self._histogram(
            "batch_duration_seconds", "Duration of a batch's stages.", _STAGE_SECONDS, "stage"
        )
        self._transaction_duration = self._histogram(
            "transaction_duration_seconds",
            "Duration of a transaction from begin to its end.",
            _TRANSACTION_SECONDS,
        )
        self._end_to_end_latency = self._histogram(
            "end_to_end_latency_seconds",
            "From the timestamp of a batch's oldest record to its commit.",
            _LATENCY_SECONDS,
        )

    def _declare_kafka(self) -> None:
        self._transactions = self._counter("transactions", "Transactions ended.", "result")
        self._fenced = self._counter("fenced", "Times another producer took over.")
        self._rebalances = self._counter("rebalances", "Changes of the assignment.", "kind")
        self._client_errors = self._counter(
            "client_errors", "Errors reported by the Kafka client.", "code"
        )

    def _declare_http(self) -> None:
        self._http_requests = self._counter(
            "http_requests", "Requests answered.", "route", "method", "status"
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


class _BoardCollector(Collector):
    """Reads the status board at each scrape."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board

    def describe(self) -> Iterator[Metric]:
        """Name the metrics without reading the board."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Return the gauges of this moment."""
        status = self._board.read()
        owned = status.partitions
        yield _gauge_of("assigned_partitions", "Input partitions owned.", len(owned))
        yield _gauge_of(
            "restore_remaining_records",
            "Changelog records still to replay.",
            sum(each.restore_remaining_records or 0 for each in owned),
        )
        if status.last_commit_at is not None:
            yield _gauge_of(
                "last_commit_timestamp_seconds",
                "When the last transaction committed.",
                status.last_commit_at.timestamp(),
            )
        lag = GaugeMetricFamily(
            "ringfence_consumer_lag_records",
            "Records between the position and the end of the partition.",
            labels=("topic", "partition"),
        )
        for each in owned:
            if each.lag_records is not None:
                lag.add_metric((each.topic, str(each.partition)), each.lag_records)
        yield lag


def _gauge_of(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"ringfence_{name}", help_text, value=value)
