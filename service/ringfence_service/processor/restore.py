"""Restore: replays the tail of changelogs into their stores, on a consumer of its own.

The end is the high watermark, read after the committed offset, and never the last stable offset:
an open transaction would hide state that the committed offset already includes. Replay is
read_committed and done when the position has reached the end; control records advance it too. The
end may be raised later: a standby copy is a replay that never ends.
Invariant: a store always holds a prefix of its changelog, applied in order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.kafka.errors import UNREADABLE_BATCH
from ringfence_service.kafka.io import BoundedReads, assign_anew, errors_of
from ringfence_service.kafka.unreadable_batch import UnreadableBatchFault
from ringfence_state.keys import UnknownFormatError, address_of
from ringfence_state.model import Edit, PartitionId
from ringfence_state.store import ReplayedStore, StorePosition
from ringfence_state.strategies.base import Replayed
from ringfence_state.strategies.registry import check, replayed

_RECORDS_MAX: Final = 5_000
"""Most small records of one read, all of which are applied before the loop goes on.

Large records are limited by their bytes before (`BoundedReads`).
"""

_STALLED_S: Final = 30.0
"""How long no replay may advance before its consumer is replaced, which may have lost all brokers.

Longer than partitions of a lost broker are without a leader (`broker.session.timeout.ms`, 9 s by
default). A replacement is harmless: each replay continues at the position of its store.
"""


class ForeignRecordError(UnknownFormatError):
    """A record of a changelog that this version of Ringfence did not write."""

    def __init__(self, log: PartitionId, offset: int, cause: UnknownFormatError) -> None:
        super().__init__(f"{log.topic}-{log.partition}@{offset}: {cause}")
        self.log = log


@dataclass(slots=True)
class ChangelogReplay:
    """One changelog partition on its way into its store."""

    changelog: PartitionId
    store: ReplayedStore
    position: StorePosition
    end: int
    records: int = 0
    edits: list[Edit] = field(default_factory=list)
    observers: Sequence[Replayed] = field(init=False)
    reached: int = field(init=False)
    """The offset after the last record, or transaction marker, that was read."""

    def __post_init__(self) -> None:
        self.reached = self.position.changelog_next
        self.observers = replayed(self.store)

    @property
    def done(self) -> bool:
        """Whether the store holds everything up to the end."""
        return self.position.changelog_next >= self.end

    def discard_read(self) -> None:
        """Forget what was read and not applied: it is read again."""
        self.edits, self.reached = [], self.position.changelog_next

    def finish(self) -> None:
        """Have everything ready that is made of the replayed records; the replay is done."""
        for observer in self.observers:
            observer.finish()


class Restorer:
    """Replays any number of changelog partitions, a slice of work at a time."""

    def __init__(
        self,
        consumer: Callable[[], Consumer],
        clock: Clock,
        reads: BoundedReads | None = None,
    ) -> None:
        """`reads` bounds the records of one step."""
        self._make_consumer = consumer
        self._clock = clock
        self._consumer: Consumer | None = None
        self._replays: dict[PartitionId, ChangelogReplay] = {}
        self._reads = reads or BoundedReads(_RECORDS_MAX)
        self._positions: dict[PartitionId, int] = {}
        """The positions of the replays that are not done, when one last advanced."""
        self._stalled_since_s: float
        self._refused: dict[PartitionId, UnreadableBatchFault] = {}
        """Changelogs that stand still before a batch that the client refuses."""

    @property
    def replays(self) -> dict[PartitionId, ChangelogReplay]:
        """Running replays by changelog partition."""
        return self._replays

    @property
    def refused(self) -> Mapping[PartitionId, UnreadableBatchFault]:
        """The batches that the client refuses, by changelog."""
        return self._refused

    def add(self, replay: ChangelogReplay) -> None:
        """Start a replay, or restart it, at the store's position."""
        self._replays[replay.changelog] = replay
        self._assign()

    def remove(self, changelog: PartitionId) -> None:
        """Stop a replay: the partition is restored or lost."""
        self._refused.pop(changelog, None)
        if self._replays.pop(changelog, None) is not None:
            self._assign()

    def unreadable_sentence(self) -> str | None:
        """Return what a replay waits for that cannot go on; None if all can."""
        return next((batch.sentence(log) for log, batch in self._refused.items()), None)

    def step(self, timeout_s: float) -> int:
        """Replay the records that arrive within the timeout; return how many.

        Raises KafkaException for an error from the broker, ForeignRecordError for a record that
        Ringfence did not write, and the store's own errors.
        """
        self._renew_if_stalled()
        consumer = self._consumer
        if consumer is None or not self._replays:
            return 0
        messages = self._reads.consume(consumer, timeout_s)
        errors = list(self._refusals(messages))
        for message in messages:
            if message.error() is None:
                self._take(message)
        for replay in self._replays.values():
            _apply(replay)
        if errors:
            self._assign()  # the log that caused an error is fetched again
            raise KafkaException(errors[0])
        for position in consumer.position([TopicPartition(*log) for log in self._replays]):
            replay = self._replays[PartitionId(position.topic, position.partition)]
            replay.reached = max(position.offset, replay.reached)
            _apply(replay)
        return len(messages)

    def _refusals(self, messages: Sequence[Message]) -> Iterator[KafkaError]:
        """Yield the errors that end a step; a batch that cannot be read holds up its log alone."""
        for error, log in errors_of(messages):
            replay = None if log is None else self._replays.get(log)
            if error.code() != UNREADABLE_BATCH:
                yield error
            elif replay is not None:
                self._refused[replay.changelog] = UnreadableBatchFault.of(error, replay.reached)

    def _renew_if_stalled(self) -> None:
        """Continue with a new consumer where the current one may have forgotten its brokers."""
        positions = {
            log: each.position.changelog_next
            for log, each in self._replays.items()
            if not each.done
        }
        now_s = self._clock.monotonic_s()
        if positions != self._positions:
            self._positions, self._stalled_since_s = positions, now_s
        elif positions and now_s - self._stalled_since_s > _STALLED_S:
            self._stalled_since_s = now_s
            self._drop_consumer()
            self._assign()

    def close(self) -> None:
        """Close the consumer and drop all replays."""
        self._drop_consumer()
        self._replays.clear()
        self._refused.clear()

    def _drop_consumer(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _assign(self) -> None:
        if self._consumer is None:
            self._consumer = self._make_consumer()
        nexts = ((log, replay.position.changelog_next) for log, replay in self._replays.items())
        assign_anew(self._consumer, [TopicPartition(*log, offset) for log, offset in nexts])

    def _take(self, message: Message) -> None:
        replay = self._replays.get(PartitionId(message.topic() or "", message.partition() or 0))
        if replay is None or (message.offset() or 0) < replay.reached:
            return
        key, value = message.key() or b"", message.value()
        try:
            if value is not None:  # deleting a foreign record leaves a foreign key
                address_of(key)
                check(key, value)
        except UnknownFormatError as error:
            raise ForeignRecordError(replay.changelog, message.offset() or 0, error) from error
        replay.edits.append(Edit(key, value))
        replay.reached = (message.offset() or 0) + 1


def _apply(replay: ChangelogReplay) -> None:
    """Apply the records read so far to the store."""
    if replay.reached > replay.position.changelog_next:
        # The position's time stays: before the end, tombstones may be missing that expire by then.
        position = replay.position._replace(changelog_next=replay.reached)
        replay.store.replay(replay.edits, position)
        for observer in replay.observers:
            observer.take(replay.edits)
        replay.position = position
        replay.records += len(replay.edits)
        replay.edits = []
