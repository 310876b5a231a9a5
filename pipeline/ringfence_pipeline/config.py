"""Effective configuration for Spark jobs: the file, overlaid by the settings made over REST.

The settings are read with Spark from the metadata topic.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from ringfence_client.headers import internal
from ringfence_pipeline.admin import KafkaAdmin, OffsetSpan
from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.source import read_spans
from ringfence_service.config.load import ConfigErrors, load
from ringfence_service.config.model import Config
from ringfence_service.config.validation import reads_schemas
from ringfence_service.metadata.layout import as_started, layout_of
from ringfence_service.metadata.overlay import effective_settings
from ringfence_service.metadata.settings import SettingsHistory


def read_config(file: Path) -> Config:
    """Return the configuration of a file; raise PipelineError with all its problems."""
    try:
        config = load(file, os.environ, serves=False)
    except ConfigErrors as errors:
        raise PipelineError(str(errors), exit_code=USAGE) from errors
    return readable(config)


def readable(config: Config) -> Config:
    """Return a configuration whose templates Spark can fill; PipelineError for another one."""
    for route in config.routes:
        if reads_schemas(route):
            sentence = (
                f"route {route.name!r} reads payloads by their schemas ({{schema:...}}), and jobs "
                "on Spark have no schema registry: use a configuration without that route"
            )
            raise PipelineError(sentence, exit_code=USAGE)
    return config


def config_topic_of(config: Config) -> str:
    """Return the name of the metadata topic, which contains the settings made over REST."""
    return internal(config.service.group_id, "config")


Records = Iterable[tuple[bytes | None, bytes | None, int]]
"""Keys, values and offsets of the metadata topic, in order."""


def overlaid(config: Config, records: Records) -> Config:
    """Return the configuration overlaid by the settings in these records, if it is readable."""
    found = list(records)
    effective = effective_settings(config, revisions_of(found))[0].config
    layouts = filter(None, (layout_of(key, value) for key, value, _ in found))
    return readable(as_started(effective, next(iter(reversed(list(layouts))), None)))


def revisions_of(records: Records) -> SettingsHistory:
    """Return the settings documents among these records."""
    revisions = SettingsHistory()
    for key, value, offset in records:
        revisions.take(key, value, offset + 1)
    return revisions


def as_served(
    spark: SparkSession, config: Config, servers: str, properties: Mapping[str, str]
) -> Config:
    """Return the effective configuration of a service with this file."""
    return overlaid(config, set_over_rest(spark, config, servers, properties))


def set_over_rest(
    spark: SparkSession, config: Config, servers: str, properties: Mapping[str, str]
) -> list[tuple[bytes | None, bytes | None, int]]:
    """Return the records of the metadata topic, in order; none before the group has started."""
    topic = config_topic_of(config)
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
