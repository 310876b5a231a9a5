"""Paged store: the state of one deciding partition, kept in a map of bytes.

All entries of one kind and address form a *section*. A section is read as a whole at its first use,
as committed state is loaded as a whole. In the map a section is a list of *pages*, each with some
entries packed together: an entry stays on its page and a new one goes to the newest page, so a
growing ring writes only its last page. The entries have the same keys and values as in the
service's stores and changelog.

Pages are compressed, since ids are mostly digits and text. Pages of earlier versions are not, and
are compressed when they change.

Keys of the map: `d` for the list of sections, `p` for the progress of the partition, `i` and a
section for the list of its pages, `e`, a section and a number for one page.
"""

import os
import struct
from array import array
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from ringfence_state import pending_group
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Edit
from ringfence_state.store import StorePosition, StoreStats

PAGE_BYTES: Final = 256 * 1024
"""A page with values of this size or more takes no more entries."""

_COMPRESSED: Final = struct.Struct(">II")
"""Before a compressed page: a mark, and the size of its content."""
_COMPRESSED_MARK: Final = 0xFFFFFFFF
"""No key of a page that is not compressed is so long."""
_ZSTD: Final = pa.Codec("zstd", compression_level=1)
_ENTRY: Final = struct.Struct(">II")
_NUMBER: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">H")
_PROGRESS: Final = struct.Struct(">qq")
_DIRECTORY: Final = b"d"
_PROGRESS_KEY: Final = b"p"
_STAMP_BYTES: Final = 16
"""Random bytes after the progress: two workers that save one batch save different ones."""
_INDEX: Final = b"i"
_PAGE: Final = b"e"
_HEAD_BYTES: Final = 3
"""Bytes of kind and length before the address in a key."""


class EntryMap(Protocol):
    """A map of bytes that is kept between batches."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        ...

    def remove(self, key: bytes) -> None:
        """Remove an existing key."""
        ...


class PartitionProgress(NamedTuple):
    """The progress of a deciding partition."""

    position: int = 0
    """Number of its records that are decided."""
    time_ms: int = 0
    """The partition's time, as in `ringfence_service.dedup.partition.OwnedPartition.time_ms`."""


class _LoadedPages:
    """The pages of a loaded section, and the page of each entry."""

    __slots__ = ("dirty", "filled_bytes", "known", "page_of", "pages")

    def __init__(self) -> None:
        self.pages: dict[int, set[bytes]] = {}
        self.page_of: dict[bytes, int] = {}
        self.dirty: set[int] = set()
        self.known: tuple[int, ...] = ()
        """The pages in the map."""
        self.filled_bytes = 0
        """Bytes put on the newest page; at `PAGE_BYTES` it is full."""

    def newest(self, value: bytes) -> int:
        """Return the page for a new entry, and count the entry's bytes."""
        newest = max(self.pages, default=-1)
        if newest < 0 or self.filled_bytes >= PAGE_BYTES:
            newest, self.filled_bytes = newest + 1, 0
            self.pages[newest] = set()
        self.filled_bytes += len(value)
        return newest


class PagedStore:
    """A `Store` over an `EntryMap`. It has no position: Spark's batch number serves as one."""

    def __init__(self, entries: EntryMap) -> None:
        self._entries = entries
        self._store = MemoryStore()
        self._loaded: dict[bytes, _LoadedPages] = {}
        self._names = set(unpacked(entries.get(_DIRECTORY) or b""))
        self._kept_names = frozenset(self._names)
        stored = self._saved = entries.get(_PROGRESS_KEY)
        self.progress = (
            PartitionProgress()
            if stored is None
            else PartitionProgress(*_PROGRESS.unpack_from(stored))
        )
        self.loaded_bytes = 0
        """Bytes of values that were loaded or written since; some of them may be deleted."""

    def continues(self, entries: EntryMap) -> bool:
        """Use this map from now on, if it has what this store saved last; else return False.

        Another worker that decided the same batch has the same progress, but may have put entries
        on other pages.
        """
        if entries.get(_PROGRESS_KEY) != self._saved:
            return False
        self._entries = entries
        return True

    @property
    def addresses(self) -> set[str]:
        """The addresses with remembered state; pending records do not count."""
        return {
            name[_HEAD_BYTES:].decode() for name in self._names if name[:1] != pending_group.KIND
        }

    derived = None
    """It has no folder of its own."""

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a section, or of all sections of a kind, in key order."""
        if len(prefix) == 1:
            for name in sorted(name for name in self._names if name[:1] == prefix):
                self._section(name)
        else:
            self._section(section_name(prefix))
        return self._store.scan(prefix, start)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        self._section(section_name(key))
        return self._store.get(key)

    def previous_key(self, key: bytes) -> bytes | None:
        """Return the last key before this one, among the loaded sections."""
        self._section(section_name(key))
        return self._store.previous_key(key)

    def next_key(self, key: bytes) -> bytes | None:
        """Return the first key at or after this one, among the loaded sections."""
        self._section(section_name(key))
        return self._store.next_key(key)

    def position(self) -> StorePosition | None:
        """Return None: there is no position."""
        return None

    def apply(self, edits: Iterable[Edit], position: StorePosition) -> None:
        """Take over edits, and ignore the position; `save` writes them."""
        del position
        self.keep(edits)

    def figures(self) -> StoreStats:
        """Return the number of loaded keys."""
        return self._store.figures()

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def keep(self, edits: Iterable[Edit]) -> None:
        """Take over edits; `save` writes them."""
        edits = list(edits)
        for key, value in edits:
            section = self._section(section_name(key))
            page = section.page_of.get(key)
            if value is None:
                if page is not None:
                    section.pages[page].discard(key)
                    del section.page_of[key]
            elif page is None:
                self.loaded_bytes += len(value)
                page = section.page_of[key] = section.newest(value)
                section.pages[page].add(key)
            if page is not None:
                section.dirty.add(page)
        self._store.keep(edits)

    def save(self, progress: PartitionProgress) -> None:
        """Write every changed page, and the progress of the partition."""
        put = self._entries.put
        for name, section in self._loaded.items():
            if section.dirty:
                self._save(name, section)
        if self._names != self._kept_names:
            put(_DIRECTORY, packed(sorted(self._names)))
            self._kept_names = frozenset(self._names)
        self._saved = _PROGRESS.pack(*progress) + os.urandom(_STAMP_BYTES)
        put(_PROGRESS_KEY, self._saved)
        self.progress = progress

    def _save(self, name: bytes, section: _LoadedPages) -> None:
        for page in sorted(section.dirty):
            key = page_key(name, page)
            if section.pages[page]:
                self._entries.put(key, packed_page(self._of_page(section, page)))
            elif page in section.known:
                self._entries.remove(key)
        pages = tuple(sorted(page for page, keys in section.pages.items() if keys))
        if not pages and section.known:
            self._entries.remove(_INDEX + name)
        elif pages != section.known:
            self._entries.put(_INDEX + name, array("I", pages).tobytes())
        (self._names.add if pages else self._names.discard)(name)
        section.known, section.dirty = pages, set()

    def _of_page(self, section: _LoadedPages, page: int) -> Iterator[tuple[bytes, bytes]]:
        for key in sorted(section.pages[page]):
            yield key, self._store.get(key) or b""

    def _section(self, name: bytes) -> _LoadedPages:
        section = self._loaded.get(name)
        if section is None:
            section = self._loaded[name] = _LoadedPages()
            if name in self._names:
                self._load(name, section)
        return section

    def _load(self, name: bytes, section: _LoadedPages) -> None:
        pages = array("I", self._entries.get(_INDEX + name) or b"")
        section.known = tuple(pages)
        found: list[Edit] = []
        for page in pages:
            content = self._entries.get(page_key(name, page)) or b""
            entries = [Edit(key, value) for key, value in unpacked_page(content)]
            value_bytes = sum(len(value or b"") for _, value in entries)
            section.pages[page] = {key for key, _ in entries}
            section.page_of.update((key, page) for key, _ in entries)
            section.filled_bytes = value_bytes
            self.loaded_bytes += value_bytes
            found += entries
        self._store.keep(found)


def page_key(section: bytes, number: int) -> bytes:
    """Return the key of a page in the map."""
    return _PAGE + section + _NUMBER.pack(number)


def section_of_page(key: bytes) -> bytes | None:
    """Return the section whose page has this key in the map; None for other keys."""
    return key[len(_PAGE) : -_NUMBER.size] if key[:1] == _PAGE else None


def packed_page(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the compressed page of these keys and values."""
    content = packed_entries(entries)
    compressed: bytes = _ZSTD.compress(content, asbytes=True)
    return _COMPRESSED.pack(_COMPRESSED_MARK, len(content)) + compressed


def unpacked_page(page: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a page, compressed or of an earlier version."""
    if page[: _NUMBER.size] == _NUMBER.pack(_COMPRESSED_MARK):
        _, content_bytes = _COMPRESSED.unpack_from(page)
        page = _ZSTD.decompress(page[_COMPRESSED.size :], content_bytes, asbytes=True)
    return unpacked_entries(page)


def packed_entries(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return keys and values packed into one value."""
    parts: list[bytes] = []
    for key, value in entries:
        parts += (_ENTRY.pack(len(key), len(value)), key, value)
    return b"".join(parts)


def unpacked_entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values that `packed_entries` has packed."""
    at = 0
    while at < len(content):
        key_bytes, value_bytes = _ENTRY.unpack_from(content, at)
        at += _ENTRY.size
        middle = at + key_bytes
        yield content[at:middle], content[middle : middle + value_bytes]
        at = middle + value_bytes


def packed(names: Iterable[bytes]) -> bytes:
    """Return names packed into one value."""
    return packed_entries((name, b"") for name in names)


def unpacked(content: bytes) -> list[bytes]:
    """Return the names that `packed` has packed."""
    return [name for name, _ in unpacked_entries(content)]


def section_name(key: bytes) -> bytes:
    """Return the section of a key: its kind and address."""
    (length,) = _LENGTH.unpack_from(key, 1)
    return key[: _HEAD_BYTES + length]
