"""Rings of a cache, as the tests of rings look at them."""

from typing import cast

from ringfence_service.native.ring import NativeRing, NativeStoredRing
from ringfence_state.cache import Cache
from ringfence_state.model import PartitionId
from ringfence_state.store import Store
from ringfence_state.strategies.registry import DEFAULT, STRATEGIES
from ringfence_state.strategies.ring_memory import InMemoryRing

AnyRing = InMemoryRing | NativeRing | NativeStoredRing


def ring_of(cache: Cache, source: PartitionId, store: Store, address: str) -> AnyRing:
    """The ring of an address, loaded if needed."""
    return cast("AnyRing", cache.memory(source, store, address, STRATEGIES[DEFAULT]))
