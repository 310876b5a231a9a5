"""Address context: an address in one transaction: settings, committed state and draft."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType
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
from state.cache import Cache
from state.model import NO_CLAIM, Claim, Edit, PackedPositions
from state.strategies.base import CommittedState, Draft, Strategy
from state.strategies.per_publisher import PublisherDraft
from state.strategies.registry import RING, STRATEGIES
from state.strategies.ring import RingDraft
from state.strategies.ring_admin import forget_all


class AddressContext(NamedTuple):
    """What one address needs while a transaction is decided."""

    name: str
    """The address."""
    cache: str
    """The name that what is remembered stands under: most often the address."""
    settings: AddressSettings
    strategy: Strategy
    memory: CommittedState
    draft: Draft

    @property
    def is_audit(self) -> bool:
        """Whether it remembers dead letters, and nothing that was accepted."""
        return self.cache.startswith(AUDIT)


class AddressContexts:
    """The addresses of one partition in one transaction, opened when they are met first."""

    def __init__(
        self,
        partition: OwnedPartition,
        book: AddressBook,
        cache: Cache,
        waiting: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`waiting` tells how many transaction groups an address has."""
        self._partition = partition
        self._waiting = waiting
        self._book = book
        self._cache = cache
        self._open: dict[str, AddressContext] = {}
        self._admitted: set[str] = set()
        """What this transaction holds and the partition did not."""
        self._deletions: list[Edit] = []
        self._forgotten: defaultdict[str, list[int]] = defaultdict(list)
        """Numbers of ids that were forgotten and accepted anew, by cache."""
        self.volatile: list[Edit] = []
        """Edits of addresses that are forgotten with the partition: in no log."""
        self.packed_positions = PackedPositions(partition.source)

    def __iter__(self) -> Iterator[AddressContext]:
        """In the order in which they were met."""
        return iter(self._open.values())

    def at(self, address: str) -> AddressContext:
        """The place of an address."""
        return self._at(address, address)

    def of_cache(self, cache: str) -> AddressContext:
        """The place of whatever stands under a name."""
        return self._at(home_of(cache), cache)

    def bridge(self, context: AddressContext) -> AddressContext:
        """Where an address remembers what was stamped on its way."""
        return self._at(context.name, BRIDGE + context.name)

    def audit(self, context: AddressContext) -> AddressContext:
        """Where an address remembers which duplicates were dead-lettered."""
        return self._at(context.name, AUDIT + context.cache)

    def check_room(self, context: AddressContext) -> None:
        """RejectedError where the partition holds as many addresses as it may."""
        held, admitted = self._partition.addresses, self._admitted
        if context.cache in held or context.cache in admitted or self._waiting.get(context.cache):
            return
        limit = context.settings.addresses_max
        waiting = (address for address, groups in self._waiting.items() if groups)
        others = sum(address not in held and address not in admitted for address in waiting)
        if len(held) + len(admitted) + others >= limit:
            cause = f"the partition holds {limit} addresses already"
            raise RejectedError(Reason.TOO_MANY_ADDRESSES, cause)

    def admit(self, context: AddressContext) -> None:
        """An id of this address is remembered from now on."""
        if context.cache not in self._partition.addresses:
            self._admitted.add(context.cache)

    def forget_repeated(self, context: AddressContext, claim: Claim) -> Claim:
        """Forget what repeats, so that it can be remembered anew; gives what to remember it by.

        Numbers of publishers are not taken back: what goes out for such a claim changes nothing.
        """
        if isinstance(context.draft, PublisherDraft):
            return NO_CLAIM
        if isinstance(context.draft, RingDraft) and claim.identifier is not None:
            number = context.draft.let_go(claim.identifier)
            if number is not None:
                self._forgotten[context.cache].append(number)
        return claim

    def forget_edits(self, context: AddressContext) -> list[Edit]:
        """The runs of a place without the ids that were let go."""
        numbers = self._forgotten.get(context.cache)
        if not numbers:
            return []
        return forget_all(self._partition.store_of(context.settings), context.cache, numbers)

    def deletions(self) -> list[Edit]:
        """What the addresses opened since the last call have outlived."""
        deletions, self._deletions = self._deletions, []
        return deletions

    def _at(self, address: str, cache: str) -> AddressContext:
        return self._open.get(cache) or self._opened(address, cache)

    def _opened(self, address: str, cache: str) -> AddressContext:
        partition, settings = self._partition, settings_of(self._book, cache)
        # Of a ring of size 0 nothing is known and nothing remembered: detection is off.
        strategy = STRATEGIES.get(settings.strategy, RING)
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
        """Add edits of an address to the changelog's, or to those that are in none."""
        if context.settings.persist_id_cache:
            changelog += edits
        else:
            self.volatile += edits
