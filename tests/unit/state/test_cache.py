"""The cache: what memory says is what the store says, in as much memory as it may take."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.cache import Cache
from state.edit import Edit, Source
from state.memory import MemoryStore
from state.run import key
from state.store import Identity, Position, StoreCorruptError
from state.strategies.ring import Ring

SOURCE = Source("orders", 0)
OTHER = Source("orders", 1)
POSITION = Position(Identity("c", "i", "l", 1), 0, 0, 0)
PLENTY = 1 << 30


def commit(
    cache: Cache, store: MemoryStore, ids: list[bytes], *, address: str = "a", capacity: int = 5
) -> Ring:
    """One batch, as the service does it: admit, store, absorb."""
    ring = cache.ring(SOURCE, store, address)
    draft = ring.draft(capacity, SOURCE)
    for offset, identifier in enumerate(ids):
        draft.admit(identifier, offset, 1_000 + offset)
    runs = draft.seal()
    store.apply(draft.edits(address, runs), POSITION)
    cache.absorb(SOURCE, address, ring, runs)
    return ring


def held(ring: Ring) -> dict[bytes, object]:
    return {i: ring.origin(n) for i, n in ring.known.items() if n >= ring.floor}


IDS = st.lists(st.text("abcd", max_size=2).map(str.encode), max_size=9)


@settings(deadline=None)
@given(st.lists(st.tuples(IDS, st.sampled_from([0, 1, 3, 5])), max_size=8))
def test_a_ring_loaded_from_its_store_equals_the_one_that_absorbed(
    batches: list[tuple[list[bytes], int]],
) -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    for ids, capacity in batches:
        commit(cache, store, ids, capacity=capacity)
    absorbed = cache.ring(SOURCE, store, "a")
    loaded = Cache(PLENTY).ring(SOURCE, store, "a")
    assert held(loaded) == held(absorbed)
    assert len(loaded) == len(absorbed)
    # An empty ring has nothing to write its numbers down for.
    if absorbed.capacity is not None and len(absorbed):
        assert (loaded.next, loaded.floor) == (absorbed.next, absorbed.floor)


def test_memory_is_what_the_rings_take_and_nothing_after_a_drop() -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    rings = [commit(cache, store, [b"1", b"2"], address=name) for name in "abc"]
    assert cache.memory_bytes == sum(ring.memory_bytes for ring in rings) > 0
    cache.drop(SOURCE)
    assert cache.memory_bytes == 0


def test_shrinking_forgets_the_least_recently_used_until_the_rest_fits() -> None:
    store = MemoryStore()
    probe = Cache(PLENTY)
    one_bytes = commit(probe, store, [b"1", b"2"], address="a").memory_bytes
    cache, store = Cache(2 * one_bytes), MemoryStore()
    first, second, third = (commit(cache, store, [b"1", b"2"], address=name) for name in "abc")
    cache.ring(SOURCE, store, "a")
    cache.shrink()
    assert cache.memory_bytes == 2 * one_bytes
    assert cache.ring(SOURCE, store, "a") is first
    assert cache.ring(SOURCE, store, "c") is third
    again = cache.ring(SOURCE, store, "b")
    assert again is not second
    assert held(again) == held(second)


def test_a_cache_that_may_hold_nothing_still_answers_from_the_store() -> None:
    cache, store = Cache(0), MemoryStore()
    for number in range(8):
        commit(cache, store, [b"%d" % number])
        cache.shrink()
        assert cache.memory_bytes == 0
    assert set(held(cache.ring(SOURCE, store, "a"))) == {b"3", b"4", b"5", b"6", b"7"}


def test_absorbing_into_a_forgotten_ring_counts_nothing() -> None:
    cache, store = Cache(0), MemoryStore()
    ring = cache.ring(SOURCE, store, "a")
    draft = ring.draft(5, SOURCE)
    draft.admit(b"1", 0, 0)
    cache.drop(SOURCE)
    cache.absorb(SOURCE, "a", ring, draft.seal())
    assert cache.memory_bytes == 0


def test_dropping_one_partition_keeps_the_others() -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    mine = commit(cache, store, [b"1"])
    cache.ring(OTHER, MemoryStore(), "a")
    cache.drop(OTHER)
    assert cache.ring(SOURCE, store, "a") is mine


def test_one_address_never_sees_the_ids_of_another_that_it_begins() -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    commit(cache, store, [b"1"], address="ab")
    assert held(cache.ring(SOURCE, store, "a")) == {}


def test_a_damaged_run_in_the_store_names_the_partition() -> None:
    store = MemoryStore()
    store.apply([Edit(key("a", 0), b"\x01 no run")], POSITION)
    with pytest.raises(StoreCorruptError) as caught:
        Cache(PLENTY).ring(SOURCE, store, "a")
    assert caught.value.source == SOURCE
