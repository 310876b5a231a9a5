"""Progress of the streams of a command, from the events of Spark's StreamingQueryListener.

On a terminal it is a table, drawn again each second; anywhere else it is a JSON line for each
event, with the keys `ts`, `level` and `event` of the service's log. With a metrics address it is
Prometheus metrics too. The listener learns of a batch when it is done. Spark delivers one event at
a time, in a thread of its own.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    start_http_server,
)
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from rich.console import Console
from rich.live import Live
from rich.table import Table

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.gaps import OffsetGap

_LAST_EVENTS_S: Final = 10.0
"""How long to wait for the events of streams that have ended, which Spark delivers later."""
_BATCH_S: Final = (0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
"""Bounds of the histogram's buckets, from a batch of few records to one of half an hour.

One is the default time between batches of tables (10 s): a stream with longer ones falls behind
its trigger.
"""


class MetricsAddress(NamedTuple):
    """Where Prometheus finds the metrics of a command."""

    host: str
    port: int
    """0 for any free port."""


class StreamMetrics:
    """The Prometheus metrics of the streams, labelled with the table that a stream writes."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it untyped
        self.registry = CollectorRegistry()
        labels, ours = ["table"], self.registry
        self.lag = Gauge(
            "ringfence_spark_lag_records",
            "Offsets between the last batch and the ends of the topics",
            labels,
            registry=ours,
        )
        self.rows = Counter(
            "ringfence_spark_rows_total",
            "Rows read by the batches of this run",
            labels,
            registry=ours,
        )
        self.batch_s = Histogram(
            "ringfence_spark_batch_duration_seconds",
            "Time of a batch, from planning to commit",
            labels,
            buckets=_BATCH_S,
            registry=ours,
        )
        self.last_batch_s = Gauge(
            "ringfence_spark_last_batch_timestamp_seconds",
            "When the last batch with rows was committed",
            labels,
            registry=ours,
        )
        self.last_trigger_s = Gauge(
            "ringfence_spark_last_trigger_timestamp_seconds",
            "When the stream last looked for records, whether or not there were any",
            labels,
            registry=ours,
        )
        self.gaps = Counter(
            "ringfence_spark_gaps_total",
            "Ranges of offsets that were deleted before they were read, and accepted",
            labels,
            registry=ours,
        )


class _Shown(NamedTuple):
    """A row of the terminal's table."""

    rows: int = 0
    rows_per_second: float = 0.0
    lag: int | None = None


class StreamObserver(StreamingQueryListener):
    """Tells what the streams of a session do: on a terminal, as JSON lines, as metrics."""

    def __init__(self, console: Console) -> None:
        self.metrics = StreamMetrics()
        self.port: int | None = None
        """Of the metrics; None if they are not served."""
        self._console = console
        self._began_s = time.monotonic()
        self._names: dict[UUID, str] = {}
        self._shown: dict[str, _Shown] = {}
        self._changed = threading.Condition()
        self._running: set[UUID] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note a stream that begins."""
        with self._changed:
            self._names[event.runId] = str(event.name)
            self._running.add(event.runId)
        self.tell("stream-begins", table=str(event.name), query=str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Tell of a batch, or of a trigger that found no records."""
        progress = event.progress
        table, lag = str(progress.name), lag_of(progress.sources)
        seconds = progress.batchDuration / 1000
        rate = progress.processedRowsPerSecond
        self._take(table, progress.numInputRows, rate, lag)
        self.metrics.last_trigger_s.labels(table).set_to_current_time()
        if not progress.numInputRows:
            return
        self.metrics.rows.labels(table).inc(progress.numInputRows)
        self.metrics.batch_s.labels(table).observe(seconds)
        self.metrics.last_batch_s.labels(table).set_to_current_time()
        self.tell(
            "batch",
            table=table,
            batch=progress.batchId,
            rows=progress.numInputRows,
            rows_per_second=round(rate, 1),
            batch_ms=progress.batchDuration,
            lag_records=lag,
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Note a trigger that found nothing new: the stream is at the ends of its topics."""
        table = self._names[event.runId]
        self._take(table, 0, 0.0, 0)
        self.metrics.last_trigger_s.labels(table).set_to_current_time()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Tell how a stream ended."""
        table = self._names.get(event.runId, "")
        if event.exception is None:
            self.tell("stream-ends", table=table)
        else:
            kind = event.errorClassOnException or ""
            error = event.exception.partition("=== Streaming Query ===")[0].strip()
            self.tell("stream-fails", level="error", table=table, kind=kind, error=error)
        with self._changed:
            self._running.discard(event.runId)
            self._changed.notify_all()

    def gap_found(self, gap: OffsetGap) -> None:
        """Tell of a gap that was accepted."""
        self.metrics.gaps.labels(gap.table).inc()
        self.tell("gap", level="warning", **gap._asdict())

    def tell(self, event: str, *, level: str = "info", **fields: object) -> None:
        """Write a JSON line, unless a terminal shows the table."""
        if self._console.is_terminal:
            return
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = json.dumps({"ts": now, "level": level, "event": event, **fields}, ensure_ascii=False)
        with self._changed:
            print(line, file=self._console.file, flush=True)

    def drawn(self) -> Table:
        """Return the terminal's table."""
        seconds = time.monotonic() - self._began_s
        drawn = Table("table", "rows", "rows/s", "behind", title=f"{seconds:.0f} s")
        with self._changed:
            for name, shown in self._shown.items():
                behind = "" if shown.lag is None else f"{shown.lag:,}"
                drawn.add_row(name, f"{shown.rows:,}", f"{shown.rows_per_second:,.0f}", behind)
        return drawn

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until the end of every stream that began has been written."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout_s)

    def _take(self, table: str, rows: int, rate: float, lag: int | None) -> None:
        with self._changed:
            total = self._shown.get(table, _Shown()).rows + rows
            self._shown[table] = _Shown(total, rate, lag)
        if lag is not None:
            self.metrics.lag.labels(table).set(lag)


@contextmanager
def observed(
    spark: SparkSession, console: Console, metrics: MetricsAddress | None = None
) -> Iterator[StreamObserver]:
    """Observe the streams of a session that begin in the block, to their ends.

    Raises PipelineError if the metrics cannot be served at the address.
    """
    observer = StreamObserver(console)
    with ExitStack() as stack:
        if metrics is not None:
            observer.port = stack.enter_context(_served(observer.metrics.registry, metrics))
        if console.is_terminal:
            live = Live(
                console=console,
                get_renderable=observer.drawn,
                refresh_per_second=1,
                transient=True,
            )
            stack.enter_context(live)
        spark.streams.addListener(observer)
        try:
            yield observer
        finally:
            observer.wait_ended(_LAST_EVENTS_S)
            spark.streams.removeListener(observer)


@contextmanager
def _served(registry: CollectorRegistry, address: MetricsAddress) -> Iterator[int]:
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise PipelineError(
            f"metrics cannot be served at {address.host}:{address.port} ({error.strerror}): give "
            "another --metrics-port or --metrics-host",
            exit_code=USAGE,
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def lag_of(sources: Sequence[Mapping[str, Any]]) -> int | None:
    """Return how many offsets the sources of a stream are behind the ends of their topics.

    The connector's own metrics are averages and maxima over partitions; the offsets are exact.
    Transaction markers and aborted records count too. None if a source is not of topics.
    """
    lags = [_lag(source) for source in sources]
    return None if None in lags else sum(filter(None, lags))


def _lag(source: Mapping[str, Any]) -> int | None:
    end, latest = (_offsets(source.get(name)) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return None
    return sum(
        offset - end.get(topic, {}).get(partition, 0)
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    )


def _offsets(text: str | None) -> dict[str, dict[str, int]] | None:
    """Return the offsets of the Kafka source, from its JSON; None for that of another source."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    is_of_topics = isinstance(found, dict) and all(isinstance(e, dict) for e in found.values())
    return found if is_of_topics else None
