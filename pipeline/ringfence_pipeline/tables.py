"""Tables `messages` and `dead_letters`: rows, formats, reading, and the job that writes them.

A row has the columns of `ringfence.spark`, and the day and the address that tables are partitioned
by. A Delta table has its own list of files. A Parquet table is a folder of files with a list of the
committed ones in `_spark_metadata`. Spark honours that list when it reads the folder itself (not a
file in it, not a glob). Readers that list files, such as pyarrow, pandas, Polars, DuckDB or Trino,
do not: after a crash they may also see a file that no batch committed.

The job appends each row exactly once. A table is `TARGET/NAME`; its read position is in
`TARGET/checkpoints` (`checkpoint.py`). A batch is planned in the checkpoint, written, listed in the
table, and only then done. So the job after a killed one resumes with the same offsets, and a batch
that is listed is not written again. Table and checkpoint belong together; one without the other is
rejected.

Records that were deleted before they were read are an error, or on demand a gap (`gaps.py`). A
topic that ends before the read position is rejected. A topic that was recreated, or that is another
cluster's, and has grown past that position looks like the old one: use a new target.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DateType, StringType, StructField, StructType

from ringfence_client.spark.columns import DEAD_LETTERS, MESSAGES
from ringfence_client.spark.reader import dead_letters, messages
from ringfence_pipeline.admin import KafkaAdmin, OffsetSpan
from ringfence_pipeline.checkpoint import Positions, TableCheckpoint
from ringfence_pipeline.compaction import CompactOptions, check_compactable, compact
from ringfence_pipeline.errors import (
    CONTRADICTION,
    USAGE,
    PipelineError,
    failure_text,
    is_data_lost,
    query_failed,
)
from ringfence_pipeline.gaps import OffsetGap, gaps_of, record_gaps
from ringfence_pipeline.source import offsets_json, read_topics
from ringfence_pipeline.stopping import stop_requests
from ringfence_pipeline.storage import StorageFolder
from ringfence_pipeline.table_format import JOURNALS, Format, format_of, partitioning_of
from ringfence_pipeline.templates import filled_text, input_topic
from ringfence_service.config.expressions import EXPRESSION_MARKER

_WAIT_S: Final = 1
"""How long one call into Spark may block, for one of the streams.

Ctrl-C and SIGTERM are obeyed, and the next stream is looked at, between calls.
"""
BATCH_RECORDS_MAX: Final = 1_000_000
"""Bounds the memory of a batch, and the work that is repeated after a kill.

Each batch is a commit with files of its own, so much smaller ones make many small files.
"""

DEFAULT_PARTITIONING: Final = ("day",)

_DAY: Final = StructField("day", DateType())

TABLES: Final = {
    "messages": StructType([*MESSAGES.fields, _DAY, StructField("address", StringType())]),
    "dead_letters": StructType([*DEAD_LETTERS.fields, _DAY]),
}


class AddressRule(NamedTuple):
    """A route's address template, and the input topic of each of its output topics."""

    template: str
    inputs: Mapping[str, str]


class TableLayout(NamedTuple):
    """Format and partitioning of the tables."""

    format: Format = "delta"
    partition_by: tuple[str, ...] | None = None
    """None for that of an existing table, or `DEFAULT_PARTITIONING` for a new one."""
    address: str = "{topic}"
    """The route's address template, since an output does not contain its address."""
    output: str = "{topic}.unique"
    """The route's output template, which gives the input of an output topic."""
    addresses: tuple[AddressRule, ...] | None = None
    """By output topic, in place of the two templates."""


def message_rows(topics: DataFrame, layout: TableLayout) -> DataFrame:
    """Return the rows of `messages` for records of output topics."""
    return messages(topics).withColumns({"day": _day(), "address": _address(layout)})


def dead_letter_rows(topics: DataFrame, _layout: TableLayout) -> DataFrame:
    """Return the rows of `dead_letters` for records of dead-letter topics."""
    return dead_letters(topics).withColumn("day", _day())


TRANSFORMS: Final[dict[str, Callable[[DataFrame, TableLayout], DataFrame]]] = {
    "messages": message_rows,
    "dead_letters": dead_letter_rows,
}


def read_table(spark: SparkSession, target: str | Path, name: str) -> DataFrame:
    """Return the committed rows of a table; none before the first commit."""
    table = StorageFolder.of(spark, target) / name
    match format_of(table):
        case None:
            return spark.createDataFrame([], TABLES[name])
        case "delta":
            return spark.read.format("delta").load(str(table))
        case "parquet":
            columns = [field.name for field in TABLES[name].fields]
            return spark.read.schema(TABLES[name]).parquet(str(table)).select(*columns)


def _day() -> Column:
    return sf.to_date(sf.col("timestamp"))


def _address(layout: TableLayout) -> Column:
    topic = sf.col("topic")
    if layout.addresses is None:
        return filled_text(layout.address, input_topic(layout.output, topic))
    found = [sf.lit(None).cast("string")]
    for template, inputs in layout.addresses:
        by_output = sf.create_map(*(sf.lit(name) for pair in inputs.items() for name in pair))
        filled = filled_text(template, sf.try_element_at(by_output, topic))
        found.append(sf.when(topic.isin(list(inputs)), filled))
    return sf.coalesce(*found)


class TableSource(NamedTuple):
    """A cluster, the client properties for it, and the topics of each table."""

    servers: str
    properties: Mapping[str, str]
    topics: Mapping[str, Sequence[str]]


class RunOptions(NamedTuple):
    """The options of a run."""

    once: bool = True
    """Whether to stop when up to date."""
    batch_records_max: int = BATCH_RECORDS_MAX
    """Approximate size of a table's batch; a killed batch is written again as a whole."""
    every_s: int = 10
    """Seconds from batch to batch, if it does not stop."""
    compact: bool = False
    """Whether to compact at the end."""
    accept_gap: bool = False
    """Whether to continue behind records that were deleted before they were read."""


class TableRows(NamedTuple):
    """The rows of a table: added by this run, and in total."""

    name: str
    added: int
    total: int


class TablesResult(NamedTuple):
    """The result of a run."""

    tables: tuple[TableRows, ...]


def update_tables(
    spark: SparkSession,
    source: TableSource,
    target: str | Path,
    layout: TableLayout = TableLayout(),  # noqa: B008 - a value that never changes
    options: RunOptions = RunOptions(),  # noqa: B008
    notice: Callable[[OffsetGap], None] = lambda _gap: None,
) -> TablesResult:
    """Append what the topics have and the tables lack; once, or until Ctrl-C.

    `notice` is called for each accepted gap. Raises PipelineError for wrong options, and when the
    broker or the tables cannot be used.
    """
    if not source.topics:
        raise PipelineError("no topics: give outputs, dead letters, or both", exit_code=USAGE)
    folder = StorageFolder.of(spark, target)
    if options.accept_gap and layout.format != "delta":
        raise PipelineError("--accept-gap needs --format delta", exit_code=USAGE)
    for table in source.topics:
        _check_target(spark, folder, table, layout, source.topics[table])
        if options.compact:
            check_compactable(folder / table)
    before = {table: read_table(spark, target, table).count() for table in source.topics}
    streams = _Streams(spark, source, folder, layout, options, notice)
    with streams.running():
        streams.wait()
    if options.compact:
        for table in source.topics:
            if format_of(folder / table) is not None:
                compact(spark, folder / table, CompactOptions())
    after = {table: read_table(spark, target, table).count() for table in source.topics}
    return TablesResult(
        tuple(TableRows(table, after[table] - before[table], after[table]) for table in after)
    )


def _check_target(
    spark: SparkSession,
    target: StorageFolder,
    table: str,
    layout: TableLayout,
    topics: Sequence[str],
) -> None:
    """Raise PipelineError for a target that cannot be continued.

    With half of it deleted, the sink would skip listed batches, or never repeat lost ones.
    """
    unknown = set(layout.partition_by or ()) - set(TABLES[table].fieldNames())
    if unknown:
        raise PipelineError(
            f"table {table!r} has no column {', '.join(sorted(unknown))} to partition by; "
            "use day, or day and address",
            exit_code=USAGE,
        )
    checkpoint, found = TableCheckpoint.of(target, table), format_of(target / table)
    if found not in (None, layout.format):
        raise PipelineError(
            f"{target / table} is a {found} table: continue with --format {found}, or read the "
            "topics into a new target",
            exit_code=USAGE,
        )
    listed = (target / table).has(JOURNALS[layout.format])
    if (listed and not checkpoint.is_planned) or (checkpoint.is_done and not listed):
        raise PipelineError(
            f"{target / table} and {checkpoint.folder} do not belong together: one of them was "
            "deleted; delete the other too and read the topics again",
            exit_code=CONTRADICTION,
        )
    existing = partitioning_of(spark, target / table)
    if None not in (existing, layout.partition_by) and existing != layout.partition_by:
        raise PipelineError(
            f"{target / table} is partitioned by {', '.join(existing or ()) or 'nothing'}: leave "
            "out --partition-by, or read the topics into a new target",
            exit_code=USAGE,
        )
    left_out = sorted(topic for topic in checkpoint.topics() if not _is_like(topic, topics))
    if left_out:
        raise PipelineError(
            f"table {table!r} has read {', '.join(left_out)}, which this run does not name: name "
            "it too (topics may be added, not removed), or give a new target",
            exit_code=CONTRADICTION,
        )


def _is_like(topic: str, names: Sequence[str]) -> bool:
    """Return whether a topic is one of some names or expressions."""
    return any(
        re.search(name, topic) if name.startswith(EXPRESSION_MARKER) else name == topic
        for name in names
    )


class _Streams:
    """The streams of a run, one for each table."""

    def __init__(
        self,
        spark: SparkSession,
        source: TableSource,
        target: StorageFolder,
        layout: TableLayout,
        options: RunOptions,
        notice: Callable[[OffsetGap], None],
    ) -> None:
        self._spark = spark
        self._source = source
        self._target = target
        self._layout = layout
        self._options = options
        self._notice = notice
        self._running: dict[str, StreamingQuery] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the stream of each table; stop them all on exit."""
        try:
            for table in self._source.topics:
                self._start(table, TableCheckpoint.of(self._target, table).folder)
            yield
        finally:
            for query in self._running.values():
                query.stop()

    def wait(self) -> None:
        """Wait until every stream has ended, one has failed, or the user interrupts.

        An interrupt ends a continuous run in order; of a single run it raises KeyboardInterrupt.
        """
        with stop_requests() as stop:
            while self._running and not stop.is_set():
                for table in tuple(self._running):
                    self._look(table)
        if stop.is_set() and self._options.once:
            raise KeyboardInterrupt

    def _look(self, table: str) -> None:
        """Wait for a moment for the end of a stream; raise PipelineError if it has failed."""
        try:
            if self._running[table].awaitTermination(_WAIT_S):
                del self._running[table]
        except StreamingQueryException as error:
            text = failure_text(error)
            failed = query_failed(table, self._source.servers, text)
            if not is_data_lost(text) or self._layout.format != "delta":
                raise failed from error
            if not self._options.accept_gap:
                sentence = (
                    f"{failed}, or continue with --accept-gap, which lists the lost offsets in the "
                    f"table {self._target / 'gaps'}"
                )
                raise PipelineError(sentence, exit_code=failed.exit_code) from error
            if not self._continue_behind(table):
                raise failed from error

    def _continue_behind(self, table: str) -> bool:
        """Start a stream again behind what its topics have lost; return whether they have."""
        topics = self._source.topics[table]
        with KafkaAdmin(self._spark, self._source.servers, self._source.properties) as admin:
            partitions = admin.partitions(admin.topics_like(topics))
            begins, ends = admin.begins(partitions), admin.ends(partitions)
        there = {each: OffsetSpan(begins[each], ends[each]) for each in partitions}
        checkpoint = TableCheckpoint.of(self._target, table)
        read = checkpoint.positions(lambda positions: self._has_rows(table, positions))
        gaps = gaps_of(table, read, there)
        if not gaps:
            return False
        record_gaps(self._spark, self._target / "gaps", gaps)
        for gap in gaps:
            self._notice(gap)
        begin = {each: max(read.get(each, 0), span.begin) for each, span in there.items()}
        self._start(table, checkpoint.begin_another(), begin)
        return True

    def _has_rows(self, table: str, positions: Positions) -> bool:
        rows = read_table(self._spark, str(self._target), table)
        beyond = (
            (sf.col("topic") == each.topic)
            & (sf.col("partition") == each.number)
            & (sf.col("offset") >= offset)
            for each, offset in positions.items()
        )
        return not rows.where(reduce(or_, beyond)).isEmpty()

    def _start(self, table: str, checkpoint: StorageFolder, begin: Positions | None = None) -> None:
        source, once = self._source, self._options.once
        reader = {"maxOffsetsPerTrigger": str(self._options.batch_records_max)}
        if begin is not None:
            reader["startingOffsets"] = offsets_json(begin)
        stream = read_topics(
            self._spark,
            source.servers,
            source.topics[table],
            source.properties,
            once=once,
            options=reader,
        )
        existing = partitioning_of(self._spark, self._target / table)
        columns = self._layout.partition_by or existing
        if columns is None:
            columns = DEFAULT_PARTITIONING
        writer = (
            TRANSFORMS[table](stream, self._layout)
            .writeStream.queryName(table)
            .format(self._layout.format)
            .outputMode("append")
            .partitionBy(*columns)
            .option("path", str(self._target / table))
            .option("checkpointLocation", str(checkpoint))
            # A later version may have more columns, which are then added to existing tables.
            .option("mergeSchema", "true")
        )
        trigger = (
            writer.trigger(availableNow=True)
            if once
            else writer.trigger(processingTime=f"{self._options.every_s} seconds")
        )
        self._running[table] = trigger.start()
