"""Batch: Kafka messages grouped into slices, one for each partition.

Headers are read here and nowhere else, once for each record: the client library raises on a header
name that is not UTF-8, and crashes the process when the headers of that message are read again.
"""

import sys
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress
from typing import Final, NamedTuple, cast

from confluent_kafka import Message

from ringfence_client.headers import Headers
from ringfence_service.dedup.apart import Bounds, present
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.record import Record
from ringfence_service.kafka.io import _runs, offsets_of, read_headers
from ringfence_service.native.records import Records
from ringfence_state.model import PartitionId

_READ_AT_ONCE: Final = 64
"""How many records are parsed before their size is checked."""

_LARGE_BYTES: Final = 1024 * 1024
"""After a step of this size the next record is parsed alone."""

_HEADER_BYTES: Final = 300
"""Memory that a header takes besides its name and value, here and in the client."""


class ParsedRecords(NamedTuple):
    """Messages and their parsed headers."""

    messages: list[Message] | Records
    headers: Sequence[Headers | None]
    """As many as messages."""
    memory_bytes: int
    """Estimated memory of all of them, per-header overhead included."""
    largest_bytes: int = sys.maxsize
    """No record takes more memory than this."""


class Slice(NamedTuple):
    """The records of one partition in a batch, in order, never empty; columns of equal length."""

    partition: OwnedPartition
    messages: Sequence[Record]
    headers: Sequence[Headers | None]
    offsets: list[int]
    times_ms: list[int]
    """Timestamps since the epoch; 0 or less for a record without one."""
    sizes_bytes: list[int]
    """Sizes of the record values."""

    @classmethod
    def of(
        cls,
        partition: OwnedPartition,
        messages: list[Message] | Records,
        headers: Sequence[Headers | None],
    ) -> "Slice":
        """Build a slice; offsets, times and sizes are read from the messages."""
        if isinstance(messages, Records):
            return cls(partition, messages, headers, *messages.columns())
        times_ms = [timestamp for _, timestamp in map(Message.timestamp, messages)]
        sizes_bytes = list(map(len, messages))
        return cls(partition, messages, headers, offsets_of(messages), times_ms, sizes_bytes)

    def split(self, alone: Container[int]) -> Iterator["Slice"]:
        """Yield the records with these offsets as slices of their own, and the runs between."""
        start = 0
        for row, offset in enumerate(self.offsets):
            if offset in alone:
                if start < row:
                    yield self._part(start, row)
                single = self._part(row, row + 1)
                # A list, because compiled code sends what it decides without a delivery report.
                yield single._replace(messages=list(single.messages))
                start = row + 1
        if start < len(self.offsets):
            yield self._part(start, len(self.offsets))

    def before(self, end: int) -> "Slice":
        """Return the records before a row; there may be none."""
        return self._part(0, end)

    def _part(self, start: int, end: int) -> "Slice":
        rows = slice(start, end)
        return Slice(
            self.partition,
            self.messages[rows],
            self.headers[rows],
            self.offsets[rows],
            self.times_ms[rows],
            self.sizes_bytes[rows],
        )


class Batch(NamedTuple):
    """The result of one `consume`, with the wall-clock time of its arrival."""

    slices: tuple[Slice, ...]
    now_ms: int
    memory_bytes: int = 0
    largest_bytes: int = sys.maxsize
    """Both as in `ParsedRecords`."""

    def bounds(self, times_ms: Sequence[int]) -> Bounds:
        """Return the bounds of a slice with these times; without any they are the present."""
        oldest_ms = min(times_ms, default=self.now_ms)
        newest_ms = max(times_ms, default=self.now_ms)
        now = present(self.now_ms, times_ms, newest_ms)
        return Bounds(now, self.largest_bytes, oldest_ms, newest_ms)


def read(messages: Sequence[Message] | Records, bytes_max: int = sys.maxsize) -> ParsedRecords:
    """Parse the leading messages that fit into `bytes_max`, and at least one.

    The client exposes the size of a value without reading it, but not those of key and headers. So
    records are parsed a few at a time, until the limit is reached.
    """
    if isinstance(messages, Records):
        fitting, memory_bytes, largest_bytes = messages.fitting(bytes_max)
        return ParsedRecords(fitting, fitting.headers, memory_bytes, largest_bytes)
    count = max(1, bisect_right(list(accumulate(map(len, messages))), bytes_max))
    column: list[Headers | None] = []
    memory_bytes, largest_bytes, at_once = 0, 0, 1
    while len(column) < min(count, len(messages)) and memory_bytes < bytes_max:
        piece = messages[len(column) : count][:at_once]
        headers = read_headers(piece)
        column += headers
        taken_bytes = _memory_bytes(piece, headers)
        memory_bytes += taken_bytes
        largest_bytes = max(largest_bytes, taken_bytes)
        at_once = min(2 * at_once, _READ_AT_ONCE) if taken_bytes < _LARGE_BYTES else 1
    return ParsedRecords(list(messages[: len(column)]), column, memory_bytes, largest_bytes)


def batch_of(
    records: ParsedRecords,
    running: Mapping[PartitionId, OwnedPartition],
    decided: Mapping[PartitionId, int],
    now_ms: int,
) -> Batch:
    """Group records by partition; drop those of partitions we lost and those seen before.

    librdkafka has redelivered records after a seek, and offsets have gaps. So a record is new iff
    its offset is not below the next one that its partition expects: the one in `decided`, else the
    committed one.
    """
    slices = (
        _new(running[source], *mine, decided.get(source, running[source].next_offset))
        for source, mine in _by_source(records).items()
        if source in running
    )
    taken = tuple(part for part in slices if part.messages)
    return Batch(taken, now_ms, records.memory_bytes, records.largest_bytes)


def _by_source(
    records: ParsedRecords,
) -> dict[PartitionId, tuple[list[Message] | Records, Sequence[Headers | None]]]:
    """Return messages and headers of each partition."""
    if isinstance(records.messages, Records):
        return {source: (rows, rows.headers) for source, rows in records.messages.by_source()}
    found: dict[PartitionId, tuple[list[Message], list[Headers | None]]] = {}
    for source, start, end in _runs(records.messages):
        messages, headers = found.setdefault(source, ([], []))
        messages += records.messages[start:end]
        headers += records.headers[start:end]
    return dict(found)


def _memory_bytes(messages: Sequence[Message], column: Sequence[Headers | None]) -> int:
    """Estimate the memory of messages and headers; in C-level loops, since it runs per record."""
    headers = list(chain.from_iterable(filter(None, column)))
    try:
        header_bytes = sum(map(len, cast("Iterable[bytes]", chain.from_iterable(headers))))
    except TypeError:  # a value is null
        header_bytes = sum(len(name) + len(value or b"") for name, value in headers)
    keys_bytes = sum(map(len, filter(None, map(Message.key, messages))))
    return sum(map(len, messages)) + keys_bytes + header_bytes + _HEADER_BYTES * len(headers)


def _new(
    partition: OwnedPartition,
    messages: list[Message] | Records,
    headers: Sequence[Headers | None],
    expected: int,
) -> Slice:
    """Return the slice of the records from the expected offset on."""
    part = Slice.of(partition, messages, headers)
    if min(part.offsets) >= expected:
        return part
    is_new = [offset >= expected for offset in part.offsets]
    return Slice(
        partition,
        list(compress(part.messages, is_new)),
        list(compress(part.headers, is_new)),
        list(compress(part.offsets, is_new)),
        list(compress(part.times_ms, is_new)),
        list(compress(part.sizes_bytes, is_new)),
    )
