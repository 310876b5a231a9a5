"""The run of a reconciliation: a cut of the broker, the topics up to it, what is judged of them.

Nothing is written anywhere, and the service may go on meanwhile.
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
from pipeline.jars import connector_jars
from pipeline.java_properties import java_properties, servers_of
from pipeline.reconcile.analyze import AnalyzeOptions, Evidence, judge, kept
from pipeline.reconcile.extract import carried_of
from pipeline.reconcile.results import ReconcileResult
from pipeline.reconcile.scope import UNKNOWN, PastSettings, earlier_of, planned, redriven_of
from pipeline.reconcile.snapshot import Spans, take_cut
from pipeline.session import open_session
from pipeline.source import read_spans
from service.config.load import Config

_ORIGINS: Final = "origin struct<topic: string, partition: int, offset: long>"


class ClusterTopics(NamedTuple):
    """Where the topics are, and how to talk to it."""

    servers: str
    properties: Mapping[str, str]


def run_reconcile(
    file: Path, properties: Mapping[str, str], look: AnalyzeOptions, *, jars: Path | None
) -> ReconcileResult:
    """The same in a session of its own, of what the service's configuration says."""
    config = read_config(file)
    cluster = ClusterTopics(servers_of(config.kafka), java_properties(config.kafka, properties))
    spark = open_session(connector_jars(jars))
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
    """What the topics tell of all that the group has decided."""
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

        cut = take_cut(admin, plan, carry)
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
    """The records of these spans; `is_cleaned`: some may be deleted meanwhile, by right."""
    return read_spans(spark, cluster.servers, spans, cluster.properties, is_cleaned=is_cleaned)
