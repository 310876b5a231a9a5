"""Batch benchmark (`make bench-spark-batch`): a backfill of a table in one job, and step by step.

    python -m bench.spark_batch                   every run in turn, each in its own process
    python -m bench.spark_batch FORM TABLE OUT    one run, which prints its figures at its end

The table has one topic with twelve partitions, ids of 36 bytes as producers write UUIDs, and a
tenth that may be copies, of records up to 132,000 before them; in the skewed one a partition has
half. It is generated once and kept. A rate is that of a whole backfill, without the start of its
session.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console

from bench.finding import Finding, Row
from bench.machine import MIB
from bench.spark_process import publish, sampled
from ringfence_pipeline.backfill.batch import backfill_at_once
from ringfence_pipeline.backfill.run import BackfillSource, BatchLimits, backfill
from ringfence_pipeline.session import SessionOptions, close_session, open_session
from ringfence_service.config.load import load
from tools.jars import RUN_FOLDER

TABLES: Final = RUN_FOLDER / "bench-history"
PARTITIONS: Final = 12
HELD: Final = 1_000_000
"""How many ids a ring holds; copies are nearer."""
_NEAR: Final = PARTITIONS * 11
"""Copies are up to a thousand times so many records behind; the partition is the same, also with
skew."""
_CONFIGURATION: Final = f"""
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
[service]
managed_by = "file"
[[routes]]
inputs = ["orders"]
scope = "partition"
[addresses."#"]
id_cache_size = {HELD}
"""
_START_MS: Final = 1_700_000_000_000


class History(NamedTuple):
    """A table to decide."""

    records: int
    is_skewed: bool = False

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return TABLES / f"{self.records}-{'skewed' if self.is_skewed else 'even'}"

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return its records."""
        number = sf.col("id")
        partition = number % PARTITIONS
        if self.is_skewed:
            rest = 1 + sf.floor(number / 2) % (PARTITIONS - 1)
            partition = sf.when(number % 2 == 0, 0).otherwise(rest)
        chance = sf.pmod(sf.xxhash64("id"), sf.lit(10_000))
        behind = _NEAR * (1 + chance.cast("bigint") / 10).cast("bigint")
        is_copy = (chance % 10 == 0) & (number >= behind)
        original = sf.when(is_copy, number - behind).otherwise(number)
        digits = sf.lower(sf.hex(sf.xxhash64(original)))
        text = sf.concat(sf.lpad(digits, 16, "0"), sf.lpad(sf.hex(original), 20, "0"))
        identifier = text.cast("binary")
        header = sf.struct(sf.lit("_DUPL_ID").alias("key"), identifier.alias("value"))
        noise = [sf.hex(sf.xxhash64("id", sf.lit(salt))) for salt in range(4)]
        return spark.range(self.records).select(
            sf.lit("orders").alias("topic"),
            partition.cast("int").alias("partition"),
            number.alias("offset"),
            sf.timestamp_millis(sf.lit(_START_MS) + number).alias("timestamp"),
            identifier.alias("key"),
            sf.rpad(sf.concat(*noise), 100, ".").cast("binary").alias("value"),
            sf.array(header).alias("headers"),
        )

    def make(self) -> None:
        """Write the table, if it is not there."""
        if (self.folder / "_delta_log").exists():
            return
        spark = open_session()
        self.rows(spark).write.format("delta").mode("overwrite").save(str(self.folder))
        close_session(spark)


class Run(NamedTuple):
    """One way to decide a table."""

    title: str
    form: str
    history: History


class RunFigures(NamedTuple):
    """The figures of one run."""

    seconds: float
    accepted: int
    duplicates: int
    peak_bytes: int = 0
    cpu_s: float = 0


def main() -> int:
    """Measure every run, or be one as a child process."""
    if len(sys.argv) == 4 and sys.argv[1] in {"batch", "stream"}:
        return _child(*sys.argv[1:])
    parser = argparse.ArgumentParser(prog="python -m bench.spark_batch", description=__doc__)
    parser.add_argument("--records", type=int, default=50_000_000)
    parser.add_argument("--compared", type=int, default=5_000_000, help="Records for both forms.")
    parser.add_argument("--only", default="", help="Runs whose title contains this.")
    given = parser.parse_args()
    console = Console(width=150 if not sys.stdout.isatty() else None)
    few, all_ = History(given.compared), History(given.records)
    runs = [
        Run("step by step", "stream", few),
        Run("in one job", "batch", few),
        Run("in one job, all", "batch", all_),
        Run("in one job, all, skewed", "batch", all_._replace(is_skewed=True)),
    ]
    rows: list[Row] = []
    for run in runs:
        if given.only in run.title:
            run.history.make()
            rows.append(_row(run, _measured(run)))
            console.print(rows[-1])
    settings = {"partitions": PARTITIONS, "ids held": HELD, "copies": 0.1, "id, bytes": 36}
    found = Finding("a history in a table, on Spark in one process", settings, rows)
    publish(found, "spark_batch", console)
    return 0


def _row(run: Run, figures: RunFigures) -> Row:
    records = run.history.records
    return {
        "form": run.title,
        "records": records,
        "whole, s": figures.seconds,
        "records a second": records / figures.seconds,
        "CPU time a record, µs": figures.cpu_s / records * 1e6,
        "peak memory, MiB": figures.peak_bytes / MIB,
        "duplicates": figures.duplicates,
    }


def _measured(run: Run) -> RunFigures:
    """Decide a table in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        done = sampled("bench.spark_batch", run.form, str(run.history.folder), folder, log=log)
    seconds, accepted, duplicates = done.figures
    return RunFigures(seconds, accepted, duplicates, done.peak_bytes, done.cpu_s)


def _child(form: str, history: str, out: str) -> int:
    file = Path(out, "ringfence.toml")
    file.write_text(_CONFIGURATION, encoding="utf-8")
    config, source = load(file, {}), BackfillSource("", {}, (), history)
    spark = open_session(SessionOptions())
    spark.range(1).count()
    began = time.monotonic()
    if form == "batch":
        counts = backfill_at_once(spark, config, source, Path(out, "target"))
    else:
        limits = BatchLimits(tasks=spark.sparkContext.defaultParallelism)
        counts = backfill(spark, config, source, Path(out, "target"), limits=limits)
    seconds = time.monotonic() - began
    of = {each.verdict: each.records for each in counts}
    close_session(spark)
    print(json.dumps([seconds, of["accepted"], of["duplicate"]]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
