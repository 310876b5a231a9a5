"""The config topic: what was set over REST, read with Spark and laid over the file."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.admin import KafkaAdmin, OffsetSpan
from pipeline.errors import USAGE, PipelineError
from pipeline.source import read_spans
from ringfence.headers import internal
from service.config.load import Config, ConfigErrors, load
from service.metadata.settings import SettingsHistory, effective_settings, is_file_managed


def read_config(file: Path) -> Config:
    """The configuration; PipelineError with all that is wrong with it."""
    try:
        return load(file, os.environ, serves=False)
    except ConfigErrors as errors:
        raise PipelineError(str(errors), exit_code=USAGE) from errors


def config_topic_of(config: Config) -> str:
    """Where what is set over REST stands."""
    return internal(config.service.group_id, "config")


Records = Iterable[tuple[bytes | None, bytes | None, int]]
"""Of the config topic, in their order: keys, values and offsets."""


def overlaid(config: Config, records: Records) -> Config:
    """The configuration with what was set over REST."""
    return effective_settings(config, revisions_of(records))[0].config


def revisions_of(records: Records) -> SettingsHistory:
    """The settings documents among them."""
    revisions = SettingsHistory()
    for key, value, offset in records:
        revisions.take(key, value, offset + 1)
    return revisions


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
    if is_file_managed(config):
        return []
    with KafkaAdmin(spark, servers, properties) as admin:
        if topic not in admin.topics():
            return []
        partitions = admin.partitions([topic])
        begins, ends = admin.begins(partitions), admin.stable_ends(partitions)
    spans = {each: OffsetSpan(min(begins[each], ends[each]), ends[each]) for each in partitions}
    records = read_spans(spark, servers, spans, properties, is_cleaned=True).orderBy("offset")
    return [
        (row["key"] and bytes(row["key"]), row["value"] and bytes(row["value"]), row["offset"])
        for row in records.select("key", "value", "offset").collect()
    ]
