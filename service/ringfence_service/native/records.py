"""Records of a piece as Python sees them: columns whose items are made when they are read.

Executors of Spark import this with the rules, and have no Kafka client.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

from ringfence_client.headers import Headers
from ringfence_service.kafka.model import UNREADABLE
from ringfence_state.model import PartitionId

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


class Admitted(NamedTuple):
    """How far compiled code has decided records."""

    at: int
    """The index of the first record that Python has to decide."""
    time_ms: int
    """The partition time before it."""
    doubtful: bytes | None
    """Its id, if compiled code only cannot tell whether that is known."""
    wanted: Sequence[tuple[int, int]] | None
    """Then the numbers whose segments would tell, and where these probably begin; for the next
    records too, if they are of the same address."""


class PieceRecord:
    """One record of a piece."""

    __slots__ = ("_fields",)

    def __init__(self, fields: tuple[int, int, bytes | None, bytes | None]) -> None:
        """`fields` are offset, timestamp, key and value."""
        self._fields = fields

    def key(self) -> bytes | None:
        """Return the key; empty is not absent."""
        return self._fields[2]

    def value(self) -> bytes | None:
        """Return the value; empty is not absent."""
        return self._fields[3]

    def offset(self) -> int:
        """Return the offset in the partition."""
        return self._fields[0]

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, which is not kept, and milliseconds."""
        return 0, self._fields[1]


class Column:
    """Some consecutive rows of a piece."""

    def __init__(self, piece: Any, start: int, end: int) -> None:
        self.piece, self.start, self.end = piece, start, end

    def __len__(self) -> int:
        """Return how many rows there are."""
        return self.end - self.start

    def _row(self, index: int) -> int:
        row = self.end + index if index < 0 else self.start + index
        if not self.start <= row < self.end:
            raise IndexError(index)
        return row

    def _rows(self, rows: slice) -> tuple[Any, int, int]:
        start, end, _ = rows.indices(len(self))
        return self.piece, self.start + start, self.start + max(start, end)


class HeaderColumn(Column, Sequence[Headers | None]):
    """The headers of records."""

    @overload
    def __getitem__(self, index: int) -> Headers: ...
    @overload
    def __getitem__(self, index: slice) -> "HeaderColumn": ...
    def __getitem__(self, index: int | slice) -> "Headers | HeaderColumn":
        """Return the headers of a record, or a part of the column."""
        if isinstance(index, slice):
            return HeaderColumn(*self._rows(index))
        found = self.piece.headers(self._row(index))
        return UNREADABLE if found is None else cast("Headers", found)


class Records(Column, Sequence[PieceRecord]):
    """Records of one piece, grouped by partition."""

    errors: "Sequence[tuple[KafkaError, PartitionId | None]]" = ()
    """The errors that came with them, each with its partition, if it has one."""

    @classmethod
    def of(
        cls, piece: Any, errors: "Sequence[tuple[KafkaError, PartitionId | None]]" = ()
    ) -> "Records":
        """Return all records of a piece."""
        records = cls(piece, 0, len(piece))
        if errors:
            records.errors = errors
        return records

    @overload
    def __getitem__(self, index: int) -> PieceRecord: ...
    @overload
    def __getitem__(self, index: slice) -> "Records": ...
    def __getitem__(self, index: int | slice) -> "PieceRecord | Records":
        """Return a record, or a part of them."""
        if isinstance(index, slice):
            return Records(*self._rows(index))
        return PieceRecord(self.piece.record(self._row(index)))

    @property
    def headers(self) -> HeaderColumn:
        """The headers of all of them."""
        return HeaderColumn(self.piece, self.start, self.end)

    def part(self, start: int, end: int) -> "Records":
        """Return the records from one row to another, which it must have."""
        return Records(self.piece, self.start + start, self.start + end)

    def fitting(self, bytes_max: int) -> tuple["Records", int, int]:
        """Return the leading records that fit, and at least one; their memory; that of the largest.

        Both are in bytes.
        """
        end, memory_bytes, largest_bytes = self.piece.fitting(self.start, self.end, bytes_max)
        return Records(self.piece, self.start, end), memory_bytes, largest_bytes

    def beyond(self, *, needs_key: bool, bytes_max: int) -> list[int]:
        """Return the rows that take more memory than `bytes_max`, or lack the key they need."""
        rows = self.piece.beyond(self.start, self.end, needs_key, bytes_max)
        return [row - self.start for row in rows]

    def by_source(self) -> Iterator[tuple[PartitionId, "Records"]]:
        """Yield the records of each partition."""
        start = self.start
        while start < self.end:
            name, end = self.piece.source(start, self.end)
            yield PartitionId(*name), Records(self.piece, start, end)
            start = end

    def columns(self) -> tuple[list[int], list[int], list[int]]:
        """Return offsets, times and sizes of values."""
        count = len(self)
        found = _numbers(self.piece.columns(self.start, self.end))
        return found[:count], found[count : 2 * count], found[2 * count :]

    def by_input(self) -> Iterator[tuple[bytes, "Records", list[int]]]:
        """Split origin headers off; yield runs of one input with their offsets there."""
        start = self.start
        while start < self.end:
            input_partition, end, own_offsets = self.piece.strip(start, self.end)
            records = Records(self.piece, start, end)
            yield input_partition, records, _numbers(own_offsets)[: len(records)]
            start = end

    def admit(self, start: int, *rules: object) -> Admitted:
        """Decide plain records from `start` on, whose ids are new or certainly known."""
        at, *rest = self.piece.admit(self.start + start, self.end, *rules)
        return Admitted(at - self.start, *rest)

    def forward(self, start: int, *rules: object) -> int:
        """Forward records from `start` on; return the first whose partition is not known."""
        return cast("int", self.piece.forward(self.start + start, self.end, *rules)) - self.start

    def send(self, client: int) -> int:
        """Produce what was not sent yet; return 0, or the code of the error that ended it."""
        return cast("int", self.piece.send(client, self.start, self.end))


def _numbers(column: bytes) -> list[int]:
    return memoryview(column).cast("q").tolist()
