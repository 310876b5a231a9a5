"""Dead-letter reader: reads committed records of dead-letter partitions, outside any group.

`OffsetScan` reads many partitions at once within limits; `DeadLetterReader` reads one partition
after another.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ringfence_client.headers import DUPLICATE_ID, Headers
from ringfence_service.dedup.claim import identifier_of, named, read_claim
from ringfence_service.dedup.record import RejectedError
from ringfence_service.dedup.route import InputPartition, InputRoute
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.errors import REFUSALS
from ringfence_service.kafka.io import BoundedReads, assign_anew, read_headers
from ringfence_service.kafka.model import UNREADABLE, ClusterAdmin
from ringfence_service.queries.dead_letters import (
    DeadLetterPosition,
    DeadLetterView,
    InputRecord,
    view_of,
)
from ringfence_service.schemas.errors import RegistryUnavailableError
from ringfence_state.model import NO_CLAIM, PartitionId

_AT_ONCE: Final = 500
"""Records of one read of a scan: those behind the last one that is wanted are read in vain.

Fewer would take more calls of the client.
"""
_READ_AT_ONCE: Final = 1_000
"""Records of one read of a redrive: as many as one command contains (`redrive_steps.AT_ONCE`)."""
_WAIT_S: Final = 0.1
"""How long one read of a scan waits: its deadline is checked between two.

A read with fewer records than asked for takes all of it, so the shortest scan lasts as long.
"""


def to_view(message: Message) -> DeadLetterView:
    """Parse a message of a dead-letter topic, headers included; do this once per message."""
    headers = _readable_headers(message)
    return view_of(
        _position(message), message.timestamp()[1], message.key(), message.value(), headers
    )


def to_record(message: Message, route: InputRoute) -> InputRecord:
    """Parse a message of an input of this route, headers included; do this once per message."""
    headers = _readable_headers(message)
    position = _position(message)
    source = InputPartition(PartitionId(position.topic, position.partition), route, 0)
    address = identifier = error = None
    try:
        address = source.address(message, headers)
        identifier, error = _identifier(message, headers, route.settings.id)
    except RejectedError as rejected:
        error = rejected.why.cause
    except RegistryUnavailableError as unavailable:
        error = f"the route needs {unavailable}"
    return InputRecord(
        position,
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(headers),
        address,
        identifier,
        error,
    )


def _identifier(
    message: Message, headers: Headers, template: str
) -> tuple[bytes | None, str | None]:
    """Return the id of a record by the id template of its route, or None and why it has none.

    Raises RejectedError for an invalid id, RegistryUnavailableError if its schema is not known.
    """
    reader = identifier_of(template)
    if reader is None:
        found = read_claim(headers).identifier
        return found, None if found is not None else f"it has no {DUPLICATE_ID}"
    found = named(NO_CLAIM, reader.of(message, headers)).identifier
    return found, None if found is not None else reader.why_missing(message, headers)


def _position(message: Message) -> DeadLetterPosition:
    return DeadLetterPosition(
        message.topic() or "", message.partition() or 0, message.offset() or 0
    )


def _readable_headers(message: Message) -> Headers:
    (headers,) = read_headers([message])
    return [] if headers is None or headers is UNREADABLE else headers


class OffsetScan:
    """Iterates over the records between two offsets of several partitions.

    `positions` always contains the offsets at which a later scan continues: those after the
    records that were returned.
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
        """Whether every partition was read up to its end."""
        return not self._left()

    def __iter__(self) -> Iterator[Message]:
        left, reads = self._left(), BoundedReads(_AT_ONCE)
        assign_anew(self._consumer, [TopicPartition(*each, self.positions[each]) for each in left])
        while left and not self._is_late():
            for message in reads.consume(self._consumer, _WAIT_S):
                error = message.error()
                if error is not None:
                    _raise_refusal(error)
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
        """Advance past offsets without records, such as transaction markers."""
        for position in self._consumer.position([TopicPartition(*each) for each in left]):
            source = PartitionId(position.topic, position.partition)
            reached = min(position.offset, self._ends[source])
            self.positions[source] = max(self.positions[source], reached)


class RecordChunk(NamedTuple):
    """Records of one read, and the offset at which the next read starts."""

    messages: list[Message]
    position: int


class DeadLetterReader:
    """Reads one partition at a time, forwards; a jump costs an extra fetch."""

    def __init__(self, clients: Clients) -> None:
        self._cluster: ClusterAdmin = clients.cluster
        self._consumer = clients.observer()
        self._reads = BoundedReads(_READ_AT_ONCE)
        self._at: tuple[PartitionId, int] | None = None
        """The consumer's position; None if it has to be assigned again."""

    def read(
        self, source: PartitionId, start: int, records_max: int, timeout_s: float
    ) -> RecordChunk:
        """Return records of a partition from an offset on; none if none arrives in time."""
        if (source, start) != self._at:
            assign_anew(self._consumer, [TopicPartition(*source, start)])
            self._at = source, start
        messages = self._reads.consume(self._consumer, timeout_s, records_max)
        found = [message for message in messages if message.error() is None]
        for error in filter(None, map(Message.error, messages)):
            self._at = None  # the consumer has passed records that came with it: read them again
            if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its name
                return RecordChunk([], max(start, self._cluster.starts([source])[source]))
            _raise_refusal(error)
        if self._at is None:
            return RecordChunk([], start)
        (reached,) = self._consumer.position([TopicPartition(*source)])
        position = max(start, reached.offset)
        self._at = source, position
        return RecordChunk(found, position)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def _raise_refusal(error: KafkaError) -> None:
    if error.code() in REFUSALS or error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
        raise KafkaException(error)
