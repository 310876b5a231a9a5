"""Bridge consumer: the partitions that the group has assigned, and the position of each.

The group's callbacks only note the change; `take_over` assigns a partition with its exact offset.
Invariant: everything committed of a partition was delivered while the partition was owned; the
position of a revoked partition is dropped.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from ringfence_service.bridge.clients import BridgeClients, asking
from ringfence_service.bridge.topics import TopicMapping
from ringfence_service.clock import Clock
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.errors import UNREADABLE_BATCH
from ringfence_service.kafka.io import BoundedReads, by_source, errors_of, memory_bytes, offsets_of
from ringfence_service.kafka.unreadable_batch import UnreadableBatchFault
from ringfence_state.model import PartitionId

_COMMITTED_TIMEOUT_S: Final = 5.0
"""How long the source may take to answer a request, as for `REQUEST_TIMEOUT_S`.

The loop updates no heartbeat meanwhile, and the watchdog ends a loop that is silent for a minute.
"""
_CHECK_S: Final = 5.0
"""How long a lost source stays unnoticed while no partition is owned; each check is a request."""
_ANSWER_S: Final = 0.005
"""How long one read waits for the answer to a commit, which every batch awaits.

A read that gets fewer records than it asks for lasts this long, even if the answer has come.
"""
AT_ONCE: Final = 512
"""Maximum number of records of one call, few enough to stay in the CPU cache until sent."""
_BUFFERED_RECORDS_MAX: Final = 8 * AT_ONCE
"""Above this, a commit that is awaited pauses and reads one record at a time.

Less than `BATCH_RECORDS_MAX`, since the next batch takes all of them at once.
"""
_BUFFERED_BYTES_MAX: Final = 64 * 1024 * 1024
"""The same limit in bytes, for large records: as much as the values of a batch."""
_REFUSALS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
_LOST: Final = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT})  # noqa: SLF001


@dataclass(slots=True)
class SourcePartition:
    """An owned partition of a source topic that is being read, with its offsets."""

    source: PartitionId
    mapping: TopicMapping
    committed: int
    """The offset after the last record that was delivered and committed."""
    sent: int
    """The offset after the last record that was handed to the producer."""
    waiting_for: str | None = None
    """Why it is not read further, and what to do; None if it is."""


Parts = list[tuple[SourcePartition, list[Message]]]
Offsets = dict[PartitionId, int]


class BridgeConsumer:
    """Consumer of the source cluster, with the partitions that it owns."""

    def __init__(self, clients: BridgeClients, group_id: str, clock: Clock) -> None:
        self.consumer = clients.consumer(self.note_error, self.note_commit)
        self._reads = BoundedReads(AT_ONCE)
        self._cluster = clients.source
        self._clock = clock
        self._group_id = group_id
        self._mappings: Mapping[str, TopicMapping] = {}
        self.buffered: Parts = []
        """Records that arrived while a commit was awaited; they are read next."""
        self._committing: Offsets = {}
        """Offsets of the commit that is in flight."""
        self._commit_error: KafkaError | None = None
        self.granted: set[PartitionId] = set()
        """Assigned partitions that are not read yet."""
        self.running: dict[PartitionId, SourcePartition] = {}
        """Assigned partitions that are read."""
        self._checked_s = clock.monotonic_s()
        self.rebalances = 0
        """Number of rebalance callbacks so far; 0 until the group is joined."""
        self.lost_broker = False
        """Whether the client has reported a lost broker; the loop resets it."""

    def subscribe(self, mappings: Mapping[str, TopicMapping]) -> None:
        """Subscribe to the source topics of these mappings; call it whenever they may change."""
        changed = mappings.keys() != self._mappings.keys()
        self._mappings = mappings
        for position in self.running.values():
            position.mapping = mappings.get(position.source.topic, position.mapping)
        if changed and mappings:
            topics = sorted(mappings)
            self.consumer.subscribe(
                topics,
                on_assign=self.on_assign,
                on_revoke=self.on_revoke,
                on_lost=self.on_revoke,
            )
        elif changed:
            self.consumer.unsubscribe()

    def take_over(self) -> None:
        """Start reading granted partitions at the committed offsets.

        Raises ExitError if the log does not contain such an offset any more.
        """
        self._check_broker()
        granted = sorted(source for source in self.granted if source.topic in self._mappings)
        if not granted:
            return
        with asking("source"):
            partitions = [TopicPartition(source.topic, source.partition) for source in granted]
            committed = self.consumer.committed(partitions, timeout=_COMMITTED_TIMEOUT_S)
            starts, ends = self._cluster.starts(granted), self._cluster.ends(granted)
            for source, partition in zip(granted, committed, strict=True):
                self._begin(source, partition, starts[source], ends[source])

    def _check_broker(self) -> None:
        """Request metadata while nothing is owned: then the client reports no lost broker."""
        now_s = self._clock.monotonic_s()
        if self.granted or self.running or not self._mappings:
            self._checked_s = now_s
        elif now_s - self._checked_s > _CHECK_S:
            with asking("source"):
                self.consumer.list_topics(min(self._mappings), timeout=_COMMITTED_TIMEOUT_S)
            self._checked_s = now_s

    def _begin(self, source: PartitionId, partition: TopicPartition, start: int, end: int) -> None:
        if partition.error is not None:
            raise KafkaException(partition.error)
        mapping, offset = self._mappings[source.topic], partition.offset
        if offset < 0:
            offset = OFFSET_BEGINNING
        elif not start <= offset <= end:
            raise self._lost(source, f"{offset} is not within {start} to {end}")
        self.consumer.incremental_assign([TopicPartition(source.topic, source.partition, offset)])
        self.granted.discard(source)
        self.running[source] = SourcePartition(source, mapping, offset, offset)

    def read(self, records_max: int, wait_s: float) -> Parts:
        """Return new records by partition, without those that were delivered before."""
        buffered, self.buffered = self.buffered, []
        parts = buffered or self.consumed(records_max, wait_s)
        # A partition that was revoked since may have been assigned again, from another offset.
        return [part for part in parts if self.running.get(part[0].source) is part[0]]

    def commit(self, waits: Callable[[float], None]) -> None:
        """Commit everything that was sent; it must have been delivered.

        The commit is asynchronous because a synchronous one returns a minute late if the broker
        dies during the request. `waits` is called with the seconds without an answer; it may raise.
        """
        ahead = [each for each in self.running.values() if each.sent > each.committed]
        self._committing = {position.source: position.sent for position in ahead}
        if not ahead:
            return
        partitions = [
            TopicPartition(*source, offset) for source, offset in self._committing.items()
        ]
        started_s = self._clock.monotonic_s()
        self._commit_error = None
        with asking("source"):
            self.consumer.commit(offsets=partitions, asynchronous=True)
            while self._committing:
                is_full = self._is_full()
                if is_full:
                    self._clock.sleep(_ANSWER_S)
                # Only `consume` runs the commit callback, and it returns records too.
                self.buffered += self.consumed(1 if is_full else AT_ONCE, _ANSWER_S)
                waits(self._clock.monotonic_s() - started_s)
            if self._commit_error is not None:
                raise KafkaException(self._commit_error)
        for position in ahead:
            position.committed = position.sent

    def _is_full(self) -> bool:
        """Whether no more than the next record is to be buffered."""
        messages = [message for _, part in self.buffered for message in part]
        size_bytes = sum(map(memory_bytes, messages))
        return len(messages) >= _BUFFERED_RECORDS_MAX or size_bytes >= _BUFFERED_BYTES_MAX

    def rewind(self) -> None:
        """Read every partition again from its committed offset."""
        partitions = [
            TopicPartition(*each.source, each.committed) for each in self.running.values()
        ]
        with asking("source"):
            self.consumer.incremental_unassign(partitions)
            self.consumer.incremental_assign(partitions)
        self.buffered.clear()
        for position in self.running.values():
            position.sent = position.committed

    def log(self, position: SourcePartition) -> tuple[int, int] | None:
        """Return log start and last stable offset, as of the last fetch, or None before one."""
        partition = TopicPartition(*position.source)
        start, end = self.consumer.get_watermark_offsets(partition, cached=True)
        return (start, end) if end >= 0 else None

    def lag(self, position: SourcePartition) -> int | None:
        """Return how many offsets are left to read, as of the last fetch; valid between batches."""
        log = self.log(position)
        if log is None:
            return None
        start, end = log
        (read,) = self.consumer.position([TopicPartition(*position.source)])
        # The consumer's position skips transaction markers; the committed offset alone would
        # always leave a lag on a transactional topic.
        at = max(read.offset, position.committed)
        return max(0, end - (at if at >= 0 else start))

    @property
    def caught_up(self) -> bool:
        """Whether all records of the owned partitions are forwarded."""
        running = self.running.values()
        return not self.granted and all(self.lag(position) == 0 for position in running)

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()

    def consumed(self, records_max: int, wait_s: float) -> Parts:
        """Return the records that have arrived, by partition."""
        with asking("source"):
            messages = self._reads.consume(self.consumer, wait_s, records_max)
            errors = errors_of(messages)
            records = [m for m in messages if m.error() is None] if errors else messages
            found = by_source(records, self.running)
            for source in found:
                self.running[source].waiting_for = None
            for error, origin in errors:
                self._handle_error(error, origin)
        parts = [
            (self.running[source], _unseen(mine, self.running[source].sent))
            for source, mine in found.items()
        ]
        return [(position, mine) for position, mine in parts if mine]

    def _handle_error(self, error: KafkaError, source: PartitionId | None) -> None:
        """Raise for an error among the records, unless the client recovers by itself."""
        if error.code() == KafkaError._AUTO_OFFSET_RESET and source in self.running:  # noqa: SLF001 - its name
            raise self._lost(source, f"{self.running[source].sent} is out of range")
        if error.code() == UNREADABLE_BATCH and source in self.running:
            position = self.running[source]
            batch = UnreadableBatchFault.of(error, position.sent)
            position.waiting_for = batch.sentence(source, "bridge.source")
        if error.fatal() or error.code() in _REFUSALS:
            raise KafkaException(error)

    def note_error(self, error: KafkaError) -> None:
        """Note an error from the client's error callback; the client itself retries."""
        self.lost_broker = self.lost_broker or error.code() in _LOST

    def note_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Note the answer to a commit; a late one, for other offsets, is ignored."""
        if {
            PartitionId(partition.topic, partition.partition): partition.offset
            for partition in partitions
        } == self._committing:
            self._commit_error = next((p.error for p in partitions if p.error is not None), error)
            self._committing = {}

    def _lost(self, source: PartitionId, why: str) -> ExitError:
        topic, number = source
        return ExitError(
            ExitCode.CONTRADICTION,
            f"The source's log of {topic}-{number} lacks the offset at which group "
            f"{self._group_id} continues ({why}): records were deleted before they were "
            "forwarded; reset the group's offset there to continue without them.",
        )

    # The callbacks run inside `consume`; an exception there would lose the records it returns.

    def on_assign(self, consumer: Consumer, granted: list[TopicPartition]) -> None:
        """Note partitions that the group assigned; `poll` starts them."""
        self.rebalances += 1
        consumer.incremental_assign([])
        self.granted.update(_sources(granted))

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Drop partitions that the group took away."""
        self.rebalances += 1
        revoked = _sources(partitions)
        read = [source for source in revoked if self.running.pop(source, None) is not None]
        consumer.incremental_unassign([TopicPartition(*source) for source in read])
        self.granted.difference_update(revoked)


def _unseen(messages: list[Message], expected: int) -> list[Message]:
    """Return the messages from an offset on: after a rewind librdkafka has delivered old ones."""
    offsets = offsets_of(messages)
    if min(offsets) >= expected:
        return messages
    return list(compress(messages, [offset >= expected for offset in offsets]))


def _sources(partitions: Iterable[TopicPartition]) -> list[PartitionId]:
    return [PartitionId(partition.topic, partition.partition) for partition in partitions]
