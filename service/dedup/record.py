"""Record: the fields of a Kafka message that decisions read, without its headers.

Also the position that a record came from, its rejection, and its `traceparent`.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from ringfence.headers import ORIGIN, Headers, Reason
from state.model import PartitionId, Rejection


class Record(Protocol):
    """A message as it came, or one that waited in the state."""

    def key(self) -> bytes | None:
        """Its key; empty is not absent."""
        ...

    def value(self) -> bytes | None:
        """Its value; empty is not absent."""
        ...

    def offset(self) -> int | None:
        """Its place in the partition; a record that was read always has one."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """The kind of its timestamp, and milliseconds since the epoch."""
        ...


class RejectedError(Exception):
    """The record goes to the dead letters."""

    def __init__(
        self,
        reason: Reason,
        cause: str,
        original: str | None = None,
        accepted_ms: int | None = None,
    ) -> None:
        super().__init__(cause)
        self.why = Rejection(reason, cause, original, accepted_ms)


class UnrenderableError(ValueError):
    """A template that this record does not fill: the sentence says which part is missing."""


class Field(NamedTuple):
    """One field of a template: the key, or a header by its name, as it came."""

    header: str | None

    @property
    def name(self) -> str:
        """As it is written."""
        return "{key}" if self.header is None else f"{{header:{self.header}}}"

    def text(self, key: bytes | None, headers: Headers) -> str:
        """Its text in one record; UnrenderableError when there is none."""
        value = self.of(key, headers)
        if value is None:
            raise UnrenderableError(f"the record has nothing for {self.name}")
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise UnrenderableError(f"{self.name} is not UTF-8 text in this record") from None

    def of(self, key: bytes | None, headers: Headers | None) -> bytes | None:
        """The first value that is not null."""
        if self.header is None:
            return key
        for name, value in headers or ():
            if name == self.header and value is not None:
                return value
        return None


# Whoever may write the topic may write anything; these fit wherever a place is kept.
_PARTITION_DIGITS_MAX: Final = 9

_OFFSET_DIGITS_MAX: Final = 18

NO_ORIGIN = b""
"""The inlet of a record that does not tell."""


class RepartitionedRecord(NamedTuple):
    """A record as its input has it; see `Record`."""

    record: Record
    own_offset: int
    """In its input."""

    def key(self) -> bytes | None:
        """See `Record.key`."""
        return self.record.key()

    def value(self) -> bytes | None:
        """See `Record.value`."""
        return self.record.value()

    def offset(self) -> int:
        """See `Record.offset`."""
        return self.own_offset

    def timestamp(self) -> tuple[int, int]:
        """See `Record.timestamp`."""
        return self.record.timestamp()


class OriginColumns(NamedTuple):
    """Records with what their traces tell; columns of equal length."""

    input_partitions: list[bytes]
    """Topic and partition as they were written; `NOWHERE` where nothing tells."""
    own_offsets: list[int]
    headers: list[Headers | None]
    """As the input has them."""


def name_of(source: PartitionId) -> bytes:
    """An inlet as it is written."""
    return b"%b-%d" % (source.topic.encode(), source.partition)


def origin_header(input_partition: bytes, offset: int) -> tuple[str, bytes]:
    """The header that tells where a record comes from."""
    return ORIGIN, b"%b@%d" % (input_partition, offset)


def source_of(input_partition: bytes) -> PartitionId | None:
    """The partition that is written so; None for anything else."""
    topic, _, digits = input_partition.rpartition(b"-")
    if not digits.isdigit() or len(digits) > _PARTITION_DIGITS_MAX:
        return None
    return PartitionId(topic.decode(errors="replace"), int(digits))


def strip_origins(column: Iterable[Headers | None]) -> OriginColumns:
    """Take the traces off."""
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
    """An id that an address is to know, and where and when it was accepted, if that is known."""

    identifier: bytes
    offset: int | None = None
    time_ms: int | None = None
    topic: str | None = None
    """Of the accepted record; None where the import names one for all."""
    partition: int | None = None
    hashed: bool = False
    """Whether it is a long id as a ring keeps it, and not as a record bears it."""


HEADER: Final = "traceparent"

_SHAPE: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    """A trace, and the span that sent the record."""

    trace_id: str
    span_id: str
    flags: int


def trace_of(headers: Headers) -> TraceContext | None:
    """What the first such header tells, if it is valid."""
    value = next((value for name, value in headers if name == HEADER), None)
    found = None if value is None else _SHAPE.fullmatch(value)
    if found is None:
        return None
    trace_id, span_id = found[1].decode(), found[2].decode()
    if not (int(trace_id, 16) and int(span_id, 16)):
        return None
    return TraceContext(trace_id, span_id, int(found[3], 16))
