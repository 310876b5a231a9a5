"""Reconciliation run: takes a snapshot, reads the topics up to it, and analyzes the records.

It writes nothing to Kafka, and the service may keep running. Outputs and dead letters may be read
from the tables that `pipeline tables` keeps, which have what retention has deleted from the topics.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from ringfence_client.spark.columns import RECORD
from ringfence_client.spark.reader import records
from ringfence_pipeline.admin import KafkaAdmin, KafkaPartition, OffsetSpan
from ringfence_pipeline.config import overlaid, read_config, set_over_rest
from ringfence_pipeline.errors import CONTRADICTION, PipelineError, reading_failed
from ringfence_pipeline.gaps import gap_ends
from ringfence_pipeline.java_properties import java_properties, servers_of
from ringfence_pipeline.reconcile.analyze import AnalyzeOptions, ComparedRecords, Evidence, judge
from ringfence_pipeline.reconcile.blocks import kept
from ringfence_pipeline.reconcile.extract import carried_of
from ringfence_pipeline.reconcile.history import append_run, append_violations
from ringfence_pipeline.reconcile.results import ReconcileResult
from ringfence_pipeline.reconcile.scope import (
    UNKNOWN,
    PastSettings,
    ReconcileScope,
    earlier_of,
    is_redriving,
    planned,
    redriven_of,
)
from ringfence_pipeline.reconcile.since import Since, load_since, next_since, save_since
from ringfence_pipeline.reconcile.snapshot import Snapshot, Spans, take_snapshot
from ringfence_pipeline.session import SessionOptions, session_for
from ringfence_pipeline.source import read_spans
from ringfence_pipeline.steps import say
from ringfence_pipeline.storage import StorageFolder
from ringfence_pipeline.table_format import format_of
from ringfence_pipeline.tables import TABLES, read_table
from ringfence_service.config.model import Config

_ORIGINS: Final = "origin struct<topic: string, partition: int, offset: long>"


class ClusterTopics(NamedTuple):
    """The cluster of the topics, and the client properties for it."""

    servers: str
    properties: Mapping[str, str]


class LakeTables(NamedTuple):
    """Folders of tables, by path or URI."""

    read: str | None = None
    """Tables of messages and dead letters; None to read the topics alone."""
    findings: str | None = None
    """The history, to which the findings are appended."""
    since_last: bool = False
    """Whether to compare only what came since the last run of the history."""


def run_reconcile(
    file: Path,
    properties: Mapping[str, str],
    look: AnalyzeOptions,
    lake: LakeTables = LakeTables(),  # noqa: B008 - a value that never changes
    *,
    session: SessionOptions,
) -> ReconcileResult:
    """Reconcile by a service's configuration file, in a session of its own; raise PipelineError."""
    config = read_config(file)
    cluster = ClusterTopics(servers_of(config.kafka), java_properties(config.kafka, properties))
    say("starting Spark")
    with session_for(session) as spark:
        try:
            return reconcile(spark, config, cluster, look, lake)
        except (Py4JJavaError, PySparkException) as error:
            raise reading_failed(cluster.servers, str(error)) or error from error
        finally:
            folder = spark.sparkContext.getCheckpointDir()
            if folder is not None:  # Spark's own one within `spark.checkpoint.dir`
                StorageFolder.of(spark, folder).delete()


def reconcile(
    spark: SparkSession,
    config: Config,
    cluster: ClusterTopics,
    look: AnalyzeOptions = AnalyzeOptions(),  # noqa: B008
    lake: LakeTables = LakeTables(),  # noqa: B008
) -> ReconcileResult:
    """Return what the topics show about all that the group has decided; raise PipelineError."""
    run_at = datetime.now(UTC)
    if lake.read is not None:
        _check_tables(spark, lake.read)
    changes = set_over_rest(spark, config, cluster.servers, cluster.properties)
    unknown: tuple[PastSettings, ...] = (UNKNOWN,) if look.resized else ()
    earlier = unknown + earlier_of(config, changes)
    config = overlaid(config, changes)
    with KafkaAdmin(spark, cluster.servers, cluster.properties) as admin:
        plan = planned(config, admin.topics(), earlier, redriven_of(changes))
        carried = spark.createDataFrame([], _ORIGINS)

        def carry(spans: Spans) -> None:
            nonlocal carried
            carried = kept(carried_of(_read(spark, cluster, spans, is_cleaned=True)))

        cut = take_snapshot(admin, plan, carry)
        since = _since(spark, lake, look, plan, is_running=is_redriving(changes))
        outputs, output_spans = _written(spark, cluster, cut.outputs, lake.read, "messages", since)
        letters, letter_spans = _written(
            spark, cluster, cut.letters, lake.read, "dead_letters", since
        )
        cut = cut._replace(outputs=output_spans, letters=letter_spans)
        if since is not None:
            cut = since.window(cut)
        say(_size(plan, cut))
        spans = {partition: judged.span for partition, judged in cut.inputs.items()}
        inputs = _read(spark, cluster, spans)
        evidence = Evidence(plan, cut, inputs, outputs, letters, carried, since)
    if lake.findings is None:
        return judge(spark, evidence, look)
    history = lake.findings
    following: Since | None = None

    def append(compared: ComparedRecords) -> int:
        nonlocal following
        following = next_since(compared.known, compared.lost, cut, since)._replace(
            redriven=plan.redriven, is_redriving=is_redriving(changes)
        )
        return append_violations(spark, history, plan.group, run_at, compared.named)

    result = judge(spark, evidence, look, append)
    append_run(spark, history, result, run_at)
    assert following is not None
    save_since(spark, history, plan.group, following)
    return result


def _since(
    spark: SparkSession,
    lake: LakeTables,
    look: AnalyzeOptions,
    plan: ReconcileScope,
    *,
    is_running: bool,
) -> Since | None:
    """Return where the last run ended, if that is asked for; None if all records are needed."""
    if not lake.since_last or lake.findings is None:
        return None
    since = load_since(spark, lake.findings, plan.group)
    if since is None:
        say("this is the first run with these findings, so it compares all records")
    elif look.redriven or is_running or since.is_redriving or since.redriven != plan.redriven:
        # What a redrive has written belongs to inputs of any time.
        say("dead letters were redriven since the last run, so this one compares all records")
        return None
    return since


def _check_tables(spark: SparkSession, tables: str) -> None:
    folder = StorageFolder.of(spark, tables)
    if not any(format_of(folder / name) for name in TABLES):
        raise PipelineError(
            f"{folder} has no table of messages or dead letters: write them with ringfence "
            "pipeline tables, or leave --tables out to read the topics alone",
            exit_code=CONTRADICTION,
        )


def _written(
    spark: SparkSession,
    cluster: ClusterTopics,
    spans: Spans,
    tables: str | None,
    name: str,
    since: Since | None,
) -> tuple[DataFrame, Spans]:
    """Return the records of these spans, and the spans, which begin earlier with a table.

    A table has every record of a partition from its first, or its last gap, to its last; later ones
    are read from the topic. Where the topic has lost records in between, the table of that
    partition is left out.
    """
    wanted = {each: since.wanted(each) if since else 0 for each in spans}
    if tables is None:
        return _read(spark, cluster, _from(spans, wanted)), spans
    whole_from = gap_ends(spark, tables, name)
    wanted = {each: max(begin, whole_from.get(each, 0)) for each, begin in wanted.items()}
    fields = [field.name for field in RECORD.fields]
    # Delta skips the files of earlier offsets.
    is_needed = sf.col("offset") >= min(wanted.values(), default=0)
    table = read_table(spark, tables, name).select(*fields).where(is_needed)
    ends = table.groupBy("topic", "partition").agg(
        sf.min("offset").alias("first"), sf.max("offset").alias("last")
    )
    stored = {
        each: OffsetSpan(max(row["first"], whole_from.get(each, 0)), row["last"] + 1)
        for row in ends.collect()
        for each in [KafkaPartition(row["topic"], row["partition"])]
    }
    used = {
        partition: OffsetSpan(stored[partition].begin, min(stored[partition].end, span.end))
        for partition, span in spans.items()
        if partition in stored and stored[partition].end >= span.begin
    }
    later = {
        partition: span._replace(begin=used[partition].end) if partition in used else span
        for partition, span in spans.items()
    }
    limits = spark.createDataFrame(
        [(*partition, wanted[partition], span.end) for partition, span in used.items()],
        "topic string, partition int, wanted long, stored_end long",
    )
    rows = table.join(sf.broadcast(limits), ["topic", "partition"])
    is_inside = (sf.col("offset") >= sf.col("wanted")) & (sf.col("offset") < sf.col("stored_end"))
    rows = rows.where(is_inside).select(*fields)
    whole = {
        partition: OffsetSpan(min(span.begin, used[partition].begin), span.end)
        if partition in used
        else span
        for partition, span in spans.items()
    }
    return rows.unionByName(records(_read(spark, cluster, _from(later, wanted)))), whole


def _from(spans: Spans, wanted: Mapping[KafkaPartition, int]) -> Spans:
    """Return the spans without the offsets that are not wanted."""
    return {
        each: OffsetSpan(min(max(span.begin, wanted[each]), span.end), span.end)
        for each, span in spans.items()
    }


def _size(plan: ReconcileScope, cut: Snapshot) -> str:
    """Return what is read, in a sentence; a topic may have fewer records than offsets."""
    spans = [judged.span for judged in cut.inputs.values()]
    spans += [*cut.outputs.values(), *cut.letters.values()]
    topics = len(plan.inputs) + len(plan.outputs) + len(plan.letters)
    offsets = sum(span.end - span.begin for span in spans)
    return f"reading {offsets:,} offsets of {topics} topics, and comparing their records"


def _read(
    spark: SparkSession, cluster: ClusterTopics, spans: Spans, *, is_cleaned: bool = False
) -> DataFrame:
    """Return the records of these spans; with `is_cleaned`, some may be deleted meanwhile."""
    return read_spans(spark, cluster.servers, spans, cluster.properties, is_cleaned=is_cleaned)
