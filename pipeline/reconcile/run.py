"""Reconciliation run: takes a snapshot, reads the topics up to it, and analyzes the records.

It writes nothing, and the service may keep running.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pipeline.admin import KafkaAdmin
from pipeline.config import overlaid, read_config, set_over_rest
from pipeline.errors import reading_failed
from pipeline.java_properties import java_properties, servers_of
from pipeline.reconcile.analyze import AnalyzeOptions, Evidence, judge
from pipeline.reconcile.blocks import kept
from pipeline.reconcile.extract import carried_of
from pipeline.reconcile.results import ReconcileResult
from pipeline.reconcile.scope import UNKNOWN, PastSettings, earlier_of, planned, redriven_of
from pipeline.reconcile.snapshot import Spans, take_snapshot
from pipeline.session import SessionOptions, open_session
from pipeline.source import read_spans
from service.config.load import Config

_ORIGINS: Final = "origin struct<topic: string, partition: int, offset: long>"


class ClusterTopics(NamedTuple):
    """The cluster of the topics, and the client properties for it."""

    servers: str
    properties: Mapping[str, str]


def run_reconcile(
    file: Path, properties: Mapping[str, str], look: AnalyzeOptions, *, session: SessionOptions
) -> ReconcileResult:
    """Reconcile by a service's configuration file, in a session of its own; raise PipelineError."""
    config = read_config(file)
    cluster = ClusterTopics(servers_of(config.kafka), java_properties(config.kafka, properties))
    spark = open_session(session)
    try:
        return reconcile(spark, config, cluster, look)
    except (Py4JJavaError, PySparkException) as error:
        raise reading_failed(cluster.servers, str(error)) or error from error
    finally:
        spark.stop()


def reconcile(
    spark: SparkSession,
    config: Config,
    cluster: ClusterTopics,
    look: AnalyzeOptions = AnalyzeOptions(),  # noqa: B008
) -> ReconcileResult:
    """Return what the topics show about all that the group has decided; raise PipelineError."""
    records = set_over_rest(spark, config, cluster.servers, cluster.properties)
    unknown: tuple[PastSettings, ...] = (UNKNOWN,) if look.resized else ()
    earlier = unknown + earlier_of(config, records)
    config = overlaid(config, records)
    with KafkaAdmin(spark, cluster.servers, cluster.properties) as admin:
        plan = planned(config, admin.topics(), earlier, redriven_of(records))
        carried = spark.createDataFrame([], _ORIGINS)

        def carry(spans: Spans) -> None:
            nonlocal carried
            carried = kept(carried_of(_read(spark, cluster, spans, is_cleaned=True)))

        cut = take_snapshot(admin, plan, carry)
        spans = {partition: judged.span for partition, judged in cut.inputs.items()}
        evidence = Evidence(
            plan,
            cut,
            _read(spark, cluster, spans),
            _read(spark, cluster, cut.outputs),
            _read(spark, cluster, cut.letters),
            carried,
        )
        return judge(spark, evidence, look)


def _read(
    spark: SparkSession, cluster: ClusterTopics, spans: Spans, *, is_cleaned: bool = False
) -> DataFrame:
    """Return the records of these spans; with `is_cleaned`, some may be deleted meanwhile."""
    return read_spans(spark, cluster.servers, spans, cluster.properties, is_cleaned=is_cleaned)
