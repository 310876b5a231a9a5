"""Takeover: the steps of a partition from its assignment to its first record, and what they check.

The steps are, in order: the committed offset, the ends of the logs, the store, the replay, the
checks. A partition that only forwards its records has neither changelog nor store.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import compress
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.config.model import ServiceSettings
from ringfence_service.dedup.idle_addresses import IdleAddresses
from ringfence_service.dedup.partition import (
    LogRange,
    OwnedPartition,
    PartitionPhase,
    TakeoverFacts,
    addresses_of,
)
from ringfence_service.dedup.pending_groups import PendingGroups
from ringfence_service.errors import ConfigIssue, ExitCode, ExitError
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.errors import without_frames
from ringfence_service.kafka.model import ClusterAdmin, TopicInfo
from ringfence_service.kafka.topics import by_address_problems, changelog_problems
from ringfence_service.processor.fetcher import topic_partition_of
from ringfence_service.processor.restore import ChangelogReplay, Restorer
from ringfence_state.model import PartitionId
from ringfence_state.offset_metadata import TOMBSTONES_KEPT_MS, decode
from ringfence_state.segment import FORMAT
from ringfence_state.store import (
    Identity,
    ReplayedStore,
    StoreCorruptError,
    StoreLockedError,
    StorePosition,
    Stores,
)

_KEPT_BY_DEFAULT_MS: Final = 24 * 60 * 60 * 1000
"""Kafka's default of `delete.retention.ms`, where the broker does not report it."""


def store_fault(position: StorePosition | None, facts: TakeoverFacts, now_ms: int) -> str | None:
    """Return why a store has to be wiped; None if replaying the changelog tail is enough."""
    if position is not None and position.input_next > (facts.committed_offset or 0):
        return "it is ahead of the committed offset"
    return copy_fault(position, facts.identity, facts.changelog, facts.tombstones_kept_ms, now_ms)


def copy_fault(
    position: StorePosition | None,
    identity: Identity,
    changelog: LogRange,
    tombstones_kept_ms: int,
    now_ms: int,
) -> str | None:
    """Return why a store cannot go on as a copy of this changelog; None if it can."""
    if position is None:
        return None
    if position.identity != identity:
        return "it is a copy of another log or format"
    if not changelog.start <= position.changelog_next <= changelog.end:
        return "its changelog position lies outside the changelog"
    if is_too_old(position, now_ms, tombstones_kept_ms):
        return "it is too old: the changelog may have dropped tombstones that it never saw"
    return None


def is_too_old(
    position: StorePosition, now_ms: int, tombstones_kept_ms: int = TOMBSTONES_KEPT_MS
) -> bool:
    """Whether the changelog may have dropped tombstones that the store never saw.

    The store counts as recent for half the time for which the changelog keeps tombstones, counted
    from the last moment at which it matched the changelog.
    """
    return now_ms - position.level_at_ms > tombstones_kept_ms // 2


def tombstones_kept_ms(changelog: TopicInfo) -> int:
    """Return `delete.retention.ms` of a changelog topic."""
    kept_ms = changelog.tombstones_kept_ms
    return _KEPT_BY_DEFAULT_MS if kept_ms is None else kept_ms


def short_logs(partition: OwnedPartition, facts: TakeoverFacts) -> list[PartitionId]:
    """Return which of input and changelog end before what was committed, unless recreated."""
    metadata, identity, log = facts.metadata, facts.identity, partition.changelog
    found = []
    is_same = metadata is None or metadata.input_topic_id == identity.input_topic_id
    if is_same and facts.input.end < (facts.committed_offset or 0):
        found.append(partition.source)
    if (
        log
        and metadata
        and metadata.changelog_topic_id == identity.changelog_topic_id
        and facts.changelog.end <= metadata.last_offset
    ):
        found.append(log)
    return found


def check_settings(facts: TakeoverFacts) -> None:
    """Raise ExitError 5 if an internal topic is configured to lose records or ids."""
    if facts.problems:
        raise _contradiction("; ".join(map(str, facts.problems)))


def check_identity(partition: OwnedPartition, facts: TakeoverFacts) -> None:
    """Raise ExitError 5 unless the committed offset and the changelog belong together."""
    metadata = facts.metadata
    if metadata is None:
        return
    name = partition.source
    if metadata.format > FORMAT:
        raise _contradiction(
            f"{name.topic}-{name.partition} was committed with state format {metadata.format}, "
            f"this version reads {FORMAT}; run the newer version."
        )
    # Without a changelog id another route had forwarded the records, and remembered nothing here.
    log = partition.changelog if metadata.changelog_topic_id else None
    if log and metadata.changelog_topic_id != facts.identity.changelog_topic_id:
        raise _contradiction(
            f"The changelog {log.topic} was deleted and created again since the last "
            f"commit of {name.topic}-{name.partition}; {_RESET}"
        )
    if metadata.input_topic_id != facts.identity.input_topic_id:
        raise _contradiction(
            f"The input {name.topic} was deleted and created again since the last commit; {_RESET}"
        )
    if log and facts.changelog.start > metadata.changelog_start:
        raise _contradiction(
            f"Records of the changelog {log.topic}-{log.partition} "
            f"below offset {facts.changelog.start} were deleted; {_RESET}"
        )


def check_changelog(partition: OwnedPartition, facts: TakeoverFacts, changelog_next: int) -> None:
    """Raise ExitError 5 if the replay ended before the offset that the metadata names."""
    log = partition.changelog
    if log and facts.metadata is not None and changelog_next <= facts.metadata.last_offset:
        raise _contradiction(
            f"The changelog {log.topic}-{log.partition} ends at "
            f"{changelog_next}, but offset {facts.metadata.last_offset} was committed: it was "
            f"truncated; {_RESET}"
        )


def check_written(partition: OwnedPartition) -> None:
    """Raise ExitError 5 if the running partition's changelog was truncated.

    It was if it took our records at a lower offset than its earlier end. Call it once the topic is
    known to be the same. The records of an aborted transaction may fill the gap, so a later
    takeover need not find it.
    """
    log = partition.changelog
    if log and partition.written_at is not None:
        raise _contradiction(
            f"The changelog {log.topic}-{log.partition} ended at {partition.changelog_next}, but "
            f"took a record at offset {partition.written_at}: it was truncated; {_RESET}"
        )


def start_offset(
    partition: OwnedPartition, facts: TakeoverFacts, settings: ServiceSettings, *, remembered: bool
) -> tuple[int, bool]:
    """Return the offset to read from, and whether the state has to be cleared first.

    `remembered` is whether the replayed changelog holds anything; without a changelog, whether the
    partition was read before. ExitError 5 where the settings allow no offset.
    """
    name = f"{partition.source.topic}-{partition.source.partition}"
    clear = False
    if partition.input_partition is None:  # repartitioned records are never skipped
        settings = replace(settings, on_missing_offset="earliest")
    if remembered and facts.metadata is None:
        if settings.on_reset_offset == "fail":
            raise _contradiction(
                f"The offset of {name} was reset by hand or has expired, but the state remembers "
                "ids; set service.on_reset_offset to keep_state or clear_state."
            )
        clear = settings.on_reset_offset == "clear_state"
    offset = facts.committed_offset
    if offset is None:
        return _by_policy(settings.on_missing_offset, "on_missing_offset", name, facts), clear
    if not facts.input.start <= offset <= facts.input.end:
        if partition.input_partition is None:
            raise _contradiction(
                f"{name} has offsets {facts.input.start} to {facts.input.end}, its group is at "
                f"{offset}; reset the offsets of that group to the earliest, and set "
                "service.on_reset_offset to keep_state."
            )
        return _by_policy(settings.on_lost_offset, "on_lost_offset", name, facts), clear
    return offset, clear


def _by_policy(policy: str, setting: str, name: str, facts: TakeoverFacts) -> int:
    if policy == "earliest":
        return facts.input.start
    if policy == "latest":
        return facts.input.end
    raise _contradiction(
        f"{name} has offsets {facts.input.start} to {facts.input.end}, the group is at "
        f"{facts.committed_offset}; set service.{setting} to earliest or latest."
    )


_RESET: Final = (
    "delete the group's offsets and set service.on_reset_offset to keep_state or clear_state."
)


def _contradiction(sentence: str) -> ExitError:
    return ExitError(ExitCode.CONTRADICTION, sentence)


_COMMITTED_TIMEOUT_S: Final = 0.5
"""How long a request for committed offsets may block the loop, and all partitions that run.

There is no answer while an earlier transaction is open; the next turn asks again.
"""

_RESTORE_SLICE_S: Final = 0.05
"""How long a turn waits for records of changelogs, at most: partitions that run wait with it."""

_BUSY_PAUSE_S: Final = 0.25
"""How long a postponed partition waits for its next attempt.

Each attempt has the loop wait for several requests to the broker. Less than `_SHORT_GAP_S`, so that
attempts in a row count as one streak.
"""

_SHORT_S: Final = 10.0
"""How long a log must be short before that is believed: a broker that starts may report too little.

What is believed ends the process with exit code 5, or has `on_lost_offset` choose another offset.
"""

_SHORT_GAP_S: Final = 5.0
"""Reports further apart do not count as one streak: the broker may have restarted in between."""


class _Blocker(Enum):
    """Why a partition is postponed; the values appear in the status, with the topics."""

    TOPIC = "the broker to describe the topics of {}, which were created just now, or deleted"
    RECORDS = "the broker to report the whole logs of {}, which seem to be truncated"
    STORE = "the stores of {}, which another process of this instance still has open"


class _TruncatedLog(NamedTuple):
    """The first and last time at which a log was reported to end too early."""

    since_s: float
    asked_s: float


class PartitionInitializer:
    """Takes partitions over: from their assignment until they are read."""

    def __init__(
        self,
        clients: Clients,
        cluster_id: str,
        consumer: Consumer,
        stores: Stores,
        settings: ServiceSettings,
        clock: Clock,
        run: Callable[[OwnedPartition, int], None],
        retake: Callable[[OwnedPartition], None],
        standby: Callable[[PartitionId], ChangelogReplay | None],
    ) -> None:
        """`run` starts reading a partition at an offset; `retake` starts its takeover again.

        `standby` hands over the standby copy of a partition, if there is one.
        """
        self._cluster: ClusterAdmin = clients.cluster
        self._cluster_id = cluster_id
        self._consumer = consumer
        self._stores = stores
        self._settings = settings
        self._clock = clock
        self._run = run
        self._retake = retake
        self._standby = standby
        self._postponed: dict[PartitionId, float] = {}
        """Postponed partitions, and when to try again."""
        self._blockers: dict[PartitionId, _Blocker] = {}
        """The last blocker of each postponed partition."""
        self._short: dict[PartitionId, dict[PartitionId, _TruncatedLog]] = {}
        """By partition the logs that were short when last checked."""
        self.restorer = Restorer(clients.restorer, clock)
        """Replays the changelogs."""

    def step(self, partitions: Mapping[PartitionId, OwnedPartition]) -> str | None:
        """Advance every partition that is not RUNNING; return what they wait for, or None."""
        now_s = self._clock.monotonic_s()
        for source in self._postponed.keys() - partitions.keys():
            del self._postponed[source]
        for source in self._short.keys() - partitions.keys():
            del self._short[source]
        assigned = [p for p in partitions.values() if p.phase is PartitionPhase.ASSIGNED]
        due = [p for p in assigned if self._postponed.get(p.source, 0.0) <= now_s]
        waiting = self._take_over(due) or self._postponed_sentence()
        if self.restorer.replays:
            self.restorer.step(_RESTORE_SLICE_S)
            for partition in list(partitions.values()):
                replay = self.replay(partition)
                if replay is not None and replay.done:
                    self._finish(partition, replay)
        return waiting

    def replay(self, partition: OwnedPartition) -> ChangelogReplay | None:
        """Return the running replay of a partition, or None."""
        return self.restorer.replays.get(partition.changelog) if partition.changelog else None

    def drop(self, partition: OwnedPartition) -> None:
        """Stop the takeover of a partition: it is lost, or starts again."""
        if partition.changelog is not None:
            self.restorer.remove(partition.changelog)

    def wipe(self, source: PartitionId) -> None:
        """Delete the store of a partition, unless another worker has it open by now."""
        with contextlib.suppress(StoreLockedError):
            self._stores.wipe(source)

    def close(self) -> None:
        """Close the consumer of changelogs."""
        self.restorer.close()

    def _take_over(self, partitions: Sequence[OwnedPartition]) -> str | None:
        if not partitions:
            return None
        try:
            committed = self._consumer.committed(
                [topic_partition_of(partition) for partition in partitions],
                timeout=_COMMITTED_TIMEOUT_S,
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:  # noqa: SLF001 - its name
                raise
            names = ", ".join(f"{p.source.topic}-{p.source.partition}" for p in partitions)
            return (
                f"the committed offsets of {names}: an earlier transaction is still open, "
                "or the broker does not answer"
            )
        asked_s = self._clock.monotonic_s()
        facts = self._facts(partitions, committed)
        for partition in partitions:
            found = facts.get(partition.source)
            if found is None:
                self._postpone(partition, _Blocker.TOPIC)
                continue
            if self._is_short(partition, found, asked_s):
                self._postpone(partition, _Blocker.RECORDS)
                continue
            try:
                self._begin(partition, found)
            except StoreLockedError:
                self._stores.want(partition.source)
                self._postpone(partition, _Blocker.STORE)
            else:
                self._postponed.pop(partition.source, None)
        return None

    def _is_short(self, partition: OwnedPartition, facts: TakeoverFacts, asked_s: float) -> bool:
        """Whether the input or the changelog ends too early, and not yet long enough to believe it.

        A broker that has just started reports less than it has, so a short log is believed only
        after `_SHORT_S`. That time counts between requests, since the process may have been paused
        after the last one. Each log counts on its own, since their leaders may start one after the
        other, and a leader may start repeatedly.
        """
        before, now = self._short.get(partition.source, {}), dict[PartitionId, _TruncatedLog]()
        for log in short_logs(partition, facts):
            last = before.get(log)
            if last is None or asked_s - last.asked_s > _SHORT_GAP_S:
                last = _TruncatedLog(asked_s, asked_s)
            now[log] = last._replace(asked_s=asked_s)
        self._short[partition.source] = now
        return any(asked_s - short.since_s < _SHORT_S for short in now.values())

    def _postpone(self, partition: OwnedPartition, blocker: _Blocker) -> None:
        self._blockers[partition.source] = blocker
        self._postponed[partition.source] = self._clock.monotonic_s() + _BUSY_PAUSE_S

    def _postponed_sentence(self) -> str | None:
        """Return what the postponed partitions wait for, as a sentence; None without any."""
        for blocker in _Blocker:
            found = sorted(
                source for source in self._postponed if self._blockers[source] is blocker
            )
            if found:
                names = ", ".join(f"{source.topic}-{source.partition}" for source in found)
                return blocker.value.format(names)
        return None

    def _facts(
        self, partitions: Sequence[OwnedPartition], committed: Sequence[TopicPartition]
    ) -> dict[PartitionId, TakeoverFacts]:
        """Return the facts of each partition whose topics the broker describes."""
        for position in committed:
            if position.error is not None:
                raise KafkaException(position.error)
        topics = self._cluster.topics({log.topic for p in partitions for log in p.logs})
        described = [all(log.topic in topics for log in p.logs) for p in partitions]
        partitions = list(compress(partitions, described))
        logs = [log for partition in partitions for log in partition.logs]
        ends, starts = self._cluster.ends(logs), self._cluster.starts(logs)
        found = {}
        for partition, position in zip(partitions, compress(committed, described), strict=True):
            source, log = partition.source, partition.changelog
            found[source] = TakeoverFacts(
                committed_offset=position.offset if position.offset >= 0 else None,
                metadata=decode(position.metadata),
                input=LogRange(starts[source], ends[source]),
                changelog=LogRange(0, 0) if log is None else LogRange(starts[log], ends[log]),
                identity=Identity(
                    self._cluster_id,
                    topics[source.topic].topic_id,
                    "" if log is None else topics[log.topic].topic_id,
                    FORMAT,
                ),
                tombstones_kept_ms=(
                    TOMBSTONES_KEPT_MS if log is None else tombstones_kept_ms(topics[log.topic])
                ),
                problems=_problems(partition, topics),
            )
        return found

    def _begin(self, partition: OwnedPartition, facts: TakeoverFacts) -> None:
        check_identity(partition, facts)
        check_settings(facts)
        partition.facts = facts
        if partition.changelog is None:
            was_read = facts.committed_offset is not None
            offset, _ = start_offset(partition, facts, self._settings, remembered=was_read)
            self._start(partition, facts, offset)
            return
        replay = self._continued(partition.source, facts)
        if replay is None:
            store = self._opened(partition, facts)
            position = store.position() or StorePosition(
                facts.identity, 0, facts.changelog.start, self._clock.wall_ms()
            )
            replay = ChangelogReplay(partition.changelog, store, position, facts.changelog.end)
        partition.store = replay.store
        partition.move_to(PartitionPhase.RESTORING)
        if replay.done:
            self._finish(partition, replay)
        else:
            self.restorer.add(replay)

    def _continued(self, source: PartitionId, facts: TakeoverFacts) -> ChangelogReplay | None:
        """Return the replay of a standby copy, up to the end of the changelog; None without one."""
        replay = self._standby(source)
        if replay is None:
            return None
        if store_fault(replay.position, facts, self._clock.wall_ms()) is not None:
            replay.store.close()  # it is looked at once more when it is opened
            return None
        replay.end = facts.changelog.end
        return replay

    def _opened(self, partition: OwnedPartition, facts: TakeoverFacts) -> ReplayedStore:
        """Open the store of a partition; wipe it if it is damaged or not a usable copy."""
        source = partition.source
        try:
            store = self._stores.open(source)
        except StoreCorruptError:
            pass
        else:
            if store_fault(store.position(), facts, self._clock.wall_ms()) is None:
                return store
            store.close()
        self._stores.wipe(source)
        return self._stores.open(source)

    def _finish(self, partition: OwnedPartition, replay: ChangelogReplay) -> None:
        """Check the restored store against the committed offset, then start reading."""
        self.restorer.remove(replay.changelog)
        facts, store = partition.known_facts, replay.store
        now_ms = self._clock.wall_ms()
        if is_too_old(replay.position, now_ms, facts.tombstones_kept_ms):
            self._retake(partition)
            self.wipe(partition.source)
            return
        replay.finish()
        partition.addresses, partition.idle = addresses_of(store), IdleAddresses()
        partition.groups = PendingGroups.of(store)
        contradiction: ExitError | None = None
        try:
            check_changelog(partition, facts, replay.position.changelog_next)
            remembered = bool(partition.addresses or partition.groups.open)
            offset, partition.to_clear = start_offset(
                partition, facts, self._settings, remembered=remembered
            )
        except ExitError as error:
            contradiction = without_frames(error)
        if contradiction is not None:
            if not self._is_outdated(partition, facts):
                raise contradiction
            self._retake(partition)
            return
        partition.changelog_next = replay.position.changelog_next
        partition.restored_records = replay.records
        self._start(partition, facts, offset)

    def _start(self, partition: OwnedPartition, facts: TakeoverFacts, offset: int) -> None:
        partition.committed_offset = facts.committed_offset
        if facts.metadata is not None:
            partition.time_ms = facts.metadata.time_ms
            partition.revision = facts.metadata.revision
            partition.applied = facts.metadata.applied
        self._run(partition, offset)

    def _is_outdated(self, partition: OwnedPartition, facts: TakeoverFacts) -> bool:
        """Whether another owner has committed since: then this process was paused."""
        try:
            (now,) = self._consumer.committed(
                [topic_partition_of(partition)], timeout=_COMMITTED_TIMEOUT_S
            )
        except KafkaException:
            return True
        return (now.offset if now.offset >= 0 else None) != facts.committed_offset


def _problems(partition: OwnedPartition, topics: Mapping[str, TopicInfo]) -> list[ConfigIssue]:
    """Return the issues with the configuration of a partition's internal topics."""
    found, source, log = list[ConfigIssue](), partition.source, partition.changelog
    if partition.input_partition is None:
        found += by_address_problems(source.topic, topics[source.topic])
    if log is not None:
        found += changelog_problems(log.topic, topics[log.topic])
    return found
