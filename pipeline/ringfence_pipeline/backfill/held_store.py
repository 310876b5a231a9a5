"""Held store: the state of one deciding partition in memory, for a run that decides it at once.

It has the entries of the service's stores and changelog. When the partition is decided, they can be
packed into the pages that `PagedStore` keeps, so that what reads those reads these too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from ringfence_pipeline.backfill.paged_store import (
    PAGE_BYTES,
    PartitionProgress,
    packed_page,
    page_key,
    section_name,
)
from ringfence_state import pending_group
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Edit

_ADDRESS_AT: Final = 3


class HeldStore(MemoryStore):
    """A `MemoryStore` that knows its addresses and the progress of its partition."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = PartitionProgress()
        self._counts = Counter[bytes]()
        """Number of entries by section; pending records do not count."""

    @property
    def addresses(self) -> set[str]:
        """The addresses with remembered state."""
        return {name[_ADDRESS_AT:].decode() for name, count in self._counts.items() if count}

    def keep(self, edits: Iterable[Edit]) -> None:
        """Take over edits."""
        edits = list(edits)
        for key, value in edits:
            change = (value is not None) - (self.get(key) is not None)
            if change and key[:1] != pending_group.KIND:
                self._counts[section_name(key)] += change
            super().keep([Edit(key, value)])

    def save(self, progress: PartitionProgress) -> None:
        """Note the progress of the partition; there is nothing to write."""
        self.progress = progress

    def pages(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and content of the pages of all sections but pending records, by section."""
        for name, entries in groupby(self.scan(b""), lambda entry: section_name(entry[0])):
            if name[:1] == pending_group.KIND:
                continue
            page, filled_bytes, number = list[tuple[bytes, bytes]](), 0, 0
            for entry in entries:
                page.append(entry)
                filled_bytes += len(entry[1])
                if filled_bytes >= PAGE_BYTES:
                    yield page_key(name, number), packed_page(page)
                    page, filled_bytes, number = [], 0, number + 1
            if page:
                yield page_key(name, number), packed_page(page)
