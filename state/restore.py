"""Restore: replay the tail of changelogs into their stores, on a consumer of its own.

The end is the high watermark asked after the committed offset was known, never the last stable
offset: an open transaction would hide state that the committed offset already includes. Replay is
read_committed and done when the position has reached the end; control records move it too.
Invariant: a store only ever takes a prefix of its changelog, in order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from state.edit import Edit, Source
from state.run import address_of, decode
from state.store import Position, Store

_RECORDS_MAX: Final = 5_000


@dataclass(slots=True)
class Replay:
    """One changelog partition on its way into its store."""

    changelog: Source
    store: Store
    position: Position
    end: int
    records: int = 0
    edits: list[Edit] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether the store holds everything up to the end."""
        return self.position.changelog_next >= self.end


class Restorer:
    """Replays any number of changelog partitions, a slice of work at a time."""

    def __init__(self, consumer: Callable[[], Consumer]) -> None:
        self._make_consumer = consumer
        self._consumer: Consumer | None = None
        self._replays: dict[Source, Replay] = {}

    @property
    def replays(self) -> dict[Source, Replay]:
        """What is under way, by changelog partition."""
        return self._replays

    def add(self, replay: Replay) -> None:
        """Begin, or begin anew, at the store's position."""
        self._replays[replay.changelog] = replay
        self._assign()

    def remove(self, changelog: Source) -> None:
        """Stop: the partition is done or lost."""
        if self._replays.pop(changelog, None) is not None:
            self._assign()

    def step(self, timeout_s: float) -> int:
        """Replay what comes within the timeout; tells how far all replays moved, in offsets.

        Raises KafkaException for what the broker answers, UnknownFormatError for a record that is
        not ours, and the store's own errors.
        """
        consumer = self._consumer
        if consumer is None or not self._replays:
            return 0
        messages = consumer.consume(_RECORDS_MAX, timeout_s)
        errors = [error for message in messages if (error := message.error()) is not None]
        if errors:
            self._assign()  # the consumer has passed what came with it: read it again
            raise KafkaException(errors[0])
        for message in messages:
            self._take(message)
        moved = 0
        for place in consumer.position([_place(log) for log in self._replays]):
            replay = self._replays[Source(place.topic, place.partition)]
            moved += self._apply(replay, max(place.offset, replay.position.changelog_next))
        return moved

    def close(self) -> None:
        """Let the consumer go."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._replays.clear()

    def _assign(self) -> None:
        if self._consumer is None:
            self._consumer = self._make_consumer()
        for replay in self._replays.values():
            replay.edits.clear()
        starts = [_place(log, at.position.changelog_next) for log, at in self._replays.items()]
        self._consumer.assign(starts)

    def _take(self, message: Message) -> None:
        replay = self._replays.get(Source(message.topic() or "", message.partition() or 0))
        if replay is None:
            return
        key, value = message.key() or b"", message.value()
        address_of(key)
        if value is not None:
            decode(value)
        replay.edits.append(Edit(key, value))

    def _apply(self, replay: Replay, reached: int) -> int:
        moved = reached - replay.position.changelog_next
        if moved or replay.edits:
            # Not its time: until the end is reached, tombstones may be missing that are gone then.
            replay.position = replay.position._replace(changelog_next=reached)
            replay.store.apply(replay.edits, replay.position)
            replay.records += len(replay.edits)
            replay.edits = []
        return moved


def _place(log: Source, offset: int = -1001) -> TopicPartition:
    return TopicPartition(log.topic, log.partition, offset)
