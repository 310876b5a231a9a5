"""Code that Spark generates for a backfill: compiled for its first batch, and never again."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ringfence_client.spark.columns import RECORD
from ringfence_pipeline.backfill.columns import to_judge
from ringfence_pipeline.backfill.run import session_settings
from tests.unit.pipeline.backfill.histories import inputs_of, route

pytestmark = pytest.mark.spark

BATCHES = 4
GENERATES = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "CODEGEN_ONLY",
}


def test_no_later_batch_compiles_code(spark: SparkSession, tmp_path: Path) -> None:
    row = ("orders", 0, 0, None, b"key", b"value", [("_DUPL_ID", b"1")])
    for _ in range(BATCHES):
        spark.createDataFrame([row], RECORD).coalesce(1).write.mode("append").parquet(
            str(tmp_path / "records")
        )
    reader = spark.readStream.schema(RECORD).option("maxFilesPerTrigger", 1)
    records = reader.parquet(str(tmp_path / "records"))
    judged = to_judge(records, inputs_of({}, route("orders", scope="partition")))
    compiled: list[int] = []

    def collect(frame: DataFrame, _batch: int) -> None:
        frame.collect()
        compiled.append(_compilations(spark))

    with session_settings(spark, GENERATES):
        query = (
            judged.writeStream.foreachBatch(collect)
            .trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.awaitTermination()
    assert len(compiled) == BATCHES
    assert compiled[1:] == compiled[1:2] * (BATCHES - 1)


def _compilations(spark: SparkSession) -> int:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    metrics = jvm.org.apache.spark.metrics.source.CodegenMetrics
    return int(metrics.METRIC_COMPILATION_TIME().getCount())
