"""Progress: what the events of streams become, as lines, as metrics and on a terminal."""

import json
from io import StringIO
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)
from rich.console import Console

from ringfence_pipeline.progress import StreamObserver, lag_of

ID: Final = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
RUN: Final = "6ba7b811-9dad-11d1-80b4-00c04fd430c8"


def source(end: int | None, latest: int) -> dict[str, Any]:
    return {
        "description": "KafkaV2",
        "startOffset": "null",
        "endOffset": "None" if end is None else json.dumps({"t": {"0": end, "1": 5}}),
        "latestOffset": json.dumps({"t": {"0": latest, "1": 5}, "new": {"0": 2}}),
        "numInputRows": 0,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 0.0,
    }


def batch(number: int, rows: int, end: int, latest: int) -> QueryProgressEvent:
    progress = {
        "id": ID,
        "runId": RUN,
        "name": "messages",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": number,
        "batchDuration": 1500,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "sources": [source(end, latest)],
        "sink": {"description": "Delta", "numOutputRows": -1},
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 9.54,
        "observedMetrics": {},
    }
    return QueryProgressEvent.fromJson({"progress": progress})


def begun(console: Console) -> StreamObserver:
    observer = StreamObserver(console)
    event = {"id": ID, "runId": RUN, "name": "messages", "timestamp": "2026-01-01T00:00:00.000Z"}
    observer.onQueryStarted(QueryStartedEvent.fromJson(event))
    return observer


def ended(error: str | None) -> QueryTerminatedEvent:
    event = {"id": ID, "runId": RUN, "exception": error, "errorClassOnException": None}
    return QueryTerminatedEvent.fromJson(event)


def test_a_line_tells_of_each_batch_with_rows_and_of_beginning_and_end() -> None:
    written = StringIO()
    observer = begun(Console(file=written))
    observer.onQueryProgress(batch(0, 10, 10, 30))
    observer.onQueryProgress(batch(1, 0, 10, 30))
    observer.onQueryTerminated(ended(None))
    begins, told, ends = map(json.loads, written.getvalue().splitlines())
    assert (begins["event"], begins["table"]) == ("stream-begins", "messages")
    assert told.pop("ts").endswith("Z")
    assert told == {
        "level": "info",
        "event": "batch",
        "table": "messages",
        "batch": 0,
        "rows": 10,
        "rows_per_second": 9.5,
        "batch_ms": 1500,
        "lag_records": 22,
    }
    assert ends["event"] == "stream-ends"


def test_a_line_tells_why_a_stream_failed_without_its_plan() -> None:
    written = StringIO()
    observer = begun(Console(file=written))
    observer.onQueryTerminated(ended("gone\n=== Streaming Query ===\nplan"))
    told = json.loads(written.getvalue().splitlines()[-1])
    assert (told["event"], told["level"], told["error"]) == ("stream-fails", "error", "gone")


def test_metrics_add_up_rows_and_know_the_lag_of_the_last_trigger() -> None:
    observer = begun(Console(file=StringIO()))
    observer.onQueryProgress(batch(0, 10, 10, 30))
    observer.onQueryProgress(batch(1, 20, 30, 31))

    def value(name: str) -> float | None:
        return observer.metrics.registry.get_sample_value(name, {"table": "messages"})

    assert value("ringfence_spark_rows_total") == 30
    assert value("ringfence_spark_lag_records") == 3
    assert value("ringfence_spark_batch_duration_seconds_sum") == 3.0
    idle = {"id": ID, "runId": RUN, "timestamp": "2026-01-01T00:00:00.000Z"}
    observer.onQueryIdle(QueryIdleEvent.fromJson(idle))
    assert value("ringfence_spark_lag_records") == 0
    assert value("ringfence_spark_last_trigger_timestamp_seconds")


def test_a_terminal_has_a_table_and_no_lines() -> None:
    written = StringIO()
    console = Console(file=written, force_terminal=True, width=80)
    observer = begun(console)
    observer.onQueryProgress(batch(0, 1000, 10, 30))
    assert written.getvalue() == ""
    console.print(observer.drawn())
    assert {"messages", "1,000", "22"} <= set(written.getvalue().split())


def test_the_lag_of_what_is_no_topic_is_unknown() -> None:
    delta = {"endOffset": '{"reservoirVersion": 3}', "latestOffset": "None"}
    assert lag_of([delta]) is None
    assert lag_of([source(10, 10), delta]) is None
    assert lag_of([source(None, 10)]) is None
    assert lag_of([source(10, 10)]) == 2
