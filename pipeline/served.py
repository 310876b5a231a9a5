"""The configuration that is served: the service's file, and over it what was set over REST since.

The file is read away from the service, so what only serving needs may be missing here: the files of
`[api]`, the libraries of `[tracing]`.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from pipeline.errors import USAGE, PipelineError
from ringfence.topics import internal
from service.config import Config, ConfigErrors, load
from service.revisions import Revisions, in_force


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
    return in_force(config, revisions_of(records))[0].config


def revisions_of(records: Records) -> Revisions:
    """The settings documents among them."""
    revisions = Revisions()
    for key, value, offset in records:
        revisions.take(key, value, offset + 1)
    return revisions
