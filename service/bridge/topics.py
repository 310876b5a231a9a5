"""Topic mapping: a source topic and its target topic, and which pairs exist now.

A topic is forwarded once both ends exist; a missing end is reported and looked for again.
Invariant: while records may have arrived without being committed, the number of partitions from
which their target partitions follow does not change.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from service.bridge.clients import asking
from service.bridge.config import BridgeConfig
from service.clock import Clock
from service.dedup.route import absent, reads
from service.errors import ConfigIssue, ExitCode, ExitError
from service.kafka.admin import ClusterAdmin, TopicInfo
from service.kafka.topics import new_dead_letters

_REFRESH_S: Final = 30.0
_MISSING_REFRESH_S: Final = 3.0
_BATCH_BYTES_MAX: Final = 1_000_000


class TopicMapping(NamedTuple):
    """One topic on its way."""

    source: str
    target: str
    partitions: int
    """Of the target."""
    record_bytes_max: int


class TopicMappings:
    """The topics that cross now."""

    def __init__(
        self, config: BridgeConfig, source: ClusterAdmin, target: ClusterAdmin, clock: Clock
    ) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._clock = clock
        self._asked_s = float("-inf")
        self.open: Mapping[str, TopicMapping] = {}
        """By source topic."""
        self.missing: tuple[str, ...] = ()
        """A sentence for each end that does not exist."""
        self.cluster_id = ""
        """Of the source; empty until it has answered."""

    @property
    def batch_bytes_max(self) -> int:
        """The largest request that every target topic takes."""
        limits = (crossing.record_bytes_max for crossing in self.open.values())
        return min([_BATCH_BYTES_MAX, *limits])

    def suspect(self) -> None:
        """Ask again at once: something is not as it was."""
        self._asked_s = float("-inf")

    def refresh(self, *, settled: bool) -> None:
        """Ask both clusters when it is time; ExitError where they contradict the configuration.

        Unless all is settled, what crosses already keeps its number of partitions.
        """
        every_s = _MISSING_REFRESH_S if self.missing else _REFRESH_S
        if self._clock.monotonic_s() - self._asked_s < every_s:
            return
        with asking("source"):
            cluster_id = self._source.cluster_id()
            there = self._source.names()
            targets = targets_of(self._config, there)
            sources = self._source.topics(targets)
        with asking("target"):
            found = self._target.topics({*targets.values(), self._config.dead_letter})
            self._make_dead_letters(found)
            is_same = self._target.cluster_id() == cluster_id
        problems = contradictions(self._config, targets, sources, found, is_same=is_same)
        for what, mend in problems:
            sentence = f"The bridge cannot forward: {what}; {mend}."
            raise ExitError(ExitCode.CONTRADICTION, sentence)
        self.cluster_id = cluster_id
        known = {} if settled else self.open
        self.open = {
            name: _crossing(name, targets[name], end, known.get(name))
            for name in sources
            if (end := found.get(targets[name])) is not None
        }
        self.missing = missing_ends(self._config, there, targets, found)
        self._asked_s = self._clock.monotonic_s()

    def _make_dead_letters(self, found: Mapping[str, TopicInfo]) -> None:
        if self._config.dead_letter not in found:
            self._target.create([new_dead_letters(self._config.dead_letter, -1)])


def _crossing(name: str, target: str, end: TopicInfo, known: TopicMapping | None) -> TopicMapping:
    partitions = end.partitions if known is None else known.partitions
    return TopicMapping(name, target, partitions, end.record_bytes_max)


def targets_of(config: BridgeConfig, names: frozenset[str]) -> dict[str, str]:
    """The target topic of each topic of the source that is to be forwarded."""
    bridge = config.bridge
    return {
        name: bridge.target_topic.replace("{topic}", name)
        for name in sorted(names)
        if not name.startswith((f"{bridge.group_id}.", "__")) and reads(bridge.topics, name)
    }


def missing_ends(
    config: BridgeConfig,
    names: frozenset[str],
    targets: Mapping[str, str],
    found: Collection[str],
) -> tuple[str, ...]:
    """A sentence for each topic that has to be created first."""
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
    """Ends that do not go together; `is_same` where both clusters are one."""
    problems = []
    for name, target in targets.items():
        if is_same and target in targets:
            what = f'"{target}" would be read and written, both clusters being one'
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
