"""The run that brings the tables up to date with the topics, each row exactly once.

A table is `TARGET/NAME`; how far it has read is in `TARGET/checkpoints/NAME`. A batch is planned in
the checkpoint, written, listed in the table, and only then done: a run that was killed is taken up
by the next one with the same offsets, and a batch that is listed is not written again. So table
and checkpoint belong together, and one without the other is refused.

A topic that ends before the place that was read to is refused too. One that was made anew, or that
is another cluster's, and has grown past that place looks like the old one: give it a new target.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.errors import CONTRADICTION, USAGE, PipelineError, query_failed
from pipeline.jars import connector_jars
from pipeline.progress import ProgressDisplay
from pipeline.session import open_session
from pipeline.source import read_topics
from pipeline.tables import (
    JOURNALS,
    TABLES,
    TRANSFORMS,
    TableLayout,
    compact,
    format_of,
    read_table,
)

_CONTINUOUS_EVERY: Final = "10 seconds"
_WAIT_S: Final = 1
BATCH_RECORDS_MAX: Final = 1_000_000


class TableSource(NamedTuple):
    """Where records come from: a cluster, how to talk to it, and the topics of each table."""

    servers: str
    properties: Mapping[str, str]
    topics: Mapping[str, Sequence[str]]


class RunOptions(NamedTuple):
    """How a run goes."""

    once: bool = True
    """End when up to date, or go on."""
    batch_records_max: int = BATCH_RECORDS_MAX
    """Of each table, about; a batch that was killed is written anew as a whole."""
    compact: bool = False
    """At the end, whatever the files are; while it runs, Delta does it by itself."""


class TableRows(NamedTuple):
    """What a run did to a table."""

    name: str
    added: int
    total: int


class TablesResult(NamedTuple):
    """What a run did, table by table."""

    tables: tuple[TableRows, ...]


def run_tables(
    source: TableSource,
    target: Path,
    shape: TableLayout,
    way: RunOptions,
    *,
    jars: Path | None,
    shown: ProgressDisplay,
) -> TablesResult:
    """Append what topics hold and tables lack; once, or on and on until Ctrl-C."""
    if not source.topics:
        raise PipelineError("no topics: give outputs, dead letters, or both", exit_code=USAGE)
    spark = open_session(connector_jars(jars))
    try:
        return update_tables(spark, source, target.resolve(), shape, way, shown)
    finally:
        spark.stop()


def update_tables(
    spark: SparkSession,
    source: TableSource,
    target: Path,
    shape: TableLayout = TableLayout(),  # noqa: B008 - a value that never changes
    way: RunOptions = RunOptions(),  # noqa: B008
    shown: ProgressDisplay = lambda table, reports: None,  # noqa: ARG005 - nobody looks on
) -> TablesResult:
    """The same in a session that is already there."""
    for table in source.topics:
        _check_target(target, table, shape)
    before = {table: read_table(spark, target, table).count() for table in source.topics}
    with _queries(spark, source, target, shape, way) as queries:
        _wait(queries, source.servers, once=way.once, shown=shown)
    if way.compact:
        for table in source.topics:
            compact(spark, target, table)
    after = {table: read_table(spark, target, table).count() for table in source.topics}
    return TablesResult(
        tuple(TableRows(table, after[table] - before[table], after[table]) for table in after)
    )


def _checkpoint(target: Path, table: str) -> Path:
    return target / "checkpoints" / table


def _check_target(target: Path, table: str, shape: TableLayout) -> None:
    """Refuse half a target: the sink would skip batches it lists, or never repeat ones it lost."""
    unknown = set(shape.partition_by) - set(TABLES[table].fieldNames())
    if unknown:
        raise PipelineError(
            f"table {table!r} has no column {', '.join(sorted(unknown))} to partition by; "
            "day and address are meant for it",
            exit_code=USAGE,
        )
    checkpoint, found = _checkpoint(target, table), format_of(target / table)
    if found not in (None, shape.format):
        raise PipelineError(
            f"{target / table} is a {found} table: go on with --format {found}, or read the "
            "topics into a new target",
            exit_code=USAGE,
        )
    listed = any((target / table).glob(JOURNALS[shape.format]))
    done = any((checkpoint / "commits").glob("[0-9]*"))
    planned = any((checkpoint / "offsets").glob("[0-9]*"))
    if (listed and not planned) or (done and not listed):
        raise PipelineError(
            f"{target / table} and {checkpoint} do not belong together: one of them was deleted; "
            "delete the other too and read the topics anew",
            exit_code=CONTRADICTION,
        )


@contextmanager
def _queries(
    spark: SparkSession, source: TableSource, target: Path, shape: TableLayout, way: RunOptions
) -> Iterator[list[StreamingQuery]]:
    """One running query for each table; none is left running."""
    queries: list[StreamingQuery] = []
    options = {"maxOffsetsPerTrigger": str(way.batch_records_max)}
    try:
        for table, topics in source.topics.items():
            stream = read_topics(spark, source.servers, topics, source.properties, options=options)
            writer = (
                TRANSFORMS[table](stream, shape)
                .writeStream.queryName(table)
                .format(shape.format)
                .outputMode("append")
                .partitionBy(*shape.partition_by)
                .option("path", str(target / table))
                .option("checkpointLocation", str(_checkpoint(target, table)))
                # A later version may know more columns; tables that lack them get them.
                .option("mergeSchema", "true")
            )
            trigger = (
                writer.trigger(availableNow=True)
                if way.once
                else writer.trigger(processingTime=_CONTINUOUS_EVERY)
            )
            queries.append(trigger.start())
        yield queries
    finally:
        for query in queries:
            query.stop()


def _wait(
    queries: Sequence[StreamingQuery], servers: str, *, once: bool, shown: ProgressDisplay
) -> None:
    """Until every query has ended, one has failed, or the user interrupts."""
    running = list(queries)
    try:
        while running:
            running = [query for query in running if not _ended(query, servers)]
            for query in queries:
                shown(str(query.name), query.recentProgress)
    except KeyboardInterrupt:
        # The way to end a continuous run; a single one that is cut short did not do its work.
        if once:
            raise


def _ended(query: StreamingQuery, servers: str) -> bool:
    try:
        return bool(query.awaitTermination(_WAIT_S))
    except StreamingQueryException as error:
        raise query_failed(str(query.name), servers, str(error)) from error
