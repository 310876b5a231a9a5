"""Record: the fields of a Kafka message that decisions read, without its headers.

Also the origin header, the rejection of a record, and its `traceparent`.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from ringfence_client.headers import ORIGIN, Headers, Reason
from ringfence_state.model import OFFSET_MAX, Origin, PartitionId, Rejection


class Record(Protocol):
    """A Kafka message, or a record that was restored from the state."""

    def key(self) -> bytes | None:
        """Return the key; empty is not absent."""
        ...

    def value(self) -> bytes | None:
        """Return the value; empty is not absent."""
        ...

    def offset(self) -> int | None:
        """Return the offset in the partition; a record that was read always has one."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, and milliseconds since the epoch."""
        ...


class RejectedError(Exception):
    """The record is rejected and goes to the dead letters."""

    def __init__(
        self,
        reason: Reason,
        cause: str,
        original: str | None = None,
        origin: Origin | None = None,
        topic: str | None = None,
    ) -> None:
        """`topic` is the one that refused it, if it was sent and that is known."""
        super().__init__(cause)
        self.topic = topic
        self.why = Rejection(reason, cause, original, origin)


_PARTITION_DIGITS_MAX: Final = 9
"""Digits of a partition in an origin header: any client may write anything to the topic.

A number of nine digits fits the 32 bits of every stored format.
"""

_OFFSET_DIGITS_MAX: Final = len(str(OFFSET_MAX))
"""Digits of an offset in an origin header, for the same reason."""

NO_ORIGIN = b""
"""The input partition's name for a record without an origin header."""


class RepartitionedRecord(NamedTuple):
    """A record of the topic by-address, with its offset in the input; a `Record`."""

    record: Record
    own_offset: int
    """Offset in the input."""

    def key(self) -> bytes | None:
        """Return the key of the record."""
        return self.record.key()

    def value(self) -> bytes | None:
        """Return the value of the record."""
        return self.record.value()

    def offset(self) -> int:
        """Return the offset in the input."""
        return self.own_offset

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp of the record."""
        return self.record.timestamp()


class OriginColumns(NamedTuple):
    """The contents of the origin headers of records; columns of equal length."""

    input_partitions: list[bytes]
    """Names as in the origin header; `NO_ORIGIN` for a record without one."""
    own_offsets: list[int]
    headers: list[Headers | None]
    """The headers of the input, without the origin header."""


def name_of(source: PartitionId) -> bytes:
    """Return the name of an input partition, as in the origin header."""
    return b"%b-%d" % (source.topic.encode(), source.partition)


def origin_header(input_partition: bytes, offset: int) -> tuple[str, bytes]:
    """Return the origin header: the input partition and offset of a record."""
    return ORIGIN, b"%b@%d" % (input_partition, offset)


def source_of(input_partition: bytes) -> PartitionId | None:
    """Parse the name of an input partition; None if it is not one."""
    topic, _, digits = input_partition.rpartition(b"-")
    if not digits.isdigit() or len(digits) > _PARTITION_DIGITS_MAX:
        return None
    return PartitionId(topic.decode(errors="replace"), int(digits))


def strip_origins(column: Iterable[Headers | None]) -> OriginColumns:
    """Split the origin header, which is the last one, off the headers of each record."""
    columns = OriginColumns([], [], [])
    for headers in column:
        name, value = headers[-1] if headers else ("", None)
        input_partition, _, digits = (value or b"").rpartition(b"@")
        is_number = digits.isdigit() and len(digits) <= _OFFSET_DIGITS_MAX
        if headers and name == ORIGIN and input_partition and is_number:
            columns.input_partitions.append(input_partition)
            columns.own_offsets.append(int(digits))
            columns.headers.append(headers[:-1])
        else:
            columns.input_partitions.append(NO_ORIGIN)
            columns.own_offsets.append(0)
            columns.headers.append(headers)
    return columns


class KnownId(NamedTuple):
    """An id to import, and where and when it was accepted, if that is known."""

    identifier: bytes
    offset: int | None = None
    time_ms: int | None = None
    topic: str | None = None
    """Topic of the accepted record; None if the import names one for all ids."""
    partition: int | None = None
    hashed: bool = False
    """Whether the id is in stored (hashed) form already."""


HEADER: Final = "traceparent"

_SHAPE: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)


class TraceContext(NamedTuple):
    """A W3C trace, and the span that sent the record."""

    trace_id: str
    span_id: str
    flags: int


def trace_of(headers: Headers) -> TraceContext | None:
    """Parse the first `traceparent` header; None if there is none or it is invalid."""
    value = next((value for name, value in headers if name == HEADER), None)
    found = None if value is None else _SHAPE.fullmatch(value)
    if found is None:
        return None
    return TraceContext(found[1].decode(), found[2].decode(), int(found[3], 16))
