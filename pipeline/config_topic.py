"""The config topic: what was set over REST, read with Spark and laid over the file."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from pipeline.admin import Admin, Span
from pipeline.served import config_topic_of, overlaid
from pipeline.source import read_spans
from service.config import Config
from service.revisions import is_alone


def as_served(
    spark: SparkSession, config: Config, servers: str, properties: Mapping[str, str]
) -> Config:
    """What a service with this file goes by now."""
    return overlaid(config, set_over_rest(spark, config, servers, properties))


def set_over_rest(
    spark: SparkSession, config: Config, servers: str, properties: Mapping[str, str]
) -> list[tuple[bytes | None, bytes | None, int]]:
    """Keys, values and offsets of the topic, in their order; none where the file is alone."""
    topic = config_topic_of(config)
    if is_alone(config):
        return []
    with Admin(spark, servers, properties) as admin:
        if topic not in admin.topics():
            return []
        partitions = admin.partitions([topic])
        begins, ends = admin.begins(partitions), admin.stable_ends(partitions)
    spans = {each: Span(min(begins[each], ends[each]), ends[each]) for each in partitions}
    records = read_spans(spark, servers, spans, properties, is_cleaned=True).orderBy("offset")
    return [
        (row["key"] and bytes(row["key"]), row["value"] and bytes(row["value"]), row["offset"])
        for row in records.select("key", "value", "offset").collect()
    ]
