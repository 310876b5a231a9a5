"""The stored segments of one address, for states that leave their ids in the store.

It reads single entries and whole segments by number, and keeps those that were read last. What the
store cannot answer, or answers with other bytes than were written, is damage: StoreCorruptError.
"""

import hashlib
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

from ringfence_state.keys import UnknownFormatError, prefix
from ringfence_state.model import PartitionId
from ringfence_state.segment import SegmentEntry, end_of, first_of, numbered, row_of
from ringfence_state.store import Store, StoreCorruptError

RECENT_MAX: Final = 128
"""How many segments are kept of those that were read, for all states of a worker.

A segment stays below 64 KiB, so they take 8 MiB at most. Another one costs a read of the store.
"""

RecentSegments = OrderedDict[tuple[object, bytes], bytes]
"""Segments that were read last, by the reader and the key."""


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
        recent: RecentSegments | None = None,
        on_read: Callable[[], None] = lambda: None,
    ) -> None:
        """`memory_bytes_max` is what a state should take; `on_read` is called for each segment.

        `recent` is shared with the other states of a worker. A state finds only what it read
        itself: another one of the same name, loaded later, may have other segments under its keys.
        """
        self.store = store
        self.address = address
        self.memory_bytes_max = memory_bytes_max
        self.kind = kind
        self._source = source
        self._prefix = prefix(kind, address)
        self._recent = RecentSegments() if recent is None else recent
        self._on_read = on_read
        self._begun: Iterator[tuple[bytes, bytes]] | None = None

    @property
    def folder(self) -> Path | None:
        """Where files about these segments may be kept; they are lost together with the store."""
        if self.store.derived is None:
            return None
        return self.store.derived / hashlib.blake2b(self._prefix, digest_size=16).hexdigest()

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

    def value(self, first: int) -> bytes:
        """Return the segment that begins with a number."""
        return self._some(first, self._get(numbered(self._prefix, first)))

    def stored(self, number: int) -> bytes:
        """Return the segment that has a number, and keep no copy."""
        first = self.first_with(number)
        return self._some(first, self.store.get(numbered(self._prefix, first)))

    def _some(self, first: int, value: bytes | None) -> bytes:
        if value is None:
            raise self.damage(f"segment {numbered(self._prefix, first).hex()} is missing")
        return value

    def _get(self, segment_key: bytes) -> bytes | None:
        value = self._recent.get((self, segment_key))
        if value is None:
            value = self.store.get(segment_key)
            if value is None:
                return None
            self._recent[self, segment_key] = value
            if len(self._recent) > RECENT_MAX:
                self._recent.popitem(last=False)
        return value

    def with_number(self, number: int, first: int) -> bytes:
        """Return the segment that has a number; `first` is where it probably begins."""
        value = self._get(numbered(self._prefix, first))
        if value is None or not first <= number < end_of(value):
            value = self.value(self.first_with(number))
        return value

    def forget_from(self, first: int) -> None:
        """Drop what was read of segments from a number on, which were joined."""
        begin = numbered(self._prefix, first)
        for name in [name for name in self._recent if name[0] is self and name[1] >= begin]:
            del self._recent[name]

    def discard(self) -> None:
        """Delete the files about these segments: they are few now, or were deleted."""
        if self.folder is not None and self.folder.is_dir():
            shutil.rmtree(self.folder, ignore_errors=True)

    def row(self, value: bytes, number: int) -> SegmentEntry:
        """Return an entry of a segment."""
        try:
            return row_of(value, number)
        except UnknownFormatError as error:
            raise self.damage(error) from error

    def read(self, first: int, number: int) -> SegmentEntry:
        """Return an entry of the segment that begins with `first`."""
        return self.row(self.value(first), number)

    def damage(self, why: object) -> StoreCorruptError:
        """Return the error that has the store restored."""
        return StoreCorruptError(self._source, why)
