"""Address context: the settings, committed state and draft of an address in one transaction."""

from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

from ringfence_client.headers import Reason
from ringfence_service.config.addresses import (
    AUDIT,
    BRIDGE,
    AddressBook,
    AddressSettings,
    caches_of,
    home_of,
    settings_of,
)
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.record import RejectedError
from ringfence_service.dedup.waiting_order import AddressCounts
from ringfence_state.cache import Cache
from ringfence_state.model import Edit, PackedPositions
from ringfence_state.strategies.base import CommittedState, Draft, Strategy

_LOOKS_MAX: Final = 1_000
"""How many addresses a record for which there is no room has looked at: some 30 ms."""


class AddressContext(NamedTuple):
    """What one address needs while a transaction is decided."""

    name: str
    """The address."""
    cache: str
    """The name under which its state is stored: usually the address itself."""
    settings: AddressSettings
    strategy: Strategy
    memory: CommittedState
    draft: Draft
    remembers: bool
    """Whether it detects duplicates, as its settings say."""

    @property
    def is_audit(self) -> bool:
        """Whether the cache remembers dead-lettered duplicates instead of accepted records."""
        return self.cache.startswith(AUDIT)


class AddressContexts:
    """The address contexts of one partition in one transaction, each opened on first use."""

    def __init__(
        self,
        partition: OwnedPartition,
        book: AddressBook,
        cache: Cache,
        waiting: AddressCounts | None = None,
    ) -> None:
        """`waiting` counts the pending transaction groups of each address."""
        self._partition = partition
        self._waiting = AddressCounts({}) if waiting is None else waiting
        self._newly_waiting: set[str] | None = None
        """Addresses with waiting groups that the partition does not hold yet; None: not counted."""
        self._book = book
        self._cache = cache
        self._open: dict[str, AddressContext] = {}
        self._admitted: set[str] = set()
        """Caches that are new to the partition with this transaction."""
        self.expired: dict[str, tuple[str, ...]] = {}
        """The caches of each address that expires with this transaction."""
        self._gone: set[str] = set()
        """All of these caches: what they had stored does not count any more."""
        partition.idle.begin(partition.addresses, book)
        self._deletions: list[Edit] = []
        self.volatile: list[Edit] = []
        """Edits of addresses with `persist_id_cache = false`: they go to no changelog."""
        self.packed_positions = PackedPositions(partition.source)

    def __iter__(self) -> Iterator[AddressContext]:
        """Iterate in the order of first use."""
        return iter(self._open.values())

    def at(self, address: str) -> AddressContext:
        """Return the context of an address."""
        return self._at(address, address)

    def of_cache(self, cache: str) -> AddressContext:
        """Return the context of a cache by its name."""
        return self._at(home_of(cache), cache)

    def bridge(self, context: AddressContext) -> AddressContext:
        """Return the context in which an address remembers ids that a bridge stamped."""
        return self._at(context.name, BRIDGE + context.name)

    def audit(self, context: AddressContext) -> AddressContext:
        """Return the context in which an address remembers its dead-lettered duplicates."""
        return self._at(context.name, AUDIT + context.cache)

    def check_room(self, context: AddressContext, time_ms: int | None = None) -> None:
        """Raise RejectedError if the address is new and the partition holds `addresses_max`.

        Addresses that are idle at the time given expire first.
        """
        if self._holds(context.cache) or self._waiting.of(context.cache):
            return
        limit = context.settings.addresses_max
        if self._count + len(self._waiting) < limit:
            return  # though some of them may be held
        while self._count + len(self._counted()) >= limit:
            idle = None if time_ms is None else self.idle(time_ms, _LOOKS_MAX)
            if idle is None:
                cause = f"the partition holds {limit} addresses already"
                raise RejectedError(Reason.TOO_MANY_ADDRESSES, cause)
            self.expire(idle)

    @property
    def _count(self) -> int:
        """How many caches the partition holds after this transaction."""
        return len(self._partition.addresses) - len(self._gone) + len(self._admitted)

    def _holds(self, cache: str) -> bool:
        """Whether the partition holds a cache in this transaction."""
        is_held = cache in self._partition.addresses and cache not in self._gone
        return is_held or cache in self._admitted

    def idle(self, time_ms: int, looks_max: int) -> str | None:
        """Return an address that is idle at this time and is not used by the transaction."""
        return self._partition.idle.take(self._partition, time_ms, self._may_expire, looks_max)

    def _may_expire(self, address: str) -> bool:
        """Whether no draft of the transaction and no group would be without its address."""
        names = chain.from_iterable(caches_of(address))
        is_used = self._open.keys() & set(names) or self._waiting.of(address)
        return not is_used

    def expire(self, address: str) -> int:
        """Delete all state of an address; return the number of deletions.

        If a later record of the transaction names it, it is a new address.
        """
        names = chain.from_iterable(caches_of(address))
        held = tuple(name for name in names if name in self._partition.addresses)
        self.expired[address] = held
        self._gone.update(held)
        count = 0
        for name in held:
            kept, volatile = self._partition.remains(name)
            self._deletions += kept
            self.volatile += volatile
            count += len(kept) + len(volatile)
        return count

    def _counted(self) -> set[str]:
        """Return the addresses that only have waiting groups; all are looked at once only."""
        found = self._newly_waiting
        if found is None:
            found = self._newly_waiting = {
                address for address in self._waiting if not self._holds(address)
            }
        for address in self._waiting.crossed():
            if not self._holds(address) and self._waiting.of(address):
                found.add(address)
            else:
                found.discard(address)
        return found

    def admit(self, context: AddressContext) -> None:
        """Count the address as one that the partition holds."""
        if not self._holds(context.cache):
            self._admitted.add(context.cache)
            if self._newly_waiting is not None:
                self._newly_waiting.discard(context.cache)

    def renewals(self, context: AddressContext) -> list[Edit]:
        """Return the edits that remove the ids that were made new from what a cache stored."""
        store = self._partition.store_of(context.settings)
        return context.strategy.renewals(store, context.cache, context.draft)

    def deletions(self) -> list[Edit]:
        """Return the tombstones for expired entries of the addresses opened since the last call."""
        deletions, self._deletions = self._deletions, []
        return deletions

    def _at(self, address: str, cache: str) -> AddressContext:
        return self._open.get(cache) or self._opened(address, cache)

    def _opened(self, address: str, cache: str) -> AddressContext:
        partition, settings = self._partition, settings_of(self._book, cache)
        strategy = settings.remembered_by
        store = partition.store_of(settings)
        if cache in self._gone:
            memory = strategy.load(())
        else:
            memory = self._cache.memory(partition.source, store, cache, strategy)
        draft = memory.begin(settings, self.packed_positions)
        parts = (settings, strategy, memory, draft, settings.remembers)
        context = AddressContext(address, cache, *parts)
        self.write(context, draft.deletions(cache), self._deletions)
        if store is partition.volatile:
            self._deletions += partition.kept(strategy.kind, cache)
        self._open[cache] = context
        return context

    def write(self, context: AddressContext, edits: list[Edit], changelog: list[Edit]) -> None:
        """Add the edits of an address to `changelog`, or to `volatile` if it is not persisted."""
        if context.settings.persist_id_cache:
            changelog += edits
        else:
            self.volatile += edits
