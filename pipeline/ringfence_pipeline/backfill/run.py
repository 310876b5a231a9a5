"""Backfill run: decides the records of topics or a table, and continues where the last run ended.

A batch is planned in the checkpoint, decided, written to the table of verdicts, and its state is
saved under the batch's number; only then the batch is done. The run after a killed one repeats the
same batch on the state before it; rows of it that are listed in the table are not written again.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from ringfence_client.spark.columns import RECORD
from ringfence_pipeline.backfill.columns import JUDGED, VERDICTS, to_judge, verdicts
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.processor import BackfillProcessor
from ringfence_pipeline.backfill.slots import SLOT
from ringfence_pipeline.config import as_served
from ringfence_pipeline.errors import (
    CONTRADICTION,
    USAGE,
    PipelineError,
    failure_text,
    is_worker_late,
    query_failed,
)
from ringfence_pipeline.source import read_topics
from ringfence_pipeline.stopping import stop_requests
from ringfence_pipeline.storage import StorageFolder
from ringfence_pipeline.table_format import JOURNALS
from ringfence_service.config.expressions import EXPRESSION_MARKER
from ringfence_service.config.model import Config, RouteSettings

_FORMAT: Final = 2
"""Of the state; a target of an earlier one had other slots, and is refused."""

TableFormat = Literal["delta", "parquet"]
Form = Literal["stream", "batch"]
"""How a backfill runs: in steps, with its state in a checkpoint, or in one job."""

_FORMS: Final[Mapping[Form, str]] = {
    "stream": "in steps: leave --batch out",
    "batch": "in one job: add --batch",
}


class BackfillTarget(NamedTuple):
    """The folder of a backfill: verdicts, checkpoint with state, and how they were made."""

    folder: StorageFolder

    @property
    def verdicts(self) -> StorageFolder:
        """The table of verdicts."""
        return self.folder / "verdicts"

    @property
    def checkpoint(self) -> StorageFolder:
        """The checkpoint: read position and state."""
        return self.folder / "checkpoint"

    @property
    def steps(self) -> StorageFolder:
        """The records of a table to read, laid out in the order of decision."""
        return self.folder / "steps"

    @property
    def draft(self) -> StorageFolder:
        """Verdicts and state of one job, until they are in their tables."""
        return self.folder / "draft"

    @property
    def state(self) -> StorageFolder:
        """The state that one job ended with."""
        return self.folder / "state"

    @property
    def is_begun(self) -> bool:
        """Whether a batch has been planned."""
        return self.checkpoint.has("offsets/[0-9]*")

    @property
    def is_decided(self) -> bool:
        """Whether one job has decided all."""
        return self._end.exists()

    @property
    def has_verdicts(self) -> bool:
        """Whether the table of verdicts can be read."""
        if self.form() == "batch":
            return self.is_decided
        return self.verdicts.has(JOURNALS[self.format()])

    @property
    def _end(self) -> StorageFolder:
        return self.folder / "decided.json"

    @property
    def _manifest(self) -> StorageFolder:
        return self.folder / "backfill.json"

    def settle(
        self,
        inputs: BackfillInputs,
        source: Mapping[str, object],
        format_: TableFormat,
        form: Form = "stream",
    ) -> None:
        """Create the folder, or check an existing one.

        Raises PipelineError if it was made with other settings or in the other form, or if half of
        it was deleted.
        """
        settings = {
            "format": _FORMAT,
            "form": form,
            "table_format": format_,
            "source": dict(source),
            "inputs": _plain(inputs),
        }
        if self._manifest.exists():
            if self.form() != form:
                raise PipelineError(
                    f"{self.folder} is decided {_FORMS[self.form()]}, or give another folder",
                    exit_code=CONTRADICTION,
                )
            self._compare(self._read_manifest(), settings)
            self._check_halves(format_)
            return
        if self.verdicts.exists() or self.checkpoint.exists():
            raise PipelineError(
                f"{self.folder} has no {self._manifest.name}, which records how it was made: "
                "give another folder, or delete this one",
                exit_code=CONTRADICTION,
            )
        self._manifest.write_text(json.dumps(settings, indent=1))

    def end(self) -> None:
        """Note that one job has decided all, and that its tables are whole."""
        self._end.write_text(json.dumps({"format": 1}))

    def form(self) -> Form:
        """Return how the backfill runs; raise PipelineError for another folder."""
        found: Form = self._read_manifest()["form"]
        return found

    def format(self) -> TableFormat:
        """Return the format of the verdicts table; raise PipelineError for another folder."""
        found: TableFormat = self._read_manifest()["table_format"]
        return found

    def inputs(self) -> BackfillInputs:
        """Return the inputs of the backfill; raise PipelineError for another folder."""
        made: dict[str, Any] = self._read_manifest()["inputs"]
        routes = [{key: _frozen(value) for key, value in each.items()} for each in made["routes"]]
        made |= {"routes": tuple(RouteSettings(**each) for each in routes)}
        return BackfillInputs(cache_memory_bytes=0, **made | {"topics": tuple(made["topics"])})

    def _read_manifest(self) -> dict[str, Any]:
        if not self._manifest.exists():
            raise PipelineError(
                f"{self.folder} is not the folder of a backfill: run `ringfence pipeline backfill` "
                "into it first",
                exit_code=USAGE,
            )
        note: dict[str, Any] = {"form": "stream"} | json.loads(self._manifest.read_text())
        return note

    def _compare(self, made: Mapping[str, object], now: Mapping[str, object]) -> None:
        other = sorted(_differences(made, now))
        if other:
            raise PipelineError(
                f"{self.folder} was made with another {', '.join(other)}, and its state belongs to "
                "that: give another folder, or the configuration that it was made with",
                exit_code=CONTRADICTION,
            )

    def _check_halves(self, format_: TableFormat) -> None:
        """Raise PipelineError if half of the target is missing: it would lose or double a batch."""
        if self.form() == "batch":
            if self.is_decided and not (self.verdicts.exists() and self.state.exists()):
                raise PipelineError(
                    f"{self.folder} lacks its verdicts or its state, which were deleted: delete "
                    "the rest too and start again",
                    exit_code=CONTRADICTION,
                )
            return
        listed = self.verdicts.has(JOURNALS[format_])
        done = self.checkpoint.has("commits/[0-9]*")
        if (listed and not self.is_begun) or (done and not listed):
            raise PipelineError(
                f"{self.verdicts} and {self.checkpoint} do not belong together: one of them was "
                "deleted; delete the other too and start again",
                exit_code=CONTRADICTION,
            )


def read_verdicts(spark: SparkSession, folder: str | Path) -> DataFrame:
    """Return the verdicts so far; none before the first batch."""
    target = BackfillTarget(StorageFolder.of(spark, folder))
    if not target.has_verdicts:
        return spark.createDataFrame([], VERDICTS)
    return spark.read.format(target.format()).load(str(target.verdicts))


def _frozen(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    return tuple(value) if isinstance(value, list) else value


def _plain(inputs: BackfillInputs) -> dict[str, Any]:
    """Return the fields of the inputs that affect decisions, as JSON values."""
    fields = {name: each for name, each in asdict(inputs).items() if name != "cache_memory_bytes"}
    plain: dict[str, Any] = json.loads(json.dumps(fields))
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


def read_table(spark: SparkSession, table: StorageFolder, format_: str) -> DataFrame:
    """Return the records of a table; raise PipelineError without it, or if it lacks a column."""
    if not table.exists():
        raise PipelineError(f"there is no table {table}: check its name", exit_code=USAGE)
    rows = spark.read.format(format_).load(str(table))
    missing = [name for name in RECORD.names if name not in rows.columns]
    if missing:
        raise PipelineError(
            f"{table} has no column {', '.join(missing)}: a table of records has "
            f"{', '.join(RECORD.names)}",
            exit_code=USAGE,
        )
    return rows.select(*(sf.col(f.name).cast(f.dataType) for f in RECORD.fields))


def topics_of(rows: DataFrame) -> Sequence[str]:
    """Return the topics of the records of a table."""
    return sorted(row["topic"] for row in rows.select("topic").distinct().collect())


_DONE: Final = "_SUCCESS"
"""Written by Spark's output committers when all files of a folder are whole."""
_LOG: Final = "_delta_log"


def lay_out(rows: DataFrame, folder: StorageFolder, step_records: int, *, is_begun: bool) -> None:
    """Write the records as a Delta table with a commit, of one file, for each batch to decide.

    The records are written once, in the order of decision, and then listed file by file. An
    incomplete layout is completed, or written again. Raises PipelineError if batches have been read
    from a layout that is missing now, since a new one could have other batches.
    """
    if (folder / _DONE).exists():
        _list_steps(folder)
        return
    if is_begun:
        raise PipelineError(
            f"{folder} is gone or not whole, and a backfill has read from it: restore it, or give "
            "another folder and start again",
            exit_code=CONTRADICTION,
        )
    folder.delete()
    count = rows.count()
    by_offset = Window.partitionBy("topic", "partition").orderBy("offset")
    reached = sf.max("timestamp").over(by_offset)
    order = ["reached", "topic", "partition", "offset"]
    ordered = rows.withColumn("reached", reached).repartitionByRange(
        max(1, math.ceil(count / step_records)), *order
    )
    ordered.sortWithinPartitions(*order).drop("reached").write.parquet(str(folder))
    _list_steps(folder)


def read_steps(spark: SparkSession, folder: StorageFolder) -> DataFrame:
    """Return the stream of these records, one batch for each step."""
    stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
    return stream.option("startingVersion", 0).load(str(folder))


def _list_steps(folder: StorageFolder) -> None:
    """Write the commits of Delta's log that are missing, as in its PROTOCOL.md.

    The files have the order of their names, which is that of their ranges.
    """
    listed = {file.name for file in (folder / _LOG).files("*.json")}
    for version, file in enumerate(folder.files("part-*.parquet")):
        name = f"{version:020}.json"
        if name in listed:
            continue
        added = {
            "path": file.name,
            "partitionValues": {},
            "size": file.size_bytes,
            "modificationTime": file.changed_ms,
            "dataChange": True,
        }
        actions: list[dict[str, object]] = [{"add": added}]
        if version == 0:
            schema = RECORD.json()
            actions = [
                {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
                {
                    "metaData": {
                        "id": str(uuid4()),
                        "format": {"provider": "parquet", "options": {}},
                        "schemaString": schema,
                        "partitionColumns": [],
                        "configuration": {},
                    }
                },
                *actions,
            ]
        (folder / _LOG / name).write_text("".join(f"{json.dumps(each)}\n" for each in actions))


_WAIT_S: Final = 1
"""How long one call into Spark may block: Ctrl-C and SIGTERM are obeyed between calls."""

_STARTS_MAX: Final = 5
"""How many times at most a query is started before it has done a batch.

Spark gives a Python worker ten seconds to connect, which no setting changes, and a busy machine may
take longer to start one. A late start has loaded the worker's modules into memory already, so a
second one is rarely late. A worker that can never start fails in the same way, five times.
"""

STREAM_SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A task writes one file, and another shuffle would only spread its records again.
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    # Queries filter by position and time; statistics of ids and text help none of them.
    "spark.databricks.delta.properties.defaults.dataSkippingNumIndexedCols": "4",
}
"""Settings of a session while it decides."""


class BackfillSource(NamedTuple):
    """The source of records: topics of a cluster, or a table."""

    servers: str
    properties: Mapping[str, str]
    """Properties of the Java client."""
    topics: Sequence[str]
    """If empty: the inputs in the configuration; for a table, all topics in it."""
    table: str | Path | None = None
    table_format: TableFormat = "delta"
    instead_of: str | None = None
    """The input that replaces all topics."""


class BatchLimits(NamedTuple):
    """Size and parallelism of batches."""

    batch_records: int = 500_000
    tasks: int = 2
    """Number of parallel deciding tasks; fixed at the first start."""
    once: bool = True
    every_s: int = 2
    """Seconds from batch to batch, if it keeps running."""


class VerdictCount(NamedTuple):
    """Number of records of an address with one verdict."""

    address: str | None
    strategy: str | None
    verdict: str
    records: int


def backfill(
    spark: SparkSession,
    config: Config,
    source: BackfillSource,
    folder: str | Path,
    *,
    table_format: TableFormat = "delta",
    limits: BatchLimits = BatchLimits(),  # noqa: B008 - a value that cannot change
) -> tuple[VerdictCount, ...]:
    """Decide the records that are not decided yet, and return the counts of all verdicts.

    Topics are decided by the effective settings of their service; a table needs no broker and is
    decided by the file alone. Raises PipelineError.
    """
    target = BackfillTarget(StorageFolder.of(spark, folder))
    rows = None
    if source.table is None:
        config = as_served(spark, config, source.servers, source.properties)
    else:
        table = StorageFolder.of(spark, source.table)
        rows = read_table(spark, table, source.table_format)
        source = source._replace(topics=source.topics or topics_of(rows), table=str(table))
    inputs = inputs_of(config, source)
    source = source._replace(topics=inputs.topics)
    target.settle(inputs, bound_to(source), table_format)
    settings = {**STREAM_SETTINGS, "spark.sql.shuffle.partitions": str(limits.tasks)}
    with session_settings(spark, settings):
        records = _stream(spark, source, rows, target, limits)
        decided = judged(records, inputs)
        run_query(
            lambda: _start(decided, target, table_format, limits), source.servers, once=limits.once
        )
    return counted(read_verdicts(spark, folder))


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply session settings within the block, and restore the former ones after it."""
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


@contextmanager
def spark_failures(what: str) -> Iterator[None]:
    """Turn a failure of Spark within the block into a PipelineError that says what failed."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise PipelineError(
            f"{what}: {failure_text(error)}; when that is fixed, run the same command again",
            exit_code=1,
        ) from error


def inputs_of(config: Config, source: BackfillSource) -> BackfillInputs:
    """Return the inputs to read; raise PipelineError for topics without a route."""
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
            "input of a route, or with --input the one to decide the records by",
            exit_code=USAGE,
        )
    return inputs


def judged(records: DataFrame, inputs: BackfillInputs) -> DataFrame:
    """Return the table of verdicts for records of topics."""
    found = (
        to_judge(records, inputs)
        .groupBy(SLOT)
        .transformWithStateInPandas(
            BackfillProcessor(inputs), outputStructType=JUDGED, outputMode="Append", timeMode="None"
        )
    )
    return verdicts(found, inputs)


def counted(table: DataFrame) -> tuple[VerdictCount, ...]:
    """Return the number of each verdict, by address and strategy."""
    by = ["address", "strategy", "verdict"]
    rows = table.groupBy(*by).agg(sf.count("*").alias("records")).orderBy(*by).collect()
    return tuple(VerdictCount(*row) for row in rows)


def _stream(
    spark: SparkSession,
    source: BackfillSource,
    rows: DataFrame | None,
    target: BackfillTarget,
    limits: BatchLimits,
) -> DataFrame:
    if rows is not None:
        lay_out(rows, target.steps, limits.batch_records, is_begun=target.is_begun)
        return read_steps(spark, target.steps)
    ours = {
        "groupIdPrefix": "ringfence-backfill",
        "maxOffsetsPerTrigger": str(limits.batch_records),
    }
    topics = source.topics
    return read_topics(
        spark, source.servers, topics, source.properties, once=limits.once, options=ours
    )


def _start(
    table: DataFrame, target: BackfillTarget, table_format: TableFormat, limits: BatchLimits
) -> StreamingQuery:
    writer = (
        table.writeStream.queryName("verdicts")
        .format(table_format)
        .outputMode("append")
        .option("path", str(target.verdicts))
        .option("checkpointLocation", str(target.checkpoint))
    )
    if limits.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{limits.every_s} seconds").start()


def run_query(start: Callable[[], StreamingQuery], servers: str, *, once: bool) -> None:
    """Run a query until it has ended, or until the user interrupts; raises PipelineError.

    A query that failed because a Python worker took too long to start is started again, which
    repeats the batch in which it failed. An interrupt ends a continuous run in order; of a single
    run it raises KeyboardInterrupt.
    """
    starts = 0
    with stop_requests() as stop:
        while not stop.is_set():
            query = start()
            starts += 1
            try:
                while not (stop.is_set() or query.awaitTermination(_WAIT_S)):
                    pass
                break
            except StreamingQueryException as error:
                text = failure_text(error)
                if query.lastProgress is not None:
                    starts = 1
                if starts == _STARTS_MAX or not is_worker_late(text):
                    raise query_failed("verdicts", servers, text) from error
            finally:
                query.stop()
            if not stop.is_set():
                sys.stderr.write("A Python worker took too long to start; starting again.\n")
    if stop.is_set() and once:
        raise KeyboardInterrupt


def bound_to(source: BackfillSource) -> Mapping[str, object]:
    """Return the part of a source that a folder is bound to."""
    return {"table": source.table}
