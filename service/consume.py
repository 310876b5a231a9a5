"""Consume: Kafka messages into batches of slices, one for each partition.

Headers are read here and nowhere else, once for each record: the binding raises on a header name
that is not UTF-8 and crashes the process when the same message is asked again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Final, NamedTuple, cast

from confluent_kafka import KafkaError, Message

from service.partition import Partition
from service.route import Headers
from state.edit import Source

UNREADABLE: Final[Headers] = [("", None)]
"""In place of headers that are not text; told apart by identity."""


class Slice(NamedTuple):
    """One partition's part of a batch, in order and never empty."""

    partition: Partition
    messages: list[Message]


class Batch(NamedTuple):
    """What one `consume` brought, with the wall time of its arrival."""

    slices: tuple[Slice, ...]
    now_ms: int

    @property
    def records(self) -> int:
        """How many records it holds."""
        return sum(len(part.messages) for part in self.slices)


def errors_of(messages: Iterable[Message]) -> list[tuple[KafkaError, Source | None]]:
    """The errors that came among the messages, each with the partition that it names, if any."""
    failed = [message for message in messages if message.error() is not None]
    return [(cast("KafkaError", message.error()), _named_by(message)) for message in failed]


def batch_of(
    messages: Iterable[Message], running: Mapping[Source, Partition], now_ms: int
) -> Batch:
    """Sort records by partition; drop those of partitions we lost and those seen before.

    librdkafka has delivered again after a seek, and offsets have gaps: so a record is new iff its
    offset is not below the one that the partition expects.
    """
    slices: dict[Source, Slice] = {}
    for (topic, number), found in groupby(messages, key=_place_of):
        source = Source(topic or "", number or 0)
        partition = running.get(source)
        if partition is None:
            continue
        expected = partition.next_offset
        new = [message for message in found if (message.offset() or 0) >= expected]
        if new:
            slices.setdefault(source, Slice(partition, [])).messages.extend(new)
    return Batch(tuple(slices.values()), now_ms)


def pieces(batch: Batch, records_max: int, bytes_max: int) -> Iterator[Batch]:
    """The batch in parts that one transaction can hold: nearly always itself."""
    size = sum(sum(map(len, part.messages)) for part in batch.slices)
    if batch.records <= records_max and size <= bytes_max:
        if batch.slices:
            yield batch
        return
    piece: dict[Source, Slice] = {}
    records = size = 0
    for part in batch.slices:
        for message in part.messages:
            mine = piece.setdefault(part.partition.source, Slice(part.partition, []))
            mine.messages.append(message)
            records, size = records + 1, size + len(message)
            if records >= records_max or size >= bytes_max:
                yield Batch(tuple(piece.values()), batch.now_ms)
                piece, records, size = {}, 0, 0
    if piece:
        yield Batch(tuple(piece.values()), batch.now_ms)


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


def _named_by(message: Message) -> Source | None:
    topic = message.topic()
    return Source(topic, message.partition() or 0) if topic else None


def _place_of(message: Message) -> tuple[str | None, int | None]:
    return message.topic(), message.partition()
