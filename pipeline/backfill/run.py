"""The run that decides what topics or a table hold, and goes on where it ended.

A batch is planned in the checkpoint, decided, written to the table of verdicts, and its state kept
under the number of the batch; only then it is done. A run that was killed is taken up with the
same batch on the state before it, and what of it is listed in the table is not written again.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, Literal, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.backfill.columns import DECIDER, JUDGED, VERDICTS, to_judge, verdicts
from pipeline.backfill.inputs import BackfillInputs
from pipeline.backfill.processor import BackfillProcessor
from pipeline.config import as_served
from pipeline.errors import CONTRADICTION, USAGE, PipelineError, query_failed
from pipeline.source import read_topics
from pipeline.tables import JOURNALS
from ringfence.spark.columns import RECORD
from service.config.load import Config, RouteSettings
from service.config.model import EXPRESSION_MARKER

TableFormat = Literal["delta", "parquet"]


class BackfillTarget(NamedTuple):
    """See the module."""

    folder: Path

    @property
    def verdicts(self) -> Path:
        """The table."""
        return self.folder / "verdicts"

    @property
    def checkpoint(self) -> Path:
        """How far was read, and what is remembered."""
        return self.folder / "checkpoint"

    @property
    def steps(self) -> Path:
        """A table that is read, in the order of its decisions."""
        return self.folder / "steps"

    @property
    def is_begun(self) -> bool:
        """Whether a batch was planned."""
        return any((self.checkpoint / "offsets").glob("[0-9]*"))

    @property
    def _made(self) -> Path:
        return self.folder / "backfill.json"

    def settle(
        self, inputs: BackfillInputs, source: Mapping[str, object], format_: TableFormat
    ) -> None:
        """Begin a folder, or PipelineError where this one was begun otherwise or is half gone."""
        settings = {
            "format": 1,
            "table_format": format_,
            "source": dict(source),
            "inputs": _plain(inputs),
        }
        if self._made.exists():
            self._compare(json.loads(self._made.read_text(encoding="utf-8")), settings)
            self._check_halves(format_)
            return
        if self.verdicts.exists() or self.checkpoint.exists():
            raise PipelineError(
                f"{self.folder} has no {self._made.name}, which tells how it was made: "
                "give another folder, or delete this one",
                exit_code=CONTRADICTION,
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = self._made.with_suffix(".new")
        beside.write_text(json.dumps(settings, indent=1), encoding="utf-8")
        beside.rename(self._made)

    def format(self) -> TableFormat:
        """How the table is kept; PipelineError where there is none."""
        found: TableFormat = self._note()["table_format"]
        return found

    def inputs(self) -> BackfillInputs:
        """What was read, and how it was decided; PipelineError where nothing was."""
        made: dict[str, Any] = self._note()["inputs"]
        routes = [{key: _frozen(value) for key, value in each.items()} for each in made["routes"]]
        made |= {"routes": tuple(RouteSettings(**each) for each in routes)}
        return BackfillInputs(cache_memory_bytes=0, **made | {"topics": tuple(made["topics"])})

    def _note(self) -> dict[str, Any]:
        if not self._made.exists():
            raise PipelineError(
                f"{self.folder} is no folder of a backfill: run `ringfence pipeline backfill` "
                "into it first",
                exit_code=USAGE,
            )
        note: dict[str, Any] = json.loads(self._made.read_text(encoding="utf-8"))
        return note

    def _compare(self, made: Mapping[str, object], now: Mapping[str, object]) -> None:
        other = sorted(_differences(made, now))
        if other:
            raise PipelineError(
                f"{self.folder} was made with another {', '.join(other)}: what it remembers "
                "belongs to that; give another folder, or the configuration that it was made with",
                exit_code=CONTRADICTION,
            )

    def _check_halves(self, format_: TableFormat) -> None:
        """Refuse half a target: a batch would be lost, or written twice."""
        listed = any(self.verdicts.glob(JOURNALS[format_]))
        done = any((self.checkpoint / "commits").glob("[0-9]*"))
        if (listed and not self.is_begun) or (done and not listed):
            raise PipelineError(
                f"{self.verdicts} and {self.checkpoint} do not belong together: one of them was "
                "deleted; delete the other too and begin anew",
                exit_code=CONTRADICTION,
            )


def read_verdicts(spark: SparkSession, folder: Path) -> DataFrame:
    """The verdicts that were found so far; none before the first."""
    target = BackfillTarget(folder)
    format_ = target.format()
    if not any(target.verdicts.glob(JOURNALS[format_])):
        return spark.createDataFrame([], VERDICTS)
    return spark.read.format(format_).load(str(target.verdicts))


def _frozen(value: Any) -> Any:  # noqa: ANN401 - whatever JSON has
    return tuple(value) if isinstance(value, list) else value


def _plain(inputs: BackfillInputs) -> dict[str, Any]:
    """What decides, as JSON has it."""
    decides = {name: told for name, told in asdict(inputs).items() if name != "cache_memory_bytes"}
    plain: dict[str, Any] = json.loads(json.dumps(decides))
    return plain


def _differences(one: object, other: object, name: str = "") -> set[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        names = one.keys() | other.keys()
        found = [
            _differences(one.get(key), other.get(key), f"{name}.{key}" if name else str(key))
            for key in names
        ]
        return set().union(*found)
    return set() if one == other else {name.removeprefix("inputs.")}


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


_EVERY: Final = "2 seconds"

_WAIT_S: Final = 1

STATE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


class BackfillSource(NamedTuple):
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


class BatchLimits(NamedTuple):
    """How the work is cut."""

    batch_records: int = 500_000
    tasks: int = 2
    """That decide at once; fixed at the first start."""
    once: bool = True


class VerdictCount(NamedTuple):
    """How many records of an address had one verdict."""

    address: str | None
    strategy: str | None
    verdict: str
    records: int


def backfill(
    spark: SparkSession,
    config: Config,
    source: BackfillSource,
    folder: Path,
    *,
    table_format: TableFormat = "delta",
    pace: BatchLimits = BatchLimits(),  # noqa: B008 - a value that cannot change
    say: Callable[[str], None] = lambda _: None,
) -> tuple[VerdictCount, ...]:
    """Decide what is not decided yet, and count all verdicts that there are.

    Of topics by what their service goes by now; a table needs no broker, and has the file alone.
    """
    target = BackfillTarget(folder)
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


def inputs_of(config: Config, source: BackfillSource) -> BackfillInputs:
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
    inputs = BackfillInputs.of(config, sorted(set(topics)), source.instead_of)
    foreign = [topic for topic in inputs.topics if topic not in inputs.by_topic]
    if foreign or not topics:
        raise PipelineError(
            f"no route reads {source.instead_of or ', '.join(foreign) or 'anything'}: name an "
            "input of a route, or with --input the one that the records stand for",
            exit_code=USAGE,
        )
    return inputs


def judged(records: DataFrame, inputs: BackfillInputs) -> DataFrame:
    """Records with the columns of a topic -> the table of verdicts."""
    found = (
        to_judge(records, inputs)
        .groupBy(*DECIDER)
        .transformWithStateInPandas(
            BackfillProcessor(inputs), outputStructType=JUDGED, outputMode="Append", timeMode="None"
        )
    )
    return verdicts(found)


def counted(table: DataFrame) -> tuple[VerdictCount, ...]:
    """A table of verdicts -> how many there are of each."""
    by = ["address", "strategy", "verdict"]
    rows = table.groupBy(*by).agg(sf.count("*").alias("records")).orderBy(*by).collect()
    return tuple(VerdictCount(*row) for row in rows)


def _stream(
    spark: SparkSession,
    source: BackfillSource,
    rows: DataFrame | None,
    target: BackfillTarget,
    pace: BatchLimits,
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
    table: DataFrame, target: BackfillTarget, table_format: TableFormat, *, once: bool
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


def _told(source: BackfillSource) -> Mapping[str, object]:
    """What of a source belongs to what was made of it."""
    return {"table": None if source.table is None else str(source.table.resolve())}
