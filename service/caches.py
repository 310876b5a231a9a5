"""Caches: what an address remembers besides its own ids, each under a name and with its settings.

A cache that bears one of these names holds ids, so it is a window where its address has one, and
else a ring.
"""

from dataclasses import replace
from typing import Final

from service.addresses import COUNTING, AddressBook, AddressSettings, Strategy

BRIDGE: Final = "BRIDGE."
"""Before the address: ids that were stamped on the way, as Artemis names their cache."""
AUDIT: Final = "ringfence.dead-letters."
"""Before the address: duplicates that were dead-lettered."""


def settings_of(book: AddressBook, cache: str) -> AddressSettings:
    """By which settings a cache remembers; most often its name is an address."""
    if cache.startswith(AUDIT):
        audited = settings_of(book, cache.removeprefix(AUDIT))
        # While an id is held, those held with it and as many after them may be told of; what hits
        # keep in a window they keep here.
        strategy: Strategy = "window" if audited.strategy == "window" else "ring"
        room = 2 * audited.room
        return replace(audited, strategy=strategy, id_cache_size=room, window_size=room)
    settings = book.settings(cache)
    if cache.startswith(BRIDGE) and settings.strategy in COUNTING:
        return replace(settings, strategy="ring")
    return settings


def is_elsewhere(one: AddressSettings, other: AddressSettings) -> bool:
    """Whether what is remembered by the one is nothing to the other."""
    kinds = ["ring" if each.strategy == "off" else each.strategy for each in (one, other)]
    return kinds[0] != kinds[1] or one.persist_id_cache != other.persist_id_cache


def home_of(cache: str) -> str:
    """The address that a cache belongs to."""
    return cache.removeprefix(AUDIT).removeprefix(BRIDGE)
