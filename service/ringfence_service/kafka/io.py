"""Kafka I/O: reads headers of messages, sends records in bulk, and reassigns consumers."""

import sys
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import groupby, islice, starmap
from operator import length_hint
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ringfence_client.headers import Headers
from ringfence_service.kafka.model import UNREADABLE
from ringfence_state.model import PartitionId

_ROOM_S: Final = 0.1
"""How long one poll waits while the queue is full; a delivery report ends it sooner."""


def send(producer: Producer, records: Sequence[tuple[object, ...]]) -> None:
    """Produce records, each the positional arguments of `produce`; wait while the queue is full.

    A caller written in C and positional arguments take a third of the time of a Python loop, for
    each record that is sent.
    """
    produce: Callable[..., None] = producer.produce
    while records:
        waiting = iter(records)
        try:
            deque(starmap(produce, waiting), maxlen=0)
        except BufferError:
            records = records[-1 - length_hint(waiting) :]  # from the one that had no room
        else:
            return
        producer.poll(_ROOM_S)  # outside the `except` block, for the reason in `without_frames`


_PAUSE_S: Final = 0.001
"""Pause between two looks at the positions: a loop waits, and fetchers stop within milliseconds."""


def assign_anew(consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
    """Replace the assignment; afterwards `position` reports positions of the new one only.

    librdkafka stops the old fetchers in the background, and until then reports their positions:
    taken for the new assignment they would skip records that were never delivered.
    """
    before = consumer.assignment()
    consumer.unassign()
    while any(partition.offset >= 0 for partition in consumer.position(before)):
        time.sleep(_PAUSE_S)
    consumer.assign(list(partitions))


_READ_BYTES: Final = 8 * 1024 * 1024
"""Memory of the records of one read, as far as those before them predict it."""
_READ_FIRST: Final = 64
"""Records of the first read, whose size nothing predicts."""


class BoundedReads:
    """Reads records by their bytes, of a client that counts records.

    A read asks for as many as would fit if they were as large as those before them, and for no more
    than twice as many as the read before. So only large records that follow small ones exceed the
    limit, and the client's own queue bounds by how much.
    """

    def __init__(self, records_max: int, bytes_max: int = _READ_BYTES) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._records = min(_READ_FIRST, records_max)

    def consume(
        self, consumer: Consumer, timeout_s: float, records_max: int = sys.maxsize
    ) -> list[Message]:
        """Return messages and errors that arrive in time, and no more than `records_max`."""
        messages = consumer.consume(min(self._records, records_max), timeout_s)
        if messages:
            fitting = self._bytes_max * len(messages) // max(1, sum(map(memory_bytes, messages)))
            self._records = max(1, min(fitting, 2 * self._records, self._records_max))
        return messages


def memory_bytes(message: Message) -> int:
    """Return the bytes of key and value; headers take memory only once they are read."""
    return len(message) + len(message.key() or b"")


def errors_of(messages: Sequence[Message]) -> list[tuple[KafkaError, PartitionId | None]]:
    """Return the errors among the messages, each with its partition, if it has one."""
    if not any(map(Message.error, messages)):
        return []
    failed = [message for message in messages if message.error() is not None]
    return [(cast("KafkaError", message.error()), _named_by(message)) for message in failed]


def by_source(
    messages: Sequence[Message], sources: Container[PartitionId]
) -> dict[PartitionId, list[Message]]:
    """Return the records of these partitions, in order, by partition."""
    found: dict[PartitionId, list[Message]] = {}
    for source, start, end in _runs(messages):
        if source in sources:
            found.setdefault(source, []).extend(messages[start:end])
    return found


def _runs(messages: Sequence[Message]) -> Iterator[tuple[PartitionId, int, int]]:
    """Yield runs of consecutive records of one partition: start, and end (exclusive)."""
    partitions = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
    start = 0
    for (topic, number), same in groupby(partitions):
        end = start + len(list(same))
        yield PartitionId(topic or "", number or 0), start, end
        start = end


def read_headers(messages: Sequence[Message]) -> list[Headers | None]:
    """Return the headers of each message in order, with repeats and nulls; None or `UNREADABLE`.

    The caller of the binding is `map`, which is written in C. The binding leaves an exception
    behind instead of raising it, and Python's specialised calls do not check for that: it would
    surface anywhere later. After an exception reading continues with the next message.
    """
    found: list[object] = []
    while len(found) < len(messages):
        try:
            found.extend(map(Message.headers, islice(messages, len(found), None)))
        except (SystemError, UnicodeDecodeError):
            found.append(UNREADABLE)
    # The binding's types allow text too; values are always bytes or None.
    return cast("list[Headers | None]", found)


def offsets_of(messages: Iterable[Message]) -> list[int]:
    """Return the offset of each message."""
    # The binding's types allow None; a consumed message always has an offset.
    return cast("list[int]", list(map(Message.offset, messages)))


def _named_by(message: Message) -> PartitionId | None:
    topic = message.topic()
    return PartitionId(topic, message.partition() or 0) if topic else None
