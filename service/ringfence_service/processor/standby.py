"""Standby copies: stores of deciding partitions that other instances own, kept up to date.

They are what standby replicas are in Kafka Streams: a takeover continues with the copy, and replays
only what is missing. The client cannot assign a partition to a member that has a copy of it. So
every instance follows all deciding partitions of its group; its workers share the work by the
partitions' numbers, and the folder.
Invariant: a copy is a store like every other, and holds a prefix of its changelog. It is closed or
handed over before its partition is taken over. Nothing that is wrong with a copy ends the process:
it is left alone for a while, and its partition is restored as without it.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException

from ringfence_service.clock import Clock
from ringfence_service.config.model import ServiceSettings
from ringfence_service.dedup.partition import LogRange, OwnedPartition, PartitionPhase
from ringfence_service.dedup.route import InputTopic
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.errors import without_frames
from ringfence_service.kafka.io import BoundedReads
from ringfence_service.kafka.model import Offset
from ringfence_service.processor.restore import ChangelogReplay, ForeignRecordError, Restorer
from ringfence_service.processor.takeover import copy_fault, is_too_old, tombstones_kept_ms
from ringfence_service.queries.status import StandbyStatus
from ringfence_state.model import PartitionId
from ringfence_state.segment import FORMAT
from ringfence_state.store import (
    Identity,
    ReplayedStore,
    StoreCorruptError,
    StoreFailedError,
    StoreLockedError,
    StorePosition,
    Stores,
)

_log = structlog.stdlib.get_logger(__name__)

_REFRESH_S: Final = 2.0
"""How often the ends of the changelogs are requested: the lag of a copy is known to this."""

WARM_S: Final = 10.0
"""A copy is warm if it equalled its changelog at most so long ago.

Several times `_REFRESH_S`, so that one slow answer of the broker changes nothing. A takeover
replays what was written since.
"""

_NOTED_MS: Final = 60_000
"""How often the store of a changelog without new records notes that it still equals it.

Stores are too old after half of `delete.retention.ms`, which is 24 hours by default.
"""

_PAUSE_S: Final = 1.0
"""How long nothing is followed after an error of the broker, which also answers the loop."""

_FAULT_S: Final = 60.0
"""How long a copy is left alone that cannot be followed, or whose disk refuses a write."""

_YIELD_S: Final = 10.0
"""How long a store is left to the worker that has asked for it; afterwards that one has it open."""

_WANTED_S: Final = 0.2
"""How often is looked whether another worker waits for a store."""

_RECORDS_MAX: Final = 500
"""Most records of one read. Records of the inputs wait while they are applied."""

_BYTES_MAX: Final = 512 * 1024
"""Most bytes of one read, for the same reason."""


@dataclass(slots=True)
class StandbyCopy:
    """The copy of one deciding partition."""

    source: PartitionId
    replay: ChangelogReplay
    tombstones_kept_ms: int
    asked_s: float
    """When the end of the replay was requested."""
    asked_ms: int
    """The same by the wall clock."""
    level_s: float = float("-inf")
    """When it last equalled its changelog."""

    @property
    def lag_records(self) -> int:
        """How many offsets of the changelog it is behind."""
        return max(0, self.replay.end - self.replay.position.changelog_next)

    def is_warm(self, now_s: float) -> bool:
        """Whether it equalled its changelog a moment ago."""
        return now_s - self.level_s <= WARM_S


class _Ends(NamedTuple):
    """The ends of changelogs that were requested last, and when."""

    at_s: float
    at_ms: int
    answers: Mapping[PartitionId, Future[Offset]]


class StandbyCopies:
    """The standby copies of one worker."""

    def __init__(
        self,
        clients: Clients,
        cluster_id: str,
        stores: Stores,
        settings: ServiceSettings,
        clock: Clock,
    ) -> None:
        self._cluster, self._cluster_id = clients.cluster, cluster_id
        self._stores = stores
        self._clock = clock
        self.is_on = settings.standby == "all"
        self._worker, self._workers = clients.part.worker, settings.workers
        self._restorer = Restorer(clients.restorer, clock, BoundedReads(_RECORDS_MAX, _BYTES_MAX))
        self._copies: dict[PartitionId, StandbyCopy] = {}
        self._left: dict[PartitionId, float] = {}
        """Partitions that are not followed for now, and until when."""
        self._shared: set[PartitionId] = set()
        """Those of them that another worker of this instance has open."""
        self._given_up: set[PartitionId] = set()
        """Those of them that cannot be followed for some time."""
        self._asked = _Ends(0.0, 0, {})
        self._to_open: dict[PartitionId, None] = {}
        """Partitions to follow whose store is not open yet."""
        self._others: dict[PartitionId, InputTopic] = {}
        """What this worker is to follow."""
        self._refreshed_s = self._looked_s = self._paused_until_s = float("-inf")

    def statuses(self) -> tuple[StandbyStatus, ...]:
        """Return the state of each partition that this worker is to follow."""
        now_s = self._clock.monotonic_s()
        return tuple(
            StandbyStatus(
                topic=source.topic,
                partition=source.partition,
                warm=source in self._copies and self._copies[source].is_warm(now_s),
                lag_records=self._lag_of(source, now_s),
            )
            for source in sorted(self._others)
            if source in self._copies or source not in self._shared
        )

    def _lag_of(self, source: PartitionId, now_s: float) -> int | None:
        """Return how far a copy is behind; None while it is not known."""
        copy = self._copies.get(source)
        return copy.lag_records if copy and now_s - copy.asked_s <= WARM_S else None

    @property
    def progress(self) -> tuple[int, int]:
        """How far the copies are: a pair that grows as long as they get on."""
        lags = [copy.lag_records for copy in self._copies.values()]
        return len(lags), -sum(lags)

    @property
    def are_warm(self) -> bool:
        """Whether every copy is warm, or cannot be had; True without standby copies."""
        if not self.is_on:
            return True
        now_s = self._clock.monotonic_s()
        followed = self._others.keys() - self._given_up
        return self._refreshed_s >= 0 and all(
            source in self._copies and self._copies[source].is_warm(now_s) for source in followed
        )

    def follow(
        self,
        input_topics: Mapping[str, InputTopic],
        owned: Mapping[PartitionId, OwnedPartition],
        is_left: Callable[[], bool],
    ) -> None:
        """Apply what other instances have written, for as long as `is_left` returns True.

        Call it in each turn. It raises nothing that the broker or a copy is the cause of.
        """
        if not (self.is_on and is_left()) or self._clock.monotonic_s() < self._paused_until_s:
            return
        fault: Exception | None = None
        try:
            self._refresh(input_topics, owned)
            self._take_ends()
            self._open_next()
            while is_left() and self._restorer.step(0):
                pass
            self._note_level()
        except (KafkaException, ForeignRecordError, StoreCorruptError, StoreFailedError) as error:
            fault = without_frames(error)
        if fault is not None:
            self._leave_for(fault)
        for log, refused in list(self._restorer.refused.items()):
            self._leave(self._source_of(log), _FAULT_S, refused.sentence(log))

    def take(self, source: PartitionId) -> ChangelogReplay | None:
        """Hand over the copy of a partition that is taken over here; None if there is none."""
        self._others.pop(source, None)
        self._to_open.pop(source, None)
        copy = self._copies.pop(source, None)
        if copy is None:
            return None
        self._restorer.remove(copy.replay.changelog)
        copy.replay.discard_read()
        copy.replay.records = 0
        return copy.replay

    def close(self) -> None:
        """Close the consumer and the stores."""
        self._restorer.close()
        for copy in self._copies.values():
            copy.replay.store.close()
        self._copies.clear()

    def _refresh(
        self, input_topics: Mapping[str, InputTopic], owned: Mapping[PartitionId, OwnedPartition]
    ) -> None:
        """Find out what to follow, and request where the changelogs end, if it is time."""
        now_s = self._clock.monotonic_s()
        if now_s - self._refreshed_s < _REFRESH_S:
            return
        self._refreshed_s = now_s
        self._left = {source: until for source, until in self._left.items() if until > now_s}
        self._given_up &= self._left.keys()
        self._shared &= self._left.keys()
        self._others = {
            source: input_topic
            for source, input_topic in self._deciding(input_topics)
            # A copy is followed until its partition is really taken over.
            if source not in owned
            or (source in self._copies and owned[source].phase is PartitionPhase.ASSIGNED)
        }
        for source in self._copies.keys() - self._others.keys():
            self._drop(source)
        for source, copy in list(self._copies.items()):
            if _is_replaced(copy, self._others[source]):
                self._drop(source)
        missing = self._others.keys() - self._copies.keys() - self._left.keys()
        self._to_open = dict.fromkeys(sorted(missing))
        if self._copies:
            asked_ms = self._clock.wall_ms()
            logs = [copy.replay.changelog for copy in self._copies.values()]
            self._asked = _Ends(now_s, asked_ms, self._cluster.ask_ends(logs))

    def _take_ends(self) -> None:
        """Take the answers that have come: a broker that does not answer delays no other copy."""
        for copy in self._copies.values():
            answer = self._asked.answers.get(copy.replay.changelog)
            if answer is not None and answer.done() and answer.exception() is None:
                copy.replay.end = answer.result().offset
                copy.asked_s, copy.asked_ms = self._asked.at_s, self._asked.at_ms

    def _deciding(
        self, input_topics: Mapping[str, InputTopic]
    ) -> Iterator[tuple[PartitionId, InputTopic]]:
        """Yield the partitions that this worker follows if another process owns them."""
        for name, input_topic in input_topics.items():
            if input_topic.changelog is not None:
                for number in range(self._worker, input_topic.partitions, self._workers):
                    yield PartitionId(name, number), input_topic

    def _open_next(self) -> None:
        """Open one store that is to be followed: opening takes a while, and records wait for it."""
        source = next(iter(self._to_open), None)
        if source is None:
            return
        del self._to_open[source]
        try:
            store = self._opened(source)
        except StoreLockedError:  # another worker owns the partition: its store is up to date
            self._shared.add(source)
            self._leave(source, _YIELD_S)
            return
        copy: StandbyCopy | None = None
        fault: KafkaException | None = None
        try:
            copy = self._begun(source, store)
        except KafkaException as error:
            fault = without_frames(error)
        finally:
            if copy is None:
                store.close()
        if fault is not None:
            self._leave(source, _FAULT_S, str(fault), may_come=True)
        elif copy is None:
            self._leave(source, _PAUSE_S, may_come=True)
        else:
            self._copies[source] = copy
            self._restorer.add(copy.replay)

    def _opened(self, source: PartitionId) -> ReplayedStore:
        """Open the store of a partition; wipe it if it is damaged."""
        with contextlib.suppress(StoreCorruptError):
            return self._stores.open(source)
        self._stores.wipe(source)
        return self._stores.open(source)

    def _begun(self, source: PartitionId, store: ReplayedStore) -> StandbyCopy | None:
        """Return the copy with its replay.

        None if the broker does not describe the topics yet, or if the store was no copy of the
        changelog, and was wiped.
        """
        log = PartitionId(self._others[source].changelog or "", source.partition)
        topics = self._cluster.topics([source.topic, log.topic])
        if len(topics) < len({source.topic, log.topic}):
            return None
        asked_s, asked_ms = self._clock.monotonic_s(), self._clock.wall_ms()
        changelog = LogRange(self._cluster.starts([log])[log], self._cluster.ends([log])[log])
        ids = topics[source.topic].topic_id, topics[log.topic].topic_id
        identity = Identity(self._cluster_id, *ids, FORMAT)
        kept_ms = tombstones_kept_ms(topics[log.topic])
        position = store.position()
        if copy_fault(position, identity, changelog, kept_ms, asked_ms):
            store.close()
            self._wipe(source)
            return None
        position = position or StorePosition(identity, 0, changelog.start, asked_ms)
        replay = ChangelogReplay(log, store, position, changelog.end)
        return StandbyCopy(source, replay, kept_ms, asked_s, asked_ms)

    def _wipe(self, source: PartitionId) -> None:
        """Delete a store that was closed, unless another worker has it open by now."""
        with contextlib.suppress(StoreLockedError):
            self._stores.wipe(source)

    def _note_level(self) -> None:
        """Note which copies have reached the end that their changelog had when it was asked for."""
        for copy in list(self._copies.values()):
            replay = copy.replay
            if not replay.done or copy.level_s == copy.asked_s:
                continue
            if is_too_old(replay.position, copy.asked_ms, copy.tombstones_kept_ms):
                self._leave(copy.source, _PAUSE_S, may_come=True)
                self._wipe(copy.source)
                continue
            copy.level_s, kept = copy.asked_s, replay.store.position()
            replay.position = replay.position._replace(level_at_ms=copy.asked_ms)
            if kept is None or copy.asked_ms - kept.level_at_ms >= _NOTED_MS:
                replay.store.apply((), replay.position)

    def yield_wanted(self) -> None:
        """Close the stores that another worker of this instance is to take over, if it is time."""
        now_s = self._clock.monotonic_s()
        if self._workers == 1 or now_s - self._looked_s < _WANTED_S:
            return
        self._looked_s = now_s
        for source in [each for each in self._copies if self._stores.is_wanted(each)]:
            self._leave(source, _YIELD_S)

    def _leave(
        self, source: PartitionId, pause_s: float, cause: str = "", *, may_come: bool = False
    ) -> None:
        """Close the copy of a partition, and do not open it again for a while.

        `may_come`: a member that is to join waits for it nevertheless.
        """
        if cause:
            _log.warning("standby_left", partition="{}-{}".format(*source), cause=cause)
        self._left[source] = self._clock.monotonic_s() + pause_s
        if not may_come:
            self._given_up.add(source)
        if source in self._copies:
            self._drop(source)

    def _leave_for(self, fault: Exception) -> None:
        """Leave alone for a while what cannot be followed now."""
        match fault:
            case KafkaException():
                self._paused_until_s = self._clock.monotonic_s() + _PAUSE_S
                is_lost = fault.args[0].code() == KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - its name
                # Opening all of them again finds out which one it is.
                for source in list(self._copies) if is_lost else ():
                    self._leave(source, _PAUSE_S, may_come=True)
            case ForeignRecordError():
                self._leave(self._source_of(fault.log), _FAULT_S, str(fault))
            case StoreCorruptError():
                self._leave(fault.source, _PAUSE_S, str(fault), may_come=True)
                with contextlib.suppress(StoreFailedError):
                    self._wipe(fault.source)
            case _:
                for source in list(self._others):
                    self._leave(source, _FAULT_S, str(fault))

    def _source_of(self, changelog: PartitionId) -> PartitionId:
        """Return the partition that a changelog belongs to; it has a copy."""
        logs = {copy.replay.changelog: source for source, copy in self._copies.items()}
        return logs[changelog]

    def _drop(self, source: PartitionId) -> None:
        copy = self._copies.pop(source)
        copy.replay.store.close()
        self._restorer.remove(copy.replay.changelog)


def _is_replaced(copy: StandbyCopy, input_topic: InputTopic) -> bool:
    """Whether the topic or its changelog was deleted and created again."""
    identity = copy.replay.position.identity
    return input_topic.topic_id not in {"", identity.input_topic_id} or (
        input_topic.changelog_id not in {"", identity.changelog_topic_id}
    )
