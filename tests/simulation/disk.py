"""Disk: what an instance keeps beside its process. It outlives a crash, unless it is lost.

Each write is a step at which the process may die, before it and after it. Where files are kept, a
backup has none of them: those that are there when it is brought back may be of what came later.
"""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import ClassVar

from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Edit, PartitionId
from ringfence_state.store import StoreCorruptError, StorePosition


class Disk:
    """See `Stores`. `back_up` makes a copy, `roll_back` brings it back."""

    files_under: ClassVar[Path | None] = None
    """Where the files of stores are; None: there are none."""

    def __init__(
        self,
        step: Callable[[str], None],
        read: Callable[[int, int], None] = lambda _before, _after: None,
    ) -> None:
        """`read` makes a scan take time: it gets the bytes that were read before, and since."""
        self.step = step
        self.read = read
        self._stores: dict[PartitionId, StoreOnDisk] = {}
        self._backup: dict[PartitionId, StoreOnDisk] = {}
        self._folder: Path | None = None
        self._wanted: set[PartitionId] = set()

    def __deepcopy__(self, _memo: object) -> "Disk":
        """Stores are copied; the disk that they are on is one."""
        return self

    def open(self, source: PartitionId) -> "StoreOnDisk":
        self.step("store.open")
        return self._stores.setdefault(source, StoreOnDisk(source, self))

    def wipe(self, source: PartitionId) -> None:
        self.step("store.wipe")
        self._stores.pop(source, None)
        folder = self.folder_of(source)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def want(self, source: PartitionId) -> None:
        self._wanted.add(source)

    def is_wanted(self, source: PartitionId) -> bool:
        return source in self._wanted

    def folder_of(self, source: PartitionId) -> Path | None:
        """Return the folder for the files of a store, if there are files."""
        if self._folder is None and self.files_under is not None:
            self._folder = Path(tempfile.mkdtemp(dir=self.files_under))
        return None if self._folder is None else self._folder / f"{source.topic}-{source.partition}"

    def stores(self) -> Iterator[tuple[PartitionId, StorePosition | None, dict[bytes, bytes]]]:
        """Return what is there, by input partition; looking takes no time."""
        for source in sorted(self._stores):
            store = self._stores[source]
            yield source, store.position(), dict(MemoryStore.scan(store, b""))

    def lose(self) -> None:
        """Lose everything."""
        self._stores = {}
        for path in self._files():
            path.unlink()

    def crash(self) -> None:
        """Lose what was replayed and is in no file, as the end of the process does."""
        for store in self._stores.values():
            store.lose_replayed()

    def damage(self, chance: random.Random) -> None:
        """Change a byte of a file, or cut its end off."""
        path = chance.choice(self._files() or [None])
        if path is not None:
            content = bytearray(path.read_bytes())
            at = chance.randrange(len(content))
            content[at] ^= 1 << chance.randrange(8)
            path.write_bytes(content[: chance.choice((at, len(content)))])

    def _files(self) -> list[Path]:
        found = self._folder.rglob("*") if self._folder else ()
        return sorted(path for path in found if path.is_file())

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
        self._logged: tuple[dict[bytes, bytes], list[bytes], StorePosition | None] | None = None
        """What it had before what was replayed last."""
        self.derived = disk.folder_of(source)
        self._source = source
        self._disk = disk

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        size = 0
        for key, value in list(super().scan(prefix, start)):
            self._disk.read(size, size + len(value))
            size += len(value)
            yield key, value

    def apply(self, edits: Iterable[Edit], position: StorePosition) -> None:
        try:
            self._disk.step("store.apply")
        except StoreCorruptError as drawn:
            raise StoreCorruptError(self._source, "a bit flipped") from drawn
        self._logged = None
        super().apply(edits, position)
        self._disk.step("store.apply.done")

    def replay(self, edits: Iterable[Edit], position: StorePosition) -> None:
        logged = self._logged or (dict(self._values), list(self._keys), self._position)
        try:
            self.apply(edits, position)
        finally:
            self._logged = logged

    def lose_replayed(self) -> None:
        """Be as it was before what was replayed since the last `apply`."""
        if self._logged is not None:
            (self._values, self._keys, self._position), self._logged = self._logged, None

    def close(self) -> None:
        self._logged = None
