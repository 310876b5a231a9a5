"""Address context: the settings, committed state and draft of an address in one transaction."""

from collections.abc import Iterator
from typing import NamedTuple

from ringfence.headers import Reason
from service.config.addresses import (
    AUDIT,
    BRIDGE,
    AddressBook,
    AddressSettings,
    home_of,
    settings_of,
)
from service.dedup.partition import OwnedPartition
from service.dedup.record import RejectedError
from service.dedup.waiting_order import AddressCounts
from state.cache import Cache
from state.model import Edit, PackedPositions
from state.strategies.base import CommittedState, Draft, Strategy


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

    def check_room(self, context: AddressContext) -> None:
        """Raise RejectedError if the address is new and the partition holds `addresses_max`."""
        held, admitted = self._partition.addresses, self._admitted
        if context.cache in held or context.cache in admitted or self._waiting.of(context.cache):
            return
        limit, count = context.settings.addresses_max, len(held) + len(admitted)
        if count + len(self._waiting) < limit:
            return  # though some of them may be held
        if count + len(self._counted()) >= limit:
            cause = f"the partition holds {limit} addresses already"
            raise RejectedError(Reason.TOO_MANY_ADDRESSES, cause)

    def _counted(self) -> set[str]:
        """Return the addresses that only have waiting groups; all are looked at once only."""
        found = self._newly_waiting
        if found is None:
            held = self._partition.addresses
            found = self._newly_waiting = {
                address
                for address in self._waiting
                if address not in held and address not in self._admitted
            }
        for address in self._waiting.crossed():
            is_new = address not in self._partition.addresses and address not in self._admitted
            if is_new and self._waiting.of(address):
                found.add(address)
            else:
                found.discard(address)
        return found

    def admit(self, context: AddressContext) -> None:
        """Count the address as one that the partition holds."""
        if context.cache not in self._partition.addresses:
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
        memory = self._cache.memory(partition.source, store, cache, strategy)
        draft = memory.begin(settings, self.packed_positions)
        context = AddressContext(address, cache, settings, strategy, memory, draft)
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
