"""Store: the local copy of one changelog partition, in memory or in RocksDB.

Invariant: a store holds the fold of a committed prefix of its changelog partition, together with
the position of that prefix; both change in one atomic `apply`. It may be behind the topic by whole
transactions and is never ahead of it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from state.model import Edit, PartitionId


class Identity(NamedTuple):
    """Which log a store is a copy of. A store of another identity is wiped, never read."""

    cluster_id: str
    input_topic_id: str
    changelog_topic_id: str
    format: int


class StorePosition(NamedTuple):
    """How far a store has come.

    `input_next` is the offset of the first input record that it does not know the outcome of,
    `changelog_next` the changelog offset after the last one it holds, `level_at_ms` the wall time
    when it last held all that the changelog held.
    """

    identity: Identity
    input_next: int
    changelog_next: int
    level_at_ms: int


class StoreStats(NamedTuple):
    """What a store takes and does, for whoever watches it."""

    keys: int
    """About."""
    memory_bytes: int = 0
    """What was written and is not in files yet."""
    cache_bytes: int = 0
    """Blocks of files that are held in memory, for all stores of a worker together."""
    table_bytes: int = 0
    """Files of keys."""
    disk_bytes: int = 0
    """All files."""
    compaction_bytes: int = 0
    """What has to be written anew before reads are quick again."""
    stalls: int = 0
    """How often a write had to wait, since it was opened."""


class StoreCorruptError(Exception):
    """A store that cannot be opened or read: wipe it and restore from the changelog."""

    def __init__(self, source: PartitionId, cause: object) -> None:
        super().__init__(f"the store of {source.topic}-{source.partition} is damaged: {cause}")
        self.source = source


class StoreLockedError(Exception):
    """Another process has the store open: it is whole, and ours once that one lets go."""


class StoreFailedError(Exception):
    """The disk refused a write (full, read-only, lost): what is on it is whole, but behind."""


class Store(Protocol):
    """Edits by key, in key order, and the position they belong to."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys that start with the prefix, ascending, with their values."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """The value of one key."""
        ...

    def previous_key(self, key: bytes) -> bytes | None:
        """The last key before this one."""
        ...

    def next_key(self, key: bytes) -> bytes | None:
        """The first key at or after this one."""
        ...

    def position(self) -> StorePosition | None:
        """Where the store stands; None when it is new."""
        ...

    def apply(self, edits: Iterable[Edit], position: StorePosition) -> None:
        """All edits and the new position, or none. StoreFailedError when the disk refuses."""
        ...

    def figures(self) -> StoreStats:
        """What it takes, quickly; never an error."""
        ...

    def close(self) -> None:
        """Release files and locks; the store must not be used afterwards."""
        ...


class Stores(Protocol):
    """The folder of a worker's stores, one for each deciding partition."""

    def open(self, source: PartitionId) -> Store:
        """The store of a partition, new when there is none.

        StoreCorruptError when it is unreadable, StoreLockedError while another process has it.
        """
        ...

    def wipe(self, source: PartitionId) -> None:
        """Delete what is kept of a partition, whatever state it is in; it must not be open."""
        ...
