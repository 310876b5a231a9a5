"""Duplicate samples: a few duplicates of a transaction, to be compared with their originals.

Where the id of a route names more than one message, nothing shows it but that: the contents of a
duplicate and of its original differ.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple, Self

from ringfence_service.schemas.content import Paths
from ringfence_state.model import IMPORTED, Origin, PartitionId

VALUE_BYTES_MAX: Final = 32 * 1024
"""A larger value is not compared: two JSON documents of this size take the interpreter 15 ms, and
up to 100 ms if they are lists of small numbers.
"""
PER_ROUTE: Final = 2
"""How many samples of a route are kept at a time, so that no route leaves no room for another."""


class DuplicateSample(NamedTuple):
    """A duplicate, and where its original is."""

    route: str
    source: PartitionId
    offset: int
    value: bytes | None
    """None for a tombstone, and if it is too large."""
    original: Origin
    without: Paths
    """The members of the value that do not count."""
    is_oversized: bool

    @classmethod
    def of(
        cls,
        route: str,
        source: PartitionId,
        offset: int,
        value: bytes | None,
        original: Origin,
        without: Paths,
    ) -> Self:
        """Build the sample of a duplicate, without a value that is too large."""
        is_oversized = value is not None and len(value) > VALUE_BYTES_MAX
        kept = None if is_oversized else value
        return cls(route, source, offset, kept, original, without, is_oversized)

    @property
    def position(self) -> str:
        """The position of the duplicate in its input, as dead letters name it."""
        return f"{self.source.topic}-{self.source.partition}@{self.offset}"


class Comparison(StrEnum):
    """What the comparison of a duplicate with its original has found."""

    SAME = "same"
    DIFFERENT = "different"
    NOT_COMPARED = "not-compared"
    """The original is gone or cannot be read, or one of the two is too large."""


class ComparedDuplicate(NamedTuple):
    """A sample, and what was found."""

    sample: DuplicateSample
    result: Comparison


class DuplicateSamples:
    """The first duplicates of each route in a transaction."""

    def __init__(self) -> None:
        self._by_route: dict[str, list[DuplicateSample]] = {}

    def __iter__(self) -> Iterator[DuplicateSample]:
        """Iterate over all of them, by route."""
        return (sample for samples in self._by_route.values() for sample in samples)

    def wants(self, route: str) -> bool:
        """Whether there is room for another sample of a route."""
        return len(self._by_route.get(route, ())) < PER_ROUTE

    def add(self, sample: DuplicateSample) -> None:
        """Add a duplicate, unless its id was imported, so that its original is not known."""
        if sample.original.offset != IMPORTED:
            self._by_route.setdefault(sample.route, []).append(sample)
