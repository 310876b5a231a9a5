"""Bridge configuration: `[bridge]` with its two clusters, and `[api]`.

A file may contain the sections of `ringfence serve` too; they are ignored here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ringfence_service.config.kafka_properties import (
    CONSUMER_ONLY,
    OFFSET_PROPERTIES,
    OWNED_OF_CONSUMERS,
    PRODUCER_ONLY,
    Elsewhere,
    KafkaSettings,
    Owned,
    login_problems,
    no_servers,
    read_properties,
)
from ringfence_service.config.keys import GivenValue
from ringfence_service.config.load import (
    CLUSTERS,
    OWN_PREFIX,
    ConfigErrors,
    properties_of,
    read_cluster_variables,
    read_document,
    read_own_variables,
    read_part,
    section_problems,
)
from ringfence_service.config.model import ApiSettings, BridgeSettings, LogSettings
from ringfence_service.config.validation import api_problems, template_problems, topics_problems
from ringfence_service.errors import ConfigIssue

_REMOVE = "remove it"

_OFFSETS = "an offset is committed only after its messages are delivered"

_GROUP = "the bridge controls how partitions are assigned"

_ACKS = "a message that not every replica has acknowledged may be lost"

_TWICE = "without it the client itself duplicates and reorders messages"

_TIMEOUT = "a message that times out would leave a gap before the next ones"

_BATCH = "a whole batch must fit the producer's queue"

_TRANSACTION = "the bridge delivers at least once and uses no transactions"

_NO_TOPIC = ("a mistyped topic must not be created", "create the topic yourself")

_OWNED_OF_SOURCE: Final[Owned] = {
    **dict.fromkeys(OFFSET_PROPERTIES, (_OFFSETS, _REMOVE)),
    "auto.offset.reset": (
        "a lost offset must not skip messages silently",
        "remove it: the bridge begins with the earliest message, and a lost offset ends it",
    ),
    **OWNED_OF_CONSUMERS,
    "enable.partition.eof": ("the bridge does not use end-of-partition events", _REMOVE),
    "group.id": ("the bridge sets it", "use bridge.group_id"),
    "group.instance.id": (_GROUP, _REMOVE),
    "group.protocol": (_GROUP, _REMOVE),
    "group.protocol.type": (_GROUP, _REMOVE),
    "group.remote.assignor": (_GROUP, _REMOVE),
    "partition.assignment.strategy": (_GROUP, _REMOVE),
    "session.timeout.ms": ("the bridge sets it", "use bridge.session_timeout_ms"),
    "heartbeat.interval.ms": (
        "it is derived from the session timeout",
        "use bridge.session_timeout_ms",
    ),
    "allow.auto.create.topics": _NO_TOPIC,
    "topic.blacklist": ("it would silently hide topics", "narrow bridge.topics"),
}

_OWNED_OF_TARGET: Final[Owned] = {
    "acks": (_ACKS, _REMOVE),
    "request.required.acks": (_ACKS, _REMOVE),
    "enable.idempotence": (_TWICE, _REMOVE),
    "enable.gapless.guarantee": (_TWICE, _REMOVE),
    "queuing.strategy": ("the order of messages depends on it", _REMOVE),
    "message.timeout.ms": (_TIMEOUT, _REMOVE),
    "delivery.timeout.ms": (_TIMEOUT, _REMOVE),
    "retries": (_TIMEOUT, _REMOVE),
    "message.send.max.retries": (_TIMEOUT, _REMOVE),
    "transactional.id": (_TRANSACTION, _REMOVE),
    "transaction.timeout.ms": (_TRANSACTION, _REMOVE),
    "delivery.report.only.error": ("failed deliveries are counted with it", _REMOVE),
    "partitioner": ("the bridge chooses the partition", "use bridge.keep_partition"),
    "batch.size": (_BATCH, _REMOVE),
    "batch.num.messages": ("a refused message is found with it", _REMOVE),
    "queue.buffering.max.kbytes": (_BATCH, _REMOVE),
    "queue.buffering.max.messages": (_BATCH, _REMOVE),
    "message.max.bytes": ("the limit of each topic applies", "set max.message.bytes of the topics"),
    "allow.auto.create.topics": _NO_TOPIC,
}

_OWNED: Final[Mapping[str, Owned]] = {"source": _OWNED_OF_SOURCE, "target": _OWNED_OF_TARGET}

_ELSEWHERE: Final[Mapping[str, Elsewhere]] = {
    "source": dict.fromkeys(PRODUCER_ONLY, "[bridge.target]"),
    "target": dict.fromkeys(CONSUMER_ONLY, "[bridge.source]"),
}


def read_cluster(
    cluster: str, given: Mapping[str, GivenValue], problems: list[ConfigIssue]
) -> KafkaSettings:
    """Read `[bridge.source]` or `[bridge.target]`; each refused property adds a problem."""
    accepted = read_properties(given, _OWNED[cluster], _ELSEWHERE[cluster], problems)
    table, variable = (
        f"bridge.{cluster}",
        f"{OWN_PREFIX}BRIDGE__{cluster.upper()}__BOOTSTRAP_SERVERS",
    )
    problems.extend(no_servers(given, table, variable))
    problems.extend(login_problems(accepted, table))
    return KafkaSettings(
        common={n: v for n, v in accepted.items() if n not in CONSUMER_ONLY | PRODUCER_ONLY},
        consumer={n: v for n, v in accepted.items() if n in CONSUMER_ONLY},
        producer={n: v for n, v in accepted.items() if n in PRODUCER_ONLY},
        admin={},
    )


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
        """Return the target's topic for records that cannot be forwarded."""
        return self.bridge.dead_letter.replace("{group_id}", self.bridge.group_id)

    @property
    def has_servers(self) -> bool:
        """Whether both clusters have bootstrap servers."""
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
) -> tuple[BridgeConfig | None, list[ConfigIssue]]:
    """Return the configuration, with defaults for invalid keys, and all problems.

    The configuration is None if the file is not valid TOML.
    """
    problems: list[ConfigIssue] = []
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
    variables = read_own_variables(environ, problems)
    bridge = read_part(BridgeSettings, SECTION, {SECTION: keys}, variables, problems)
    problems.extend(_problems(bridge))
    api = read_part(ApiSettings, "api", document, variables, problems)
    problems.extend(api_problems(api))
    log = read_part(LogSettings, "log", document, variables, problems)
    return BridgeConfig(bridge, clusters["source"], clusters["target"], api, log), problems


def _read_cluster(
    cluster: str, content: object, environ: Mapping[str, str], problems: list[ConfigIssue]
) -> KafkaSettings:
    table = f"{SECTION}.{cluster}"
    if not isinstance(content, dict):
        problems.append(
            ConfigIssue(f"{table} is not a table", f"write [{table}] above its properties")
        )
        content = {}
    given = properties_of(content, table) | read_cluster_variables(cluster, environ, problems)
    return read_cluster(cluster, given, problems)


def _problems(bridge: BridgeSettings) -> Iterator[ConfigIssue]:
    if not bridge.topics:
        what = "bridge.topics is missing, so there is nothing to forward"
        yield ConfigIssue(what, 'write topics = ["your-topic"] in [bridge]')
    yield from topics_problems("bridge.topics", bridge.topics, bridge.group_id, "bridge.group_id")
    for key, allowed in (("target_topic", "topic"), ("dead_letter", "group_id")):
        template: str = getattr(bridge, key)
        yield from template_problems(f"bridge.{key}", template, (allowed,), is_topic=True)
    if bridge.target_topic == bridge.dead_letter:
        what = f'bridge.target_topic and .dead_letter are both "{bridge.target_topic}"'
        yield ConfigIssue(what, "use different topics for messages and dead letters")
