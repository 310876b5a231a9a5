"""Compaction: merges the small files of Delta tables, and deletes files that are no longer used.

A batch writes a few files for each day. `OPTIMIZE` merges them by day, and only in the days in
which files were written since a given time; other days stay untouched. `VACUUM` deletes files that
no version within the retention needs. Neither changes a row, so a stream may append meanwhile.
"""

from datetime import datetime
from typing import Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.storage import StorageFolder
from ringfence_pipeline.table_format import format_of, partitioning_of, quoted

RETENTION_H: Final = 168
"""Delta's default: a reader of an older version may take as long as a week."""
_DAY: Final = "day"
_TABLES: Final = ("messages", "dead_letters", "gaps")


class CompactOptions(NamedTuple):
    """What to compact, and what to delete."""

    since: datetime | None = None
    """Compact only days in which files were written since then; None for all days."""
    retention_h: int = RETENTION_H
    """Delete files unused for this long."""
    dry_run: bool = False
    """Change nothing, and count the files that would be deleted."""


class CompactResult(NamedTuple):
    """What was done to a table."""

    table: str
    merged: int
    """Number of small files that were merged."""
    written: int
    """Number of files that they became."""
    unused: int | None
    """Number of unused files; None if they were deleted, which Delta does not count."""


def compact_target(
    spark: SparkSession, target: StorageFolder, options: CompactOptions
) -> tuple[CompactResult, ...]:
    """Compact the tables of a target; PipelineError if it has none, or one that is not Delta's."""
    tables = [target / name for name in _TABLES if format_of(target / name) is not None]
    if not tables:
        raise PipelineError(f"{target} has no table: check the name", exit_code=USAGE)
    for table in tables:
        check_compactable(table)
    return tuple(compact(spark, table, options) for table in tables)


def check_compactable(table: StorageFolder) -> None:
    """Raise PipelineError for a table that is not of Delta."""
    found = format_of(table)
    if found not in (None, "delta"):
        raise PipelineError(
            f"{table} is a {found} table, and only Delta tables can be compacted: read the topics "
            "into a new target with --format delta",
            exit_code=USAGE,
        )


def compact(spark: SparkSession, table: StorageFolder, options: CompactOptions) -> CompactResult:
    """Compact a Delta table."""
    place = quoted(table)
    merged = written = 0
    where = None if options.dry_run else _where(spark, table, options.since)
    if where is not None:
        (row,) = spark.sql(f"OPTIMIZE {place} {where}").collect()
        merged, written = row["metrics"]["numFilesRemoved"], row["metrics"]["numFilesAdded"]
    vacuum = f"VACUUM {place} RETAIN {options.retention_h} HOURS"
    if not options.dry_run:
        spark.sql(vacuum).collect()
        return CompactResult(table.name, merged, written, None)
    return CompactResult(table.name, 0, 0, spark.sql(f"{vacuum} DRY RUN").count())


def _where(spark: SparkSession, table: StorageFolder, since: datetime | None) -> str | None:
    """Return the condition of the days to compact; None if there is no such day."""
    if since is None or _DAY not in (partitioning_of(spark, table) or ()):
        return ""
    rows = spark.read.format("delta").load(str(table))
    changed = rows.where(sf.col("_metadata.file_modification_time") >= sf.lit(since))
    days = sorted(row[_DAY] for row in changed.select(_DAY).distinct().collect() if row[_DAY])
    listed = ", ".join(f"DATE'{day.isoformat()}'" for day in days)
    return f"WHERE {_DAY} IN ({listed})" if days else None
