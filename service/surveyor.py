"""Surveyor: looks at what addresses hold, without loading them.

A ring tells it by its first and last run, some thirty microseconds, whether it is in memory or not;
a window and publishers tell it where they are in memory, and else are not known. Only some
addresses are looked at in a turn of the loop, so that many of them delay no record.
"""

from collections.abc import Iterable
from typing import Final

from service.addresses import AddressBook, AddressSettings
from service.caches import settings_of
from service.partition import Partition
from state.cache import Cache
from state.keys import UnknownFormatError
from state.spots import Spots
from state.strategies.ring_edits import extent
from state.strategies.strategy import Extent, Memory
from state.strategies.table import RING, STRATEGIES

_BUSY_LOOKS_MAX: Final = 32
_IDLE_LOOKS_MAX: Final = 128
_BUSY_PAUSE_S: Final = 0.25


class Surveyor:
    """Looks around on all partitions of a loop."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._looked_s = float("-inf")

    def look_around(
        self, partitions: Iterable[Partition], book: AddressBook, now_s: float, *, is_busy: bool
    ) -> None:
        """Look at some of the addresses that have changed; seldom while there are records."""
        if is_busy and now_s - self._looked_s < _BUSY_PAUSE_S:
            return
        self._looked_s = now_s
        to_do = [each for each in partitions if each.survey.begin(each.addresses, book)]
        limit = _BUSY_LOOKS_MAX if is_busy else _IDLE_LOOKS_MAX
        for partition in to_do:
            for address in partition.survey.next(max(1, limit // len(to_do))):
                self.look(partition, address, book)

    def look(
        self, partition: Partition, address: str, book: AddressBook, memory: Memory | None = None
    ) -> Extent | None:
        """What an address holds now; None where only loading it would tell.

        `memory` is what it remembers, where that was loaded for it.
        """
        survey = partition.survey
        if not survey.is_current(address, book):
            if memory is None:
                memory = self.cache.look(partition.source, address)
            settings = settings_of(book, address)
            told = _look(partition, address, settings, memory)
            survey.found(address, told, settings.room)
        return survey.extents.get(address)


def _look(
    partition: Partition, address: str, settings: AddressSettings, memory: Memory | None
) -> Extent | None:
    if STRATEGIES.get(settings.strategy, RING) is not RING:
        return None if memory is None else memory.begin(settings, Spots(partition.source)).extent()
    try:
        return extent(partition.store_of(settings), address, settings.capacity)
    except UnknownFormatError:
        return None  # the store is damaged: what decides by it will find that, and mend it
