"""Topics: the internal ones, which partition decides an address, and a snapshot of the users' own.

The service creates its internal topics with the settings they need. Output and dead-letter topics
belong to the user, unless `create_topics` is set.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from ringfence_client.headers import acknowledgements, internal
from ringfence_service.errors import ConfigIssue
from ringfence_service.kafka.model import (
    COMPRESSION,
    POLICY,
    RECORD_LIMIT,
    RETENTION,
    TIME_LIMITS,
    TIMESTAMPS,
    TOMBSTONES,
    UNLIMITED,
    ClusterAdmin,
    TopicInfo,
    TopicSpec,
)
from ringfence_state.model import PartitionId
from ringfence_state.offset_metadata import TOMBSTONES_KEPT_MS

try:
    from confluent_kafka import murmur2
except ModuleNotFoundError:  # on executors of Spark
    from ringfence_service.kafka.murmur2 import murmur2

_BYTES_MAX: Final = 1_000_000_000
"""Record limit of a topic that takes any record: the client's own (`MESSAGE_BYTES_MAX`).

It is more than a broker takes in one request (`socket.request.max.bytes`, 100 MiB by default).
"""
RECORD_BYTES_DEFAULT: Final = 1_048_588
"""Kafka's default of `max.message.bytes`."""
ENVELOPE_BYTES: Final = 64 * 1024
"""Size in bytes that Ringfence's headers may add to a record."""
BY_ADDRESS: Final = "by-address"
"""Takes the place of an input's name in the changelog of decisions on the repartition topic."""
_TO_WRITE: Final = "WRITE, DESCRIBE and DESCRIBE_CONFIGS"
_AS_SENT: Final[Mapping[str, str]] = {TIMESTAMPS: "CreateTime", COMPRESSION: "producer"}
"""Settings of each topic that is made: records stay as they were sent, whatever is the default."""
_FOR_EVER: Final[Mapping[str, str]] = dict.fromkeys(RETENTION, "-1")
_TOMBSTONES_KEPT_MS_MIN: Final = 60 * 60 * 1000
"""Least `delete.retention.ms` of a changelog: twice what a long restore takes.

A store that needs more than half of it for its restore is too old at the end, and is wiped.
"""


def changelog(group_id: str, topic: str) -> str:
    """Return the changelog of an input topic, which has a partition for each of its partitions."""
    return internal(group_id, f"changelog.{topic}")


def by_address(group_id: str) -> str:
    """Return the repartition topic, which has the records of scopes `address` and `id`."""
    return internal(group_id, BY_ADDRESS)


class RepartitionTopic(NamedTuple):
    """The repartition topic of a group, and its number of partitions."""

    topic: str
    partitions: int

    def partition_of(self, key: bytes) -> int:
        """Return the number of the partition that decides records with this repartition key."""
        return murmur2(key, self.partitions)

    def decider_of(self, key: bytes) -> PartitionId:
        """Return the partition that decides records with this repartition key."""
        return PartitionId(self.topic, self.partition_of(key))


def new_by_address(
    group_id: str, partitions: int, largest: int, replication: int, time_limits: Iterable[str]
) -> TopicSpec:
    """Return the spec of the repartition topic; `largest` is the largest record limit in bytes.

    Its records never expire: they may be years old, and their owner deletes those that are
    decided. (KIP-284: Kafka Streams lost records to the retention of such a topic.) Nor are their
    timestamps limited, which the inputs have taken; `time_limits` are the settings for that, as far
    as the broker knows them.
    """
    settings = {
        **_AS_SENT,
        POLICY: "delete",
        **_FOR_EVER,
        RECORD_LIMIT: str(largest + ENVELOPE_BYTES),
        "segment.bytes": str(64 * 1024 * 1024),
        "unclean.leader.election.enable": "false",
        **dict.fromkeys(time_limits, str(UNLIMITED)),
    }
    return TopicSpec(by_address(group_id), partitions, replication, settings)


def new_acknowledgements(group_id: str, replication: int) -> TopicSpec:
    """Return the spec of the acknowledgements topic; compaction keeps each publisher's newest."""
    settings = {**_AS_SENT, POLICY: "compact", "min.cleanable.dirty.ratio": "0.1"}
    return TopicSpec(acknowledgements(group_id), 1, replication, settings)


def config_topic(group_id: str) -> str:
    """Return the name of the metadata topic."""
    return internal(group_id, "config")


def new_config_topic(group_id: str, replication: int) -> TopicSpec:
    """Return the spec of the metadata topic: one partition, so that all records are ordered."""
    settings = {**_AS_SENT, POLICY: "compact", "min.cleanable.dirty.ratio": "0.1"}
    return TopicSpec(config_topic(group_id), 1, replication, settings)


def fallback(group_id: str) -> str:
    """Return the dead-letter topic of records that their own dead-letter topic cannot take."""
    return internal(group_id, "dead-letters")


_OWN_WORDS: Final = (BY_ADDRESS, "config", "dead-letters", "acks", "changelog")
"""The first words of internal topics, behind the name of their group."""


class NeighbourGroups(NamedTuple):
    """Groups whose topics begin with the name of another group."""

    problems: tuple[ConfigIssue, ...]
    """One is named like an internal topic of the other, so that their topics can be the same."""
    warnings: tuple[str, ...]


def neighbours(group_id: str, names: AbstractSet[str]) -> NeighbourGroups:
    """Return the groups that own topics of this group, or whose topics this group owns.

    A group is recognised by its metadata topic and its dead-letter topic among the `names`.
    """
    words = group_id.split(".")
    above = [".".join(words[:count]) for count in range(1, len(words))]
    stems = {name.removesuffix(".config") for name in names if name.endswith(".config")}
    below = sorted(stem for stem in stems if stem.startswith(f"{group_id}."))
    problems, warnings = list[ConfigIssue](), list[str]()
    for outer, inner in [*((each, group_id) for each in above), *((group_id, b) for b in below)]:
        other = outer if inner == group_id else inner
        if not {config_topic(other), fallback(other)} <= names:
            continue
        what = (
            f'the groups "{outer}" and "{inner}" are on this broker: all topics that begin with '
            f'"{outer}." belong to the first'
        )
        if inner.removeprefix(f"{outer}.").split(".")[0] in _OWN_WORDS:
            why = f"{what}, and the second is named like its internal topics"
            problems.append(ConfigIssue(why, "choose another service.group_id"))
        else:
            warnings.append(f"{what}; choose names of which one does not begin with the other")
    return NeighbourGroups(tuple(problems), tuple(warnings))


def new_changelog(
    group_id: str, topic: str, partitions: int, largest: int, replication: int
) -> TopicSpec:
    """Return the spec of a changelog: compacted, without expiry, small segments to restore fast.

    It takes any record of its input, up to `largest` bytes: records of an open group wait in it.
    """
    settings = {
        **_AS_SENT,
        RECORD_LIMIT: str(largest + ENVELOPE_BYTES),
        POLICY: "compact",
        "min.cleanable.dirty.ratio": "0.3",
        "segment.bytes": str(64 * 1024 * 1024),
        TOMBSTONES: str(TOMBSTONES_KEPT_MS),
        "unclean.leader.election.enable": "false",
    }
    return TopicSpec(changelog(group_id, topic), partitions, replication, settings)


def changelog_problems(name: str, has: TopicInfo) -> list[ConfigIssue]:
    """Return settings with which a changelog would lose ids, or restore ids that were deleted."""
    problems = _policy_problems(f'the changelog "{name}"', has, compacts=True)
    if not problems and has.is_deleted_from:
        problems = _retention_problems(name, has)
    kept_ms = has.tombstones_kept_ms
    if kept_ms is not None and kept_ms < _TOMBSTONES_KEPT_MS_MIN:
        what = f'the changelog "{name}" has delete.retention.ms {has.tombstones_kept_ms}'
        problems.append(ConfigIssue(what, f"set its delete.retention.ms to {TOMBSTONES_KEPT_MS}"))
    return problems


def by_address_problems(name: str, has: TopicInfo) -> list[ConfigIssue]:
    """Return settings with which the repartition topic would delete undecided records."""
    problems = _retention_problems(name, has)
    problems += _policy_problems(f'"{name}"', has, compacts=False)
    if not has.compresses:
        what = f'"{name}" has compression.type {has.compression}'
        fix = "set it to producer: else it refuses what its inputs take when compressed"
        problems.append(ConfigIssue(what, fix))
    if not has.has_own_times:
        what = f'"{name}" has message.timestamp.type {has.timestamp_type}'
        fix = "set it to CreateTime: records keep the timestamps of their inputs"
        problems.append(ConfigIssue(what, fix))
    return problems


def limits_to_raise(
    group_id: str,
    own: Iterable[TopicSpec],
    inputs: Mapping[str, TopicInfo],
    there: Mapping[str, TopicInfo],
) -> dict[str, dict[str, int]]:
    """Return the internal topics that are stricter than the inputs, in size or in timestamps.

    The values are the limits that they need, by setting; `there` has the topics that exist.
    """
    largest = max((each.record_bytes_max for each in inputs.values()), default=0)
    found: dict[str, dict[str, int]] = {}
    for spec in own:
        for setting in (RECORD_LIMIT, *TIME_LIMITS):
            has = there[spec.name].limit(setting) if spec.name in there else None
            needs = int(spec.settings.get(setting, 0))
            if setting == RECORD_LIMIT and spec.name == fallback(group_id):
                needs = min(needs, largest + ENVELOPE_BYTES)
            if has is not None and has < needs:
                found.setdefault(spec.name, {})[setting] = needs
    return found


def as_settings(limits: Mapping[str, int]) -> str:
    """Return limits of a topic as an operator sets them."""
    return " and ".join(f"{setting} to {value}" for setting, value in limits.items())


def _policy_problems(topic: str, has: TopicInfo, *, compacts: bool) -> list[ConfigIssue]:
    """Return a problem if a topic's policy is known and has to be another one."""
    if has.cleanup_policy is None or has.needs_key == compacts:
        return []
    what = f"{topic} has cleanup.policy {has.cleanup_policy}"
    return [ConfigIssue(what, f"set its cleanup.policy to {'compact' if compacts else 'delete'}")]


def _retention_problems(name: str, has: TopicInfo) -> list[ConfigIssue]:
    return [
        ConfigIssue(f'"{name}" has {setting} {value}', f"set its {setting} to -1")
        for setting, value in has.retention.items()
        if value != "-1"
    ]


def new_dead_letters(name: str, replication: int) -> TopicSpec:
    """Return the spec of a dead-letter topic that takes any record with its envelope."""
    settings = {**_AS_SENT, POLICY: "delete", **_FOR_EVER, RECORD_LIMIT: str(_BYTES_MAX)}
    return TopicSpec(name, 1, replication, settings)


def new_target(
    name: str, inputs: Sequence[TopicInfo], replication: int, *, is_output: bool
) -> TopicSpec:
    """Return the spec of a target topic like its inputs, with room for the envelope.

    Of several inputs each setting is the laxest, so that it takes and keeps what any of them does.
    Records keep their timestamps: those are neither set by the broker nor limited where those of an
    input are not. `is_output`: only accepted records are written to it. It is compacted as its only
    input is. Other topics never are: records of several inputs may have one key, as dead letters
    have, and would replace each other. In place of a compacted input's policy they have no limit.
    """
    settings = {**_AS_SENT, **_kept(inputs), **_times_taken(inputs)}
    settings[RECORD_LIMIT] = str(max(each.record_bytes_max for each in inputs) + ENVELOPE_BYTES)
    compressions = {each.compression for each in inputs}
    if is_output and len(compressions) == 1 and None not in compressions:
        settings[COMPRESSION] = str(*compressions)
    if is_output and len(inputs) == 1:
        settings |= inputs[0].retention
        settings |= inputs[0].compaction
    else:
        settings[POLICY] = "delete"
    partitions = max(each.partitions for each in inputs)
    return TopicSpec(name, partitions, replication, settings)


def _kept(inputs: Sequence[TopicInfo]) -> dict[str, str]:
    """Return the longest retention of the inputs, in time, and in the bytes of all of them."""
    settings = dict[str, str]()
    for setting in RETENTION:
        values = [value for each in inputs if (value := each.kept(setting)) is not None]
        if values:
            value = max(values) if setting.endswith(".ms") else sum(values)
            settings[setting] = str(value if value < UNLIMITED else -1)
    return settings


def _times_taken(inputs: Sequence[TopicInfo]) -> dict[str, str]:
    """Return the laxest limits of timestamps; an input that sets the time itself has none."""
    found = dict[str, str]()
    for setting in TIME_LIMITS:
        limits = [
            each.time_limits[setting] if each.has_own_times else UNLIMITED
            for each in inputs
            if setting in each.time_limits
        ]
        if limits:
            found[setting] = str(max(limits))
    return found


def room_bytes(topic: TopicInfo) -> int:
    """Return the size up to which a record surely fits, with an envelope; below 0 if none does."""
    return topic.record_bytes_max - ENVELOPE_BYTES


class RecordLimits(NamedTuple):
    """What topics take: the strictest of their limits."""

    room_bytes: int
    """The size up to which a record surely fits, with an envelope."""
    needs_key: bool
    past_ms: int
    future_ms: int
    """How much older and how much newer than now a record may be."""

    @classmethod
    def of(cls, topic: TopicInfo) -> "RecordLimits":
        """Return what one topic takes; one without room for an envelope has no limit of size."""
        room = room_bytes(topic)
        return cls(room if room > 0 else sys.maxsize, topic.needs_key, *topic.times_ms)

    @classmethod
    def strictest(cls, limits: Iterable["RecordLimits"]) -> "RecordLimits":
        """Return what all of them take."""
        room_bytes, needs_key, past_ms, future_ms = zip(NO_LIMITS, *limits, strict=True)
        return cls(min(room_bytes), any(needs_key), min(past_ms), min(future_ms))


NO_LIMITS: Final = RecordLimits(
    sys.maxsize, needs_key=False, past_ms=UNLIMITED, future_ms=UNLIMITED
)


class OutputTopics:
    """Snapshot of the topics that the service writes. Only `refresh` does I/O."""

    def __init__(self, cluster: ClusterAdmin, *, are_made: bool = False) -> None:
        """`are_made`: the service creates absent topics, so none counts as absent."""
        self._cluster = cluster
        self._are_made = are_made
        self._known: dict[str, TopicInfo | None] = {}
        self._absent: frozenset[str] = frozenset()
        self._denied: frozenset[str] = frozenset()
        self._limits: dict[tuple[str, ...], RecordLimits] = {}
        """The answers of `limits` since the last `refresh`."""
        self.is_missed = False
        """Whether a topic was asked for and not known since the last `refresh`."""
        self.has_refused = False
        """Whether a record was refused by what is known of a topic since the last `refresh`."""

    def find(self, name: str) -> TopicInfo | None:
        """Return the topic if it was seen and takes our records; else a `refresh` looks for it."""
        info = self._known.setdefault(name, None)
        self.is_missed = self.is_missed or info is None
        return info

    def limits(self, names: tuple[str, ...]) -> RecordLimits:
        """Return what every one of these topics takes; one not seen yet has no limits."""
        limits = self._limits.get(names)
        if limits is None:
            topics = filter(None, map(self.find, names))
            limits = RecordLimits.strictest(map(RecordLimits.of, topics))
            self._limits[names] = limits
        return limits

    def is_absent(self, name: str) -> bool:
        """Whether the last `refresh` did not find it, unless absences were forgotten since."""
        return name in self._absent

    def why_missing(self, name: str) -> str:
        """Return what is awaited while `find` does not find a topic, and what to do."""
        if name in self._denied:
            return f"topic {name}: it may not be written; grant {_TO_WRITE} on it to our user"
        return f"topic {name}: it does not exist; create it"

    def refresh(self, names: Iterable[str] = ()) -> None:
        """Look up these topics and all that `find` was called for, in the cluster."""
        requested = self._known.keys() | set(names)
        found, hidden = self._cluster.visible(requested)
        self._denied = hidden.union(name for name, info in found.items() if not info.is_writable)
        self._known = {
            name: None if name in self._denied else found.get(name) for name in requested
        }
        self._limits.clear()
        absent = requested - found.keys() - hidden
        self._absent = frozenset() if self._are_made else frozenset(absent)
        self.is_missed = self.has_refused = False

    def forget_absences(self) -> None:
        """Treat no topic as absent any more: it may have been created in the meantime."""
        self._absent = frozenset()

    @property
    def batch_bytes_max(self) -> int:
        """Return the size of the largest produce batch that every known topic takes."""
        limits = [topic.record_bytes_max for topic in self._known.values() if topic is not None]
        return min([1_000_000, *limits])
