"""Consume: Kafka messages into batches of slices, one for each partition.

Headers are read here and nowhere else, once for each record: the binding raises on a header name
that is not UTF-8 and crashes the process when the same message is asked again.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import compress, groupby, islice
from typing import Final, NamedTuple, cast

from confluent_kafka import KafkaError, Message

from service.partition import Partition
from service.route import Headers
from state.edit import Source

UNREADABLE: Final[Headers] = [("", None)]
"""In place of headers that are not text; told apart by identity."""
UNREADABLE_CAUSE: Final = (
    "a header name is not UTF-8 text; the record is kept here without its headers"
)


class Slice(NamedTuple):
    """One partition's part of a batch, in order and never empty; columns of equal length."""

    partition: Partition
    messages: list[Message]
    offsets: list[int]
    sizes_bytes: list[int]
    """Of key and value together."""

    @classmethod
    def of(cls, partition: Partition, messages: list[Message]) -> "Slice":
        """With what is read from the messages."""
        return cls(partition, messages, offsets_of(messages), list(map(len, messages)))


class Batch(NamedTuple):
    """What one `consume` brought, with the wall time of its arrival."""

    slices: tuple[Slice, ...]
    now_ms: int


def errors_of(messages: Sequence[Message]) -> list[tuple[KafkaError, Source | None]]:
    """The errors that came among the messages, each with the partition that it names, if any."""
    if not any(map(Message.error, messages)):
        return []
    failed = [message for message in messages if message.error() is not None]
    return [(cast("KafkaError", message.error()), _named_by(message)) for message in failed]


def batch_of(
    messages: Sequence[Message],
    running: Mapping[Source, Partition],
    decided: Mapping[Source, int],
    now_ms: int,
) -> Batch:
    """Sort records by partition; drop those of partitions we lost and those seen before.

    librdkafka has delivered again after a seek, and offsets have gaps: so a record is new iff its
    offset is not below the one that the partition expects: after what is committed, or `decided`.
    """
    found = by_source(messages, running)
    slices = (
        _new(running[source], mine, decided.get(source, running[source].next_offset))
        for source, mine in found.items()
    )
    return Batch(tuple(part for part in slices if part.messages), now_ms)


def by_source(
    messages: Sequence[Message], wanted: Container[Source]
) -> dict[Source, list[Message]]:
    """The records of the partitions that are wanted, in order."""
    found: dict[Source, list[Message]] = {}
    places = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
    start = 0
    for (topic, number), same in groupby(places):
        end = start + len(list(same))
        source = Source(topic or "", number or 0)
        if source in wanted:
            found.setdefault(source, []).extend(messages[start:end])
        start = end
    return found


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


def _new(partition: Partition, messages: list[Message], expected: int) -> Slice:
    """The records that the partition has not seen."""
    part = Slice.of(partition, messages)
    if min(part.offsets) >= expected:
        return part
    is_new = [offset >= expected for offset in part.offsets]
    return Slice.of(partition, list(compress(messages, is_new)))


def offsets_of(messages: Iterable[Message]) -> list[int]:
    """Where each of them stood."""
    # The binding types them as optional; what was consumed always has one.
    return cast("list[int]", list(map(Message.offset, messages)))


def _named_by(message: Message) -> Source | None:
    topic = message.topic()
    return Source(topic, message.partition() or 0) if topic else None
