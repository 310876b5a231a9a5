"""Pending record: a record of a transaction group that waits in the state for the others.

It is stored whole, so that nothing has to be read again: offsets advance, and a crash loses
nothing. One entry for each position; a record at the same position replaces the earlier one.

Key: that of the address, then the length and the name of the group, then the position.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from state.keys import address_of, prefix, reader_of, rest_of, unknown
from state.segment import FORMAT
from state.store import Store

KIND: Final = b"g"

_HEADER: Final = struct.Struct("<BIQQqH")
HEADERS_MAX: Final = 0xFFFF
"""As many as the header has room to count; a record with more cannot be parked."""
_LENGTH: Final = struct.Struct("<i")
_GROUP: Final = struct.Struct(">I")
_POSITION: Final = struct.Struct(">I")
_ABSENT: Final = -1

Headers = list[tuple[str, bytes | None]]


class GroupPosition(NamedTuple):
    """Where a parked record belongs: the position, from 1 on, in a group of an address."""

    address: str
    group: bytes
    position: int

    @property
    def key(self) -> bytes:
        """The key of its entry."""
        name = _GROUP.pack(len(self.group)) + self.group
        return prefix(KIND, self.address) + name + _POSITION.pack(self.position)


class PendingRecord(NamedTuple):
    """A record as it came. Absent is None and not empty; `timestamp_ms` as the record has it."""

    size: int
    """How many positions its group has."""
    begun: int
    """The offset of the record that began its group."""
    own_offset: int
    timestamp_ms: int
    own_key: bytes | None
    own_value: bytes | None
    headers: Headers

    # What decisions read of a record, as a message gives it.

    def key(self) -> bytes | None:
        """Its key."""
        return self.own_key

    def value(self) -> bytes | None:
        """Its value."""
        return self.own_value

    def offset(self) -> int:
        """Its place in the partition."""
        return self.own_offset

    def timestamp(self) -> tuple[int, int]:
        """A kind that nobody asks for, and its time."""
        return 1, self.timestamp_ms


def encode(record: PendingRecord) -> bytes:
    """A parked record as the value of its key."""
    size, begun, offset, timestamp_ms, *_ = record
    head = _HEADER.pack(FORMAT, size, begun, offset, timestamp_ms, len(record.headers))
    parts = [head, *_packed(record.own_key), *_packed(record.own_value)]
    for name, value in record.headers:
        parts += (*_packed(name.encode()), *_packed(value))
    return b"".join(parts)


def decode(value: bytes) -> PendingRecord:
    """What `encode` wrote; UnknownFormatError for anything else."""
    try:
        return reader_of(value, _READERS)(value)
    except (struct.error, UnicodeDecodeError, StopIteration) as error:
        raise unknown(value) from error


def _decode_1(value: bytes) -> PendingRecord:
    _, size, begun, offset, timestamp_ms, count = _HEADER.unpack_from(value)
    fields = _fields(value, _HEADER.size)
    key, content = next(fields), next(fields)
    headers = [((next(fields) or b"").decode(), next(fields)) for _ in range(count)]
    for _ in fields:
        raise unknown(value)
    return PendingRecord(size, begun, offset, timestamp_ms, key, content, headers)


_READERS: Final[Mapping[int, Callable[[bytes], PendingRecord]]] = {1: _decode_1}


def seat_of(key: bytes) -> GroupPosition:
    """Where the entry of a key belongs; UnknownFormatError when it is no such key."""
    rest = rest_of(key)
    try:
        (length,) = _GROUP.unpack_from(rest)
        (position,) = _POSITION.unpack(rest[_GROUP.size + length :])
    except struct.error as error:
        raise unknown(key) from error
    return GroupPosition(address_of(key), rest[_GROUP.size : _GROUP.size + length], position)


def check(key: bytes, value: bytes) -> None:
    """Raise UnknownFormatError for an entry that we have not written."""
    seat_of(key)
    decode(value)


def parked_in(store: Store) -> Iterator[tuple[GroupPosition, PendingRecord]]:
    """All that waits in a store."""
    for key, value in store.scan(KIND):
        yield seat_of(key), decode(value)


def _packed(field: bytes | None) -> tuple[bytes, bytes]:
    return (_LENGTH.pack(_ABSENT), b"") if field is None else (_LENGTH.pack(len(field)), field)


def _fields(value: bytes, position: int) -> Iterator[bytes | None]:
    while position < len(value):
        (length,) = _LENGTH.unpack_from(value, position)
        position += _LENGTH.size
        if length == _ABSENT:
            yield None
            continue
        if not 0 <= length <= len(value) - position:
            raise unknown(value)
        yield value[position : position + length]
        position += length
