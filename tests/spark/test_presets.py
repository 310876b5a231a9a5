"""Presets of change events in a backfill: the copies are those that the service removes."""

import itertools
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfence_pipeline.backfill.batch import backfill_at_once
from ringfence_pipeline.backfill.decider import SparkRecord
from ringfence_pipeline.backfill.run import BackfillSource, BatchLimits, VerdictCount, backfill
from ringfence_state.model import PartitionId
from tests.spark.test_backfill import configured, frame
from tests.support.debezium import MYSQL, POSTGRESQL, sent_again
from tests.unit.pipeline.backfill.histories import NOW_MS

pytestmark = pytest.mark.spark

CONFIGURATION = """
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
[[routes]]
inputs = ["shop"]
id = "{debezium}"
"""
CHANGES = list(itertools.chain(*POSTGRESQL.values(), *MYSQL.values()))


def test_of_a_stream_of_changes_only_those_that_are_sent_again_are_duplicates(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The stream has snapshots, deletes, and rows that share a key or a position."""
    rounds = zip(*map(sent_again, CHANGES), strict=True)
    events = [json.dumps(event).encode() for event in itertools.chain.from_iterable(rounds)]
    rows = [
        SparkRecord(PartitionId("shop", 0), offset, NOW_MS + offset, b'{"order_id":1}', event, ())
        for offset, event in enumerate(events)
    ]
    frame(spark, rows).write.parquet(str(tmp_path / "table"))
    config = configured(tmp_path, CONFIGURATION)
    source = BackfillSource("", {}, (), str(tmp_path / "table"), "parquet")

    def counted(counts: tuple[VerdictCount, ...]) -> dict[str, int]:
        return {each.verdict: each.records for each in counts}

    copies = len(events) - len(CHANGES)
    expected = {"accepted": len(CHANGES), "duplicate": copies}
    limits = BatchLimits(batch_records=20)
    assert counted(backfill(spark, config, source, tmp_path / "stream", limits=limits)) == expected
    assert counted(backfill_at_once(spark, config, source, tmp_path / "batch")) == expected
