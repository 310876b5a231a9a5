"""Memory store: a store on a dict, for state that need not outlive the process, and for tests."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from state.model import Edit, PartitionId
from state.store import StorePosition, StoreStats


class MemoryStore:
    """Keys kept in order beside their values."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._position: StorePosition | None = None

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See `Store.scan`."""
        for key in self._keys[bisect_left(self._keys, prefix) :]:
            if not key.startswith(prefix):
                return
            yield key, self._values[key]

    def get(self, key: bytes) -> bytes | None:
        """See `Store.get`."""
        return self._values.get(key)

    def previous_key(self, key: bytes) -> bytes | None:
        """See `Store.previous_key`."""
        place = bisect_left(self._keys, key)
        return self._keys[place - 1] if place else None

    def next_key(self, key: bytes) -> bytes | None:
        """See `Store.next_key`."""
        place = bisect_left(self._keys, key)
        return self._keys[place] if place < len(self._keys) else None

    def position(self) -> StorePosition | None:
        """See `Store.position`."""
        return self._position

    def apply(self, edits: Iterable[Edit], position: StorePosition) -> None:
        """See `Store.apply`."""
        self.keep(edits)
        self._position = position

    def keep(self, edits: Iterable[Edit]) -> None:
        """Edits alone: where nothing outlives the process, no position is asked for."""
        for key, value in edits:
            known = key in self._values
            if value is not None:
                self._values[key] = value
                if not known:
                    insort(self._keys, key)
            elif known:
                del self._values[key]
                del self._keys[bisect_left(self._keys, key)]

    def figures(self) -> StoreStats:
        """See `Store.figures`."""
        return StoreStats(keys=len(self._keys))

    def close(self) -> None:
        """See `Store.close`; a dict holds nothing to release."""


class MemoryStores:
    """Stores by partition; what was applied is there when it is opened again."""

    def __init__(self) -> None:
        self._stores: dict[PartitionId, MemoryStore] = {}

    def open(self, source: PartitionId) -> MemoryStore:
        """See `Stores.open`."""
        return self._stores.setdefault(source, MemoryStore())

    def wipe(self, source: PartitionId) -> None:
        """See `Stores.wipe`."""
        self._stores.pop(source, None)
