"""Topics: the names of the internal ones, and a snapshot of what outputs and dead letters are.

The service makes its internal topics itself, with the settings they need; outputs and
dead-letter topics belong to the user, unless `create_topics` is set.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from service.cluster import Cluster, NewTopicInfo, TopicInfo

NAME_LENGTH_MAX: Final = 249
_BYTES_MAX: Final = 1_000_000_000  # more than a broker takes in one request
_ENVELOPE_BYTES: Final = 64 * 1024
_DAY_MS: Final = 24 * 60 * 60 * 1000


def internal(group_id: str, kind: str) -> str:
    """The internal topic `<group_id>.<kind>`; too long a name is cut and ends in its hash."""
    name = f"{group_id}.{kind}"
    if len(name) <= NAME_LENGTH_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: NAME_LENGTH_MAX - len(digest) - 1]}-{digest}"


def changelog(group_id: str, topic: str) -> str:
    """Where the decisions on an input topic are remembered, partition by partition."""
    return internal(group_id, f"changelog.{topic}")


def fallback(group_id: str) -> str:
    """Where records go whose own dead-letter topic cannot take them."""
    return internal(group_id, "dead-letters")


def new_changelog(group_id: str, topic: str, partitions: int, replication: int) -> NewTopicInfo:
    """A changelog: compacted, never expired by time, small segments for a quick restore."""
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.3",
        "segment.bytes": str(64 * 1024 * 1024),
        "delete.retention.ms": str(7 * _DAY_MS),
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "CreateTime",
    }
    return NewTopicInfo(changelog(group_id, topic), partitions, replication, settings)


def new_fallback(group_id: str, replication: int) -> NewTopicInfo:
    """The fallback for dead letters: takes whatever any input may ever hold, with its envelope."""
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "max.message.bytes": str(_BYTES_MAX),
    }
    return NewTopicInfo(fallback(group_id), 1, replication, settings)


def new_target(name: str, input_: TopicInfo, replication: int) -> NewTopicInfo:
    """An output or dead-letter topic like its input, with room for the envelope."""
    settings = {"max.message.bytes": str(input_.record_bytes_max + _ENVELOPE_BYTES)}
    return NewTopicInfo(name, input_.partitions, replication, settings)


class Targets:
    """What we know of the topics that we write. Asking is pure; only `refresh` does I/O."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, TopicInfo | None] = {}

    def find(self, name: str) -> TopicInfo | None:
        """The topic, or None when it is absent; LookupError when it was never asked for."""
        return self._known[name]

    def refresh(self, names: Iterable[str] = ()) -> None:
        """Ask the cluster for these and for all that was asked before."""
        wanted = self._known.keys() | set(names)
        found = self._cluster.topics(wanted)
        self._known = {name: found.get(name) for name in wanted}

    @property
    def batch_bytes_max(self) -> int:
        """The largest produce batch that every known topic takes."""
        limits = [topic.record_bytes_max for topic in self._known.values() if topic is not None]
        return min([1_000_000, *limits])
