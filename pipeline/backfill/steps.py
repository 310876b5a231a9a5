"""Steps: a table as a stream, in the order in which its records are to be decided.

Rows of a table stand in no order, and files are added and compacted. So the table is laid out
once: ranges of the one order, each a file, dated one after another. Spark reads files by their
date, one for each batch, and remembers which it has read. The order is that of a backfill: by the
greatest time that a partition has reached, then by topic, partition and offset; so records of one
partition stay in the order of their offsets.

Laid out is what the table held then. Rows that come later are those of another backfill.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from pipeline.errors import CONTRADICTION, USAGE, PipelineError
from ringfence.spark_columns import RECORD

_DONE: Final = "_SUCCESS"
_FIRST_S: Final = 1_000_000_000
"""The date of the first file; each next one is a second later."""


def read_table(spark: SparkSession, table: Path, format_: str) -> DataFrame:
    """The records that a table holds; PipelineError where it lacks a column."""
    rows = spark.read.format(format_).load(str(table))
    missing = [name for name in RECORD.names if name not in rows.columns]
    if missing:
        raise PipelineError(
            f"{table} has no column {', '.join(missing)}: a record is told by "
            f"{', '.join(RECORD.names)}",
            exit_code=USAGE,
        )
    return rows.select(*(sf.col(f.name).cast(f.dataType) for f in RECORD.fields))


def topics_of(rows: DataFrame) -> Sequence[str]:
    """The topics that records of a table come from."""
    return sorted(row["topic"] for row in rows.select("topic").distinct().collect())


def lay_out(rows: DataFrame, folder: Path, step_records: int, *, is_begun: bool) -> None:
    """Write the steps, all of them or none: a layout that was cut short is made anew.

    PipelineError where it is gone that batches were read from: another's files would be new ones.
    """
    if (folder / _DONE).exists():
        # A run that was killed here had not dated them all, and a copy of files has other dates.
        _date(folder)
        return
    if is_begun:
        raise PipelineError(
            f"{folder} is gone or not whole, and a backfill has begun on it: put it back, or give "
            "another folder and begin anew",
            exit_code=CONTRADICTION,
        )
    rmtree(folder, ignore_errors=True)
    count = rows.count()
    by_offset = Window.partitionBy("topic", "partition").orderBy("offset")
    reached = sf.max("timestamp").over(by_offset)
    order = ["reached", "topic", "partition", "offset"]
    ordered = rows.withColumn("reached", reached).repartitionByRange(
        max(1, math.ceil(count / step_records)), *order
    )
    ordered.sortWithinPartitions(*order).drop("reached").write.parquet(str(folder))
    _date(folder)


def read_steps(spark: SparkSession, folder: Path) -> DataFrame:
    """The stream of these steps, a batch for each."""
    return spark.readStream.schema(RECORD).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _files(folder: Path) -> list[Path]:
    """In the order of their ranges, which their names begin with."""
    return sorted(folder.glob("part-*.parquet"))


def _date(folder: Path) -> None:
    for second, file in enumerate(_files(folder), _FIRST_S):
        os.utime(file, (second, second))
