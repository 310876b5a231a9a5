"""Partition: a partition that this instance owns, from its assignment to its revocation.

Most partitions decide their records. A partition of an input with scope `address` only forwards
them to the topic by-address: it remembers nothing, and has neither changelog nor store.
A partition is `ASSIGNED` until its committed offset is known, `RESTORING` until its store equals
the changelog, and `RUNNING` from then on. Only a running partition is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from ringfence_service.config.addresses import AddressBook, AddressSettings, home_of
from ringfence_service.dedup.idle_addresses import IdleAddresses
from ringfence_service.dedup.pending_groups import PendingGroups
from ringfence_service.dedup.route import InputPartition
from ringfence_service.errors import ConfigIssue
from ringfence_state import pending_group as pending_record
from ringfence_state import redrive_progress as redriven
from ringfence_state.keys import FIRST, address_of, after, prefix
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Edit, PartitionId
from ringfence_state.offset_metadata import TOMBSTONES_KEPT_MS, OffsetMetadata
from ringfence_state.store import Identity, Store
from ringfence_state.strategies import registry
from ringfence_state.strategies.base import Occupancy


class OccupancyStats:
    """Cached occupancy of the addresses of one partition, and which entries are stale."""

    __slots__ = ("_book", "_stale", "extents", "rooms")

    def __init__(self) -> None:
        self.extents: dict[str, Occupancy] = {}
        """Occupancy by address, where it is known."""
        self.rooms: dict[str, int] = {}
        """Capacity of the same addresses."""
        self._stale: dict[str, None] = {}
        """Addresses to measure again, in the order in which they became stale."""
        self._book: AddressBook | None = None
        """The settings with which all of this was measured."""

    def changed(self, address: str) -> None:
        """Mark an address as stale."""
        self._stale[address] = None

    def begin(self, addresses: Iterable[str], book: AddressBook) -> bool:
        """Return whether any address is stale; new settings make all of them stale."""
        if book is not self._book:
            self._book = book
            self._stale.update(dict.fromkeys(addresses))
        return bool(self._stale)

    def next(self, limit: int) -> list[str]:
        """Return up to `limit` stale addresses."""
        return list(islice(self._stale, limit))

    def found(self, address: str, occupancy: Occupancy | None, room: int) -> None:
        """Record a measurement; None if it is unknown until the address is loaded."""
        self._stale.pop(address, None)
        if occupancy is None:
            self.extents.pop(address, None)
            self.rooms.pop(address, None)
        else:
            self.extents[address] = occupancy
            self.rooms[address] = room

    def is_current(self, address: str, book: AddressBook) -> bool:
        """Whether the cached occupancy of an address is up to date."""
        return book is self._book and address not in self._stale and address in self.extents


class PartitionPhase(Enum):
    """The phase of a partition; the values appear in the status."""

    ASSIGNED = "assigned"
    RESTORING = "restoring"
    RUNNING = "running"


SUCCESSORS: Final[Mapping[PartitionPhase, AbstractSet[PartitionPhase]]] = {
    # A partition that decides nothing has no state to restore.
    PartitionPhase.ASSIGNED: {PartitionPhase.RESTORING, PartitionPhase.RUNNING},
    PartitionPhase.RESTORING: {PartitionPhase.RUNNING},
    PartitionPhase.RUNNING: set(),
}
"""The phases that may follow each; besides, every partition may be taken over again."""


class LogRange(NamedTuple):
    """The offsets of a log: from `start` up to, not including, `end`."""

    start: int
    end: int


class TakeoverFacts(NamedTuple):
    """What the broker reports about a partition when it is taken over."""

    committed_offset: int | None
    metadata: OffsetMetadata | None
    input: LogRange
    changelog: LogRange
    identity: Identity
    tombstones_kept_ms: int = TOMBSTONES_KEPT_MS
    """`delete.retention.ms` of the changelog."""
    problems: Sequence[ConfigIssue] = ()
    """Issues with the configuration of internal topics."""


class LeftoverCache(NamedTuple):
    """Tombstones for a cache's entries of an earlier strategy or place of storage."""

    kept: list[Edit]
    volatile: list[Edit]


@dataclass(slots=True)
class OwnedPartition:
    """A partition and its local state; changed only between batches and in group callbacks."""

    source: PartitionId
    input_partition: InputPartition | None
    """This partition as an input; None for by-address, which has records of many inputs."""
    changelog: PartitionId | None
    """Its changelog partition; None if it decides nothing."""
    phase: PartitionPhase = PartitionPhase.ASSIGNED
    store: Store | None = None
    facts: TakeoverFacts | None = None
    committed_offset: int | None = None
    next_offset: int = 0
    changelog_next: int = 0
    written_at: int | None = None
    """Offset at which the changelog took a record although it had been longer; else None."""
    restored_records: int = 0
    """Number of changelog records replayed at the takeover."""
    to_clear: bool = False
    """Whether a transaction has to clear its state before it is read."""
    time_ms: int = 0
    """The largest of min(record timestamp, wall clock) so far; it never goes back."""
    revision: int = 0
    """Revision of the metadata topic, from the metadata of its committed offset."""
    applied: int = 0
    """Revision of the newest fully applied settings document, from the same metadata."""
    addresses: set[str] = field(default_factory=set)
    survey: OccupancyStats = field(default_factory=OccupancyStats)
    """Occupancy of these addresses, as far as it was measured."""
    idle: IdleAddresses = field(default_factory=IdleAddresses)
    """These addresses by the time at which they may expire."""
    groups: PendingGroups = field(default_factory=PendingGroups)
    """Transaction groups that wait for further records."""
    volatile: MemoryStore = field(default_factory=MemoryStore)
    """State of addresses with `persist_id_cache = false`; lost with the partition."""

    def move_to(self, phase: PartitionPhase) -> None:
        """Enter a phase; its store is open by then if the phase needs one, and closed if not."""
        assert phase in {PartitionPhase.ASSIGNED, *SUCCESSORS[self.phase]}, (
            f"{self.phase} → {phase}"
        )
        needs_store = phase is not PartitionPhase.ASSIGNED and self.changelog is not None
        assert (self.store is not None) == needs_store
        self.phase = phase

    @property
    def logs(self) -> list[PartitionId]:
        """Its input and changelog partitions."""
        return [self.source] if self.changelog is None else [self.source, self.changelog]

    @property
    def kept_store(self) -> Store:
        """The store of a running partition that decides."""
        assert self.store is not None
        return self.store

    @property
    def kept_log(self) -> PartitionId:
        """The changelog partition of a partition that decides."""
        assert self.changelog is not None
        return self.changelog

    @property
    def known_facts(self) -> TakeoverFacts:
        """What the broker reported of a partition whose takeover has begun."""
        assert self.facts is not None
        return self.facts

    def drop(self) -> None:
        """Close the store and drop all local state."""
        if self.store is not None:
            self.store.close()
            self.store = None
        self.written_at = None
        self.groups = PendingGroups()
        self.volatile = MemoryStore()
        self.survey = OccupancyStats()
        self.idle = IdleAddresses()

    def store_of(self, settings: AddressSettings) -> Store:
        """Return the store of an address with these settings; the partition is running."""
        return self.kept_store if settings.persist_id_cache else self.volatile

    def foreign(self, settings: AddressSettings, kind: bytes, cache: str) -> LeftoverCache:
        """Return tombstones for what a cache stored with another strategy or in the other store."""
        kinds = registry.kinds()
        others = [each for each in kinds if each != kind]
        held = kinds if settings.persist_id_cache else others
        return self._tombstones(others, held, cache)

    def remains(self, cache: str) -> LeftoverCache:
        """Return tombstones for everything that a cache has stored, with whatever strategy."""
        kinds = registry.kinds()
        return self._tombstones(kinds, kinds, cache)

    def _tombstones(
        self, kept: Iterable[bytes], volatile: Iterable[bytes], cache: str
    ) -> LeftoverCache:
        """Return tombstones for the entries of these kinds in either store."""
        return LeftoverCache(
            [edit for each in kept for edit in self.kept(each, cache)],
            [
                Edit(key, None)
                for each in volatile
                for key, _ in self.volatile.scan(prefix(each, cache))
            ],
        )

    def hold(self, cache: str) -> None:
        """Note that it holds a cache."""
        if cache not in self.addresses:
            self.addresses.add(cache)
            self.idle.add(cache)

    def expire(self, caches: Iterable[str]) -> None:
        """Forget caches whose stored state was deleted because their address has expired."""
        for cache in caches:
            self.addresses.discard(cache)
            self.survey.found(cache, None, 0)
            self.idle.remove(home_of(cache))

    def kept(self, kind: bytes, address: str) -> list[Edit]:
        """Return tombstones for an address in the persistent store."""
        return [Edit(key, None) for key, _ in self.kept_store.scan(prefix(kind, address))]


def addresses_of(store: Store) -> set[str]:
    """Return every address with entries in a store, found by skipping from one to the next.

    Pending records of groups and redrive checkpoints do not count.
    """
    found: set[str] = set()
    key = store.next_key(FIRST)
    while key is not None:
        address = address_of(key)
        if key[:1] not in {pending_record.KIND, redriven.KIND}:
            found.add(address)
        key = store.next_key(after(key[:1], address))
    return found
