"""Topic mapping: a source topic and its target topic, and which pairs exist now.

A topic is forwarded once both ends exist; a missing end is reported and looked for again.
Invariant: while records may have been delivered without being committed, the partition count by
which their target partitions are chosen does not change.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from ringfence_service.bridge.clients import asking
from ringfence_service.bridge.config import BridgeConfig
from ringfence_service.clock import Clock
from ringfence_service.config.expressions import may_be_read, reads
from ringfence_service.dedup.route import absent
from ringfence_service.errors import ConfigIssue, ExitCode, ExitError
from ringfence_service.kafka.model import ClusterAdmin, TopicInfo
from ringfence_service.kafka.topics import new_dead_letters

_REFRESH_S: Final = 30.0
"""How often topics are looked for while none is missing: a new one waits so long.

Each time takes several requests to both clusters. After a failure they are made at once.
"""
_MISSING_REFRESH_S: Final = 3.0
"""The same while a topic is missing; less than `_REFRESH_S`, since records wait for it."""
_BATCH_BYTES_MAX: Final = 1_000_000
"""The default of librdkafka for `batch.size`; a target topic that takes less lowers it."""


class TopicMapping(NamedTuple):
    """A source topic and its target topic."""

    source: str
    target: str
    partitions: int
    """Number of partitions of the target."""
    record_bytes_max: int


class TopicMappings:
    """The topics that are forwarded now."""

    def __init__(
        self, config: BridgeConfig, source: ClusterAdmin, target: ClusterAdmin, clock: Clock
    ) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._clock = clock
        self._asked_s = float("-inf")
        self.open: Mapping[str, TopicMapping] = {}
        """Mappings with both topics, by source topic."""
        self.missing: tuple[str, ...] = ()
        """A phrase for each missing topic."""
        self.cluster_id = ""
        """Cluster id of the source; empty until it has answered."""

    @property
    def batch_bytes_max(self) -> int:
        """Return the size of the largest request that every target topic takes."""
        limits = (mapping.record_bytes_max for mapping in self.open.values())
        return min([_BATCH_BYTES_MAX, *limits])

    def suspect(self) -> None:
        """Make the next `refresh` query the clusters at once, after a failure."""
        self._asked_s = float("-inf")

    def refresh(self, *, settled: bool) -> None:
        """Query both clusters when it is due; raise ExitError if they contradict the configuration.

        Unless `settled`, topics that are forwarded already keep their partition count.
        """
        every_s = _MISSING_REFRESH_S if self.missing else _REFRESH_S
        if self._clock.monotonic_s() - self._asked_s < every_s:
            return
        with asking("source"):
            cluster_id = self._source.cluster_id()
            names = self._source.names()
            targets = targets_of(self._config, names)
            sources = self._source.topics(targets)
        with asking("target"):
            found = self._target.topics({*targets.values(), self._config.dead_letter})
            self._make_dead_letters(found)
            is_same = self._target.cluster_id() == cluster_id
        problems = contradictions(self._config, targets, sources, found, is_same=is_same)
        for problem in problems:
            sentence = f"The bridge cannot forward: {problem}"
            raise ExitError(ExitCode.CONTRADICTION, sentence)
        self.cluster_id = cluster_id
        known = {} if settled else self.open
        self.open = {
            name: _mapping(name, targets[name], end, known.get(name))
            for name in sources
            if (end := found.get(targets[name])) is not None
        }
        self.missing = missing_ends(self._config, names, targets, found)
        self._asked_s = self._clock.monotonic_s()

    def _make_dead_letters(self, found: Mapping[str, TopicInfo]) -> None:
        if self._config.dead_letter not in found:
            self._target.create([new_dead_letters(self._config.dead_letter, -1)])


def _mapping(name: str, target: str, end: TopicInfo, known: TopicMapping | None) -> TopicMapping:
    partitions = end.partitions if known is None else known.partitions
    return TopicMapping(name, target, partitions, end.record_bytes_max)


def targets_of(config: BridgeConfig, names: frozenset[str]) -> dict[str, str]:
    """Return the target topic of each source topic to forward."""
    bridge = config.bridge
    return {
        name: bridge.target_topic.replace("{topic}", name)
        for name in sorted(names)
        if may_be_read(name, bridge.topics, bridge.group_id) and reads(bridge.topics, name)
    }


def missing_ends(
    config: BridgeConfig,
    names: frozenset[str],
    targets: Mapping[str, str],
    found: Collection[str],
) -> tuple[str, ...]:
    """Return a phrase for each topic that has to be created first."""
    sources = [f"the source topic {name}" for name in absent(config.bridge.topics, names)]
    ends = [f"the target topic {name}" for name in sorted(set(targets.values()).difference(found))]
    return (*sources, *ends)


def contradictions(
    config: BridgeConfig,
    targets: Mapping[str, str],
    sources: Mapping[str, TopicInfo],
    found: Mapping[str, TopicInfo],
    *,
    is_same: bool,
) -> list[ConfigIssue]:
    """Return contradictions between ends; `is_same` means that both clusters are the same."""
    problems = []
    for name, target in targets.items():
        if is_same and target in targets:
            what = f'"{target}" would be read and written: source and target are the same cluster'
            problems.append(ConfigIssue(what, "change bridge.target_topic"))
        source, end = sources.get(name), found.get(target)
        if source is None or end is None or not config.bridge.keep_partition:
            continue
        if end.partitions < source.partitions:
            what = (
                f'the target topic "{target}" has {end.partitions} partitions, '
                f'its source "{name}" has {source.partitions}'
            )
            problems.append(
                ConfigIssue(what, "add partitions, or set bridge.keep_partition = false")
            )
    return problems
