"""Disk: what an instance keeps beside its process. It outlives a crash, unless it is lost.

Each write is a step at which the process may die, before it and after it.
"""

import copy
from collections.abc import Callable, Iterable, Iterator

from state.edit import Edit, Source
from state.memory import MemoryStore, MemoryStores
from state.store import Figures, Position, StoreCorruptError


class Disk:
    """See `Stores`. `copy` is the backup, `restore` brings it back."""

    def __init__(
        self, step: Callable[[str], None], read: Callable[[int], None] = lambda _size_bytes: None
    ) -> None:
        """`read` is told how many bytes somebody has read, and lets them take their time."""
        self._step = step
        self._read = read
        self._stores = MemoryStores()
        self._sources: set[Source] = set()
        self._backup = (copy.deepcopy(self._stores), set(self._sources))

    def open(self, source: Source) -> "StoreOnDisk":
        """See `Stores.open`."""
        self._step("store.open")
        self._sources.add(source)
        return StoreOnDisk(source, self._stores.open(source), self._step, self._read)

    def wipe(self, source: Source) -> None:
        """See `Stores.wipe`."""
        self._step("store.wipe")
        self._stores.wipe(source)

    def stores(self) -> Iterator[tuple[Source, MemoryStore]]:
        """Return what is there, by input partition."""
        for source in sorted(self._sources):
            yield source, self._stores.open(source)

    def lose(self) -> None:
        """Lose everything."""
        self._stores, self._sources = MemoryStores(), set()

    def back_up(self) -> None:
        """Copy everything aside."""
        self._backup = (copy.deepcopy(self._stores), set(self._sources))

    def roll_back(self) -> None:
        """Bring the copy back in place of what is there."""
        stores, sources = self._backup
        self._stores, self._sources = copy.deepcopy(stores), set(sources)


class StoreOnDisk:
    """See `Store`."""

    def __init__(
        self,
        source: Source,
        store: MemoryStore,
        step: Callable[[str], None],
        read: Callable[[int], None],
    ) -> None:
        self._source = source
        self._store = store
        self._step = step
        self._read = read

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See `Store.scan`."""
        found = list(self._store.scan(prefix))
        self._read(sum(len(value) for _, value in found))
        return iter(found)

    def get(self, key: bytes) -> bytes | None:
        """See `Store.get`."""
        return self._store.get(key)

    def previous_key(self, key: bytes) -> bytes | None:
        """See `Store.previous_key`."""
        return self._store.previous_key(key)

    def next_key(self, key: bytes) -> bytes | None:
        """See `Store.next_key`."""
        return self._store.next_key(key)

    def position(self) -> Position | None:
        """See `Store.position`."""
        return self._store.position()

    def apply(self, edits: Iterable[Edit], position: Position) -> None:
        """See `Store.apply`."""
        try:
            self._step("store.apply")
        except StoreCorruptError as drawn:
            raise StoreCorruptError(self._source, "a bit flipped") from drawn
        self._store.apply(edits, position)
        self._step("store.apply.done")

    def figures(self) -> Figures:
        """See `Store.figures`."""
        return self._store.figures()

    def close(self) -> None:
        """See `Store.close`."""
