"""Segment: the ids that one batch added to an address; written once, deleted when all expired.

An id's number counts the ids that its address has accepted. A segment holds consecutive numbers
from `first` on, and for each id the origin of the accepted record. `floor` is the lowest number
that the address still holds after the segment, `capacity` the size at that time: both matter only
in the newest segment, so a replay in any order ends in the same ring.

Key: that of the address and the number of the first id (`keys.py`). Value: a header, then columns
packed to the narrowest width that fits.
"""

import hashlib
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from state.keys import RUNS, UnknownFormatError, prefix, reader_of, unknown
from state.model import Edit, Origin, PartitionId

ID_BYTES_MAX: Final = 64
"""Longer ids are remembered by their SHA-256."""
FORGOTTEN: Final = bytes(ID_BYTES_MAX + 2)
"""In place of an id: longer than any that is kept."""
RUN_IDS_MAX: Final = 512
"""Ids are 65 bytes at most, with a publisher 99, so a run stays below 64 KiB."""
FORMAT: Final = 1
"""Version of all keys and values of the state; a newer one is refused, never guessed at.

It stands in the first byte of every value, in the metadata of every committed offset and in every
store. Whoever raises it adds a reader beside the older ones, and leaves those as they are.
"""

_HEADER: Final = struct.Struct("<BQQQIH")
_BYTES: Final = {"B": 1, "H": 2, "I": 4, "Q": 8}
_CODE_FOR: Final = "BBHIIQQQQ"
"""The narrowest width for a number of so many bytes."""

_CODES: Final = frozenset(map(str.encode, _BYTES))
_COLUMN: Final = struct.Struct("<qc")
_ALL_ZERO: Final = _COLUMN.pack(0, b"=")


class Digest(bytes):
    """A long id as it is kept already: what was told of a ring is told to another."""

    __slots__ = ()


class Segment(NamedTuple):
    """Consecutive ids of one address; columns of equal length. `places` index `sources`."""

    first: int
    floor: int
    capacity: int
    sources: tuple[PartitionId, ...]
    ids: tuple[bytes, ...]
    places: Sequence[int]
    offsets: Sequence[int]
    times_ms: Sequence[int]

    @property
    def end(self) -> int:
        """The number after its last id."""
        return self.first + len(self.ids)

    def origin(self, number: int) -> Origin:
        """Where the id with this number came from."""
        row = number - self.first
        source = self.sources[self.places[row]]
        return Origin(source.topic, source.partition, self.offsets[row], self.times_ms[row])


class SegmentEntry(NamedTuple):
    """One remembered id."""

    identifier: bytes
    origin: Origin


class SegmentSummary(NamedTuple):
    """A run without its origins."""

    first: int
    floor: int
    capacity: int
    ids: tuple[bytes, ...]


def key(address: str, first: int) -> bytes:
    """The key of the run that starts with number `first`."""
    return prefix(RUNS, address) + struct.pack(">Q", first)


def first_of(run_key: bytes) -> int:
    """The number that the run of a key starts with."""
    (first,) = struct.unpack(">Q", run_key[-8:])
    return int(first)


def put(address: str, run: Segment) -> Edit:
    """The edit that writes a run."""
    return Edit(key(address, run.first), encode(run))


def encode(run: Segment) -> bytes:
    """A run as the value of its key."""
    parts = [
        _HEADER.pack(FORMAT, run.first, run.floor, run.capacity, len(run.ids), len(run.sources))
    ]
    parts += map(_packed_source, run.sources)
    if run.ids:
        parts.append(_pack(run.places) if len(run.sources) > 1 else _ALL_ZERO)
        parts += [_pack(run.offsets), _pack(run.times_ms), _pack(list(map(len, run.ids)))]
        parts += run.ids
    return b"".join(parts)


@lru_cache
def _packed_source(source: PartitionId) -> bytes:
    name = source.topic.encode()
    return struct.pack("<HI", len(name), source.partition) + name


def decode(value: bytes) -> Segment:
    """The run that `encode` wrote; UnknownFormatError for anything else."""
    try:
        return _decode(value)
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise unknown(value) from error


def summary(value: bytes) -> SegmentSummary:
    """The ids of a run, without decoding where they came from; raises as `decode` does."""
    try:
        head, position = _head(value)
        if not head.ids:
            return SegmentSummary(*head[:3], ())
        for _ in range(3):
            _, position = _column(value, position, head.ids)
        return SegmentSummary(*head[:3], _ids(value, position, head.ids))
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise unknown(value) from error


def row_of(value: bytes, number: int) -> SegmentEntry:
    """One id of a run with its origin, without decoding the others.

    UnknownFormatError where the run has no such number, and for anything that is no run.
    """
    try:
        head, position = _head(value)
        row = number - head.first
        if not 0 <= row < head.ids:
            raise UnknownFormatError(f"number {number} in a run from {head.first} on")
        places, position = _column(value, position, head.ids)
        offsets, position = _column(value, position, head.ids)
        times_ms, position = _column(value, position, head.ids)
        lengths, position = _column(value, position, head.ids)
        start = position + lengths.sum_before(row)
        source = head.sources[places.at(row)]
        origin = Origin(*source, offsets.at(row), times_ms.at(row))
        return SegmentEntry(value[start : start + lengths.at(row)], origin)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise unknown(value) from error


def _decode(value: bytes) -> Segment:
    head, position = _head(value)
    if not head.ids:
        return Segment(head.first, head.floor, head.capacity, head.sources, (), (), (), ())
    columns = []
    for _ in range(3):
        column, position = _unpack(value, position, head.ids)
        columns.append(column)
    places, offsets, times_ms = columns
    if not 0 <= min(places) <= max(places) < len(head.sources):
        raise unknown(value)
    ids = _ids(value, position, head.ids)
    return Segment(*head[:3], head.sources, ids, places, offsets, times_ms)


def _ids(value: bytes, position: int, count: int) -> tuple[bytes, ...]:
    column, start = _column(value, position, count)
    length = column.base
    if column.code == "=" and length > 0:
        _check_end(value, start + length * count)
        return tuple([value[at : at + length] for at in range(start, len(value), length)])
    lengths, start = _unpack(value, position, count)
    if min(lengths) < 0:
        raise unknown(value)
    ends = list(accumulate(lengths, initial=start))
    _check_end(value, ends[-1])
    return tuple([value[start:end] for start, end in pairwise(ends)])


class _SegmentHeader(NamedTuple):
    """What stands before the columns."""

    first: int
    floor: int
    capacity: int
    sources: tuple[PartitionId, ...]
    ids: int
    """How many."""


def _head(value: bytes) -> tuple[_SegmentHeader, int]:
    """What stands before the columns of a run of any format, and where the columns begin."""
    head, position = reader_of(value, _HEADS)(value)
    if head.ids > RUN_IDS_MAX:
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
    return _SegmentHeader(first, floor, capacity, tuple(sources), count), position


_HEADS: Final[Mapping[int, Callable[[bytes], tuple[_SegmentHeader, int]]]] = {1: _head_1}
"""By format; the columns have not changed so far."""


def _check_end(value: bytes, position: int) -> None:
    if position != len(value):
        raise UnknownFormatError(f"{len(value)} bytes, {position} expected")


def _pack(column: Sequence[int]) -> bytes:
    """Lowest value, width, then each distance from the lowest; no distances when all are equal."""
    base, top = min(column), max(column)
    if base == top:
        return _COLUMN.pack(base, b"=")
    code = _CODE_FOR[((top - base).bit_length() + 7) // 8]
    distances = array(code, [number - base for number in column])
    if sys.byteorder == "big":
        distances.byteswap()
    return _COLUMN.pack(base, code.encode()) + distances.tobytes()


class _PackedColumn(NamedTuple):
    """A packed column as it stands in a value."""

    value: bytes
    base: int
    code: str
    """`=` where all are alike."""
    start: int

    def at(self, row: int) -> int:
        """One number of it."""
        if self.code == "=":
            return self.base
        width = _BYTES[self.code]
        start = self.start + row * width
        return self.base + int.from_bytes(self.value[start : start + width], "little")

    def sum_before(self, row: int) -> int:
        """The sum of all numbers before one."""
        if self.code == "=":
            return self.base * row
        width = _BYTES[self.code]
        return self.base * row + sum(
            int.from_bytes(self.value[start : start + width], "little")
            for start in range(self.start, self.start + row * width, width)
        )


def _column(value: bytes, position: int, count: int) -> tuple[_PackedColumn, int]:
    """The column at a position, and the position behind it."""
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


def outlived(firsts: Sequence[int], floor: int, following: int) -> Sequence[int]:
    """Those of the runs that begin with these numbers which lie wholly below a floor.

    A run ends, at the latest, where the next one begins; the last one at `following`.
    """
    count = bisect_right(firsts, floor) - (floor < following)
    return firsts[: max(0, count)]


def remembered(identifier: bytes) -> bytes:
    """An id as it is kept: long ones by their SHA-256, so that memory and disk stay bounded.

    The beginning before the digest makes it longer than any id that is kept as it came.
    """
    if len(identifier) <= ID_BYTES_MAX or isinstance(identifier, Digest):
        return identifier
    return identifier[: ID_BYTES_MAX - 31] + hashlib.sha256(identifier).digest()
