"""Partition: a partition that this instance owns, from its assignment to its revocation.

Most partitions decide their records. A partition of an input with scope `address` only passes them
on: it remembers nothing, and has neither changelog nor store.
A partition is `ASSIGNED` until its committed offset is known, `RESTORING` until its store equals
the changelog, and `RUNNING` from then on. Only a running partition is read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from service.config.addresses import AddressBook, AddressSettings
from service.dedup.pending_groups import PendingGroups
from service.dedup.route import InputPartition
from service.errors import ConfigIssue
from state import pending_group as pending_record
from state import redrive_progress as redriven
from state.keys import FIRST, address_of, after, prefix
from state.memory_store import MemoryStore
from state.model import Edit, PartitionId
from state.offset_metadata import TOMBSTONES_KEPT_MS, OffsetMetadata
from state.store import Identity, Store
from state.strategies.base import Occupancy
from state.strategies.registry import STRATEGIES


class OccupancyStats:
    """Of one partition, from its takeover to its loss."""

    __slots__ = ("_book", "_stale", "extents", "rooms")

    def __init__(self) -> None:
        self.extents: dict[str, Occupancy] = {}
        """Of those that are known."""
        self.rooms: dict[str, int] = {}
        """How much each of those may hold."""
        self._stale: dict[str, None] = {}
        """Addresses to be looked at, in the order in which they came to be."""
        self._book: AddressBook | None = None
        """By which settings all of this was found."""

    def changed(self, address: str) -> None:
        """What it holds has changed."""
        self._stale[address] = None

    def begin(self, addresses: Iterable[str], book: AddressBook) -> bool:
        """Whether there is anything to be looked at; all of it, when the settings are others."""
        if book is not self._book:
            self._book = book
            self._stale.update(dict.fromkeys(addresses))
        return bool(self._stale)

    def next(self, limit: int) -> list[str]:
        """Those to be looked at now."""
        return list(islice(self._stale, limit))

    def found(self, address: str, occupancy: Occupancy | None, room: int) -> None:
        """What a look has told; None where only loading it would."""
        self._stale.pop(address, None)
        if occupancy is None:
            self.extents.pop(address, None)
            self.rooms.pop(address, None)
        else:
            self.extents[address] = occupancy
            self.rooms[address] = room

    def is_current(self, address: str, book: AddressBook) -> bool:
        """Whether nothing has changed since it was looked at."""
        return book is self._book and address not in self._stale and address in self.extents


KINDS: Final = tuple(strategy.kind for strategy in STRATEGIES.values())


class PartitionPhase(Enum):
    """Where a partition stands; the values are what status shows."""

    ASSIGNED = "assigned"
    RESTORING = "restoring"
    RUNNING = "running"


class LogRange(NamedTuple):
    """The offsets that a log has: from `start` up to, not including, `end`."""

    start: int
    end: int


class TakeoverFacts(NamedTuple):
    """What the broker says of a partition when it is taken over."""

    committed_offset: int | None
    metadata: OffsetMetadata | None
    input: LogRange
    changelog: LogRange
    identity: Identity
    tombstones_kept_ms: int = TOMBSTONES_KEPT_MS
    """Of the changelog."""
    problems: Sequence[ConfigIssue] = ()
    """What is wrong with the settings of internal topics."""


class LeftoverCache(NamedTuple):
    """What a cache has left behind."""

    kept: list[Edit]
    volatile: list[Edit]


@dataclass(slots=True)
class OwnedPartition:
    """Owned by the loop; changed only between batches and in the group's callbacks."""

    source: PartitionId
    input_partition: InputPartition | None
    """Itself, where it is one of an input; what was passed on by address comes from many."""
    changelog: PartitionId | None
    """Where its decisions are remembered; None where it decides nothing."""
    phase: PartitionPhase = PartitionPhase.ASSIGNED
    store: Store | None = None
    facts: TakeoverFacts | None = None
    committed_offset: int | None = None
    next_offset: int = 0
    changelog_next: int = 0
    written_at: int | None = None
    """Offset at which the changelog took a record although it had reached further; else None."""
    restored_records: int = 0
    """Changelog records that were replayed when it was taken over."""
    to_clear: bool = False
    """Its state is to be forgotten, by a transaction, before it is read."""
    time_ms: int = 0
    """The largest of min(record timestamp, wall clock) so far; it never goes back."""
    revision: int = 0
    """Of the config topic, as its committed offset tells it."""
    applied: int = 0
    """Of the newest settings document that is wholly applied here, as that offset tells it."""
    addresses: set[str] = field(default_factory=set)
    survey: OccupancyStats = field(default_factory=OccupancyStats)
    """What they hold, as far as it was looked at."""
    groups: PendingGroups = field(default_factory=PendingGroups)
    """Transaction groups that wait for the rest of their records."""
    volatile: MemoryStore = field(default_factory=MemoryStore)
    """What addresses with `persist_id_cache = false` remember; gone with the partition."""

    @property
    def logs(self) -> list[PartitionId]:
        """The topics that it is read from and remembered in."""
        return [self.source] if self.changelog is None else [self.source, self.changelog]

    @property
    def kept_store(self) -> Store:
        """The store of a partition that runs."""
        assert self.store is not None
        return self.store

    def drop(self) -> None:
        """Let go of everything local."""
        if self.store is not None:
            self.store.close()
            self.store = None
        self.written_at = None
        self.groups = PendingGroups()
        self.volatile = MemoryStore()
        self.survey = OccupancyStats()

    def store_of(self, settings: AddressSettings) -> Store:
        """Where an address is kept; the partition runs."""
        return self.kept_store if settings.persist_id_cache else self.volatile

    def foreign(self, settings: AddressSettings, kind: bytes, cache: str) -> LeftoverCache:
        """Tombstones for what was remembered under a name in another way, or elsewhere."""
        others = [each for each in KINDS if each != kind]
        held = KINDS if settings.persist_id_cache else others
        return LeftoverCache(
            [edit for each in others for edit in self.kept(each, cache)],
            [
                Edit(key, None)
                for each in held
                for key, _ in self.volatile.scan(prefix(each, cache))
            ],
        )

    def kept(self, kind: bytes, address: str) -> list[Edit]:
        """Tombstones for what was remembered while the address was to be kept."""
        return [Edit(key, None) for key, _ in self.kept_store.scan(prefix(kind, address))]


def addresses_of(store: Store) -> set[str]:
    """Every address that a store remembers something of, found by skipping from one to the next.

    What waits for its group is not remembered, and how far a redrive has come is no address.
    """
    found: set[str] = set()
    key = store.next_key(FIRST)
    while key is not None:
        address = address_of(key)
        if key[:1] not in {pending_record.KIND, redriven.KIND}:
            found.add(address)
        key = store.next_key(after(key[:1], address))
    return found
