"""Shelves beside a store that keeps everything, over a map that tells what it was asked."""

from random import Random

import pytest

from ringfence_pipeline.backfill import paged_store as module
from ringfence_pipeline.backfill.paged_store import (
    PAGE_BYTES,
    PagedStore,
    PartitionProgress,
    packed_entries,
    section_of_page,
    unpacked_page,
)
from ringfence_state.keys import prefix
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Edit
from ringfence_state.store import Identity, StorePosition
from tests.unit.pipeline.backfill.test_decider import Dict

NAMES = [prefix(kind, address) for kind in (b"r", b"a", b"g") for address in ("x", "xy", "é")]


def edits(random: Random) -> list[Edit]:
    return [
        Edit(
            random.choice(NAMES) + b"%08d" % random.randrange(30),
            random.choice([None, b"v" * random.randrange(200)]),
        )
        for _ in range(random.randrange(60))
    ]


@pytest.mark.parametrize("seed", range(20))
def test_shelves_hold_what_a_store_holds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_BYTES", 300)
    random, entries, expected = Random(seed), Dict(), MemoryStore()
    for batch in range(12):
        shelves = PagedStore(entries)
        for change in (edits(random), edits(random)):
            shelves.keep(change)
            expected.keep(change)
        shelves.save(PartitionProgress(batch, 7))
        again = PagedStore(entries)
        assert again.progress == PartitionProgress(batch, 7)
        for name in NAMES:
            assert list(again.scan(name)) == list(expected.scan(name))
            assert again.get(name + b"00000003") == expected.get(name + b"00000003")
        kinds = PagedStore(entries)
        assert list(kinds.scan(b"g")) == list(expected.scan(b"g"))
        held = {"x", "xy", "é"}
        assert kinds.addresses == {
            address
            for address in held
            if any(list(expected.scan(prefix(kind, address))) for kind in (b"r", b"a"))
        }


@pytest.mark.parametrize("seed", range(40))
def test_a_store_is_used_again_only_by_the_worker_that_saved_what_the_map_has(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_BYTES", 300)
    random, entries, expected = Random(seed), Dict(), MemoryStore()
    kept: dict[int, PagedStore] = {}

    def attempt(worker: int, on: Dict, change: list[Edit], batch: int) -> None:
        store = kept.pop(worker, None)
        if store is None or not store.continues(on):
            store = PagedStore(on)
        store.keep(change)
        store.save(PartitionProgress(batch, 7))
        kept[worker] = store

    for batch in range(30):
        change = edits(random)
        if random.random() < 0.5:  # an attempt that fails after its state was saved
            attempt(random.randrange(2), Dict(entries), change, batch)
        attempt(random.randrange(2), entries, change, batch)
        expected.keep(change)
        again = PagedStore(entries)
        for name in NAMES:
            assert list(again.scan(name)) == list(expected.scan(name))


def test_what_is_gone_leaves_nothing_but_how_far_it_came() -> None:
    entries = Dict()
    shelves = PagedStore(entries)
    shelves.keep([Edit(NAMES[0] + b"1", b"v")])
    shelves.save(PartitionProgress(1, 1))
    shelves = PagedStore(entries)
    shelves.keep([Edit(NAMES[0] + b"1", None)])
    shelves.save(PartitionProgress(2, 1))
    assert set(entries) == {b"d", b"p"}
    assert entries[b"d"] == b""


def test_what_grows_writes_its_last_page_alone() -> None:
    entries = Dict()
    for batch in range(10):
        before = dict(entries)
        shelves = PagedStore(entries)
        key = NAMES[0] + b"%d" % batch
        shelves.keep([Edit(key, b"v" * (PAGE_BYTES // 2))])
        shelves.save(PartitionProgress(batch, 1))
        written = [k for k in entries if entries[k] != before.get(k) and section_of_page(k)]
        assert len(written) == 1
    pages = [key for key in entries if section_of_page(key) == NAMES[0]]
    assert len(pages) == 5


def test_a_page_tells_its_shelf_and_its_entries() -> None:
    entries = Dict()
    shelves = PagedStore(entries)
    shelves.apply(
        [Edit(NAMES[1] + b"1", b"v"), Edit(NAMES[1] + b"0", b"")],
        StorePosition(Identity("", "", "", 1), 0, 0, 0),
    )
    shelves.save(PartitionProgress(1, 1))
    assert shelves.position() is None
    assert shelves.figures().keys == 2
    (page,) = [key for key in entries if section_of_page(key) is not None]
    assert section_of_page(page) == NAMES[1]
    assert list(unpacked_page(entries[page])) == [
        (NAMES[1] + b"0", b""),
        (NAMES[1] + b"1", b"v"),
    ]


def test_pages_that_are_not_compressed_are_read_and_compressed_when_they_change() -> None:
    entries, ids = Dict(), [Edit(NAMES[0] + b"%04d" % at, b"%036x" % at) for at in range(900)]
    shelves = PagedStore(entries)
    shelves.keep(ids)
    shelves.save(PartitionProgress(1, 1))
    (page,) = [key for key in entries if section_of_page(key) == NAMES[0]]
    compressed, entries[page] = entries[page], packed_entries(unpacked_page(entries[page]))
    assert len(compressed) * 4 < len(entries[page])
    again = PagedStore(entries)
    assert list(again.scan(NAMES[0])) == ids
    again.keep([Edit(NAMES[0] + b"0000", b"%036x" % 0)])
    again.save(PartitionProgress(2, 1))
    assert entries[page] == compressed
