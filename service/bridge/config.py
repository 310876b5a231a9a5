"""The configuration of a bridge: `[bridge]` with its two clusters, and `[api]`.

A file may hold the sections of `ringfence serve` too; they are not looked at here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from service.api_checks import api_problems
from service.bridge.properties import read_cluster
from service.config import ConfigErrors, read_part
from service.document import properties_of, read_document, section_problems
from service.environment import CLUSTERS, read_cluster_variables, read_ours
from service.errors import Problem
from service.kafka_properties import KafkaSettings
from service.route_checks import template_problems, topics_problems
from service.sections import ApiSettings, BridgeSettings, LogSettings

SECTION: Final = "bridge"


@dataclass(frozen=True, slots=True)
class BridgeConfig:
    """All settings of one bridge."""

    bridge: BridgeSettings
    source: KafkaSettings
    target: KafkaSettings
    api: ApiSettings
    log: LogSettings = field(default_factory=LogSettings)

    @property
    def dead_letter(self) -> str:
        """The topic of the target that takes what cannot be forwarded."""
        return self.bridge.dead_letter.replace("{group_id}", self.bridge.group_id)

    @property
    def has_servers(self) -> bool:
        """Whether both clusters have an address."""
        tables = (self.source.common, self.target.common)
        return all("bootstrap.servers" in properties for properties in tables)


def load(path: Path, environ: Mapping[str, str]) -> BridgeConfig:
    """Return the configuration, or raise ConfigErrors with all problems."""
    config, problems = load_lenient(path, environ)
    if config is None or problems:
        raise ConfigErrors(problems)
    return config


def load_lenient(
    path: Path, environ: Mapping[str, str]
) -> tuple[BridgeConfig | None, list[Problem]]:
    """Return what could be read, with defaults for what is faulty, and every problem."""
    problems: list[Problem] = []
    document = read_document(path, problems)
    if document is None:
        return None, problems
    problems.extend(section_problems(document))
    content = document.get(SECTION)
    keys = dict(content) if isinstance(content, dict) else {}
    clusters = {
        cluster: _read_cluster(cluster, keys.pop(cluster, {}), environ, problems)
        for cluster in CLUSTERS
    }
    ours = read_ours(environ, problems)
    bridge = read_part(BridgeSettings, SECTION, {SECTION: keys}, ours, problems)
    problems.extend(_problems(bridge))
    api = read_part(ApiSettings, "api", document, ours, problems)
    problems.extend(api_problems(api))
    log = read_part(LogSettings, "log", document, ours, problems)
    return BridgeConfig(bridge, clusters["source"], clusters["target"], api, log), problems


def _read_cluster(
    cluster: str, content: object, environ: Mapping[str, str], problems: list[Problem]
) -> KafkaSettings:
    table = f"{SECTION}.{cluster}"
    if not isinstance(content, dict):
        problems.append(Problem(f"{table} is not a table", f"write [{table}] above its properties"))
        content = {}
    given = properties_of(content, table) | read_cluster_variables(cluster, environ, problems)
    return read_cluster(cluster, given, problems)


def _problems(bridge: BridgeSettings) -> Iterator[Problem]:
    if not bridge.topics:
        what = "bridge.topics is missing, so there is nothing to forward"
        yield Problem(what, 'write topics = ["your-topic"] in [bridge]')
    yield from topics_problems("bridge.topics", bridge.topics, bridge.group_id, "bridge.group_id")
    for key, allowed in (("target_topic", "topic"), ("dead_letter", "group_id")):
        template: str = getattr(bridge, key)
        yield from template_problems(f"bridge.{key}", template, (allowed,), is_topic=True)
    if bridge.target_topic == bridge.dead_letter:
        what = f'bridge.target_topic and .dead_letter are both "{bridge.target_topic}"'
        yield Problem(what, "give messages and dead letters topics of their own")
