"""Segment: the ids that one batch added to an address; written once, deleted once all are evicted.

An id's number counts the ids that its address has accepted. A segment holds consecutive numbers
from `first` on, and for each id the origin of the accepted record. `floor` is the lowest number
that the address still holds after the segment, `capacity` the size at that time, and `has_evicted`
whether an id was evicted before, since the address was empty: all three matter only in the newest
segment, so a replay in any order ends in the same ring. In a window the newest segment also says
how many ids it holds, since an id that was seen again has several numbers.

Key: the address and the number of the first id (`keys.py`). Value: a header, then columns, each
packed to the narrowest width that fits.
"""

import hashlib
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from ringfence_state.keys import SEGMENTS, UnknownFormatError, prefix, reader_of, unknown
from ringfence_state.model import Edit, Origin, PartitionId

STORED_ID_BYTES_MAX: Final = 64
"""Longer ids are remembered by their SHA-256."""
HASHED_ID_BYTES: Final = STORED_ID_BYTES_MAX + 1
"""How long a hashed id is."""
FORGOTTEN: Final = bytes(STORED_ID_BYTES_MAX + 2)
"""Replaces a forgotten id; longer than any stored id."""
SEGMENT_IDS_MAX: Final = 512
"""Ids are 65 bytes at most, with a publisher 99, so a segment stays below 64 KiB."""
FORMAT: Final = 1
"""Version of all keys and values of the state; a newer one is refused, never guessed at.

It is the first byte of every value, and part of the metadata of every committed offset and of the
position of every store. To raise it, add a reader and keep the older ones unchanged.
"""

_HEADER: Final = struct.Struct("<BQQQIH")
EVICTED: Final = 1 << 62
"""Added to the stored capacity if an id was evicted: far above every capacity, so that versions
that do not know it read a ring whose size has changed."""
_HELD: Final = "ids held"
"""In place of the topic of a last source, which no topic is named: the partition is the number.

Versions that do not know it read a segment with one more source.
"""
_BYTES: Final = {"B": 1, "H": 2, "I": 4, "Q": 8}
_CODE_FOR: Final = "BBHIIQQQQ"
"""Array type code by the number of bytes needed: the narrowest width that fits."""

_CODES: Final = frozenset(map(str.encode, _BYTES))
_COLUMN: Final = struct.Struct("<qc")
_ALL_ZERO: Final = _COLUMN.pack(0, b"=")


class Digest(bytes):
    """An id that is already in stored (hashed) form, so that an import does not hash it again."""

    __slots__ = ()


class Segment(NamedTuple):
    """Consecutive ids of one address; columns of equal length. `source_indexes` index `sources`."""

    first: int
    floor: int
    capacity: int
    sources: tuple[PartitionId, ...]
    ids: tuple[bytes, ...]
    source_indexes: Sequence[int]
    offsets: Sequence[int]
    times_ms: Sequence[int]
    has_evicted: bool = False
    held: int | None = None
    """How many ids a window holds after the segment; None if it is not known."""

    @property
    def end(self) -> int:
        """The number after that of its last id."""
        return self.first + len(self.ids)

    def origin(self, number: int) -> Origin:
        """Return the origin of the id with this number."""
        row = number - self.first
        source = self.sources[self.source_indexes[row]]
        return Origin(source.topic, source.partition, self.offsets[row], self.times_ms[row])


class SegmentEntry(NamedTuple):
    """One remembered id."""

    identifier: bytes
    origin: Origin


class PackedIds:
    """The ids of a stored segment in one piece; iterating makes an object of each."""

    __slots__ = ("_lengths", "content", "width")

    def __init__(self, content: bytes, lengths: Sequence[int], width: int) -> None:
        self.content = content
        """The ids, one behind the other."""
        self.width = width
        """How long each id is; 0 if they differ."""
        self._lengths = lengths

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self._lengths)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the ids."""
        content, width = self.content, self.width
        if width:
            return iter([content[at : at + width] for at in range(0, len(content), width)])
        ends = accumulate(self._lengths, initial=0)
        return iter([content[start:end] for start, end in pairwise(ends)])

    def __contains__(self, identifier: object) -> bool:
        """Return whether this is one of the ids."""
        return identifier in tuple(self)


class SegmentSummary(NamedTuple):
    """A segment without its origins."""

    first: int
    floor: int
    capacity: int
    ids: Collection[bytes]
    has_evicted: bool = False
    held: int | None = None


def key(address: str, first: int) -> bytes:
    """Return the key of the segment that starts with number `first`."""
    return numbered(prefix(SEGMENTS, address), first)


def numbered(begin: bytes, first: int) -> bytes:
    """Return the key of a segment of any kind, from the prefix of its address."""
    return begin + struct.pack(">Q", first)


def first_of(segment_key: bytes) -> int:
    """Return the number that the segment of this key starts with."""
    (first,) = struct.unpack(">Q", segment_key[-8:])
    return int(first)


def end_of(value: bytes) -> int:
    """Return the number after the last of a segment; UnknownFormatError if it is none."""
    try:
        head, _ = _head(value)
    except (struct.error, UnicodeDecodeError) as error:
        raise unknown(value) from error
    return head.first + head.ids


def put(address: str, segment: Segment) -> Edit:
    """Return the edit that writes a segment."""
    return Edit(key(address, segment.first), encode(segment))


def encode(segment: Segment) -> bytes:
    """Return a segment as the value of its key."""
    sources = segment.sources
    if segment.held is not None:
        sources = (*sources, PartitionId(_HELD, segment.held))
    parts = [
        _HEADER.pack(
            FORMAT,
            segment.first,
            segment.floor,
            segment.capacity | (EVICTED if segment.has_evicted else 0),
            len(segment.ids),
            len(sources),
        )
    ]
    parts += map(_packed_source, sources)
    if segment.ids:
        parts.append(_pack(segment.source_indexes) if len(segment.sources) > 1 else _ALL_ZERO)
        parts += [
            _pack(segment.offsets),
            _pack(segment.times_ms),
            _pack(list(map(len, segment.ids))),
        ]
        parts += segment.ids
    return b"".join(parts)


@lru_cache
def _packed_source(source: PartitionId) -> bytes:
    name = source.topic.encode()
    return struct.pack("<HI", len(name), source.partition) + name


def decode(value: bytes) -> Segment:
    """Return the segment that `encode` wrote; raise UnknownFormatError for other bytes."""
    try:
        return _decode(value)
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise unknown(value) from error


def summary(value: bytes) -> SegmentSummary:
    """Return the ids of a segment without decoding their origins; raise as `decode` does."""
    try:
        head, position = _head(value)
        if not head.ids:
            return SegmentSummary(*head[:3], (), head.has_evicted, head.held)
        for _ in range(3):
            _, position = _column(value, position, head.ids)
        ids = _ids(value, position, head.ids)
        return SegmentSummary(*head[:3], ids, head.has_evicted, head.held)
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise unknown(value) from error


def newest_ms_of(value: bytes) -> int | None:
    """Return the latest of the times of a segment; None if it has no ids.

    Raises UnknownFormatError as `decode` does.
    """
    try:
        head, position = _head(value)
        if not head.ids:
            return None
        for _ in range(2):
            _, position = _column(value, position, head.ids)
        return max(_unpack(value, position, head.ids)[0])
    except (struct.error, UnicodeDecodeError) as error:
        raise unknown(value) from error


def row_of(value: bytes, number: int) -> SegmentEntry:
    """Return one id of a segment with its origin, without decoding the others.

    Raises UnknownFormatError if the segment has no such number, or if the value is no segment.
    """
    try:
        head, position = _head(value)
        row = number - head.first
        if not 0 <= row < head.ids:
            raise UnknownFormatError(f"number {number} in a segment from {head.first} on")
        source_indexes, position = _column(value, position, head.ids)
        offsets, position = _column(value, position, head.ids)
        times_ms, position = _column(value, position, head.ids)
        lengths, position = _column(value, position, head.ids)
        start = position + lengths.sum_before(row)
        source = head.sources[source_indexes.at(row)]
        origin = Origin(*source, offsets.at(row), times_ms.at(row))
        return SegmentEntry(value[start : start + lengths.at(row)], origin)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise unknown(value) from error


def _decode(value: bytes) -> Segment:
    head, position = _head(value)
    if not head.ids:
        return Segment(*head[:4], (), (), (), (), head.has_evicted, head.held)
    columns = []
    for _ in range(3):
        column, position = _unpack(value, position, head.ids)
        columns.append(column)
    source_indexes, offsets, times_ms = columns
    if not 0 <= min(source_indexes) <= max(source_indexes) < len(head.sources):
        raise unknown(value)
    ids = tuple(_ids(value, position, head.ids))
    parts = ids, source_indexes, offsets, times_ms
    return Segment(*head[:4], *parts, head.has_evicted, head.held)


def _ids(value: bytes, position: int, count: int) -> PackedIds:
    column, start = _column(value, position, count)
    if column.code == "=" and column.base > 0:
        _check_end(value, start + column.base * count)
        return PackedIds(value[start:], range(count), column.base)
    lengths, start = _unpack(value, position, count)
    if min(lengths) < 0:
        raise unknown(value)
    _check_end(value, start + sum(lengths))
    return PackedIds(value[start:], lengths, 0)


class _SegmentHeader(NamedTuple):
    """The fields before the columns; `ids` is the number of ids."""

    first: int
    floor: int
    capacity: int
    sources: tuple[PartitionId, ...]
    ids: int
    has_evicted: bool
    held: int | None


def _head(value: bytes) -> tuple[_SegmentHeader, int]:
    """Return the header of a segment of any known format, and the position of the first column."""
    head, position = reader_of(value, _HEADS)(value)
    if head.ids > SEGMENT_IDS_MAX:
        raise UnknownFormatError(f"{head.ids} ids")
    if not head.ids:
        _check_end(value, position)
    return head, position


def _head_1(value: bytes) -> tuple[_SegmentHeader, int]:
    _, first, floor, capacity, count, sources_count = _HEADER.unpack_from(value)
    position = _HEADER.size
    sources = []
    for _ in range(sources_count):
        length, partition = struct.unpack_from("<HI", value, position)
        position += 6
        sources.append(PartitionId(value[position : position + length].decode(), partition))
        position += length
    held = sources.pop().partition if sources and sources[-1].topic == _HELD else None
    bounds = first, floor, capacity & ~EVICTED
    return _SegmentHeader(*bounds, tuple(sources), count, bool(capacity & EVICTED), held), position


_HEADS: Final[Mapping[int, Callable[[bytes], tuple[_SegmentHeader, int]]]] = {1: _head_1}
"""Header readers by format; the columns are the same in all formats so far."""


def _check_end(value: bytes, position: int) -> None:
    if position != len(value):
        raise UnknownFormatError(f"{len(value)} bytes, {position} expected")


def _pack(column: Sequence[int]) -> bytes:
    """Pack a column: lowest value, width, then each distance from the lowest.

    The distances are left out when all values are equal.
    """
    base, top = min(column), max(column)
    if base == top:
        return _COLUMN.pack(base, b"=")
    code = _CODE_FOR[((top - base).bit_length() + 7) // 8]
    distances = array(code, [number - base for number in column])
    if sys.byteorder == "big":
        distances.byteswap()
    return _COLUMN.pack(base, code.encode()) + distances.tobytes()


class _PackedColumn(NamedTuple):
    """A packed column inside a value, read without unpacking it."""

    value: bytes
    base: int
    code: str
    """The array type code of the distances; `=` when all values are equal."""
    start: int

    def at(self, row: int) -> int:
        """Return the value in a row."""
        if self.code == "=":
            return self.base
        width = _BYTES[self.code]
        start = self.start + row * width
        return self.base + int.from_bytes(self.value[start : start + width], "little")

    def sum_before(self, row: int) -> int:
        """Return the sum of the values before a row."""
        if self.code == "=":
            return self.base * row
        width = _BYTES[self.code]
        return self.base * row + sum(
            int.from_bytes(self.value[start : start + width], "little")
            for start in range(self.start, self.start + row * width, width)
        )


def _column(value: bytes, position: int, count: int) -> tuple[_PackedColumn, int]:
    """Return the column at a position, and the position after it."""
    base, code = _COLUMN.unpack_from(value, position)
    start = position + _COLUMN.size
    if code == b"=":
        return _PackedColumn(value, base, "=", start), start
    if code not in _CODES:
        raise UnknownFormatError(f"width {code!r}")
    text = code.decode()
    end = start + count * _BYTES[text]
    if end > len(value):
        raise UnknownFormatError(f"{len(value)} bytes, {end} expected")
    return _PackedColumn(value, base, text, start), end


def _unpack(value: bytes, position: int, count: int) -> tuple[Sequence[int], int]:
    column, end = _column(value, position, count)
    if column.code == "=":
        return array("q", [column.base]) * count, end
    distances = array(column.code, value[column.start : end])
    if sys.byteorder == "big":
        distances.byteswap()
    base = column.base
    return array("q", [base + distance for distance in distances]), end


def evicted(firsts: Sequence[int], floor: int, following: int) -> Sequence[int]:
    """Return the first numbers of the segments whose ids are all below a floor.

    A segment ends, at the latest, where the next one begins; the last one ends at `following`.
    """
    count = bisect_right(firsts, floor) - (floor < following)
    return firsts[: max(0, count)]


def meant_by(identifier: bytes) -> tuple[bytes, ...]:
    """Return the ids that one in a request may mean: itself, and the long id with this stored form.

    Lists show a long id in its stored form. It has the length of no id that is stored unchanged.
    """
    if len(identifier) == HASHED_ID_BYTES:
        return identifier, Digest(identifier)
    return (identifier,)


def hashed(beginning: bytes, digest: bytes) -> bytes:
    """Return the stored form of a long id from its beginning and its SHA-256."""
    return beginning[: HASHED_ID_BYTES - len(digest)] + digest


def remembered(identifier: bytes) -> bytes:
    """Return an id in stored form: a long one is hashed, so that memory and disk stay bounded.

    The prefix before the SHA-256 makes the result longer than any id that is stored unchanged.
    """
    if len(identifier) <= STORED_ID_BYTES_MAX or isinstance(identifier, Digest):
        return identifier
    return hashed(identifier, hashlib.sha256(identifier).digest())
