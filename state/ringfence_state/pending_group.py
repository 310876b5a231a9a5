"""Pending records: records of a transaction group, stored until their group is complete.

A record is stored whole, so that nothing has to be read again: offsets advance, and a crash loses
nothing. There is one entry for each position; a record at the same position replaces the earlier
one.

Key: the address, then the length and the name of the group, then the position.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from ringfence_state.keys import address_of, prefix, reader_of, rest_of, unknown
from ringfence_state.segment import FORMAT
from ringfence_state.store import Store

KIND: Final = b"g"

_HEADER: Final = struct.Struct("<BIQQqH")
HEADERS_MAX: Final = 0xFFFF
"""The most that the header's 16-bit count allows; a record with more cannot be stored."""
_LENGTH: Final = struct.Struct("<i")
_GROUP: Final = struct.Struct(">I")
_POSITION: Final = struct.Struct(">I")
_ABSENT: Final = -1

Headers = list[tuple[str, bytes | None]]


class GroupPosition(NamedTuple):
    """The position of a pending record, counted from 1, in a group of an address."""

    address: str
    group: bytes
    position: int

    @property
    def key(self) -> bytes:
        """The key of its entry."""
        name = _GROUP.pack(len(self.group)) + self.group
        return prefix(KIND, self.address) + name + _POSITION.pack(self.position)


class PendingRecord(NamedTuple):
    """An unchanged input record. An absent key or value is None, not empty."""

    size: int
    """Number of positions of its group."""
    begun: int
    """Offset of the record that began its group."""
    own_offset: int
    timestamp_ms: int
    own_key: bytes | None
    own_value: bytes | None
    headers: Headers

    # The methods of confluent_kafka.Message that decisions call.

    def key(self) -> bytes | None:
        """Return the key."""
        return self.own_key

    def value(self) -> bytes | None:
        """Return the value."""
        return self.own_value

    def offset(self) -> int:
        """Return the offset in the partition."""
        return self.own_offset

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp type, which no caller reads, and the time in milliseconds."""
        return 1, self.timestamp_ms


def encode(record: PendingRecord) -> bytes:
    """Return a pending record as the value of its key."""
    size, begun, offset, timestamp_ms, *_ = record
    head = _HEADER.pack(FORMAT, size, begun, offset, timestamp_ms, len(record.headers))
    parts = [head, *_packed(record.own_key), *_packed(record.own_value)]
    for name, value in record.headers:
        parts += (*_packed(name.encode()), *_packed(value))
    return b"".join(parts)


def decode(value: bytes) -> PendingRecord:
    """Return the record that `encode` wrote; raise UnknownFormatError for other bytes."""
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


def group_position_of(key: bytes) -> GroupPosition:
    """Return the group position of a key; raise UnknownFormatError for any other key."""
    rest = rest_of(key)
    try:
        (length,) = _GROUP.unpack_from(rest)
        (position,) = _POSITION.unpack(rest[_GROUP.size + length :])
    except struct.error as error:
        raise unknown(key) from error
    return GroupPosition(address_of(key), rest[_GROUP.size : _GROUP.size + length], position)


def check(key: bytes, value: bytes) -> None:
    """Raise UnknownFormatError for an entry that this version did not write."""
    group_position_of(key)
    decode(value)


def parked_in(store: Store) -> Iterator[tuple[GroupPosition, PendingRecord]]:
    """Yield all pending records of a store; raise UnknownFormatError for a damaged one."""
    for key, value in store.scan(KIND):
        yield group_position_of(key), decode(value)


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
