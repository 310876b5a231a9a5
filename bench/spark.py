"""Spark benchmark (`make bench-spark`): a backfill against Spark's own deduplication.

    python -m bench.spark                     every arm in turn, each in its own process
    python -m bench.spark NAME SOURCE OUT     one arm, which prints its figures as its last line

Each arm reads the same topic with the same session (local, RocksDB, batches of one size), and all
but the first, which only reads, write their results to a Delta table. A rate is that of the batches
after the first, so that the start of a session does not count.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from bench.finding import Finding, Row
from bench.machine import MIB
from bench.results import Spread
from bench.spark_process import publish, sampled
from bench.venue import Venue, open_venue
from bench.workload import Workload
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.run import STREAM_SETTINGS, judged
from ringfence_pipeline.backfill.seed import streamed_pages
from ringfence_pipeline.session import close_session, open_session
from ringfence_pipeline.source import read_topics
from ringfence_pipeline.storage import StorageFolder
from ringfence_service.config.model import RouteSettings

BATCHES: Final = 8
HELD: Final = 2_000_000
"""How many ids the ring holds: all, as in the other arms."""


class Arm(NamedTuple):
    """One way to process the records of a topic."""

    title: str
    transform: Callable[[DataFrame, str], DataFrame]
    sink: str = "delta"


class RunFigures(NamedTuple):
    """The figures of one run of an arm."""

    records: int
    whole_s: float
    warm_records: int
    warm_s: float
    kept: int
    """Number of ids in the state."""
    state_bytes: int
    """Size of RocksDB's files."""


def _identified(records: DataFrame, _topic: str) -> DataFrame:
    found = sf.filter("headers", lambda header: header["key"] == "_DUPL_ID")
    identifier = sf.get(found, sf.lit(0))["value"].alias("id")
    return records.select("topic", "partition", "offset", "timestamp", identifier)


def _dropped(records: DataFrame, topic: str) -> DataFrame:
    return _identified(records, topic).dropDuplicates(["id"])


def _within(records: DataFrame, topic: str) -> DataFrame:
    timed = _identified(records, topic).withWatermark("timestamp", "1 hour")
    return timed.dropDuplicatesWithinWatermark(["id"])


def _judged(records: DataFrame, topic: str) -> DataFrame:
    route = RouteSettings(name=topic, inputs=(topic,), scope="partition")
    ring: dict[str, dict[str, object]] = {"#": {"id_cache_size": HELD}}
    return judged(records, BackfillInputs((route,), ring, "bench", 12, 1 << 28, (topic,)))


ARMS: Final[Mapping[str, Arm]] = {
    "read": Arm("reading alone", _identified, "noop"),
    "backfill": Arm("Ringfence's backfill", _judged),
    "drop": Arm("dropDuplicates", _dropped),
    "within": Arm("dropDuplicatesWithinWatermark", _within),
}


def main() -> int:
    """Measure every arm, or run a single one as a child process."""
    if len(sys.argv) == 4 and sys.argv[1] in ARMS:
        return _arm(*sys.argv[1:])
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    console = Console(width=150 if not sys.stdout.isatty() else None)
    workload = Workload(records=given.records)
    with open_venue() as venue:
        found = _measured(venue, workload, given.rounds, console.print)
    publish(found, "spark", console)
    return 0


def _measured(venue: Venue, workload: Workload, rounds: int, say: Callable[[str], None]) -> Finding:
    runs: dict[str, list[tuple[RunFigures, int]]] = {name: [] for name in ARMS}
    source = [venue.broker.bootstrap_servers, venue.input(workload)]
    source.append(str(workload.records // BATCHES))
    for number in range(rounds):
        for name, arm in ARMS.items():
            with tempfile.TemporaryDirectory() as folder:
                run = _run(name, " ".join(source), Path(folder))
            runs[name].append(run)
            rate = run[0].warm_records / run[0].warm_s
            say(f"round {number + 1}: {arm.title}: {rate:,.0f} records a second")
    settings = {
        "records": workload.records,
        "batches": BATCHES,
        "partitions": workload.partitions,
        "copies": workload.duplicate_share,
        "rounds": rounds,
    }
    rows = [_row(ARMS[name].title, each, runs["backfill"]) for name, each in runs.items()]
    return Finding("a history on Spark, in one process", settings, rows)


def _row(
    title: str, runs: list[tuple[RunFigures, int]], backfills: list[tuple[RunFigures, int]]
) -> Row:
    pairs = zip(backfills, runs, strict=True)
    return {
        "arm": title,
        "records a second, warm": Spread.of(_rate(run) for run, _ in runs),
        "backfill is … times as fast": Spread.of(
            _rate(backfill) / _rate(run) for (backfill, _), (run, _) in pairs
        ),
        "whole, s": Spread.of(run.whole_s for run, _ in runs),
        "peak memory, MiB": Spread.of(peak / MIB for _, peak in runs),
        "ids kept": max(run.kept for run, _ in runs),
        "state, bytes an id": Spread.of(
            run.state_bytes / run.kept if run.kept else 0 for run, _ in runs
        ),
    }


def _rate(run: RunFigures) -> float:
    return run.warm_records / run.warm_s


def _run(name: str, source: str, folder: Path) -> tuple[RunFigures, int]:
    """Run one arm in its own process; return its figures, and its peak memory in bytes."""
    done = sampled("bench.spark", name, source, str(folder), log=folder / "log")
    return RunFigures(*done.figures), done.peak_bytes


def _arm(name: str, source: str, folder: str) -> int:
    servers, topic, batch_records = source.split()
    spark = open_session()
    for key, value in STREAM_SETTINGS.items():
        spark.conf.set(key, value)
    began = time.monotonic()
    options = {"maxOffsetsPerTrigger": batch_records}
    records = read_topics(spark, servers, [topic], {}, once=False, options=options)
    arm, out = ARMS[name], Path(folder)
    query = (
        arm.transform(records, topic)
        .writeStream.format(arm.sink)
        .outputMode("append")
        .option("path", str(out / "verdicts"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    figures = _figures(spark, query, name, out, time.monotonic() - began)
    close_session(spark)
    print(json.dumps(figures))
    return 0


def _figures(
    spark: SparkSession, query: StreamingQuery, name: str, out: Path, whole_s: float
) -> RunFigures:
    batches = [each for each in query.recentProgress if each.numInputRows]
    warm = batches[1:]
    kept, state_bytes = 0, 0
    for operator in batches[-1].stateOperators:
        kept += operator.numRowsTotal
        state_bytes += int(operator.customMetrics["rocksdbSstFileSize"])
    if name == "backfill":
        verdicts = spark.read.format("delta").load(str(out / "verdicts"))
        kept = verdicts.where("verdict = 'accepted'").count()
        pages = streamed_pages(spark, StorageFolder.of(spark, out / "checkpoint"))
        assert pages.count() > 0  # the state whose size is measured exists
    return RunFigures(
        records=sum(each.numInputRows for each in batches),
        whole_s=whole_s,
        warm_records=sum(each.numInputRows for each in warm),
        warm_s=sum(each.durationMs["triggerExecution"] for each in warm) / 1000,
        kept=kept,
        state_bytes=state_bytes,
    )


if __name__ == "__main__":
    raise SystemExit(main())
