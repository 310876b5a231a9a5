"""Records of a piece as Python sees them: columns whose items are made when they are read."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, cast, overload

from confluent_kafka import KafkaError, Message

from ringfence.headers import Headers
from service.kafka.model import UNREADABLE
from service.native.extension import loaded
from state.model import PartitionId


class PieceRecord(NamedTuple):
    """One record of a piece."""

    piece: Any
    row: int

    def key(self) -> bytes | None:
        """Return the key; empty is not absent."""
        return cast("bytes | None", self.piece.key(self.row))

    def value(self) -> bytes | None:
        """Return the value; empty is not absent."""
        return cast("bytes | None", self.piece.value(self.row))

    def offset(self) -> int:
        """Return the offset in the partition."""
        return cast("int", self.piece.place(self.row)[0])

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, which is not kept, and milliseconds."""
        return 0, self.piece.place(self.row)[1]


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


def as_produced(outputs: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of `Producer.produce` for each record, those of spans included."""
    for output in outputs:
        if len(output) == 1:
            yield from output[0].outputs()
        else:
            yield output


class Records(Column, Sequence[PieceRecord]):
    """Records of one piece, grouped by partition."""

    @classmethod
    def of(
        cls,
        messages: Sequence[Message],
        headers: Sequence[Headers | None],
        sources: Sequence[PartitionId],
        errors: Sequence[tuple[KafkaError, str | None, int]] = (),
    ) -> "Records":
        """Return messages of a Python client as a piece; `sources` has the partition of each."""
        native = loaded().module
        assert native is not None
        ranks = {source: rank for rank, source in enumerate(dict.fromkeys(sources))}
        rows = [
            (
                ranks[source],
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                None if each is UNREADABLE else each or (),
            )
            for message, each, source in zip(messages, headers, sources, strict=True)
        ]
        rows.sort(key=itemgetter(0))
        return cls(native.Piece(rows, list(map(tuple, ranks)), list(errors)), 0, len(rows))

    @overload
    def __getitem__(self, index: int) -> PieceRecord: ...
    @overload
    def __getitem__(self, index: slice) -> "Records": ...
    def __getitem__(self, index: int | slice) -> "PieceRecord | Records":
        """Return a record, or a part of them."""
        if isinstance(index, slice):
            return Records(*self._rows(index))
        return PieceRecord(self.piece, self._row(index))

    @property
    def headers(self) -> HeaderColumn:
        """The headers of all of them."""
        return HeaderColumn(self.piece, self.start, self.end)

    @property
    def errors(self) -> list[tuple[KafkaError, PartitionId | None]]:
        """The errors that came with the piece, each with its partition, if it has one."""
        return [
            (error, None if topic is None else PartitionId(topic, partition))
            for error, topic, partition in self.piece.errors
        ]

    @staticmethod
    def lane(topic: str, prefix: bytes) -> object:
        """Return where records go that only get an origin header, which begins with `prefix`."""
        return cast("Any", loaded().module).Lane(None, topic, 0, 0, None, prefix)

    def fitting(self, bytes_max: int) -> tuple["Records", int]:
        """Return the leading records that fit, and at least one, and the memory they take."""
        end, memory_bytes = self.piece.fitting(self.start, self.end, bytes_max)
        return Records(self.piece, self.start, end), memory_bytes

    def by_source(self) -> Iterator[tuple[PartitionId, "Records"]]:
        """Yield the records of each partition."""
        for name, start, end in self.piece.groups(self.start, self.end):
            yield PartitionId(*name), Records(self.piece, start, end)

    def columns(self) -> tuple[list[int], list[int], list[int]]:
        """Return offsets, times and sizes of values."""
        found = self.piece.columns(self.start, self.end)
        return cast("tuple[list[int], list[int], list[int]]", found)

    def by_input(self) -> Iterator[tuple[bytes, "Records", list[int]]]:
        """Split origin headers off; yield runs of one input with their offsets there."""
        runs, own_offsets = self.piece.strip(self.start, self.end)
        start = self.start
        for input_partition, end in runs:
            rows = slice(start - self.start, end - self.start)
            yield input_partition, Records(self.piece, start, end), own_offsets[rows]
            start = end
