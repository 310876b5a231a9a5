"""Tables `messages` and `dead_letters`: their rows from records, their formats, and reading them.

A row has the columns of `ringfence.spark`, and the day and the address that tables are partitioned
by. A Delta table has its own list of files. A Parquet table is a folder of files with a list of the
committed ones in `_spark_metadata`. Spark honours that list when it reads the folder itself (not a
file in it, not a glob). Readers that list files, such as pyarrow, pandas, Polars, DuckDB or Trino,
do not: after a crash they may also see a file that no batch committed.
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
    """Return the bytes of a template for each record; `topic` is the record's input topic."""
    parts = _FIELD.split(template)
    pieces = [_field(part, topic) if at % 2 else _bytes(part) for at, part in enumerate(parts)]
    return sf.concat(*pieces)


def filled_text(template: str, topic: Column) -> Column:
    """Return a template as text; null if the bytes are not UTF-8."""
    return sf.try_validate_utf8(filled(template, topic).cast("string"))


def input_topic(template: str, topic: Column) -> Column:
    """Return the input topic of an output topic that a template like `{topic}.unique` has named.

    A name that does not match the template is returned unchanged.
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
"""The files in which a table lists its content; the folder alone may exist before them."""

_DAY: Final = StructField("day", DateType())

TABLES: Final = {
    "messages": StructType([*MESSAGES.fields, _DAY, StructField("address", StringType())]),
    "dead_letters": StructType([*DEAD_LETTERS.fields, _DAY]),
}


class TableLayout(NamedTuple):
    """Format and partitioning of the tables."""

    format: Format = "delta"
    partition_by: tuple[str, ...] = ("day", "address")
    address: str = "{topic}"
    """The route's address template, since an output does not contain its address."""
    output: str = "{topic}.unique"
    """The route's output template, which gives the input of an output topic."""


def message_rows(topics: DataFrame, layout: TableLayout) -> DataFrame:
    """Return the rows of `messages` for records of output topics."""
    address = filled_text(layout.address, input_topic(layout.output, sf.col("topic")))
    return messages(topics).withColumns({"day": _day(), "address": address})


def dead_letter_rows(topics: DataFrame, _layout: TableLayout) -> DataFrame:
    """Return the rows of `dead_letters` for records of dead-letter topics."""
    return dead_letters(topics).withColumn("day", _day())


TRANSFORMS: Final[dict[str, Callable[[DataFrame, TableLayout], DataFrame]]] = {
    "messages": message_rows,
    "dead_letters": dead_letter_rows,
}


def format_of(table: Path) -> Format | None:
    """Return the format of an existing table; None before its first commit."""
    return next((name for name, listed in JOURNALS.items() if any(table.glob(listed))), None)


def read_table(spark: SparkSession, target: Path, name: str) -> DataFrame:
    """Return the committed rows of a table; none before the first commit."""
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
    """Merge the small files of a Delta table, and delete files unused for a week."""
    if format_of(target / name) == "delta":
        spark.sql(f"OPTIMIZE delta.`{target / name}`").collect()
        spark.sql(f"VACUUM delta.`{target / name}`").collect()


def _day() -> Column:
    return sf.to_date(sf.col("timestamp"))
