"""Topics: the names of the internal topics, and a snapshot of the output and dead-letter topics.

The service creates its internal topics with the settings they need. Output and dead-letter topics
belong to the user, unless `create_topics` is set.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from confluent_kafka import murmur2

from ringfence.headers import acknowledgements, internal
from service.errors import ConfigIssue
from service.kafka.admin import ClusterAdmin, TopicInfo, TopicSpec
from state.offset_metadata import TOMBSTONES_KEPT_MS

_BYTES_MAX: Final = 1_000_000_000  # more than a broker takes in one request
RECORD_BYTES_DEFAULT: Final = 1_048_588
"""What a topic takes where neither it nor its broker is configured: Kafka's own default."""
ENVELOPE_BYTES: Final = 64 * 1024
"""What our headers may add to a record."""
BY_ADDRESS: Final = "by-address"
"""In place of an input's name: the changelog of what is decided by address."""
_TOMBSTONES_KEPT_MS_MIN: Final = 60 * 60 * 1000  # twice what a long restore takes


def changelog(group_id: str, topic: str) -> str:
    """Where the decisions on an input topic are remembered, partition by partition."""
    return internal(group_id, f"changelog.{topic}")


def by_address(group_id: str) -> str:
    """Where records of scope `address` go to be decided, by their address."""
    return internal(group_id, BY_ADDRESS)


class RepartitionTopic(NamedTuple):
    """The topic by-address of a group."""

    topic: str
    partitions: int

    def partition_of(self, address: str) -> int:
        """The one that decides an address."""
        return murmur2(address.encode(), self.partitions)


def new_by_address(group_id: str, partitions: int, largest: int, replication: int) -> TopicSpec:
    """Nothing expires by itself: records may be years old, and their owner deletes the decided.

    `largest` is the size that the most generous input takes, in bytes. (KIP-284: Kafka Streams
    lost records to the retention of such a topic.)
    """
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "max.message.bytes": str(largest + ENVELOPE_BYTES),
        "segment.bytes": str(64 * 1024 * 1024),
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "CreateTime",
    }
    return TopicSpec(by_address(group_id), partitions, replication, settings)


def new_acknowledgements(group_id: str, replication: int) -> TopicSpec:
    """Where publishers read how far they are decided: the newest of each is kept."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    return TopicSpec(acknowledgements(group_id), 1, replication, settings)


def config_topic(group_id: str) -> str:
    """What is set while the service runs."""
    return internal(group_id, "config")


def new_config_topic(group_id: str, replication: int) -> TopicSpec:
    """One partition, so that there is one order; the newest of each key is kept."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    return TopicSpec(config_topic(group_id), 1, replication, settings)


def fallback(group_id: str) -> str:
    """Where records go whose own dead-letter topic cannot take them."""
    return internal(group_id, "dead-letters")


def new_changelog(
    group_id: str, topic: str, partitions: int, largest: int, replication: int
) -> TopicSpec:
    """A changelog: compacted, never expired by time, small segments for a quick restore.

    It takes any record of its input, `largest` bytes at most: those of a group wait in it.
    """
    settings = {
        "max.message.bytes": str(largest + ENVELOPE_BYTES),
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.3",
        "segment.bytes": str(64 * 1024 * 1024),
        "delete.retention.ms": str(TOMBSTONES_KEPT_MS),
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "CreateTime",
    }
    return TopicSpec(changelog(group_id, topic), partitions, replication, settings)


def changelog_problems(name: str, has: TopicInfo) -> list[ConfigIssue]:
    """What is wrong with a changelog: it would forget ids, or bring back what was forgotten."""
    policies, problems = has.cleanup_policy.split(","), []
    if "compact" not in policies:
        what = f'the changelog "{name}" has cleanup.policy {has.cleanup_policy}'
        problems.append(ConfigIssue(what, "set its cleanup.policy to compact"))
    elif "delete" in policies:
        problems += _retention_problems(name, has)
    if has.tombstones_kept_ms < _TOMBSTONES_KEPT_MS_MIN:
        what = f'the changelog "{name}" has delete.retention.ms {has.tombstones_kept_ms}'
        problems.append(ConfigIssue(what, f"set its delete.retention.ms to {TOMBSTONES_KEPT_MS}"))
    return problems


def by_address_problems(name: str, has: TopicInfo) -> list[ConfigIssue]:
    """What is wrong with the topic by-address: records would go before they are decided."""
    problems = _retention_problems(name, has)
    if has.cleanup_policy != "delete":
        what = f'"{name}" has cleanup.policy {has.cleanup_policy}'
        problems.append(ConfigIssue(what, "set its cleanup.policy to delete"))
    if has.timestamp_type != "CreateTime":
        what = f'"{name}" has message.timestamp.type {has.timestamp_type}'
        mend = "set it to CreateTime: records keep the timestamps of their inputs"
        problems.append(ConfigIssue(what, mend))
    return problems


def limits_to_raise(
    group_id: str,
    own: Iterable[TopicSpec],
    inputs: Mapping[str, TopicInfo],
    there: Mapping[str, TopicInfo],
) -> dict[str, int]:
    """Our own topics that take less than the inputs by now, and what they have to take."""
    largest = max((each.record_bytes_max for each in inputs.values()), default=0)
    found = {}
    for wanted in own:
        has, needs = there.get(wanted.name), int(wanted.settings.get("max.message.bytes", 0))
        if wanted.name == fallback(group_id):
            needs = min(needs, largest + ENVELOPE_BYTES)
        if has is not None and has.record_bytes_max < needs:
            found[wanted.name] = needs
    return found


def _retention_problems(name: str, has: TopicInfo) -> list[ConfigIssue]:
    return [
        ConfigIssue(f'"{name}" has {setting} {value}', f"set its {setting} to -1")
        for setting, value in has.retention.items()
        if value != "-1"
    ]


def new_dead_letters(name: str, replication: int) -> TopicSpec:
    """For dead letters of all kinds: takes whatever any topic may ever hold, with its envelope."""
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "max.message.bytes": str(_BYTES_MAX),
    }
    return TopicSpec(name, 1, replication, settings)


def new_target(name: str, input_: TopicInfo, replication: int) -> TopicSpec:
    """An output or dead-letter topic like its input, with room for the envelope.

    It keeps for as long: records have the times of their inputs, which may be years old.
    """
    settings = {
        **input_.retention,
        "max.message.bytes": str(input_.record_bytes_max + ENVELOPE_BYTES),
    }
    return TopicSpec(name, input_.partitions, replication, settings)


class OutputTopics:
    """What we know of the topics that we write. Asking is pure; only `refresh` does I/O."""

    def __init__(self, cluster: ClusterAdmin, *, are_made: bool = False) -> None:
        """`are_made`: whoever waits for one that is absent will see it made."""
        self._cluster = cluster
        self._are_made = are_made
        self._known: dict[str, TopicInfo | None] = {}
        self._absent: frozenset[str] = frozenset()
        self.is_missed = False
        """Whether one was asked for that the last `refresh` has not found."""

    def find(self, name: str) -> TopicInfo | None:
        """The topic, or None when it is absent, as far as is known: the next `refresh` asks."""
        return self._known.setdefault(name, None)

    def is_absent(self, name: str) -> bool:
        """Whether the last `refresh` has not found it, if that is still believed."""
        is_absent = name in self._absent
        self.is_missed = self.is_missed or is_absent
        return is_absent

    def refresh(self, names: Iterable[str] = ()) -> None:
        """Ask the cluster for these and for all that was asked before."""
        wanted = self._known.keys() | set(names)
        found = self._cluster.topics(wanted)
        self._known = {name: found.get(name) for name in wanted}
        self._absent = frozenset() if self._are_made else frozenset(wanted - found.keys())
        self.is_missed = False

    def forget_absences(self) -> None:
        """Believe of none any more that it is absent: it may have been made meanwhile."""
        self._absent = frozenset()

    @property
    def batch_bytes_max(self) -> int:
        """The largest produce batch that every known topic takes."""
        limits = [topic.record_bytes_max for topic in self._known.values() if topic is not None]
        return min([1_000_000, *limits])
