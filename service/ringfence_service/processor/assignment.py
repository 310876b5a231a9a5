"""Assignment: the assigned partitions, and their phases up to the first record read.

    assigned ─▶ ASSIGNED ──▶ RESTORING ──▶ RUNNING
                   ▲  │           │           │
                   └──┼── retake ─┴───────────┤   (store damaged, offset lost)
                      ▼                       ▼
                   revoked or lost: everything local is dropped

The group's callbacks only record; the work is done by `step`, in the loop. A partition is given
to the consumer's fetcher only when it is RUNNING, with its exact offset, so that nothing is fetched
before and no position has to be corrected. Invariant: a store is open iff its partition is owned
and past ASSIGNED.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.config.model import ServiceSettings
from ringfence_service.dedup.partition import OwnedPartition, PartitionPhase
from ringfence_service.dedup.route import InputPartition, InputTopic
from ringfence_service.kafka.admin import finds_a_broker
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.topics import fallback
from ringfence_service.processor.fetcher import Fetcher, topic_partition_of
from ringfence_service.processor.group_entry import GroupEntry
from ringfence_service.processor.restore import ChangelogReplay, Restorer
from ringfence_service.processor.standby import StandbyCopies
from ringfence_service.processor.stuck_inputs import (
    HangingTransactions,
    UnassignedPartitions,
    describe_held,
)
from ringfence_service.processor.takeover import PartitionInitializer
from ringfence_service.processor.unreadable_batches import UnreadableBatches
from ringfence_service.telemetry.metrics import RebalanceKind
from ringfence_state.cache import Cache
from ringfence_state.model import PartitionId
from ringfence_state.store import (
    Stores,
)

_LEAVE_S: Final = 2.0
"""How long a loop that stops waits until its partitions are revoked.

Less than the six seconds after which the supervisor kills it (its `_LEAVE_S`), so that the consumer
and the stores can still be closed.
"""

_LEAVE_SLICE_S: Final = 0.05
"""How long one call waits: the callback runs in it, and the stop is delayed by one call at most."""

_STABLE_TIMEOUT_S: Final = 2.0
"""How long the loop waits for the last stable offset of a log, without a heartbeat.

Less than the four seconds after which `/readyz` fails. The first request without an answer ends the
check of all logs.
"""

_COMMITTED_S: Final = 0.5
"""How long a member that is to join waits for the group's committed offsets, and does not follow.

There is no answer while a transaction is open; the next look asks again.
"""

_CHECK_S: Final = 5.0
"""How often the loop asks whether its consumer finds a broker, which no error reports.

Without a broker each question blocks the loop for two seconds. Several of them fit into the time
after which a life without a broker ends (`_CUT_OFF_S` in
`service/ringfence_service/processor/retry.py`).
"""


class Assignment:
    """The partitions that the group has assigned to this consumer."""

    def __init__(
        self,
        clients: Clients,
        stores: Stores,
        cache: Cache,
        settings: ServiceSettings,
        clock: Clock,
        on_doubt: Callable[[], None] = lambda: None,
        *,
        has_joined: bool = False,
    ) -> None:
        """`on_doubt` is passed to `Clients.consumer`.

        `has_joined`: an earlier life of this worker was a member, and others wait for this one.
        """
        self._cache = cache
        self._settings = settings
        self._clock = clock
        # May raise, so it comes before any client that must be closed.
        cluster_id = clients.cluster.cluster_id()
        self._consumer: Consumer = clients.consumer(on_doubt)
        self.standbys = StandbyCopies(clients, cluster_id, stores, settings, clock)
        self._initializer = PartitionInitializer(
            clients,
            cluster_id,
            self._consumer,
            stores,
            settings,
            clock,
            self._run,
            self._retake,
            self.standbys.take,
        )
        self._entry = GroupEntry(clients, self._committed, clock)
        self._joins = has_joined or not self.standbys.is_on
        """Whether it has joined the group, or is to do so at once."""
        self.fetching = Fetcher(self._consumer, clients.cluster, clock)
        self.unreadable = UnreadableBatches(clients, self.fetching, clock)
        self._input_topics: Mapping[str, InputTopic] = {}
        self._idle: set[PartitionId] = set()
        """Assigned partitions of topics that are not to be read."""
        self.partitions: dict[PartitionId, OwnedPartition] = {}
        self.running: dict[PartitionId, OwnedPartition] = {}
        self.rebalances = 0
        """Number of rebalance callbacks so far; 0 until the group is joined."""
        self.changes: Counter[RebalanceKind] = Counter()
        """The same by kind."""
        self._unassigned = UnassignedPartitions(clients.cluster, clients.group_id, clock)
        self._held = HangingTransactions(clients.cluster, clock, self._last_stable_offset)
        self._has_extra_topic = False
        self._checked_s = clock.monotonic_s()
        self.has_no_broker = False
        """Whether our consumer cannot find a broker."""
        self._member: object | None = None

    @property
    def consumer(self) -> Consumer:
        """The consumer that is a member of the group."""
        return self._consumer

    @property
    def restorer(self) -> Restorer:
        """The restorer of changelogs."""
        return self._initializer.restorer

    @property
    def settled(self) -> bool:
        """Whether it joins the group, and every partition that we own is RUNNING."""
        return self._joins and len(self.running) == len(self.partitions)

    def subscribe(self, input_topics: Mapping[str, InputTopic]) -> None:
        """Subscribe to these topics; called again when the inputs change."""
        before, self._input_topics = self._input_topics, input_topics
        for partition in list(self.partitions.values()):
            self._adapt(partition, input_topics.get(partition.source.topic))
        for source in [source for source in self._idle if source.topic in input_topics]:
            self._idle.discard(source)
            self.partitions[source] = _partition(source, input_topics[source.topic])
        self.fetching.update(self.running.values())
        if input_topics.keys() != before.keys():
            self._subscribe()

    def _adapt(self, partition: OwnedPartition, input_topic: InputTopic | None) -> None:
        """Update a partition whose topic belongs to another route, or to none, or was replaced."""
        source = partition.source
        if input_topic is None:
            self._release(partition)
            del self.partitions[source]
            self._idle.add(source)  # until the group revokes it
            return
        now = _partition(source, input_topic)
        if now.changelog != partition.changelog:
            self._release(partition)
            self.partitions[source] = now
            return
        partition.input_partition = now.input_partition
        if _is_replaced(partition, input_topic):
            self._retake(partition)

    def _subscribe(self) -> None:
        if not self._joins:
            return
        topics = sorted(self._input_topics)
        if self._has_extra_topic:
            topics.append(fallback(self._settings.group_id))
        self._consumer.subscribe(
            topics,
            on_assign=self.on_assign,
            on_revoke=self.on_revoke,
            on_lost=self.on_lost,
        )

    def membership(self) -> object | None:
        """Return the group metadata of the last generation a callback reported; None without one.

        It is taken in the callbacks. The client may know a newer generation by now, in which our
        partitions belong to another member, and the broker checks the generation alone.
        """
        return self._member

    def step(self) -> str | None:
        """Advance every partition that is not RUNNING; return what they wait for, or None."""
        self.standbys.yield_wanted()
        if not self._joins and self._input_topics:
            copies = self.standbys
            is_due = self._entry.is_due(self._all(), copies.progress, are_warm=copies.are_warm)
            self._joins = is_due
            self._subscribe()
        waiting, restorer = self._initializer.step(self.partitions), self.restorer
        self._held.poll(self._positions)
        self.fetching.unblock(self.running)
        self.fetching.refresh_ends(self.running)
        held = {log: at for log, at in self._held.offsets.items() if log in restorer.replays}
        waiting = waiting or describe_held(held) or restorer.unreadable_sentence()
        return waiting or self._no_broker_sentence() or self._unassigned_sentence()

    def _committed(self, sources: Collection[PartitionId]) -> dict[PartitionId, int]:
        """Return the committed offsets of the group; KafkaException without an answer."""
        wanted = [TopicPartition(*source) for source in sorted(sources)]
        found = self._consumer.committed(wanted, timeout=_COMMITTED_S)
        return {PartitionId(each.topic, each.partition): each.offset for each in found}

    def follow(self, is_left: Callable[[], bool]) -> None:
        """Keep the standby copies up to date, for as long as `is_left` returns True."""
        self.standbys.follow(self._input_topics, self.partitions, is_left)

    @property
    def held(self) -> Mapping[PartitionId, int]:
        """Inputs that cannot be read beyond an offset, because a transaction is open there."""
        return {log: at for log, at in self._held.offsets.items() if log in self.running}

    def _positions(self) -> dict[PartitionId, int]:
        """Return the read position of every log, past any transaction markers."""
        found = {log: each.position.changelog_next for log, each in self.restorer.replays.items()}
        read = {log: at for log, at in self.reached().items() if self.fetching.is_fetching(log)}
        return found | read

    def reached(self) -> dict[PartitionId, int]:
        """Return the read position of each running partition, past any transaction markers."""
        reached = {source: each.next_offset for source, each in self.running.items()}
        positions: list[TopicPartition] = []
        with contextlib.suppress(KafkaException):  # the next call asks again
            fetched = [p for p in self.running.values() if self.fetching.is_fetching(p.source)]
            positions = self._consumer.position([topic_partition_of(each) for each in fetched])
        for position in positions:
            source = PartitionId(position.topic, position.partition)
            reached[source] = max(position.offset, reached[source])
        return reached

    def end_of(self, partition: OwnedPartition) -> int | None:
        """Return the last known end offset, open transactions included; None if unknown."""
        if not self.fetching.is_read(partition):
            return self.fetching.ends.get(partition.source)
        end = self.consumer.get_watermark_offsets(topic_partition_of(partition), cached=True)[1]
        return end if end >= 0 else None

    def has_caught_up(self) -> bool:
        """Whether every partition that we own is read to its end, or not to be read now."""
        if not (self.rebalances and self.settled):
            return False
        reached = self.reached()
        for source, partition in self.running.items():
            end = self.end_of(partition)
            is_read = end is not None and end <= reached[source]
            if not is_read and self.fetching.is_read(partition):
                return False
        return True

    def _last_stable_offset(self, log: PartitionId) -> int:
        partition = TopicPartition(log.topic, log.partition)
        return int(self._consumer.get_watermark_offsets(partition, timeout=_STABLE_TIMEOUT_S)[1])

    def rewind(self) -> None:
        """Seek every partition that is read to its committed offset; an abort does not do that."""
        self.unreadable.rewound()
        self.fetching.rewind(self.running)

    def retake(self, source: PartitionId, *, wipe: bool) -> None:
        """Take a partition over again: its store is damaged or its offset is out of range."""
        partition = self.partitions.get(source)
        if partition is not None:
            self._retake(partition)
            if wipe:
                self._initializer.wipe(source)

    def close(self, *, leaves: bool) -> None:
        """Close every store and the consumer.

        A static member that only closes keeps its partitions until its session times out. If it
        leaves, the other members get them at once.
        """
        if leaves:
            with contextlib.suppress(KafkaException):
                self._leave()
        self._consumer.close()
        self.fetching.clear()  # a closed consumer fetches nothing, and must not be called
        for partition in list(self.partitions.values()):
            self._release(partition)
        self.partitions.clear()
        self._initializer.close()
        self.standbys.close()
        self.unreadable.close()

    def _leave(self) -> None:
        self._consumer.unsubscribe()
        deadline_s = self._clock.monotonic_s() + _LEAVE_S
        while self.partitions and self._clock.monotonic_s() < deadline_s:
            # Runs the callback that revokes our partitions.
            self._consumer.consume(1, _LEAVE_SLICE_S)

    def replay(self, partition: OwnedPartition) -> ChangelogReplay | None:
        """Return the running replay of a partition, or None."""
        return self._initializer.replay(partition)

    # The callbacks run inside `consume`; an exception there would lose the batch it returns.

    def on_assign(self, consumer: Consumer, granted: list[TopicPartition]) -> None:
        """Note partitions that the group assigned; none is read before its state is restored."""
        self._note(consumer, "assigned")
        consumer.incremental_assign([])
        for each in granted:
            source = PartitionId(each.topic, each.partition)
            input_topic = self._input_topics.get(each.topic)
            if input_topic is None:
                self._idle.add(source)
            else:
                self.partitions[source] = _partition(source, input_topic)

    def on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        """Drop partitions that the group takes away."""
        self._note(consumer, "revoked")
        self._drop(consumer, taken)

    def on_lost(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        """Drop partitions that another member may own already.

        The committer sees that the group has rebalanced, and aborts an open transaction.
        """
        self._note(consumer, "lost")
        self._drop(consumer, taken)
        self._member = None

    def _note(self, consumer: Consumer, kind: RebalanceKind) -> None:
        self.rebalances += 1
        self.changes[kind] += 1
        self._member = _metadata(consumer)

    def _drop(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        gone = [PartitionId(each.topic, each.partition) for each in taken]
        consumer.incremental_unassign([])  # else the client unassigns partitions that it never got
        self.fetching.stop(gone)
        self._idle.difference_update(gone)
        for source in gone:
            partition = self.partitions.pop(source, None)
            if partition is not None:
                self._release(partition)

    def _no_broker_sentence(self) -> str | None:
        """Check from time to time: a client without any broker reports nothing."""
        if self._input_topics and self._clock.monotonic_s() - self._checked_s > _CHECK_S:
            self.has_no_broker = not finds_a_broker(self._consumer, min(self._input_topics))
            self._checked_s = self._clock.monotonic_s()
        return "the broker, which our consumer cannot find" if self.has_no_broker else None

    def _unassigned_sentence(self) -> str | None:
        """Make the group reassign partitions that no member has; return the sentence about them.

        The client rejoins only for a different subscription. So the subscription gets one more
        topic, from which nothing is ever fetched, or loses it again.
        """
        if not self.rebalances or self.has_all:
            self._unassigned.forget()
        elif self._unassigned.poll(self._all()):
            self._has_extra_topic = not self._has_extra_topic
            self._subscribe()
        unread = sorted(self._unassigned.partitions)
        if not unread:
            return None
        names = ", ".join(f"{source.topic}-{source.partition}" for source in unread[:5])
        return f"the group to assign {len(unread)} partitions that no member reads: {names}"

    @property
    def has_all(self) -> bool:
        """Whether no other instance owns a partition of an input."""
        return len(self.partitions) == self.partitions_total

    @property
    def partitions_total(self) -> int:
        """How many partitions the inputs have, in all instances."""
        return sum(input_topic.partitions for input_topic in self._input_topics.values())

    def _all(self) -> frozenset[PartitionId]:
        counts = {name: input_topic.partitions for name, input_topic in self._input_topics.items()}
        return frozenset(
            PartitionId(name, n) for name, count in counts.items() for n in range(count)
        )

    def _release(self, partition: OwnedPartition) -> None:
        """Stop fetching a partition and drop its memory and store."""
        self.running.pop(partition.source, None)
        self.fetching.forget(partition.source)
        self._initializer.drop(partition)
        self._cache.drop(partition.source)
        partition.drop()

    def _retake(self, partition: OwnedPartition) -> None:
        self._release(partition)
        partition.move_to(PartitionPhase.ASSIGNED)

    def _run(self, partition: OwnedPartition, offset: int) -> None:
        """Start reading a partition from this offset."""
        partition.next_offset = offset
        self.fetching.start(partition)
        partition.move_to(PartitionPhase.RUNNING)
        self.running[partition.source] = partition


def _metadata(consumer: Consumer) -> object | None:
    """Return the consumer's group metadata; None if the client has none.

    A consumer that is being closed raises RuntimeError once it has left the group.
    """
    known: object | None = None
    with contextlib.suppress(KafkaException, RuntimeError):
        known = consumer.consumer_group_metadata()
    return known


def _is_replaced(partition: OwnedPartition, input_topic: InputTopic) -> bool:
    """Whether the topic, or its changelog, was deleted and created again since the takeover.

    An empty id means that the broker does not describe the topic now: that proves nothing.
    """
    if partition.facts is None:
        return False
    identity = partition.facts.identity
    return input_topic.topic_id not in {"", identity.input_topic_id} or (
        input_topic.changelog_id not in {"", identity.changelog_topic_id}
    )


def _partition(source: PartitionId, input_topic: InputTopic) -> OwnedPartition:
    """Create the state of a newly assigned partition."""
    route, log = input_topic.route, input_topic.changelog
    input_partition = (
        None
        if route is None
        else InputPartition(
            source, route, input_topic.partitions, record_bytes_max=input_topic.record_bytes_max
        )
    )
    return OwnedPartition(
        source, input_partition, None if log is None else PartitionId(log, source.partition)
    )
