"""Store: the local copy of one changelog partition, in memory or in RocksDB.

Invariant: a store holds the fold of a committed prefix of its changelog partition, together with
the position of that prefix; both change in one atomic `apply`. It may be behind the topic by whole
transactions and is never ahead of it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from state.model import Edit, PartitionId


class Identity(NamedTuple):
    """The changelog that a store copies. A store with another identity is wiped, never read."""

    cluster_id: str
    input_topic_id: str
    changelog_topic_id: str
    format: int


class StorePosition(NamedTuple):
    """The committed prefix that a store holds.

    `input_next` is the offset of the first input record whose outcome is not in the store,
    `changelog_next` the changelog offset after the last one in the store, `level_at_ms` the wall
    time when the store last equalled the changelog.
    """

    identity: Identity
    input_next: int
    changelog_next: int
    level_at_ms: int


class StoreStats(NamedTuple):
    """Size and activity of a store, for metrics."""

    keys: int
    """An estimate."""
    memory_bytes: int = 0
    """Writes that are not in files yet."""
    cache_bytes: int = 0
    """File blocks held in memory, shared by all stores of a worker."""
    table_bytes: int = 0
    """SST files."""
    disk_bytes: int = 0
    """All files."""
    compaction_bytes: int = 0
    """Pending compaction: what has to be rewritten before reads are fast again."""
    stalls: int = 0
    """How often a write had to wait since the store was opened."""


class StoreCorruptError(Exception):
    """A store that cannot be opened or read: wipe it and restore from the changelog."""

    def __init__(self, source: PartitionId, cause: object) -> None:
        super().__init__(f"the store of {source.topic}-{source.partition} is damaged: {cause}")
        self.source = source


class StoreLockedError(Exception):
    """Another process has the store open. The store is intact; try again when it is released."""


class StoreFailedError(Exception):
    """The disk refused a write (full, read-only, lost): the store is intact, but behind."""


class Store(Protocol):
    """Entries in key order, and the position they belong to.

    Every method but `figures` and `close` may raise StoreCorruptError.
    """

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that start with the prefix, ascending, with their values."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        ...

    def previous_key(self, key: bytes) -> bytes | None:
        """Return the last key before this one, or None."""
        ...

    def next_key(self, key: bytes) -> bytes | None:
        """Return the first key at or after this one, or None."""
        ...

    def position(self) -> StorePosition | None:
        """Return the position of the store; None when it is new."""
        ...

    def apply(self, edits: Iterable[Edit], position: StorePosition) -> None:
        """Write all edits and the new position, or nothing.

        Raises StoreFailedError when the disk refuses the write.
        """
        ...

    def figures(self) -> StoreStats:
        """Return size and activity. Fast, and never raises."""
        ...

    def close(self) -> None:
        """Release files and locks; the store must not be used afterwards."""
        ...


class Stores(Protocol):
    """The folder of a worker's stores, one for each deciding partition."""

    def open(self, source: PartitionId) -> Store:
        """Open the store of a partition; create it when there is none.

        Raises StoreCorruptError when it is unreadable, StoreLockedError while another process has
        it open, StoreFailedError when the disk refuses.
        """
        ...

    def wipe(self, source: PartitionId) -> None:
        """Delete the store of a partition, even a damaged one; it must not be open."""
        ...
