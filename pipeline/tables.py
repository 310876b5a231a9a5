"""The tables, `messages` and `dead_letters`: records in, rows out, and how rows are read back.

A row is what `ringfence.spark` reads, with the day and the address that tables are partitioned by.
A Delta table knows by itself which files are in it. A Parquet one is a folder of files with a list
of those that a batch committed, in `_spark_metadata`. Spark honours that list when it reads the
folder itself (not a file in it, not a glob). Readers that list files, such as pyarrow, pandas,
Polars, DuckDB or Trino, do not: after a crash they may also see a file that no batch committed.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DateType, StringType, StructField, StructType

from ringfence.spark.columns import DEAD_LETTERS, MESSAGES, first
from ringfence.spark.reader import dead_letters, messages

_FIELD: Final = re.compile(r"\{(topic|key|sha256:value|header:[^{}]+)\}")


def filled(template: str, topic: Column) -> Column:
    """The bytes that a template has for each record; `topic` is the topic it came in by."""
    parts = _FIELD.split(template)
    pieces = [_field(part, topic) if at % 2 else _bytes(part) for at, part in enumerate(parts)]
    return sf.concat(*pieces)


def filled_text(template: str, topic: Column) -> Column:
    """The same as text; null where the bytes are none."""
    return sf.try_validate_utf8(filled(template, topic).cast("string"))


def input_topic(template: str, topic: Column) -> Column:
    """The topic that came in, of one that a template like `{topic}.unique` has named.

    A name that the template does not give stands for itself.
    """
    before, _, after = template.partition("{topic}")
    expression = f"^{re.escape(before)}(.+){re.escape(after)}$"
    found = sf.regexp_extract(topic, expression, 1)
    return sf.when(found != "", found).otherwise(topic)


def _bytes(text: str) -> Column:
    return sf.lit(text).cast("binary")


def _field(name: str, topic: Column) -> Column:
    if name == "topic":
        return topic.cast("binary")
    if name == "key":
        return sf.col("key")
    if name == "sha256:value":
        return sf.sha2(sf.col("value"), 256).cast("binary")
    return first(sf.col("headers"), name.removeprefix("header:"))


Format = Literal["delta", "parquet"]

JOURNALS: Final[Mapping[Format, str]] = {
    "delta": "_delta_log/*.json",
    "parquet": "_spark_metadata/[0-9]*",
}
"""Where a table of a format lists what is in it; the folder alone may be there before."""

_DAY: Final = StructField("day", DateType())

TABLES: Final = {
    "messages": StructType([*MESSAGES.fields, _DAY, StructField("address", StringType())]),
    "dead_letters": StructType([*DEAD_LETTERS.fields, _DAY]),
}


class TableLayout(NamedTuple):
    """How tables are kept."""

    format: Format = "delta"
    partition_by: tuple[str, ...] = ("day", "address")
    address: str = "{topic}"
    """As the route has it: an output does not tell its address."""
    output: str = "{topic}.unique"
    """As the route has it: which input an output topic belongs to."""


def message_rows(topics: DataFrame, shape: TableLayout) -> DataFrame:
    """Records of output topics -> rows of `messages`."""
    address = filled_text(shape.address, input_topic(shape.output, sf.col("topic")))
    return messages(topics).withColumns({"day": _day(), "address": address})


def dead_letter_rows(topics: DataFrame, _shape: TableLayout) -> DataFrame:
    """Records of dead-letter topics -> rows of `dead_letters`, which tell their address."""
    return dead_letters(topics).withColumn("day", _day())


TRANSFORMS: Final[dict[str, Callable[[DataFrame, TableLayout], DataFrame]]] = {
    "messages": message_rows,
    "dead_letters": dead_letter_rows,
}


def format_of(table: Path) -> Format | None:
    """The format that a table has already; None where nothing was committed to it."""
    return next((name for name, listed in JOURNALS.items() if any(table.glob(listed))), None)


def read_table(spark: SparkSession, target: Path, name: str) -> DataFrame:
    """The rows of a table that batches committed; none before the first."""
    table = target / name
    match format_of(table):
        case None:
            return spark.createDataFrame([], TABLES[name])
        case "delta":
            return spark.read.format("delta").load(str(table))
        case "parquet":
            columns = [field.name for field in TABLES[name].fields]
            return spark.read.schema(TABLES[name]).parquet(str(table)).select(*columns)


def compact(spark: SparkSession, target: Path, name: str) -> None:
    """Put a Delta table's small files together, and delete what no reader needs since a week."""
    if format_of(target / name) == "delta":
        spark.sql(f"OPTIMIZE delta.`{target / name}`").collect()
        spark.sql(f"VACUUM delta.`{target / name}`").collect()


def _day() -> Column:
    return sf.to_date(sf.col("timestamp"))
