"""State model: edits, claims, rejections, origins and packed positions.

A decision yields edits. The transaction writes them to the changelog, and the same `apply` writes
them to a store, after a commit and during a restore.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ringfence_client.headers import Reason


class Edit(NamedTuple):
    """Set `key` to `value`; delete it when the value is None (a tombstone in the changelog)."""

    key: bytes
    value: bytes | None


class PartitionId(NamedTuple):
    """A topic and one of its partitions, usually the one that a record came from."""

    topic: str
    partition: int


IMPORTED: Final = -1
"""Takes the place of an offset: the id was imported, so the offset is unknown."""


OFFSET_MAX: Final = 10**18 - 1
"""The largest offset of an origin, wherever it is read: 18 digits, as in an origin header.

No partition gets there. It is below what a packed position can hold, half of `_WIDTH` bits.
"""


class Origin(NamedTuple):
    """Where and when a record was accepted; the dead letter of a duplicate names it.

    `time_ms` is the deciding partition's time in milliseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    time_ms: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class Claim(NamedTuple):
    """What a record's headers claim; a field is None when its header is absent."""

    identifier: bytes | None = None
    expires_at_ms: int | None = None
    publisher: str | None = None
    number: int | None = None
    stream: int | None = None
    previous: int | None = None
    is_unreadable: bool = False
    """Whether it has no id since the document that would have it cannot be decoded."""


NO_CLAIM: Final = Claim()


class Rejection(NamedTuple):
    """A reason, a sentence for people, and the position of the accepted record that it repeats."""

    reason: Reason
    cause: str
    original: str | None = None
    origin: Origin | None = None
    """Where and when that was, if an id is repeated; also of an id that was imported."""


def repetition_of(origin: Origin) -> Rejection:
    """Return the rejection of a record whose id was accepted at `origin`."""
    if origin.offset == IMPORTED:
        return Rejection(Reason.DUPLICATE, "its id was imported", None, origin)
    original = str(origin)
    cause = f"its id was accepted at {original} already"
    return Rejection(Reason.DUPLICATE, cause, original, origin)


_WIDTH: Final = 63

_HALF: Final = 1 << (_WIDTH - 1)
"""Rounds a negative offset (`IMPORTED`) to its own partition, not to the one before."""


class PackedPositions:
    """Packs a partition and an offset into one number; partitions are in the order of first use.

    A packed position is the base of its partition plus the offset.
    """

    def __init__(self, first: PartitionId) -> None:
        self.sources = [first]
        """The partitions; positions refer to them by index."""
        self._bases = {first: 0}

    def base(self, source: PartitionId) -> int:
        """Return what to add to an offset of this partition; add the partition if it is new."""
        base = self._bases.get(source)
        if base is None:
            base = self._bases[source] = len(self.sources) << _WIDTH
            self.sources.append(source)
        return base

    @staticmethod
    def parts(packed_position: int) -> tuple[int, int]:
        """Return the index of the partition in `sources`, and the offset."""
        index = (packed_position + _HALF) >> _WIDTH
        return index, packed_position - (index << _WIDTH)

    def unpack(self, packed_position: int) -> tuple[PartitionId, int]:
        """Return the partition and the offset of a packed position."""
        index, offset = self.parts(packed_position)
        return self.sources[index], offset

    def count(self, packed_positions: Sequence[int]) -> Mapping[PartitionId, int]:
        """Return how many of the positions are in each partition."""
        if len(self.sources) == 1:
            return {self.sources[0]: len(packed_positions)} if packed_positions else {}
        indexes = Counter(
            [(packed_position + _HALF) >> _WIDTH for packed_position in packed_positions]
        )
        return {self.sources[index]: count for index, count in indexes.items()}

    def columns(
        self, packed_positions: Sequence[int]
    ) -> tuple[tuple[PartitionId, ...], Sequence[int], Sequence[int]]:
        """Return the positions in columns: the partitions used, then the index and offset of each.

        An index refers to the returned partitions.
        """
        if len(self.sources) == 1:
            return tuple(self.sources), bytes(len(packed_positions)), packed_positions
        indexes = [(packed_position + _HALF) >> _WIDTH for packed_position in packed_positions]
        used = {index: rank for rank, index in enumerate(dict.fromkeys(indexes))}
        offsets = [
            packed_position - (index << _WIDTH)
            for packed_position, index in zip(packed_positions, indexes, strict=True)
        ]
        return (
            tuple(self.sources[index] for index in used),
            [used[index] for index in indexes],
            offsets,
        )
