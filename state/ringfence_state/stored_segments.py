"""The stored segments of one address, for states that leave their ids in the store.

It reads segments by their numbers. What the store cannot answer, or answers with other bytes than
were written, is damage: StoreCorruptError.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from itertools import chain, islice
from os.path import isdir
from pathlib import Path

from ringfence_state.keys import UnknownFormatError, prefix
from ringfence_state.model import PartitionId
from ringfence_state.segment import SegmentEntry, end_of, first_of, numbered, row_of
from ringfence_state.store import Store, StoreCorruptError


def folder_of(store: Store, begin: bytes) -> Path | None:
    """Return the folder for files about the segments whose keys begin so; None if it has none."""
    path = _path_of(store, begin)
    return None if path is None else Path(path)


def _path_of(store: Store, begin: bytes) -> str | None:
    if store.derived is None:
        return None
    return f"{store.derived}/{hashlib.blake2b(begin, digest_size=16).hexdigest()}"


class StoredSegments:
    """The segments of an address on a deciding partition, as its store has them."""

    def __init__(
        self,
        source: PartitionId,
        store: Store,
        kind: bytes,
        address: str,
        *,
        memory_bytes_max: int = 0,
        on_read: Callable[[], None] = lambda: None,
    ) -> None:
        """`memory_bytes_max` is what a state should take; `on_read` is called for each segment."""
        self.store = store
        self.address = address
        self.memory_bytes_max = memory_bytes_max
        self.kind = kind
        self._source = source
        self._prefix = prefix(kind, address)
        self._on_read = on_read
        self._begun: Iterator[tuple[bytes, bytes]] | None = None

    @property
    def folder(self) -> Path | None:
        """Where files about these segments may be kept; they are lost together with the store."""
        return folder_of(self.store, self._prefix)

    def oldest(self, count: int) -> list[tuple[bytes, bytes]]:
        """Return up to so many of the oldest segments; the next `entries` reads only the others."""
        entries = self.entries()
        oldest = list(islice(entries, count))
        self._begun = chain(oldest, entries)
        return oldest

    def entries(self, start: int = 0) -> Iterator[tuple[bytes, bytes]]:
        """Yield the segments that begin at a number or behind it, with their keys, in order."""
        begun, self._begun = self._begun, None
        if begun is not None and not start:
            yield from begun
            return
        self._on_read()
        for entry in self.store.scan(self._prefix, numbered(self._prefix, start)):
            yield entry
            self._on_read()

    def first_with(self, number: int) -> int:
        """Return the first number of the segment that has a number."""
        segment_key = self.store.previous_key(numbered(self._prefix, number + 1))
        if segment_key is None or not segment_key.startswith(self._prefix):
            raise self.damage(f"no segment has number {number}")
        return first_of(segment_key)

    def first_from(self, number: int) -> int | None:
        """Return the first number of the next segment that begins at a number or behind it."""
        segment_key = self.store.next_key(numbered(self._prefix, number))
        if segment_key is None or not segment_key.startswith(self._prefix):
            return None
        return first_of(segment_key)

    def at(self, first: int) -> bytes | None:
        """Return the segment that begins with a number; None if none does."""
        return self.store.get(numbered(self._prefix, first))

    def with_number(self, number: int) -> bytes:
        """Return the segment that has a number."""
        first = self.first_with(number)
        value = self.at(first)
        if value is None:
            raise self.damage(f"the segment from {first} on is missing")
        return value

    def span(self) -> int:
        """Return how many numbers there are from the oldest segment to the newest."""
        oldest = self.first_from(0)
        newest_key = self.store.previous_key(numbered(self._prefix, (1 << 64) - 1))
        if oldest is None or newest_key is None:
            return 0
        return end_of(self.store.get(newest_key) or b"") - oldest

    def discard(self) -> None:
        """Delete the files about these segments: they are few now, or were deleted."""
        path = _path_of(self.store, self._prefix)
        if path is not None and isdir(path):  # noqa: PTH112 - for each address that is loaded
            shutil.rmtree(path, ignore_errors=True)

    def row(self, value: bytes, number: int) -> SegmentEntry:
        """Return an entry of a segment."""
        try:
            return row_of(value, number)
        except UnknownFormatError as error:
            raise self.damage(error) from error

    def damage(self, why: object) -> StoreCorruptError:
        """Return the error that has the store restored."""
        return StoreCorruptError(self._source, why)
