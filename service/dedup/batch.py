"""Batch: Kafka messages grouped into slices, one for each partition.

Headers are read here and nowhere else, once for each record: the client library raises on a header
name that is not UTF-8, and crashes the process when the same message is asked again.
"""

import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, compress
from typing import Final, NamedTuple, cast

from confluent_kafka import Message

from ringfence.headers import Headers
from service.dedup.partition import OwnedPartition
from service.kafka.io import _runs, offsets_of, read_headers
from state.model import PartitionId

_READ_AT_ONCE: Final = 64
"""How many records are read at most before their size is looked at."""

_LARGE_BYTES: Final = 1024 * 1024
"""After records of this size together the next is read alone."""

_HEADER_BYTES: Final = 300
"""What a header takes in memory besides its name and its value, here and in the client."""


class ParsedRecords(NamedTuple):
    """Messages with the headers that were read of them."""

    messages: list[Message]
    headers: list[Headers | None]
    """Of equal length."""
    memory_bytes: int
    """What they take in memory: a header takes more than its name and its value."""


class Slice(NamedTuple):
    """One partition's part of a batch, in order and never empty; columns of equal length."""

    partition: OwnedPartition
    messages: list[Message]
    headers: list[Headers | None]
    offsets: list[int]
    sizes_bytes: list[int]
    """Of the values."""

    @classmethod
    def of(
        cls, partition: OwnedPartition, messages: list[Message], headers: list[Headers | None]
    ) -> "Slice":
        """With what else is read from the messages."""
        return cls(partition, messages, headers, offsets_of(messages), list(map(len, messages)))


class Batch(NamedTuple):
    """What one `consume` brought, with the wall time of its arrival."""

    slices: tuple[Slice, ...]
    now_ms: int
    memory_bytes: int = 0
    """See `ParsedRecords`."""


def read(messages: Sequence[Message], bytes_max: int = sys.maxsize) -> ParsedRecords:
    """Read the first of the messages: as many as take so much memory, but one at least.

    The client tells how large a value is, and of key and headers nothing before they are read. So
    records are read a few at a time, until they are too many.
    """
    count = max(1, bisect_right(list(accumulate(map(len, messages))), bytes_max))
    column: list[Headers | None] = []
    memory_bytes, at_once = 0, 1
    while len(column) < min(count, len(messages)) and memory_bytes < bytes_max:
        piece = messages[len(column) : count][:at_once]
        headers = read_headers(piece)
        column += headers
        taken_bytes = _memory_bytes(piece, headers)
        memory_bytes += taken_bytes
        at_once = min(2 * at_once, _READ_AT_ONCE) if taken_bytes < _LARGE_BYTES else 1
    return ParsedRecords(list(messages[: len(column)]), column, memory_bytes)


def batch_of(
    records: ParsedRecords,
    running: Mapping[PartitionId, OwnedPartition],
    decided: Mapping[PartitionId, int],
    now_ms: int,
) -> Batch:
    """Sort records by partition; drop those of partitions we lost and those seen before.

    librdkafka has delivered again after a seek, and offsets have gaps: so a record is new iff its
    offset is not below the one that the partition expects: after what is committed, or `decided`.
    """
    found: dict[PartitionId, tuple[list[Message], list[Headers | None]]] = {}
    for source, start, end in _runs(records.messages):
        if source in running:
            messages, headers = found.setdefault(source, ([], []))
            messages += records.messages[start:end]
            headers += records.headers[start:end]
    slices = (
        _new(running[source], *mine, decided.get(source, running[source].next_offset))
        for source, mine in found.items()
    )
    taken = tuple(part for part in slices if part.messages)
    return Batch(taken, now_ms, records.memory_bytes)


def _memory_bytes(messages: Sequence[Message], column: Sequence[Headers | None]) -> int:
    """What they take, counted by callers written in C: every record is."""
    headers = list(chain.from_iterable(filter(None, column)))
    try:
        header_bytes = sum(map(len, cast("Iterable[bytes]", chain.from_iterable(headers))))
    except TypeError:  # a value is null
        header_bytes = sum(len(name) + len(value or b"") for name, value in headers)
    keys_bytes = sum(map(len, filter(None, map(Message.key, messages))))
    return sum(map(len, messages)) + keys_bytes + header_bytes + _HEADER_BYTES * len(headers)


def _new(
    partition: OwnedPartition, messages: list[Message], headers: list[Headers | None], expected: int
) -> Slice:
    """The records that the partition has not seen."""
    part = Slice.of(partition, messages, headers)
    if min(part.offsets) >= expected:
        return part
    is_new = [offset >= expected for offset in part.offsets]
    return Slice.of(partition, list(compress(messages, is_new)), list(compress(headers, is_new)))
