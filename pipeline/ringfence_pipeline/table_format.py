"""Formats of tables, and what the files of an existing table show: its format, its partitioning."""

from collections.abc import Mapping
from typing import Final, Literal

from pyspark.sql import SparkSession

from ringfence_pipeline.storage import StorageFolder

Format = Literal["delta", "parquet"]

JOURNALS: Final[Mapping[Format, str]] = {
    "delta": "_delta_log/*.json",
    "parquet": "_spark_metadata/[0-9]*",
}
"""The files in which a table lists its content; the folder alone may exist before them."""

_VALUE: Final = "="
"""Between column and value in the name of a folder."""


def format_of(table: StorageFolder) -> Format | None:
    """Return the format of an existing table; None before its first commit."""
    return next((name for name, listed in JOURNALS.items() if table.has(listed)), None)


def quoted(table: StorageFolder) -> str:
    """Return a Delta table as SQL names it."""
    return f"delta.`{str(table).replace('`', '``')}`"


def partitioning_of(spark: SparkSession, table: StorageFolder) -> tuple[str, ...] | None:
    """Return the partition columns of an existing table; None before its first commit."""
    match format_of(table):
        case None:
            return None
        case "delta":
            detail = spark.sql(f"DESCRIBE DETAIL {quoted(table)}").collect()[0]
            return tuple(detail["partitionColumns"])
        case "parquet":
            return tuple(_folder_columns(table))


def _folder_columns(table: StorageFolder) -> list[str]:
    columns: list[str] = []
    while inner := table.files(f"*{_VALUE}*"):
        columns.append(inner[0].name.partition(_VALUE)[0])
        table = table / inner[0].name
    return columns
