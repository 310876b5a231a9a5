"""Spots: places in all the partitions that feed one deciding partition, each as one number.

A batch remembers columns of numbers, which cost a fraction of a value for each record. Of the
first partition the spot is the offset itself.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from state.edit import Source

_WIDTH: Final = 63
_HALF: Final = 1 << (_WIDTH - 1)
"""Offsets below zero stand for something else, and belong to their partition all the same."""


class Spots:
    """The partitions, in the order in which they were met."""

    def __init__(self, first: Source) -> None:
        self._sources = [first]
        self._bases = {first: 0}

    def base(self, source: Source) -> int:
        """What to add to an offset of this partition."""
        base = self._bases.get(source)
        if base is None:
            base = self._bases[source] = len(self._sources) << _WIDTH
            self._sources.append(source)
        return base

    def place(self, spot: int) -> tuple[Source, int]:
        """The partition and the offset of a spot."""
        index = (spot + _HALF) >> _WIDTH
        return self._sources[index], spot - (index << _WIDTH)

    def count(self, spots: Sequence[int]) -> Mapping[Source, int]:
        """How many of them are in each partition."""
        if len(self._sources) == 1:
            return {self._sources[0]: len(spots)} if spots else {}
        indexes = Counter([(spot + _HALF) >> _WIDTH for spot in spots])
        return {self._sources[index]: count for index, count in indexes.items()}

    def columns(
        self, spots: Sequence[int]
    ) -> tuple[tuple[Source, ...], Sequence[int], Sequence[int]]:
        """The partitions of some spots; for each spot which of them it is, and its offset."""
        if len(self._sources) == 1:
            return tuple(self._sources), bytes(len(spots)), spots
        indexes = [(spot + _HALF) >> _WIDTH for spot in spots]
        met = {index: place for place, index in enumerate(dict.fromkeys(indexes))}
        offsets = [spot - (index << _WIDTH) for spot, index in zip(spots, indexes, strict=True)]
        return (
            tuple(self._sources[index] for index in met),
            [met[index] for index in indexes],
            offsets,
        )
