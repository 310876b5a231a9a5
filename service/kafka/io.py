"""Kafka I/O: reads headers of messages, sends records in bulk, and reassigns consumers."""

import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import groupby, islice, starmap
from operator import length_hint
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ringfence.headers import Headers
from state.model import PartitionId

_ROOM_S: Final = 0.1


def send(producer: Producer, records: Sequence[tuple[object, ...]]) -> None:
    """Hand over what `produce` takes by position; where the client's queue is full, wait for room.

    A caller written in C, and arguments without names, cost a third of the loop that one would
    write, for each record that is sent.
    """
    produce: Callable[..., None] = producer.produce
    while records:
        waiting = iter(records)
        try:
            deque(starmap(produce, waiting), maxlen=0)
        except BufferError:
            records = records[-1 - length_hint(waiting) :]  # from the one that had no room
            producer.poll(_ROOM_S)
        else:
            return


_PAUSE_S: Final = 0.001


def assign_anew(consumer: Consumer, places: Sequence[TopicPartition]) -> None:
    """Read from these on; from now on `position` tells of this assignment alone.

    librdkafka stops in the background where it read, and until then tells how far that had come:
    who took that for the new assignment would pass over records that were never given out.
    """
    before = consumer.assignment()
    consumer.unassign()
    while any(place.offset >= 0 for place in consumer.position(before)):
        time.sleep(_PAUSE_S)
    consumer.assign(list(places))


UNREADABLE: Final[Headers] = [("", None)]
"""In place of headers that are not text; told apart by identity."""

UNREADABLE_CAUSE: Final = (
    "a header name is not UTF-8 text; the record is kept here without its headers"
)


def errors_of(messages: Sequence[Message]) -> list[tuple[KafkaError, PartitionId | None]]:
    """The errors that came among the messages, each with the partition that it names, if any."""
    if not any(map(Message.error, messages)):
        return []
    failed = [message for message in messages if message.error() is not None]
    return [(cast("KafkaError", message.error()), _named_by(message)) for message in failed]


def by_source(
    messages: Sequence[Message], wanted: Container[PartitionId]
) -> dict[PartitionId, list[Message]]:
    """The records of the partitions that are wanted, in order."""
    found: dict[PartitionId, list[Message]] = {}
    for source, start, end in _runs(messages):
        if source in wanted:
            found.setdefault(source, []).extend(messages[start:end])
    return found


def _runs(messages: Sequence[Message]) -> Iterator[tuple[PartitionId, int, int]]:
    """Where records of one partition follow each other: from, and to before."""
    places = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
    start = 0
    for (topic, number), same in groupby(places):
        end = start + len(list(same))
        yield PartitionId(topic or "", number or 0), start, end
        start = end


def read_headers(messages: Sequence[Message]) -> list[Headers | None]:
    """The headers of each message in order, repeats and nulls kept; None, or `UNREADABLE`.

    A caller written in C asks for them: Python's quickened calls do not look whether a C method
    left an exception behind, and the binding does so instead of raising; it would surface
    anywhere later. After an exception what was read so far is kept, and the next message follows.
    """
    found: list[object] = []
    while len(found) < len(messages):
        try:
            found.extend(map(Message.headers, islice(messages, len(found), None)))
        except (SystemError, UnicodeDecodeError):
            found.append(UNREADABLE)
    # The binding types values as text too; what it hands over is always bytes or None.
    return cast("list[Headers | None]", found)


def offsets_of(messages: Iterable[Message]) -> list[int]:
    """Where each of them stood."""
    # The binding types them as optional; what was consumed always has one.
    return cast("list[int]", list(map(Message.offset, messages)))


def _named_by(message: Message) -> PartitionId | None:
    topic = message.topic()
    return PartitionId(topic, message.partition() or 0) if topic else None
