"""Dead-letter reader: records of dead-letter partitions, read committed and outside any group.

`OffsetScan` reads many partitions at once within limits; `DeadLetterReader` reads one after the
other.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from service.dedup.dead_letter import DeadLetterPosition, DeadLetterView, view_of
from service.kafka.admin import ClusterAdmin
from service.kafka.clients import Clients
from service.kafka.errors import REFUSALS
from service.kafka.io import UNREADABLE, assign_anew, read_headers
from state.model import PartitionId

_AT_ONCE: Final = 500
_WAIT_S: Final = 0.1


def seen(message: Message) -> DeadLetterView:
    """A message of a dead-letter topic; its headers are read, so this is done once."""
    (headers,) = read_headers([message])
    place = DeadLetterPosition(
        message.topic() or "", message.partition() or 0, message.offset() or 0
    )
    told = [] if headers is None or headers is UNREADABLE else headers
    return view_of(place, message.timestamp()[1], message.key(), message.value(), told)


class OffsetScan:
    """Records from offsets on, of all partitions at once, to below their ends.

    `positions` tell all the while where a later one goes on: after what was given out.
    """

    def __init__(
        self,
        consumer: Consumer,
        starts: Mapping[PartitionId, int],
        ends: Mapping[PartitionId, int],
        records_max: int,
        is_late: Callable[[], bool],
    ) -> None:
        self._consumer = consumer
        self._ends = ends
        self._records_max = records_max
        self._is_late = is_late
        self.positions = dict(starts)
        self.scanned = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return not self._left()

    def __iter__(self) -> Iterator[Message]:
        left = self._left()
        assign_anew(self._consumer, [TopicPartition(*each, self.positions[each]) for each in left])
        while left and self.scanned < self._records_max and not self._is_late():
            for message in self._consumer.consume(_AT_ONCE, _WAIT_S):
                error = message.error()
                if error is not None:
                    _heard(error)
                    continue
                source = PartitionId(message.topic() or "", message.partition() or 0)
                offset = message.offset() or 0
                self.positions[source] = min(offset + 1, self._ends[source])
                if offset < self._ends[source]:
                    self.scanned += 1
                    yield message
                if self.scanned >= self._records_max:
                    return
            self._pass_markers(left)
            left = self._left()

    def _left(self) -> list[PartitionId]:
        return [each for each, at in self.positions.items() if at < self._ends[each]]

    def _pass_markers(self, left: list[PartitionId]) -> None:
        """What no record stands at is passed too, once all before it was given out."""
        for place in self._consumer.position([TopicPartition(*each) for each in left]):
            source = PartitionId(place.topic, place.partition)
            reached = min(place.offset, self._ends[source])
            self.positions[source] = max(self.positions[source], reached)


class RecordChunk(NamedTuple):
    """What one reading brought, and the offset that the next one begins at."""

    messages: list[Message]
    position: int


class DeadLetterReader:
    """Reads one partition at a time, forwards; to go elsewhere costs a fetch."""

    def __init__(self, clients: Clients) -> None:
        self._cluster: ClusterAdmin = clients.cluster
        self._consumer = clients.observer()
        self._at: tuple[PartitionId, int] | None = None
        """Where its consumer stands; None where that has to be told it."""

    def read(
        self, source: PartitionId, start: int, records_max: int, timeout_s: float
    ) -> RecordChunk:
        """Records of a partition from an offset on; none where none came in time."""
        if (source, start) != self._at:
            assign_anew(self._consumer, [TopicPartition(*source, start)])
            self._at = source, start
        messages = self._consumer.consume(records_max, timeout_s)
        found = [message for message in messages if message.error() is None]
        for error in filter(None, map(Message.error, messages)):
            self._at = None  # the consumer has passed what came with it: read it again
            if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its name
                return RecordChunk([], max(start, self._cluster.starts([source])[source]))
            _heard(error)
        if self._at is None:
            return RecordChunk([], start)
        (place,) = self._consumer.position([TopicPartition(*source)])
        position = max(start, place.offset)
        self._at = source, position
        return RecordChunk(found, position)

    def close(self) -> None:
        """Let the consumer go."""
        self._consumer.close()


def _heard(error: KafkaError) -> None:
    if error.code() in REFUSALS or error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
        raise KafkaException(error)
