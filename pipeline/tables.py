"""The tables, `messages` and `dead_letters`: records in, rows out, and how rows are read back.

A transform takes the records of a Kafka source, batch or stream, and selects its table's columns.
A table is a folder of Parquet files with a list of those that a batch committed, in
`_spark_metadata`. Spark honours that list when it reads the folder itself (not a file in it, not a
glob). Readers that list files, such as pyarrow, pandas, Polars, DuckDB or Trino, do not: after a
crash they may also see a file that no batch committed.
"""

from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pipeline.schema import HEADERS, RECORD, TABLES, duplicate_id, last_set, place, text, time
from ringfence.headers import DeadLetter

COMMITTED_FILES: Final = "_spark_metadata"


def records(topics: DataFrame) -> DataFrame:
    """Records as the connector gives them -> the columns that both tables begin with."""
    headers = sf.coalesce(sf.col("headers"), sf.array().cast(HEADERS))
    names = [field.name for field in RECORD.fields]
    return topics.withColumn("headers", headers).select(*names)


def messages(topics: DataFrame) -> DataFrame:
    """Records of output topics -> `messages`."""
    return records(topics).withColumn("duplicate_id", duplicate_id(sf.col("headers")))


def dead_letters(topics: DataFrame) -> DataFrame:
    """Records of dead-letter topics -> `dead_letters`."""
    ours = last_set(sf.col("headers"))
    return records(topics).select(
        "*",
        text(ours, DeadLetter.REASON).alias("reason"),
        text(ours, DeadLetter.CAUSE).alias("cause"),
        text(ours, DeadLetter.TOPIC).alias("input_topic"),
        text(ours, DeadLetter.PARTITION).try_cast("int").alias("input_partition"),
        text(ours, DeadLetter.OFFSET).try_cast("bigint").alias("input_offset"),
        time(text(ours, DeadLetter.TIMESTAMP)).alias("input_timestamp"),
        text(ours, DeadLetter.ADDRESS).alias("address"),
        text(ours, DeadLetter.STRATEGY).alias("strategy"),
        text(ours, DeadLetter.ID).alias("id"),
        place(text(ours, DeadLetter.ORIGINAL)).alias("original"),
    )


TRANSFORMS: Final = {"messages": messages, "dead_letters": dead_letters}


def read_table(spark: SparkSession, target: Path, name: str) -> DataFrame:
    """The rows of a table that batches committed; none before the first."""
    table = target / name
    if not (table / COMMITTED_FILES).is_dir():
        return spark.createDataFrame([], TABLES[name])
    return spark.read.schema(TABLES[name]).parquet(str(table))
