"""Checkpoints of a table: where Spark keeps how far the table's stream has read its topics.

The first is `TARGET/checkpoints/NAME`. Each time the stream continues behind a gap it begins a new
one, `NAME.2` and so on, since Spark takes a position only where a checkpoint begins. The newest one
in which a batch was planned counts. Spark writes where a stream begins into `sources/0/0`, where a
batch ends into `offsets` when it plans the batch, and the batch's number into `commits` when it is
done. All are text whose last line is JSON.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final, Self

from ringfence_pipeline.admin import KafkaPartition
from ringfence_pipeline.storage import StorageFolder

Positions = Mapping[KafkaPartition, int]
"""The next offset to read of each partition."""

_BATCH_FILES: Final = "[0-9]*"


class TableCheckpoint:
    """The checkpoints of one table."""

    def __init__(self, parent: StorageFolder, table: str) -> None:
        self._parent = parent
        self._table = table
        names = {file.name for file in parent.files(f"{table}*")}
        numbers = [1, *sorted(n for name in names if (n := _number(table, name)) > 1)]
        self._all = [self._at(number) for number in numbers]
        self._planned = [each for each in self._all if each.has(f"offsets/{_BATCH_FILES}")]

    @classmethod
    def of(cls, target: StorageFolder, table: str) -> Self:
        """Return the checkpoints of a table in a target."""
        return cls(target / "checkpoints", table)

    @property
    def folder(self) -> StorageFolder:
        """The checkpoint with which the stream continues, or begins."""
        return self._planned[-1] if self._planned else self._all[0]

    @property
    def is_planned(self) -> bool:
        """Whether a batch was ever planned."""
        return bool(self._planned)

    @property
    def is_done(self) -> bool:
        """Whether a batch was ever done."""
        return any(each.has(f"commits/{_BATCH_FILES}") for each in self._planned)

    def positions(self, has_rows: Callable[[Positions], bool]) -> Positions:
        """Return the positions behind all that the table has, once a batch was planned.

        A planned batch may be in the table though it is not done in the checkpoint. The table shows
        that: `has_rows` says whether it has a row at or behind one of some positions.
        """
        done, planned = _last(self.folder / "commits"), _last(self.folder / "offsets")
        assert planned is not None
        begin = _offsets(self.folder / "sources" / "0" / "0") if done is None else self._end(done)
        end = self._end(planned)
        added = {each: begin.get(each, 0) for each in end if begin.get(each, 0) < end[each]}
        return end if added and has_rows(added) else begin

    def topics(self) -> frozenset[str]:
        """Return the topics that the stream has read; none before its first batch."""
        planned = _last(self.folder / "offsets")
        return frozenset(each.topic for each in (() if planned is None else self._end(planned)))

    def begin_another(self) -> StorageFolder:
        """Return the folder of the next checkpoint, empty."""
        following = self._at(_number(self._table, self.folder.name) + 1)
        following.delete()
        return following

    def _end(self, batch: int) -> Positions:
        return _offsets(self.folder / "offsets" / str(batch))

    def _at(self, number: int) -> StorageFolder:
        return self._parent / (self._table if number == 1 else f"{self._table}.{number}")


def _number(table: str, name: str) -> int:
    """Return the number of a checkpoint by the name of its folder; 0 if it is none of the table."""
    if name == table:
        return 1
    stem, _, number = name.rpartition(".")
    return int(number) if stem == table and number.isascii() and number.isdigit() else 0


def _last(folder: StorageFolder) -> int | None:
    """Return the number of the last batch that a folder of a checkpoint has."""
    names = [file.name for file in folder.files(_BATCH_FILES)]
    return max((int(name) for name in names if name.isdigit()), default=None)


def _offsets(file: StorageFolder) -> Positions:
    """Return the offsets in a file of a checkpoint whose stream reads topics alone."""
    by_topic: Mapping[str, Mapping[str, int]] = json.loads(file.read_text().splitlines()[-1])
    return {
        KafkaPartition(topic, int(number)): offset
        for topic, offsets in by_topic.items()
        for number, offset in offsets.items()
    }
