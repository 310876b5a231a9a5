"""Disk: what an instance keeps beside its process. It outlives a crash, unless it is lost.

Each write is a step at which the process may die, before it and after it.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy

from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Edit, PartitionId
from ringfence_state.store import StoreCorruptError, StorePosition


class Disk:
    """See `Stores`. `back_up` makes a copy, `roll_back` brings it back."""

    def __init__(
        self, step: Callable[[str], None], read: Callable[[int], None] = lambda _size_bytes: None
    ) -> None:
        """`read` is called with the number of bytes that were read, and makes that take time."""
        self.step = step
        self.read = read
        self._stores: dict[PartitionId, StoreOnDisk] = {}
        self._backup: dict[PartitionId, StoreOnDisk] = {}

    def __deepcopy__(self, _memo: object) -> "Disk":
        """Stores are copied; the disk that they are on is one."""
        return self

    def open(self, source: PartitionId) -> "StoreOnDisk":
        self.step("store.open")
        return self._stores.setdefault(source, StoreOnDisk(source, self))

    def wipe(self, source: PartitionId) -> None:
        self.step("store.wipe")
        self._stores.pop(source, None)

    def stores(self) -> Iterator[tuple[PartitionId, StorePosition | None, dict[bytes, bytes]]]:
        """Return what is there, by input partition; looking takes no time."""
        for source in sorted(self._stores):
            store = self._stores[source]
            yield source, store.position(), dict(MemoryStore.scan(store, b""))

    def lose(self) -> None:
        """Lose everything."""
        self._stores = {}

    def back_up(self) -> None:
        """Copy everything aside."""
        self._backup = deepcopy(self._stores)

    def roll_back(self) -> None:
        """Bring the copy back in place of what is there."""
        self._stores = deepcopy(self._backup)


class StoreOnDisk(MemoryStore):
    """A store that takes its time over a scan, and whose writes are steps."""

    def __init__(self, source: PartitionId, disk: Disk) -> None:
        super().__init__()
        self._source = source
        self._disk = disk

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        found = list(super().scan(prefix, start))
        self._disk.read(sum(len(value) for _, value in found))
        return iter(found)

    def apply(self, edits: Iterable[Edit], position: StorePosition) -> None:
        try:
            self._disk.step("store.apply")
        except StoreCorruptError as drawn:
            raise StoreCorruptError(self._source, "a bit flipped") from drawn
        super().apply(edits, position)
        self._disk.step("store.apply.done")
