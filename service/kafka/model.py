"""Kafka model: topics and requests to a cluster as values and a protocol, without a client.

Code that only decides imports it, and so runs where no Kafka client is installed.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from ringfence.headers import Headers
from state.model import PartitionId

RETENTION: Final = ("retention.ms", "retention.bytes")

UNREADABLE: Final[Headers] = [("", None)]
"""Replaces headers that are not text; compared by identity."""

UNREADABLE_CAUSE: Final = (
    "a header name is not UTF-8 text; the record is kept here without its headers"
)


class TopicInfo(NamedTuple):
    """The properties of a topic that Ringfence depends on."""

    topic_id: str
    partitions: int
    record_bytes_max: int
    cleanup_policy: str
    retention: Mapping[str, str]
    """Its settings of `RETENTION`."""
    tombstones_kept_ms: int = 24 * 60 * 60 * 1000
    timestamp_type: str = "CreateTime"


class TopicSpec(NamedTuple):
    """A topic to create; `replication` -1 is the broker's default."""

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str]


class ClusterAdmin(Protocol):
    """Requests to the cluster. Each raises KafkaException if it gets no answer in time."""

    @property
    def has_answered(self) -> bool:
        """Whether any broker has answered yet, so that address and network are right."""
        ...

    def cluster_id(self) -> str:
        """Return the cluster id."""
        ...

    def names(self) -> frozenset[str]:
        """Return the names of all topics that we may describe."""
        ...

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return the named topics that exist, by name."""
        ...

    def create(self, topics: Iterable[TopicSpec]) -> None:
        """Create topics; an existing one stays unchanged."""
        ...

    def grow(self, name: str, partitions: int) -> None:
        """Raise the number of partitions of a topic."""
        ...

    def raise_limit(self, name: str, record_bytes_max: int) -> None:
        """Raise the size limit for records of a topic."""
        ...

    def starts(self, sources: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """Return the log start offset of each partition."""
        ...

    def ends(self, sources: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """Return the high watermark of each partition, open transactions included."""
        ...

    def delete_before(self, offsets: Mapping[PartitionId, int]) -> None:
        """Request deletion of all records before these offsets, without waiting for it."""
        ...

    def assigned(self, group_id: str) -> frozenset[PartitionId] | None:
        """Return all partitions that the group's members own; None during a rebalance."""
        ...
