"""Idle addresses: finds the addresses of a partition that have accepted nothing for a long time.

An address is idle if its newest remembered id is older than its `address_idle_ms`, by the time of
the partition. A heap has the addresses by the earliest time at which they may be idle. That time is
a lower bound, 0 for an address that was never measured, and is corrected when it is reached: so a
record changes no entry, and an address is measured once in each of its idle times.

An address of a strategy without times (`audit`, `sequence`, `ordered`) never expires, and neither
does one on which transaction groups wait. Duplicates do not count: as in a ring, a hit refreshes
nothing unless the strategy says so.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from ringfence_service.config.addresses import (
    AddressBook,
    AddressSettings,
    caches_of,
    home_of,
    settings_of,
)
from ringfence_service.dedup.pending_groups import PendingGroups
from ringfence_state.keys import UnknownFormatError
from ringfence_state.store import Store

_AGAIN_MS: Final = 60_000
"""After how long, at most, an address with waiting groups is looked at again."""


class Holder(Protocol):
    """The part of a partition that is asked about its addresses."""

    addresses: set[str]
    groups: PendingGroups

    def store_of(self, settings: AddressSettings) -> Store:
        """Return the store of an address with these settings."""
        ...


class IdleAddresses:
    """The addresses of one partition by the earliest time at which they may be idle."""

    __slots__ = ("_book", "_empty_ms", "_heap", "_names", "_taken")

    def __init__(self) -> None:
        self._book: AddressBook | None = None
        """The settings by which they expire."""
        self._names: set[str] = set()
        """The addresses in the heap, and those that were taken from it."""
        self._start(())

    def _start(self, names: Iterable[str]) -> None:
        """Begin with these addresses, none of which was measured."""
        self._names = set(names)
        self._heap: list[tuple[int, str]] = [(0, name) for name in self._names]
        heapify(self._heap)
        self._taken: dict[str, None] = {}
        """Addresses that the current transaction removes, or may not remove."""
        self._empty_ms: dict[str, int] = {}
        """When an address was found to hold no id."""

    def begin(self, caches: Iterable[str], book: AddressBook) -> None:
        """Begin a transaction on a partition that holds these caches.

        New settings apply from here on, and what was taken before and not removed is back.
        """
        if book is not self._book:
            self._book = book
            self._start(map(home_of, caches) if book.expires else ())
        for name in self._taken:
            heappush(self._heap, (0, name))
        self._taken.clear()

    def add(self, cache: str) -> None:
        """Add the address of a cache that is new to the partition."""
        name = home_of(cache)
        if self._book is not None and self._book.expires and name not in self._names:
            self._names.add(name)
            heappush(self._heap, (0, name))

    def remove(self, address: str) -> None:
        """Remove an address that was taken: it has expired."""
        self._taken.pop(address, None)
        self._empty_ms.pop(address, None)
        self._names.discard(address)

    def may_have(self, time_ms: int) -> bool:
        """Whether `take` has to look at an address at this time."""
        return bool(self._heap) and self._heap[0][0] < time_ms

    def take(
        self,
        partition: Holder,
        time_ms: int,
        may_expire: Callable[[str], bool],
        looks_max: int,
    ) -> str | None:
        """Return an idle address, the next one with each call; None if none is found.

        It looks at up to `looks_max` addresses. One that may not expire in this transaction is
        passed over until the next `begin`.
        """
        while looks_max > 0 and self.may_have(time_ms):
            looks_max -= 1
            _, name = heappop(self._heap)
            due_ms = self._due_ms(partition, name, time_ms)
            if due_ms is None:
                self._names.discard(name)
            elif due_ms >= time_ms:
                heappush(self._heap, (due_ms, name))
            else:
                self._taken[name] = None
                if may_expire(name):
                    return name
        return None

    def _due_ms(self, partition: Holder, address: str, time_ms: int) -> int | None:
        """Return the last time at which an address is not idle; None if it never is."""
        assert self._book is not None  # it has begun
        settings = settings_of(self._book, address)
        idle_ms = settings.address_idle_ms
        accepted, others = caches_of(address)
        held = [cache for cache in accepted if cache in partition.addresses]
        held = held or [cache for cache in others if cache in partition.addresses]
        if not (idle_ms and held and settings.remembered_by.holds_ids):
            return None
        if partition.groups.waiting[address]:
            return time_ms + min(idle_ms, _AGAIN_MS)
        try:
            newest_ms = self._newest_ms(partition, held, time_ms - idle_ms)
        except UnknownFormatError:
            return time_ms + idle_ms  # the store is damaged: the next decision restores it
        if newest_ms is None:
            # Its ids were forgotten, or cleared: it is idle since then.
            newest_ms = self._empty_ms.setdefault(address, time_ms)
        else:
            self._empty_ms.pop(address, None)
        return newest_ms + idle_ms

    def _newest_ms(self, partition: Holder, caches: Iterable[str], enough_ms: int) -> int | None:
        """Return the latest time of the ids in some caches, or one from `enough_ms` on."""
        assert self._book is not None  # it has begun
        found = None
        for cache in caches:
            settings = settings_of(self._book, cache)
            strategy, store = settings.remembered_by, partition.store_of(settings)
            newest_ms = strategy.newest_ms(store, cache, enough_ms)
            if newest_ms is not None:
                found = newest_ms if found is None else max(found, newest_ms)
        return found
