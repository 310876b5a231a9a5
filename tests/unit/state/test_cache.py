"""The cache: what memory says is what the store says, in as much memory as it may take."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringfence_state.cache
from ringfence_service.config.addresses import AddressSettings
from ringfence_service.native.ring import NativeRing, NativeStoredRing
from ringfence_state.cache import BatchTooLargeError, Cache
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Claim, Edit, Origin, PackedPositions, PartitionId
from ringfence_state.segment import key
from ringfence_state.store import Identity, StoreCorruptError, StorePosition
from ringfence_state.strategies.registry import STRATEGIES
from ringfence_state.strategies.ring_admin import forget_all
from ringfence_state.strategies.ring_memory import InMemoryRing
from tests.support.helpers import some
from tests.support.native import native_rings, needs_native
from tests.support.rings import AnyRing, ring_of

SOURCE = PartitionId("orders", 0)
OTHER = PartitionId("orders", 1)
POSITION = StorePosition(Identity("c", "i", "l", 1), 0, 0, 0)
PLENTY = 1 << 30
LETTERS = ("", *"abcd")
ALL_IDS = {(a + b).encode() for a in LETTERS for b in LETTERS} | {b"%d" % n for n in range(10)}


def commit(
    cache: Cache, store: MemoryStore, ids: list[bytes], *, address: str = "a", capacity: int = 5
) -> AnyRing:
    """One batch, as the service does it: admit, store, absorb."""
    ring = ring_of(cache, SOURCE, store, address)
    draft = ring.draft(capacity, PackedPositions(SOURCE))
    for offset, identifier in enumerate(ids):
        draft.admit(identifier, offset, 1_000 + offset)
    change = draft.change(address)
    if change is not None:
        store.apply(draft.deletions(address) + change.edits, POSITION)
        cache.apply(SOURCE, address, ring, change.content)
    return ring


def held(ring: AnyRing) -> dict[bytes, object]:
    """What a ring knows, of all ids that the tests use."""
    numbers = {i: ring.draft(1 << 30, PackedPositions(SOURCE)).judge(i) for i in ALL_IDS}
    return {i: ring.origin(n) for i, n in numbers.items() if n is not None}


@pytest.fixture
def compiled() -> Iterator[None]:
    """Rings have both forms."""
    with native_rings():
        yield


@pytest.fixture
def small(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - it is used
    """Two ids make a ring large."""
    monkeypatch.setattr(ringfence_state.cache, "WHOLE_IDS_MAX", 2)


IDS = st.lists(st.text("abcd", max_size=2).map(str.encode), max_size=9)


@given(st.lists(st.tuples(IDS, st.sampled_from([0, 1, 3, 5])), max_size=8))
def test_a_ring_loaded_from_its_store_equals_the_one_that_absorbed(
    batches: list[tuple[list[bytes], int]],
) -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    for ids, capacity in batches:
        commit(cache, store, ids, capacity=capacity)
    absorbed = ring_of(cache, SOURCE, store, "a")
    loaded = ring_of(Cache(PLENTY), SOURCE, store, "a")
    assert held(loaded) == held(absorbed)
    assert len(loaded) == len(absorbed)
    # An empty ring has nothing to write its numbers down for.
    if absorbed.capacity is not None and len(absorbed):
        assert (loaded.next, loaded.floor) == (absorbed.next, absorbed.floor)


@needs_native
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("whole_ids_max", [0, 2_000], ids=["stored", "whole"])
def test_the_waiting_caller_is_notified_of_each_entry_that_is_read(
    whole_ids_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ringfence_state.cache, "WHOLE_IDS_MAX", whole_ids_max)
    store, told = MemoryStore(), list[None]()
    for number in range(7):
        commit(Cache(PLENTY), store, [b"%d" % number], capacity=50)
    ring_of(Cache(PLENTY, lambda: told.append(None)), SOURCE, store, "a")
    assert len(told) == 8, "before the first, and after each"


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
    ring_of(cache, SOURCE, store, "a")
    cache.shrink()
    assert cache.memory_bytes == 2 * one_bytes
    assert ring_of(cache, SOURCE, store, "a") is first
    assert ring_of(cache, SOURCE, store, "c") is third
    again = ring_of(cache, SOURCE, store, "b")
    assert again is not second
    assert held(again) == held(second)


def test_a_cache_that_may_hold_nothing_holds_one_state_and_answers_from_the_store() -> None:
    cache, store = Cache(0), MemoryStore()
    for number in range(8):
        for address in "ab":
            ring = commit(cache, store, [b"%d" % number], address=address)
            cache.shrink()
            assert cache.memory_bytes == ring.memory_bytes > 0
    for address in "ab":
        assert set(held(ring_of(cache, SOURCE, store, address))) == {b"3", b"4", b"5", b"6", b"7"}


def large_and_small(limit_bytes: int) -> tuple[Cache, MemoryStore, AnyRing]:
    """A cache with a ring of 100 ids, used last, and the store with nine of one id."""
    cache, store = Cache(limit_bytes), MemoryStore()
    for address in "abcdefghi":
        commit(cache, store, [b"1"], address=address)
    large = commit(cache, store, [b"%d" % n for n in range(100)], address="z", capacity=100)
    return cache, store, large


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 1.1])
def test_a_ring_that_is_larger_than_the_memory_is_loaded_once(share: float) -> None:
    _, _, probe = large_and_small(PLENTY)
    small_bytes = commit(Cache(PLENTY), MemoryStore(), [b"1"]).memory_bytes
    limit_bytes = max(int(share * probe.memory_bytes), 2 * small_bytes)
    cache, store, large = large_and_small(limit_bytes)
    for number in range(100, 130):
        cache.begin(is_bounded=True)
        for address in ("z", "abcdefghi"[number % 9]):
            commit(cache, store, [b"%d" % number], address=address, capacity=100)
            assert not cache.is_full
        cache.shrink()
        assert cache.look(SOURCE, "z") is large
        assert cache.memory_bytes <= limit_bytes + large.memory_bytes
    assert cache.oversized == (
        (SOURCE, "z", large.memory_bytes) if large.memory_bytes > limit_bytes else None
    )


def test_a_large_ring_makes_way_once_the_others_used_since_fill_the_memory() -> None:
    _, _, probe = large_and_small(PLENTY)
    cache, store, _ = large_and_small(probe.memory_bytes // 2)
    names = [f"{number}" for number in range(200)]
    for name in names:
        commit(cache, store, [b"1"], address=name)
        cache.shrink()
    assert cache.look(SOURCE, "z") is None
    assert cache.memory_bytes <= probe.memory_bytes // 2
    assert cache.oversized is None
    assert set(held(ring_of(cache, SOURCE, store, "z"))) >= {b"1", b"2"}


def test_of_two_rings_that_are_too_large_the_smaller_makes_way() -> None:
    cache, store = Cache(1_000), MemoryStore()
    ids = [b"%d" % number for number in range(20)]
    commit(cache, store, ids, address="a", capacity=100)
    commit(cache, store, ids[:10], address="b", capacity=100)
    cache.begin(is_bounded=True)
    ring_of(cache, SOURCE, store, "b")
    with pytest.raises(BatchTooLargeError):
        ring_of(cache, SOURCE, store, "a")
    cache.shrink()
    assert [cache.look(SOURCE, name) is None for name in "ab"] == [False, True]


def test_a_transaction_should_end_at_three_quarters_of_the_memory_and_has_to_at_nine_eighths() -> (
    None
):
    cache, store = Cache(PLENTY), MemoryStore()
    rings = [commit(cache, store, [b"1"], address=name) for name in "abcdefghij"]
    cache = Cache(8 * rings[0].memory_bytes)
    for _ in range(2):
        cache.begin(is_bounded=True)
        for number, name in enumerate("abcdefghi", 1):
            ring_of(cache, SOURCE, store, name)
            assert ring_of(cache, SOURCE, store, name) is cache.look(SOURCE, name), "counted once"
            assert cache.is_full == (number > 6)
        assert None not in [cache.look(SOURCE, name) for name in "abcdefghi"]
        with pytest.raises(BatchTooLargeError):
            ring_of(cache, SOURCE, store, "j")
    cache.shrink()
    assert [cache.look(SOURCE, name) is None for name in "abcj"] == [True, True, False, False]
    for name in "abcdefghij":
        ring_of(cache, SOURCE, store, name)


def test_a_transaction_that_is_late_gets_what_is_in_memory_and_no_more() -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    ring = ring_of(cache, SOURCE, store, "a")
    cache.begin(is_bounded=True, is_late=lambda: True)
    assert ring_of(cache, SOURCE, store, "a") is ring
    with pytest.raises(BatchTooLargeError):
        ring_of(cache, SOURCE, store, "b")
    cache.begin(is_late=lambda: True)
    ring_of(cache, SOURCE, store, "b")
    cache.begin(is_bounded=True)
    ring_of(cache, SOURCE, store, "c")


def test_the_ids_of_deleted_segments_are_dropped() -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    for number in range(8):
        ring = commit(cache, store, [b"%d" % number], capacity=1)
    assert isinstance(ring, InMemoryRing)
    assert set(ring._numbers) == {b"6", b"7"}


def test_absorbing_into_a_forgotten_ring_counts_nothing() -> None:
    cache, store = Cache(0), MemoryStore()
    ring = ring_of(cache, SOURCE, store, "a")
    draft = ring.draft(5, PackedPositions(SOURCE))
    draft.admit(b"1", 0, 0)
    cache.drop(SOURCE)
    cache.apply(SOURCE, "a", ring, some(draft.change("a")).content)
    assert cache.memory_bytes == 0


def test_dropping_one_partition_keeps_the_others() -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    mine = commit(cache, store, [b"1"])
    ring_of(cache, OTHER, MemoryStore(), "a")
    cache.drop(OTHER)
    assert ring_of(cache, SOURCE, store, "a") is mine


def test_one_address_never_sees_the_ids_of_another_that_it_begins() -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    commit(cache, store, [b"1"], address="ab")
    assert held(ring_of(cache, SOURCE, store, "a")) == {}


def test_a_damaged_run_in_the_store_names_the_partition() -> None:
    store = MemoryStore()
    store.apply([Edit(key("a", 0), b"\x01 no run")], POSITION)
    with pytest.raises(StoreCorruptError) as caught:
        ring_of(Cache(PLENTY), SOURCE, store, "a")
    assert caught.value.source == SOURCE


@needs_native
@pytest.mark.usefixtures("small")
def test_a_ring_that_has_grown_large_is_compact_and_says_the_same() -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    kinds = []
    for number in range(8):
        ring = commit(cache, store, [b"%d" % number])
        kinds.append(type(ring_of(Cache(PLENTY), SOURCE, store, "a")))
        assert (cache.look(SOURCE, "a") is ring) == (number != 2), "it is reloaded once"
    assert kinds[:3] == [NativeRing, NativeRing, NativeStoredRing]
    assert isinstance(ring, NativeStoredRing)
    assert held(ring) == {b"%d" % n: Origin(*SOURCE, 0, 1_000) for n in range(3, 8)}
    assert commit(cache, store, [b"7"]) is ring
    assert cache.memory_bytes == ring.memory_bytes
    cache.drop(SOURCE)
    assert cache.memory_bytes == 0


@needs_native
@pytest.mark.usefixtures("small")
def test_how_large_a_ring_is_goes_by_what_it_holds_itself() -> None:
    store = MemoryStore()
    for number in range(8):
        commit(Cache(PLENTY), store, [b"%d" % number], address="a", capacity=1)
        commit(Cache(PLENTY), store, [b"%d" % number], address="c")
    old, new = (ring_of(Cache(PLENTY), SOURCE, store, address) for address in "ab")
    assert (type(old), len(old)) == (NativeRing, 1)
    assert (type(new), len(new), new.capacity) == (NativeRing, 0, None)


@needs_native
@pytest.mark.usefixtures("compiled")
def test_where_memory_is_short_all_but_the_smallest_are_loaded_compact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ringfence_state.cache, "SMALL_IDS_MAX", 2)
    store = MemoryStore()
    plenty = Cache(PLENTY)
    for address in "abc":
        commit(plenty, store, [b"0", b"1", b"2"], address=address)
    commit(plenty, store, [b"0", b"1"], address="d")
    cache = Cache(2 * ring_of(plenty, SOURCE, store, "a").memory_bytes)
    kinds = [type(ring_of(cache, SOURCE, store, address)) for address in "abcd"]
    assert kinds == [NativeRing, NativeRing, NativeStoredRing, NativeRing]


@needs_native
@pytest.mark.usefixtures("small")
def test_a_compact_ring_stays_when_its_runs_are_rewritten_and_reads_them_again() -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    for number in range(4):
        commit(Cache(PLENTY), store, [b"%d" % number])
    ring = ring_of(cache, SOURCE, store, "a")
    assert set(held(ring)) == {b"0", b"1", b"2", b"3"}
    store.apply(forget_all(store, "a", [2]), POSITION)
    cache.reread(SOURCE, "a")
    assert cache.look(SOURCE, "a") is ring, "a large ring takes long to load"
    assert set(held(ring)) == {b"0", b"1", b"3"}


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "off"])
def test_a_state_in_memory_outlasts_its_own_commits_and_no_others(strategy: str) -> None:
    cache, store = Cache(PLENTY), MemoryStore()
    memory = cache.memory(SOURCE, store, "a", STRATEGIES[strategy])
    draft = memory.begin(AddressSettings(strategy=strategy), PackedPositions(SOURCE))
    draft.remember(Claim(b"1", None, "P", 1, 0, 0), Origin(*SOURCE, 0, 0))
    change = some(draft.change("a"))
    store.apply(change.edits, POSITION)
    cache.apply(SOURCE, "a", memory, change.content)
    assert cache.look(SOURCE, "a") is memory
    cache.reread(SOURCE, "a")
    assert cache.look(SOURCE, "a") is None


@needs_native
@pytest.mark.usefixtures("compiled")
def test_a_ring_just_above_the_size_is_loaded_once_and_stays_compact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ringfence_state.cache, "WHOLE_IDS_MAX", 100)
    cache, store = Cache(PLENTY), MemoryStore()
    rings = []
    for batch in range(4):
        ids = [b"%d-%d" % (batch, number) for number in range(101)]
        rings.append(commit(cache, store, ids, capacity=101))
    assert [type(ring) for ring in rings] == [NativeRing, *[NativeStoredRing] * 3]
    assert len({id(ring) for ring in rings[1:]}) == 1
