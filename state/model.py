"""State model: a key with its new value or none, a claim, a rejection, and packed positions.

A decision yields edits, the transaction writes them to the changelog, and the same `apply` writes
them to a store after a commit and in a restore.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ringfence.headers import Reason


class Edit(NamedTuple):
    """Set `key` to `value`; delete it when the value is None (a tombstone in the changelog)."""

    key: bytes
    value: bytes | None


class PartitionId(NamedTuple):
    """Where a record came from: a topic and one of its partitions."""

    topic: str
    partition: int


IMPORTED: Final = -1
"""In place of an offset: the id was imported without one."""


class Origin(NamedTuple):
    """The place and time of an accepted record; a duplicate's dead letter names it.

    `time_ms` is the deciding partition's time in milliseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    time_ms: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class Claim(NamedTuple):
    """What is not said is None."""

    identifier: bytes | None = None
    expires_at_ms: int | None = None
    publisher: str | None = None
    number: int | None = None
    stream: int | None = None
    previous: int | None = None


NO_CLAIM: Final = Claim()


class Rejection(NamedTuple):
    """A reason, a sentence for a person, and the place of the accepted record that it repeats."""

    reason: Reason
    cause: str
    original: str | None = None
    accepted_ms: int | None = None
    """The time of that record, where it is known."""


def repetition_of(origin: Origin) -> Rejection:
    """The id was accepted there already."""
    if origin.offset == IMPORTED:
        return Rejection(Reason.DUPLICATE, "its id was imported", None, origin.time_ms)
    original = str(origin)
    cause = f"its id was accepted at {original} already"
    return Rejection(Reason.DUPLICATE, cause, original, origin.time_ms)


_WIDTH: Final = 63

_HALF: Final = 1 << (_WIDTH - 1)
"""Offsets below zero stand for something else, and belong to their partition all the same."""


class PackedPositions:
    """The partitions, in the order in which they were met."""

    def __init__(self, first: PartitionId) -> None:
        self._sources = [first]
        self._bases = {first: 0}

    def base(self, source: PartitionId) -> int:
        """What to add to an offset of this partition."""
        base = self._bases.get(source)
        if base is None:
            base = self._bases[source] = len(self._sources) << _WIDTH
            self._sources.append(source)
        return base

    def place(self, packed_position: int) -> tuple[PartitionId, int]:
        """The partition and the offset of a spot."""
        index = (packed_position + _HALF) >> _WIDTH
        return self._sources[index], packed_position - (index << _WIDTH)

    def count(self, packed_positions: Sequence[int]) -> Mapping[PartitionId, int]:
        """How many of them are in each partition."""
        if len(self._sources) == 1:
            return {self._sources[0]: len(packed_positions)} if packed_positions else {}
        indexes = Counter(
            [(packed_position + _HALF) >> _WIDTH for packed_position in packed_positions]
        )
        return {self._sources[index]: count for index, count in indexes.items()}

    def columns(
        self, packed_positions: Sequence[int]
    ) -> tuple[tuple[PartitionId, ...], Sequence[int], Sequence[int]]:
        """The partitions of some spots; for each spot which of them it is, and its offset."""
        if len(self._sources) == 1:
            return tuple(self._sources), bytes(len(packed_positions)), packed_positions
        indexes = [(packed_position + _HALF) >> _WIDTH for packed_position in packed_positions]
        met = {index: place for place, index in enumerate(dict.fromkeys(indexes))}
        offsets = [
            packed_position - (index << _WIDTH)
            for packed_position, index in zip(packed_positions, indexes, strict=True)
        ]
        return (
            tuple(self._sources[index] for index in met),
            [met[index] for index in indexes],
            offsets,
        )
