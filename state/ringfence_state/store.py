"""Store: the local copy of one changelog partition, in memory or in RocksDB.

Invariant: a store holds the fold of a committed prefix of its changelog partition, together with
the position of that prefix; both change in one atomic `apply`. It may be behind the topic by whole
transactions and is never ahead of it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ringfence_state.model import Edit, PartitionId


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


class DiskFault(NamedTuple):
    """What the operating system refuses, and what helps."""

    text: str
    """How its errors begin; RocksDB reports errors as text."""
    fix: str
    is_limit: bool = False
    """Whether it is a limit of the process or the machine, not a fault of the disk."""


OPEN_FILES_MAX: Final = 256
"""How many files a store has open at most."""
MORE_OPEN_FILES: Final = "raise the hard limit of open files (ulimit -Hn, LimitNOFILE= of systemd)"
DISK_FAULTS: Final = (
    DiskFault("No space left", "make the volume larger, or free space on it"),
    DiskFault("Disk quota exceeded", "raise the user's quota, or free space"),
    DiskFault("File too large", "raise the limit of a file's size (ulimit -f)"),
    DiskFault(
        "Too many open files in system",
        "raise fs.file-max of the machine, which all of its processes share",
        is_limit=True,
    ),
    DiskFault(
        "Too many open files",
        f"{MORE_OPEN_FILES}: each store of a partition may have {OPEN_FILES_MAX}",
        is_limit=True,
    ),
    DiskFault(
        "Cannot allocate memory", "give the process or the container more memory", is_limit=True
    ),
    DiskFault("Permission denied", "give the process's user the right to write there"),
    DiskFault(
        "Read-only",
        "mount it for writing; if it became read-only by itself, the kernel's log says why",
    ),
    DiskFault("Input/output error", "repair the disk or replace it"),
)
"""The first that an error's text contains applies."""
_ANY_FAULT: Final = DiskFault("", "repair the disk")


def disk_fault_of(error: object) -> DiskFault | None:
    """Return what the disk, the process or the machine refuses; None if the error is another."""
    return next((fault for fault in DISK_FAULTS if fault.text in str(error)), None)


class StoreFailedError(Exception):
    """The disk refused a write (full, read-only, lost): the store is intact, but behind."""

    @property
    def fault(self) -> DiskFault:
        """What was refused, and what helps."""
        return disk_fault_of(self) or _ANY_FAULT


class Store(Protocol):
    """Entries in key order, and the position they belong to.

    Every method but `figures` and `close` may raise StoreCorruptError.
    """

    @property
    def derived(self) -> Path | None:
        """A folder for files that can be made from the entries; None if there is none.

        It need not exist. It is deleted together with the store.
        """
        ...

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the keys that start with the prefix, ascending, with their values.

        Keys before `start` are left out.
        """
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


class ReplayedStore(Store, Protocol):
    """A store into which a changelog can be replayed."""

    def replay(self, edits: Iterable[Edit], position: StorePosition) -> None:
        """Write edits of the changelog like `apply`, and faster.

        What was replayed last may be gone if the process dies before the next `apply` or `close`:
        then the store has an earlier position.
        """
        ...


class Stores(Protocol):
    """The folder of a worker's stores, one for each deciding partition."""

    def open(self, source: PartitionId) -> ReplayedStore:
        """Open the store of a partition; create it when there is none.

        Raises StoreCorruptError when it is unreadable, StoreLockedError while another process has
        it open, StoreFailedError when the disk refuses.
        """
        ...

    def wipe(self, source: PartitionId) -> None:
        """Delete the store of a partition, even a damaged one; it must not be open.

        Raises StoreLockedError while another process has it open, StoreFailedError when the disk
        refuses.
        """
        ...

    def want(self, source: PartitionId) -> None:
        """Ask the process that has the store of a partition open to close it, if it can do so.

        Call it with each attempt to open a store that is locked.
        """
        ...

    def is_wanted(self, source: PartitionId) -> bool:
        """Whether another process has asked for the store of a partition a moment ago."""
        ...
