"""One partition of the fake log: records and control markers, each taking an offset.

A record of a transaction carries the transaction itself, so that its fate needs no second table.
Invariant: offsets rise; below `last_stable` every transaction is decided; nothing at or above it
is shown to a read_committed reader or touched by compaction.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

Headers = list[tuple[str, bytes | None]]


class Fate(Enum):
    """What became of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(eq=False, slots=True)
class Transaction:
    """One transaction of one producer epoch; compared by identity. `by` tells whose it is."""

    started_ms: int
    by: str = ""
    fate: Fate = Fate.OPEN


class Record(NamedTuple):
    """What a producer sends."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    timestamp_ms: int = 0


class Entry(NamedTuple):
    """One offset of the log: a record, or without one a control marker."""

    offset: int
    record: Record | None
    transaction: Transaction | None


@dataclass(eq=False, slots=True)
class Partition:
    """The log of one partition."""

    topic: str
    number: int
    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    end: int = 0
    first_open: dict[Transaction, int] = field(default_factory=dict)
    cleaned_ms: dict[int, int] = field(default_factory=dict)
    """When compaction first passed each tombstone that is still there."""
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    """First and last offset of each batch that no client unpacks."""
    archive: list[Entry] = field(default_factory=list)
    """Everything ever written: what compaction took is still judged by it."""

    @property
    def last_stable(self) -> int:
        """The offset below which every transaction is decided."""
        return min(self.first_open.values(), default=self.end)

    def append(self, record: Record, transaction: Transaction | None = None) -> int:
        """Write one record; returns its offset."""
        if transaction is not None:
            self.first_open.setdefault(transaction, self.end)
        return self._write(record, transaction)

    def mark(self, transaction: Transaction) -> None:
        """Write the marker that ends `transaction` here."""
        self.first_open.pop(transaction, None)
        self._write(None, transaction)

    def read(self, offset: int, records_max: int, *, committed: bool) -> tuple[list[Entry], int]:
        """Return up to `records_max` visible entries from `offset`, and where to go on."""
        limit = self.last_stable if committed else self.end
        limit = min([limit, *(first for first, _ in self.unreadable if first > offset)])
        found: list[Entry] = []
        for entry in self.entries[bisect_left(self.entries, offset, key=_offset) :]:
            if entry.offset >= limit or len(found) == records_max:
                # Markers straight behind the last record are passed with it, as librdkafka does.
                return found, entry.offset if entry.offset < limit else max(offset, limit)
            if entry.record is not None and not (committed and _aborted(entry)):
                found.append(entry)
        # What compaction took from the tail is not passed: a fetch there returns nothing.
        return found, max(offset, self.entries[-1].offset + 1) if self.entries else offset

    def unreadable_at(self, offset: int) -> tuple[int, int] | None:
        """Return the batch that no client unpacks and a fetch from this offset meets first."""
        found = (each for each in self.unreadable if each[0] <= offset <= each[1])
        return next(found, None) if offset < self.last_stable else None

    def records(self, *, committed: bool = True) -> list[Entry]:
        """Return every visible entry."""
        return self.read(self.start, len(self.entries) + 1, committed=committed)[0]

    def compact(self, now_ms: int, tombstones_kept_ms: int) -> None:
        """Keep the newest committed record of each key; the newest entry of all stays.

        A tombstone outlives what it deletes: its time begins when compaction first passes it
        (KIP-534), not when it is written.
        """
        if not self.entries:
            return
        bound = min(self.last_stable, self.entries[-1].offset)
        clean = [e for e in self.entries if e.offset < bound and e.record and not _aborted(e)]
        newest = {e.record.key: e for e in clean if e.record}.values()
        tombstones = [e.offset for e in newest if e.record and e.record.value is None]
        self.cleaned_ms = {at: self.cleaned_ms.get(at, now_ms) for at in tombstones}
        gone = {at for at, ms in self.cleaned_ms.items() if now_ms - ms > tombstones_kept_ms}
        kept = {e.offset for e in newest} - gone
        self.entries = [e for e in self.entries if e.offset >= bound or e.offset in kept]

    def delete_before(self, offset: int) -> None:
        """Delete every entry below `offset`, as retention does."""
        self.start = max(self.start, min(offset, self.end))
        self.entries = [e for e in self.entries if e.offset >= self.start]

    def truncate(self, end: int) -> None:
        """Lose every entry from `end` on, as an unclean election does."""
        self.entries = [entry for entry in self.entries if entry.offset < end]
        del self.archive[end:]
        self.end = end

    def _write(self, record: Record | None, transaction: Transaction | None) -> int:
        offset = self.end
        entry = Entry(offset, record, transaction)
        self.entries.append(entry)
        self.archive.append(entry)
        self.end = offset + 1
        return offset


def committed_records(entries: Iterable[Entry]) -> Iterator[tuple[int, Record]]:
    """Yield the records that a transaction has committed, by offset."""
    for offset, record, transaction in entries:
        if record is not None and transaction and transaction.fate is Fate.COMMITTED:
            yield offset, record


def _offset(entry: Entry) -> int:
    return entry.offset


def _aborted(entry: Entry) -> bool:
    return entry.transaction is not None and entry.transaction.fate is Fate.ABORTED
