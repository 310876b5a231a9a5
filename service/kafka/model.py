"""Kafka model: topics and requests to a cluster as values and a protocol, without a client.

Code that only decides imports it, and so runs where no Kafka client is installed.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from ringfence.headers import Headers
from state.model import PartitionId

RETENTION: Final = ("retention.ms", "retention.bytes")

RECORD_LIMIT: Final = "max.message.bytes"

_PAST: Final = "message.timestamp.before.max.ms"
_FUTURE: Final = "message.timestamp.after.max.ms"
_EITHER: Final = "message.timestamp.difference.max.ms"  # the only one before Kafka 3.6, gone in 4.0
TIME_LIMITS: Final = (_PAST, _FUTURE, _EITHER)
"""Settings that limit how far a record's timestamp may be from the broker's clock, in ms."""
EFFECTIVE_TIME_LIMITS: Final = (_PAST, _FUTURE)
"""Those that brokers apply. Where they are not set, brokers apply the third in their place."""

UNLIMITED: Final = 2**63 - 1
"""The value of a time limit that limits nothing."""

_MARGIN_MS: Final = 10_000
"""How much before a limit a record counts as outside of it.

A record gets older until it is written, which takes up to `transaction_timeout_ms`, 10 s by
default; that the clocks of a cluster differ matters less. At most a tenth of the limit, so that a
limit of a few seconds still means something.
"""

UNREADABLE: Final[Headers] = [("", None)]
"""Replaces headers that are not text; compared by identity."""

UNREADABLE_CAUSE: Final = (
    "a header name is not UTF-8 text; the record is kept here without its headers"
)


class Present(NamedTuple):
    """The present, which limits of timestamps are measured from, in ms since the epoch."""

    now_ms: int
    """By our clock."""
    latest_ms: int
    """The same, or later if our clock seems to be slow."""

    @classmethod
    def at(cls, now_ms: int) -> "Present":
        """Return the present by our clock alone."""
        return cls(now_ms, now_ms)


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
    time_limits: Mapping[str, int] = MappingProxyType({})
    """Its settings of `TIME_LIMITS`, as far as its broker knows them."""
    is_readable: bool = True
    is_writable: bool = True
    """Whether we may read it, and write to it, as far as its broker reports it."""

    def limit(self, setting: str) -> int | None:
        """Return its value of `max.message.bytes` or of a time limit; None if it has no such."""
        return self.record_bytes_max if setting == RECORD_LIMIT else self.time_limits.get(setting)

    @property
    def needs_key(self) -> bool:
        """Whether it refuses records without a key."""
        return "compact" in self.cleanup_policy.split(",")

    def time_limit(self, setting: str) -> int:
        """Return the effective value of one of the first two settings, as brokers combine them."""
        if self.timestamp_type != "CreateTime":
            return UNLIMITED
        limit = self.time_limits.get(setting, UNLIMITED)
        return self.time_limits.get(_EITHER, UNLIMITED) if limit == UNLIMITED else limit

    @property
    def times_ms(self) -> tuple[int, int]:
        """How much older and how much newer than now a record may be, less the margin."""
        past, future = self.time_limit(_PAST), self.time_limit(_FUTURE)
        return past - min(_MARGIN_MS, past // 10), future - min(_MARGIN_MS, future // 10)

    def time_fault(self, timestamp_ms: int, present: Present) -> tuple[str, int] | None:
        """Return the setting by which it refuses a record of this time, and its value, or None.

        A time of 0 or less is none: the producer sends the present.
        """
        past_ms, future_ms = self.times_ms
        if 0 < timestamp_ms < present.now_ms - past_ms:
            return self._limiting(_PAST)
        return self._limiting(_FUTURE) if timestamp_ms > present.latest_ms + future_ms else None

    def _limiting(self, setting: str) -> tuple[str, int]:
        limit = self.time_limit(setting)
        return setting if self.time_limits.get(setting) == limit else _EITHER, limit


class VisibleTopics(NamedTuple):
    """Those of some topics that exist, by name, and the names of those that are kept from us."""

    topics: dict[str, TopicInfo]
    hidden: frozenset[str]
    """Topics that we may not describe, whether they exist or not."""


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

    def explain(self, cause: str) -> str | None:
        """Return what a process waits for that met this error, `NAME: text`; None if unknown.

        It names the cause of a broken connection and what to do, as far as that is known yet:
        the connection is examined meanwhile. Waits for two seconds at most, and never raises.
        """
        ...

    def cluster_id(self) -> str:
        """Return the cluster id."""
        ...

    def names(self) -> frozenset[str]:
        """Return the names of all topics that we may describe."""
        ...

    def visible(self, names: Iterable[str]) -> VisibleTopics:
        """Return the named topics as far as we may describe them."""
        ...

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return the named topics that exist; KafkaException if we may not describe one."""
        ...

    def create(self, topics: Iterable[TopicSpec]) -> None:
        """Create topics; an existing one stays unchanged."""
        ...

    def grow(self, name: str, partitions: int) -> None:
        """Raise the number of partitions of a topic."""
        ...

    def raise_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Raise these limits of a topic, by setting."""
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
