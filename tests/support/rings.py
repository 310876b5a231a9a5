"""Rings of a cache, as the tests of rings look at them."""

from typing import cast

from state.cache import Cache
from state.model import PartitionId
from state.store import Store
from state.strategies.registry import DEFAULT, STRATEGIES
from state.strategies.ring_memory import IndexedRing, InMemoryRing

AnyRing = InMemoryRing | IndexedRing


def ring_of(cache: Cache, source: PartitionId, store: Store, address: str) -> AnyRing:
    """The ring of an address, loaded if needed."""
    return cast("AnyRing", cache.memory(source, store, address, STRATEGIES[DEFAULT]))
