"""Kafka model: topics and requests to a cluster as values and a protocol, without a client.

Code that only decides imports it, and so runs where no Kafka client is installed.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from ringfence_client.headers import Headers
from ringfence_service.errors import ExitCode, ExitError
from ringfence_state.model import PartitionId

RETENTION: Final = ("retention.ms", "retention.bytes")

RECORD_LIMIT: Final = "max.message.bytes"

POLICY: Final = "cleanup.policy"

TOMBSTONES: Final = "delete.retention.ms"

TIMESTAMPS: Final = "message.timestamp.type"

COMPRESSION: Final = "compression.type"

COMPACTION: Final = (POLICY, TOMBSTONES, "min.compaction.lag.ms", "max.compaction.lag.ms")
"""Settings by which a topic is compacted."""

_PAST: Final = "message.timestamp.before.max.ms"
_FUTURE: Final = "message.timestamp.after.max.ms"
_EITHER: Final = "message.timestamp.difference.max.ms"  # the only one before Kafka 3.6, gone in 4.0
TIME_LIMITS: Final = (_PAST, _FUTURE, _EITHER)
"""Settings that limit how far a record's timestamp may be from the broker's clock, in ms."""
EFFECTIVE_TIME_LIMITS: Final = (_PAST, _FUTURE)
"""Those that brokers apply. Where they are not set, brokers apply the third in their place."""

_OLDER: Final = "that no message is deleted earlier than from its input"
UNCHECKED: Final[Mapping[tuple[str, ...], str]] = {
    (POLICY,): "which topics are compacted, and that no changelog deletes ids",
    **{(setting,): _OLDER for setting in RETENTION},
    (TOMBSTONES,): "that changelogs keep deletions for an hour at least, as a restore needs it",
    (TIMESTAMPS,): "that timestamps stay as they are; Ringfence takes it to be CreateTime",
    (COMPRESSION,): "that what fits a topic only when compressed stays compressed",
    TIME_LIMITS: "which timestamps a topic refuses; such a message costs an aborted transaction",
}
"""What cannot be checked where a broker reports none of these settings of a topic.

Ringfence does without each of them, as a broker of another make may not have it. The one setting
that it needs is `max.message.bytes`: a batch of several records must fit every topic.
"""

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
    cleanup_policy: str | None
    """None, here and below: its broker does not report it."""
    retention: Mapping[str, str]
    """Its settings of `RETENTION`, as far as its broker reports them."""
    tombstones_kept_ms: int | None = 24 * 60 * 60 * 1000
    timestamp_type: str | None = "CreateTime"
    time_limits: Mapping[str, int] = MappingProxyType({})
    """Its settings of `TIME_LIMITS`, as far as its broker knows them."""
    is_readable: bool = True
    is_writable: bool = True
    """Whether we may read it, and write to it, as far as its broker reports it."""
    compression: str | None = "producer"
    compaction: Mapping[str, str] = MappingProxyType({})
    """Its settings of `COMPACTION`, as far as its broker reports them."""

    @classmethod
    def of(
        cls,
        name: str,
        topic_id: str,
        partitions: int,
        settings: Mapping[str, str | None],
        *,
        is_readable: bool = True,
        is_writable: bool = True,
    ) -> "TopicInfo":
        """Return what a broker reports of a topic; ExitError if it lacks what Ringfence needs.

        `settings` may lack any setting, and contain values that are hidden (None) or of other
        forms than those of Apache Kafka: what cannot be read counts as not reported.
        """
        record_bytes_max = _number(settings, RECORD_LIMIT)
        if record_bytes_max is None:
            raise ExitError(
                ExitCode.BROKER,
                f"The broker does not report {RECORD_LIMIT} of topic {name} (DescribeConfigs), "
                "and Ringfence cannot work without it: a batch of several messages must fit every "
                "topic. Use a broker that reports it as Apache Kafka does.",
            )
        return cls(
            topic_id,
            partitions,
            record_bytes_max,
            settings.get(POLICY),
            _texts(settings, (each for each in RETENTION if _number(settings, each) is not None)),
            _number(settings, TOMBSTONES),
            settings.get(TIMESTAMPS),
            {each: ms for each in TIME_LIMITS if (ms := _number(settings, each)) is not None},
            is_readable,
            is_writable,
            settings.get(COMPRESSION),
            _texts(settings, COMPACTION),
        )

    def reports(self, setting: str) -> bool:
        """Whether its broker reports a setting of `UNCHECKED`."""
        known: Mapping[str, object] = {
            POLICY: self.cleanup_policy,
            TOMBSTONES: self.tombstones_kept_ms,
            TIMESTAMPS: self.timestamp_type,
            COMPRESSION: self.compression,
            **self.retention,
            **self.time_limits,
        }
        return known.get(setting) is not None

    def limit(self, setting: str) -> int | None:
        """Return its value of `max.message.bytes` or of a time limit; None if it has no such."""
        return self.record_bytes_max if setting == RECORD_LIMIT else self.time_limits.get(setting)

    @property
    def needs_key(self) -> bool:
        """Whether it is compacted, and so refuses records without a key."""
        return "compact" in self._policies

    @property
    def is_deleted_from(self) -> bool:
        """Whether it deletes records for their age, or for its size."""
        return "delete" in self._policies

    @property
    def _policies(self) -> list[str]:
        return (self.cleanup_policy or "delete").replace(" ", "").split(",")

    def kept(self, setting: str) -> int | None:
        """Return its effective value of a setting of `RETENTION`; None if it is not known.

        It is UNLIMITED also for a topic that is only compacted: nothing is too old or too much.
        """
        if not self.is_deleted_from:
            return UNLIMITED
        value = self.retention.get(setting)
        return None if value is None else int(value) if int(value) >= 0 else UNLIMITED

    @property
    def compresses(self) -> bool:
        """Whether batches that producers compress stay compressed, so that more fits."""
        return self.compression != "uncompressed"

    @property
    def has_own_times(self) -> bool:
        """Whether records keep the timestamps that their producers gave them."""
        return self.timestamp_type in {"CreateTime", None}

    def time_limit(self, setting: str) -> int:
        """Return the effective value of one of the first two settings, as brokers combine them."""
        if not self.has_own_times:
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


def _number(settings: Mapping[str, str | None], name: str) -> int | None:
    """Return a setting as a number; None if it is not reported, or is no number."""
    try:
        return int(settings.get(name) or "")
    except ValueError:
        return None


def _texts(settings: Mapping[str, str | None], names: Iterable[str]) -> dict[str, str]:
    found = {name: settings.get(name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


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


class Offset(Protocol):
    """An offset of a partition, as a broker reports it."""

    offset: int


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

    def ask_ends(self, sources: Iterable[PartitionId]) -> Mapping[PartitionId, Future[Offset]]:
        """Request the high watermark of each partition, and return without an answer.

        A future may stay open for good if the connection is lost.
        """
        ...

    def delete_before(self, offsets: Mapping[PartitionId, int]) -> None:
        """Request deletion of all records before these offsets, without waiting for it."""
        ...

    def assigned(self, group_id: str) -> dict[PartitionId, str] | None:
        """Return the member id of the owner of each partition; None during a rebalance."""
        ...
