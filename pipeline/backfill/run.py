"""The run that decides what topics or a table hold, and goes on where it ended.

A batch is planned in the checkpoint, decided, written to the table of verdicts, and its state kept
under the number of the batch; only then it is done. A run that was killed is taken up with the
same batch on the state before it, and what of it is listed in the table is not written again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.backfill.columns import DECIDER, JUDGED, to_judge, verdicts
from pipeline.backfill.inputs import Inputs
from pipeline.backfill.processor import Backfill
from pipeline.backfill.steps import lay_out, read_steps, read_table, topics_of
from pipeline.backfill.target import TableFormat, Target, read_verdicts
from pipeline.config_topic import as_served
from pipeline.errors import USAGE, PipelineError, query_failed
from pipeline.source import read_topics
from service.config import Config
from service.sections import EXPRESSION_MARKER

_EVERY: Final = "2 seconds"
_WAIT_S: Final = 1
STATE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


class Source(NamedTuple):
    """Where records come from: topics of a cluster, or a table."""

    servers: str
    properties: Mapping[str, str]
    """Of the Java client."""
    topics: Sequence[str]
    """None: the inputs that the configuration names; of a table, all that are in it."""
    table: Path | None = None
    table_format: TableFormat = "delta"
    instead_of: str | None = None
    """The input that they all stand for."""


class Pace(NamedTuple):
    """How the work is cut."""

    batch_records: int = 500_000
    tasks: int = 2
    """That decide at once; fixed at the first start."""
    once: bool = True


class Count(NamedTuple):
    """How many records of an address had one verdict."""

    address: str | None
    strategy: str | None
    verdict: str
    records: int


def backfill(
    spark: SparkSession,
    config: Config,
    source: Source,
    folder: Path,
    *,
    table_format: TableFormat = "delta",
    pace: Pace = Pace(),  # noqa: B008 - a value that cannot change
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Count, ...]:
    """Decide what is not decided yet, and count all verdicts that there are.

    Of topics by what their service goes by now; a table needs no broker, and has the file alone.
    """
    target = Target(folder)
    rows = None
    if source.table is None:
        config = as_served(spark, config, source.servers, source.properties)
    else:
        rows = read_table(spark, source.table, source.table_format)
        source = source._replace(topics=source.topics or topics_of(rows))
    inputs = inputs_of(config, source)
    source = source._replace(topics=inputs.topics)
    target.settle(inputs, _told(source), table_format)
    with _set(spark, {**STATE, "spark.sql.shuffle.partitions": str(pace.tasks)}):
        records = _stream(spark, source, rows, target, pace)
        query = _start(judged(records, inputs), target, table_format, once=pace.once)
        _wait(query, source.servers, say, once=pace.once)
    return counted(read_verdicts(spark, folder))


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Have these hold within the block; whoever owns the session finds it as it was."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)


def inputs_of(config: Config, source: Source) -> Inputs:
    """What is read; PipelineError where no route says how."""
    named = [name for route in config.routes for name in route.inputs]
    topics = list(source.topics) or named
    expressions = [name for name in topics if name.startswith(EXPRESSION_MARKER)]
    if expressions:
        raise PipelineError(
            f"the inputs {', '.join(expressions)} are expressions: name the topics to read "
            "with --topic",
            exit_code=USAGE,
        )
    inputs = Inputs.of(config, sorted(set(topics)), source.instead_of)
    foreign = [topic for topic in inputs.topics if topic not in inputs.by_topic]
    if foreign or not topics:
        raise PipelineError(
            f"no route reads {source.instead_of or ', '.join(foreign) or 'anything'}: name an "
            "input of a route, or with --input the one that the records stand for",
            exit_code=USAGE,
        )
    return inputs


def judged(records: DataFrame, inputs: Inputs) -> DataFrame:
    """Records with the columns of a topic -> the table of verdicts."""
    found = (
        to_judge(records, inputs)
        .groupBy(*DECIDER)
        .transformWithStateInPandas(
            Backfill(inputs), outputStructType=JUDGED, outputMode="Append", timeMode="None"
        )
    )
    return verdicts(found)


def counted(table: DataFrame) -> tuple[Count, ...]:
    """A table of verdicts -> how many there are of each."""
    by = ["address", "strategy", "verdict"]
    rows = table.groupBy(*by).agg(sf.count("*").alias("records")).orderBy(*by).collect()
    return tuple(Count(*row) for row in rows)


def _stream(
    spark: SparkSession, source: Source, rows: DataFrame | None, target: Target, pace: Pace
) -> DataFrame:
    if rows is not None:
        lay_out(rows, target.steps, pace.batch_records, is_begun=target.is_begun)
        return read_steps(spark, target.steps)
    ours = {
        "groupIdPrefix": "ringfence-backfill",
        "maxOffsetsPerTrigger": str(pace.batch_records),
    }
    topics = source.topics
    return read_topics(spark, source.servers, topics, source.properties, options=ours)


def _start(
    table: DataFrame, target: Target, table_format: TableFormat, *, once: bool
) -> StreamingQuery:
    writer = (
        table.writeStream.queryName("verdicts")
        .format(table_format)
        .outputMode("append")
        .option("path", str(target.verdicts))
        .option("checkpointLocation", str(target.checkpoint))
    )
    trigger = {"availableNow": True} if once else {"processingTime": _EVERY}
    return writer.trigger(**trigger).start()


def _wait(query: StreamingQuery, servers: str, say: Callable[[str], None], *, once: bool) -> None:
    """Until all is decided, or the user interrupts a run that goes on."""
    told, records = -1, 0
    try:
        while True:
            ended = _ended(query, servers)
            for progress in query.recentProgress:
                if progress.batchId > told and progress.numInputRows:
                    told, records = progress.batchId, records + progress.numInputRows
                    say(
                        f"batch {told}: {records:,} records decided, "
                        f"{progress.processedRowsPerSecond:,.0f}/s"
                    )
            if ended:
                return
    except KeyboardInterrupt:
        # The way to end a run that goes on; a single one that is cut short did not do its work.
        if once:
            raise
    finally:
        query.stop()


def _ended(query: StreamingQuery, servers: str) -> bool:
    try:
        return bool(query.awaitTermination(_WAIT_S))
    except StreamingQueryException as error:
        raise query_failed("verdicts", servers, _words(error)) from error


def _words(error: Exception) -> str:
    """What Spark says, without its plan, and the end of what was at the bottom of it."""
    bottom = error
    while (cause := getattr(bottom, "_cause", None)) is not None:
        bottom = cause
    said, _, _ = str(error).partition("=== Streaming Query ===")
    return " ".join((said + str(bottom)[-2000:]).split())


def _told(source: Source) -> Mapping[str, object]:
    """What of a source belongs to what was made of it."""
    return {"table": None if source.table is None else str(source.table.resolve())}
