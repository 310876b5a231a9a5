"""History of reconciliations: the Delta tables `runs` and `violations`, for charts and alerts.

A run is a row of `runs`. A violation is a row of `violations` once, with the time of the run that
found it first; a later run that finds it again adds nothing. Violations are written before their
run. So after a run that was killed in between, the next one adds what is missing, and counts only
that as new.
"""

from datetime import datetime
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from ringfence_pipeline.reconcile.blocks import kept
from ringfence_pipeline.reconcile.results import ReconcileResult
from ringfence_pipeline.storage import StorageFolder
from ringfence_pipeline.table_format import format_of

RUNS: Final = (
    "run_at timestamp, group string, faultless boolean, records bigint, faults bigint, "
    "faults_new bigint, fates map<string, bigint>, faults_by_kind map<string, bigint>"
)
CRITICAL: Final = ("no-fate", "two-fates", "doubled", "let-through", "false-duplicate")
"""Kinds by which a message may be lost or doubled; the others are `major`."""

_SAME: Final = ("group", "kind", "topic", "partition", "offset")


def append_violations(
    spark: SparkSession, target: str | Path, group: str, run_at: datetime, found: DataFrame
) -> int:
    """Append the violations that the table lacks, and return their number.

    `found` has the columns `kind`, `topic`, `partition`, `offset` and `said`.
    """
    table = StorageFolder.of(spark, target) / "violations"
    severity = sf.when(sf.col("kind").isin(*CRITICAL), "critical").otherwise("major")
    # One record may show one kind twice, for example behind two others.
    rows = found.dropDuplicates(["kind", "topic", "partition", "offset"]).select(
        sf.lit(run_at).alias("run_at"),
        sf.lit(group).alias("group"),
        "kind",
        severity.alias("severity"),
        *("topic", "partition", "offset", "said"),
    )
    if format_of(table) is not None:
        known = spark.read.format("delta").load(str(table)).select(*_SAME)
        rows = rows.join(known, [*_SAME], "left_anti")
    # Counted before they are in the table themselves.
    rows = kept(rows)
    _append(rows, table)
    return rows.count()


def append_run(
    spark: SparkSession, target: str | Path, result: ReconcileResult, run_at: datetime
) -> None:
    """Append the run with its counts."""
    row = (
        *(run_at, result.group, result.is_faultless, sum(result.fates.values())),
        *(sum(result.faults_total.values()), result.faults_new or 0),
        *(dict(result.fates), dict(result.faults_total)),
    )
    table = StorageFolder.of(spark, target) / "runs"
    _append(spark.createDataFrame([row], RUNS), table)


def _append(rows: DataFrame, table: StorageFolder) -> None:
    # A later version may have more columns.
    rows.coalesce(1).write.format("delta").mode("append").option("mergeSchema", "true").save(
        str(table)
    )
