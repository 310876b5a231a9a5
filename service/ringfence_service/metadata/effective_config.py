"""Effective configuration: that of the running service, for a command that has only the file.

Routes and addresses set over REST override those of the file (`overlay.apply_overlay`). Nothing is
written: no writer of the metadata topic is fenced, and a missing topic is not created.
"""

from contextlib import closing
from typing import NamedTuple

from ringfence_service.clock import Clock
from ringfence_service.config.model import Config
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.layout import Topology, as_started
from ringfence_service.metadata.overlay import (
    effective_settings,
    evaluate,
    is_file_managed,
)
from ringfence_service.metadata.topic import MetadataReader


class EffectiveConfig(NamedTuple):
    """A configuration, and what is wrong with newer settings that it leaves out."""

    config: Config
    fault: str | None = None
    """Why the newest settings are invalid with this file; None if they are valid."""
    layout: Topology | None = None
    """The choices of the first start; None if the group has not started yet."""


def in_effect(file: Config, clients: Clients, clock: Clock) -> EffectiveConfig:
    """Apply the settings made over REST to the file; KafkaException if the broker refuses."""
    topic = config_topic(file.service.group_id)
    if topic not in clients.cluster.topics([topic]):
        return EffectiveConfig(file)
    with closing(MetadataReader(clients, topic, clock)) as reader:
        reader.catch_up(may_fence=False)
        documents, layout = reader.settings.documents, reader.settings.layout
    newest = None if is_file_managed(file) else documents.newest
    fault = None if newest is None else evaluate(file, newest)[1]
    config = as_started(effective_settings(file, documents)[0].config, layout)
    if newest is None or fault is None:
        return EffectiveConfig(config, None, layout)
    sentence = f"the settings of revision {newest.revision} are invalid with this file: {fault}"
    return EffectiveConfig(config, sentence, layout)
