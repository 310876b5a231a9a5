"""Gaps: ranges of offsets that a table lacks, since they were deleted before it read them.

A table that has lost records continues behind them only on demand. Each lost range is then a row of
the table `gaps` in the target, written before the table continues. The row is identified by the
table and by where the range begins, so it is there once however often a run is killed; a range that
has grown before the table continued keeps its row, with the new end.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ringfence_pipeline.admin import KafkaPartition, OffsetSpan
from ringfence_pipeline.errors import CONTRADICTION, PipelineError
from ringfence_pipeline.storage import StorageFolder
from ringfence_pipeline.table_format import format_of, quoted

GAPS: Final = StructType(
    [
        StructField("table", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("from_offset", LongType()),
        StructField("to_offset", LongType()),
        StructField("noticed_at", TimestampType()),
    ]
)
"""Columns of the table `gaps`; `to_offset` is the first offset that is not lost."""

_KEY: Final = ("table", "topic", "partition", "from_offset")


class OffsetGap(NamedTuple):
    """A range of offsets that a table lacks, [from_offset, to_offset)."""

    table: str
    topic: str
    partition: int
    from_offset: int
    to_offset: int


def gaps_of(
    table: str, read: Mapping[KafkaPartition, int], there: Mapping[KafkaPartition, OffsetSpan]
) -> Sequence[OffsetGap]:
    """Return the gaps between what a table has read and what its topics have.

    `read` is the next offset of each partition. A partition that is not in it is read from its
    first offset, 0. Raises PipelineError for a partition that is gone or ends before what was read:
    its offsets are those of other records now.
    """
    reset = sorted(each for each in read if each not in there or there[each].end < read[each])
    if reset:
        raise PipelineError(
            f"{reset[0].topic}-{reset[0].number} ends before what table {table!r} has read of it: "
            "it was recreated or truncated, and --accept-gap is only for deleted records; "
            "read the topics into a new target",
            exit_code=CONTRADICTION,
        )
    return [
        OffsetGap(table, *each, read.get(each, 0), span.begin)
        for each, span in sorted(there.items())
        if read.get(each, 0) < span.begin
    ]


def gap_ends(spark: SparkSession, target: str | Path, table: str) -> Mapping[KafkaPartition, int]:
    """Return the first offset behind the last gap of each partition that a table has gaps in."""
    folder = StorageFolder.of(spark, target) / "gaps"
    if format_of(folder) is None:
        return {}
    of_table = spark.read.format("delta").load(str(folder)).where(sf.col("table") == table)
    ends = of_table.groupBy("topic", "partition").agg(sf.max("to_offset").alias("end"))
    return {KafkaPartition(row["topic"], row["partition"]): row["end"] for row in ends.collect()}


def record_gaps(spark: SparkSession, folder: StorageFolder, gaps: Sequence[OffsetGap]) -> None:
    """Add gaps to the Delta table in a folder, which is created if needed; each gap once."""
    place = quoted(folder)
    columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in GAPS.fields)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {place} ({columns}) USING delta").collect()
    now = datetime.now(UTC)
    found = spark.createDataFrame([(*gap, now) for gap in gaps], GAPS)
    found.createOrReplaceTempView("ringfence_gaps_found")
    same = " AND ".join(f"known.`{name}` = found.`{name}`" for name in _KEY)
    spark.sql(
        f"MERGE INTO {place} AS known USING ringfence_gaps_found AS found ON {same} "
        "WHEN MATCHED AND known.to_offset < found.to_offset "
        "THEN UPDATE SET to_offset = found.to_offset WHEN NOT MATCHED THEN INSERT *"
    ).collect()
    spark.catalog.dropTempView("ringfence_gaps_found")
