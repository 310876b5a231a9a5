"""Shelves: what one deciding partition remembers, as a store over a map of bytes.

All entries of one kind and address are a *shelf*; it is read when the address is met first, and
whole, as memories are loaded whole. On the map a shelf is a list of *pages*, each some entries of
it packed together: an entry stays on its page and a new one goes to the newest, so that a ring
which grows writes its last page and none of the others. The entries are the very keys and values
that the service keeps in its own stores and in its changelog.

On the map: `d` the shelves that there are, `p` how far the partition has come, `i` and a shelf its
pages, `e` and a shelf and a number one page.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from state import pending_group as pending_record
from state.memory_store import MemoryStore
from state.model import Edit
from state.store import StorePosition, StoreStats

PAGE_BYTES: Final = 256 * 1024
"""A page that is as large takes no more entries."""

_ENTRY: Final = struct.Struct(">II")
_NUMBER: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">H")
_PROGRESS: Final = struct.Struct(">qq")
_DIRECTORY: Final = b"d"
_STANDING: Final = b"p"
_INDEX: Final = b"i"
_PAGE: Final = b"e"
_HEAD_BYTES: Final = 3
"""Kind and length before the name of an address in a key."""


class EntryMap(Protocol):
    """A map of bytes that outlives the batch."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Set it."""
        ...

    def remove(self, key: bytes) -> None:
        """Remove it, which is there."""
        ...


class PartitionProgress(NamedTuple):
    """How far a deciding partition has come."""

    position: int = 0
    """How many of its records were decided."""
    time_ms: int = 0
    """Its own time: see `service.dedup.partition.OwnedPartition.time_ms`."""


class _LoadedPages:
    """The pages of a shelf that is loaded, and where its entries stand."""

    __slots__ = ("dirty", "filled_bytes", "known", "page_of", "pages")

    def __init__(self) -> None:
        self.pages: dict[int, set[bytes]] = {}
        self.page_of: dict[bytes, int] = {}
        self.dirty: set[int] = set()
        self.known: tuple[int, ...] = ()
        """The pages that the map has."""
        self.filled_bytes = 0
        """Of the newest page, by what was put there; it takes no more once that is enough."""

    def newest(self, value: bytes) -> int:
        """The page that a new entry goes to."""
        newest = max(self.pages, default=-1)
        if newest < 0 or self.filled_bytes >= PAGE_BYTES:
            newest, self.filled_bytes = newest + 1, 0
            self.pages[newest] = set()
        self.filled_bytes += len(value)
        return newest


class PagedStore:
    """See `Store`, of which it has no position: the batch of the query is that."""

    def __init__(self, entries: EntryMap) -> None:
        self._entries = entries
        self._store = MemoryStore()
        self._loaded: dict[bytes, _LoadedPages] = {}
        self._names = set(unpacked(entries.get(_DIRECTORY) or b""))
        self._kept_names = frozenset(self._names)
        told = entries.get(_STANDING)
        self.standing = (
            PartitionProgress() if told is None else PartitionProgress(*_PROGRESS.unpack(told))
        )

    @property
    def addresses(self) -> set[str]:
        """Of which something is remembered; what waits for its group is not."""
        return {
            name[_HEAD_BYTES:].decode() for name in self._names if name[:1] != pending_record.KIND
        }

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See `Store.scan`: of a shelf, or of all shelves of a kind."""
        if len(prefix) == 1:
            for name in sorted(name for name in self._names if name[:1] == prefix):
                self._shelf(name)
        else:
            self._shelf(_shelf_name(prefix))
        return self._store.scan(prefix)

    def get(self, key: bytes) -> bytes | None:
        """See `Store.get`."""
        self._shelf(_shelf_name(key))
        return self._store.get(key)

    def previous_key(self, key: bytes) -> bytes | None:
        """See `Store.previous_key`; keys of other shelves may be missing."""
        self._shelf(_shelf_name(key))
        return self._store.previous_key(key)

    def next_key(self, key: bytes) -> bytes | None:
        """See `Store.next_key`; keys of other shelves may be missing."""
        self._shelf(_shelf_name(key))
        return self._store.next_key(key)

    def position(self) -> StorePosition | None:
        """See `Store.position`."""
        return None

    def apply(self, edits: Iterable[Edit], position: StorePosition) -> None:
        """See `Store.apply`; the position is not kept."""
        del position
        self.keep(edits)

    def figures(self) -> StoreStats:
        """See `Store.figures`."""
        return self._store.figures()

    def close(self) -> None:
        """See `Store.close`."""

    def keep(self, edits: Iterable[Edit]) -> None:
        """Take over edits; `save` writes them."""
        edits = list(edits)
        for key, value in edits:
            shelf = self._shelf(_shelf_name(key))
            page = shelf.page_of.get(key)
            if value is None:
                if page is not None:
                    shelf.pages[page].discard(key)
                    del shelf.page_of[key]
            elif page is None:
                page = shelf.page_of[key] = shelf.newest(value)
                shelf.pages[page].add(key)
            if page is not None:
                shelf.dirty.add(page)
        self._store.keep(edits)

    def save(self, standing: PartitionProgress) -> None:
        """Write every page that has changed, and how far the partition has come."""
        put = self._entries.put
        for name, shelf in self._loaded.items():
            if shelf.dirty:
                self._save(name, shelf)
        if self._names != self._kept_names:
            put(_DIRECTORY, packed(sorted(self._names)))
        put(_STANDING, _PROGRESS.pack(*standing))

    def _save(self, name: bytes, shelf: _LoadedPages) -> None:
        for page in sorted(shelf.dirty):
            key = _PAGE + name + _NUMBER.pack(page)
            if shelf.pages[page]:
                self._entries.put(key, packed_entries(self._of_page(shelf, page)))
            elif page in shelf.known:
                self._entries.remove(key)
        pages = tuple(sorted(page for page, keys in shelf.pages.items() if keys))
        if not pages and shelf.known:
            self._entries.remove(_INDEX + name)
        elif pages != shelf.known:
            self._entries.put(_INDEX + name, array("I", pages).tobytes())
        (self._names.add if pages else self._names.discard)(name)

    def _of_page(self, shelf: _LoadedPages, page: int) -> Iterator[tuple[bytes, bytes]]:
        for key in sorted(shelf.pages[page]):
            yield key, self._store.get(key) or b""

    def _shelf(self, name: bytes) -> _LoadedPages:
        shelf = self._loaded.get(name)
        if shelf is None:
            shelf = self._loaded[name] = _LoadedPages()
            if name in self._names:
                self._load(name, shelf)
        return shelf

    def _load(self, name: bytes, shelf: _LoadedPages) -> None:
        pages = array("I", self._entries.get(_INDEX + name) or b"")
        shelf.known = tuple(pages)
        found: list[Edit] = []
        for page in pages:
            content = self._entries.get(_PAGE + name + _NUMBER.pack(page)) or b""
            entries = [Edit(key, value) for key, value in unpacked_entries(content)]
            shelf.pages[page] = {key for key, _ in entries}
            shelf.page_of.update((key, page) for key, _ in entries)
            shelf.filled_bytes = len(content)
            found += entries
        self._store.keep(found)


def shelf_of_page(key: bytes) -> bytes | None:
    """The shelf that a key of the map holds a page of; None where it holds something else."""
    return key[len(_PAGE) : -_NUMBER.size] if key[:1] == _PAGE else None


def packed_entries(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Keys with their values as one value."""
    parts: list[bytes] = []
    for key, value in entries:
        parts += (_ENTRY.pack(len(key), len(value)), key, value)
    return b"".join(parts)


def unpacked_entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """What `packed_entries` has packed."""
    at = 0
    while at < len(content):
        key_bytes, value_bytes = _ENTRY.unpack_from(content, at)
        at += _ENTRY.size
        middle = at + key_bytes
        yield content[at:middle], content[middle : middle + value_bytes]
        at = middle + value_bytes


def packed(names: Iterable[bytes]) -> bytes:
    """Names as one value."""
    return packed_entries((name, b"") for name in names)


def unpacked(content: bytes) -> list[bytes]:
    """What `packed` has packed."""
    return [name for name, _ in unpacked_entries(content)]


def _shelf_name(key: bytes) -> bytes:
    """The kind and the address of a key, and nothing of what follows."""
    (length,) = _LENGTH.unpack_from(key, 1)
    return key[: _HEAD_BYTES + length]
