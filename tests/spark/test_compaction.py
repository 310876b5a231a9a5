"""Compaction of tables: which files are merged, and what is refused."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from typer.testing import Result

from ringfence_pipeline.compaction import CompactOptions, CompactResult, compact_target
from ringfence_pipeline.errors import USAGE
from ringfence_pipeline.storage import StorageFolder

pytestmark = pytest.mark.spark

FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """Tables are left as they are written, and unused files may be deleted at once."""
    settings = {
        "spark.databricks.delta.optimizeWrite.enabled": "false",
        "spark.databricks.delta.autoCompact.enabled": "false",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    }
    former = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield tmp_path
    for name, before in former.items():
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


def append(spark: SparkSession, target: Path, day: date, files: int) -> None:
    rows = spark.range(0, files, 1, files).withColumn("day", sf.lit(day))
    table = rows.write.format("delta").mode("append").partitionBy("day")
    table.save(str(target / "messages"))


def files(target: Path, day: date) -> int:
    return len(list((target / "messages" / f"day={day}").glob("*.parquet")))


def test_only_days_with_new_files_are_merged_and_unused_files_are_deleted(
    spark: SparkSession, target: Path
) -> None:
    folder = StorageFolder.of(spark, target)
    append(spark, target, FIRST, 2)
    append(spark, target, SECOND, 2)
    between = datetime.now(UTC)
    append(spark, target, SECOND, 2)
    (merged,) = compact_target(spark, folder, CompactOptions(between))
    assert merged == CompactResult("messages", 4, 1, None)
    (dry,) = compact_target(spark, folder, CompactOptions(None, 0, dry_run=True))
    assert dry == CompactResult("messages", 0, 0, 4)
    assert (files(target, FIRST), files(target, SECOND)) == (2, 5)
    (all_,) = compact_target(spark, folder, CompactOptions(None, 0))
    assert all_ == CompactResult("messages", 2, 1, None)
    assert (files(target, FIRST), files(target, SECOND)) == (1, 1)
    (none,) = compact_target(spark, folder, CompactOptions(datetime.now(UTC)))
    assert none == CompactResult("messages", 0, 0, None)
    assert spark.read.format("delta").load(str(target / "messages")).count() == 6


def test_the_command_says_what_it_did_and_refuses_what_is_no_delta_table(
    spark: SparkSession, target: Path, command: Callable[..., Result]
) -> None:
    append(spark, target, FIRST, 3)
    ran = command("compact", str(target), "--days", "2")
    assert ran.exit_code == 0, ran.output
    assert {"messages", "3", "1", "deleted"} <= set(ran.output.split())
    nothing = command("compact", str(target / "none"))
    assert (nothing.exit_code, "has no table" in nothing.output) == (USAGE, True)
    (target / "other" / "messages" / "_spark_metadata").mkdir(parents=True)
    (target / "other" / "messages" / "_spark_metadata" / "0").write_text("v1")
    parquet = command("compact", str(target / "other"))
    assert parquet.exit_code == USAGE
    assert "only Delta tables can be compacted" in parquet.output
