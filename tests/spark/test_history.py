"""The tables of findings have each fault once, with the time at which it was found first."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfence_pipeline.reconcile.history import append_violations

pytestmark = pytest.mark.spark

FIRST, SECOND = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
FOUND = "kind string, topic string, partition int, offset bigint, said string"


def test_a_fault_that_is_found_again_is_not_new(spark: SparkSession, tmp_path: Path) -> None:
    lost, late = ("no-fate", "orders", 0, 7, "lost"), ("out-of-order", "out", 1, 9, "late")
    first = spark.createDataFrame([lost], FOUND)
    both = spark.createDataFrame([lost, late, late], FOUND)
    assert append_violations(spark, tmp_path, "g", FIRST, first) == 1
    assert append_violations(spark, tmp_path, "g", SECOND, both) == 1
    # Of another group it is another fault.
    assert append_violations(spark, tmp_path, "h", SECOND, first) == 1
    rows = spark.read.format("delta").load(str(tmp_path / "violations")).collect()
    found = {
        (row["group"], row["run_at"].astimezone(UTC), row["kind"], row["severity"]) for row in rows
    }
    assert len(rows) == 3
    assert found == {
        ("g", FIRST, "no-fate", "critical"),
        ("g", SECOND, "out-of-order", "major"),
        ("h", SECOND, "no-fate", "critical"),
    }
