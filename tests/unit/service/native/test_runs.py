"""Runs of a ring: verdicts against a deque, which runs are merged, and what damage does."""

import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import repeat, zip_longest
from pathlib import Path

import pytest

from ringfence_service.native.ring import FORMS, NativeStoredRing
from ringfence_service.native.runs import ReplayedRuns, RingRuns, runs_of, to_merge
from ringfence_state.cache import Cache
from ringfence_state.keys import SEGMENTS
from ringfence_state.model import Edit, PackedPositions, PartitionId
from ringfence_state.segment import decode
from ringfence_state.store import StoreCorruptError, StoreFailedError, StorePosition
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.ring_admin import clear, forget_all
from ringfence_state.strategies.ring_memory import RingStrategy
from tests.support.helpers import some
from tests.support.native import native_rings, needs_native
from tests.unit.service.native.test_ring import StoreWithFolder
from tests.unit.state.strategies.test_ring import POSITION

pytestmark = needs_native

SOURCE = PartitionId("orders", 0)
LENT = 64
"""`LENT_SEGMENTS` of native/ring.h."""


@pytest.fixture(autouse=True)
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RingRuns, "young_ids", 16)
    monkeypatch.setattr(RingRuns, "built_ids", 64)


class Kept:
    """A ring in a store that outlives it."""

    def __init__(
        self,
        folder: Path,
        capacity: int,
        memory_bytes_max: int = 1 << 20,
        *,
        address: str = "a",
        store: StoreWithFolder | None = None,
    ) -> None:
        self.store, self.capacity = store or StoreWithFolder(folder), capacity
        self.address = address
        self.memory_bytes_max = memory_bytes_max
        self.offset = 0
        self.start()

    def start(self) -> None:
        """As a process does that has the store."""
        segments = StoredSegments(
            SOURCE, self.store, SEGMENTS, self.address, memory_bytes_max=self.memory_bytes_max
        )
        self.ring = NativeStoredRing(segments)

    def decide(self, batch: list[bytes], *, is_committed: bool = True) -> list[bool]:
        """Decide a batch; return which of its ids are known."""
        draft = self.ring.draft(self.capacity, PackedPositions(SOURCE))
        offsets = range(self.offset, self.offset + len(batch))
        known = [each is not None for each in map(draft.admit, batch, offsets, offsets)]
        change = draft.change(self.address)
        if is_committed and change is not None:
            self.store.apply([*draft.deletions(self.address), *change.edits], POSITION)
            self.ring.apply(change.content)
            self.offset += len(batch)
        return known

    def fill(self, count: int) -> None:
        """Have new ids until so many were given."""
        for first in range(self.offset, count, 32):
            batch = [b"id%d" % number for number in range(first, min(count, first + 32))]
            assert not any(self.decide(batch))
            self.ring.settle()

    @property
    def files(self) -> list[Path]:
        """The files of its runs, oldest first."""
        found = self.store.derived.glob("*/*.run") if self.store.derived else ()
        return sorted(found, key=lambda path: int(path.name.split("-")[0]))


class Model:
    """The rule: the last so many accepted ids, in order."""

    def __init__(self, capacity: int) -> None:
        self.ids: OrderedDict[bytes, None] = OrderedDict()
        self.capacity = capacity

    def decide(self, batch: list[bytes], *, is_committed: bool) -> list[bool]:
        ids = self.ids.copy()
        known = []
        for identifier in batch:
            known.append(identifier in ids)
            if not known[-1]:
                ids[identifier] = None
                if len(ids) > self.capacity:
                    ids.popitem(last=False)
        if is_committed:
            self.ids = ids
        return known


def batches(seed: int, decisions: int) -> Iterator[tuple[random.Random, list[bytes]]]:
    """Ids of which a third was given before, at any distance."""
    chance, given = random.Random(seed), 0
    while decisions > 0:
        batch = []
        for _ in range(chance.randint(1, 40)):
            back = chance.choice((1, 10, 100, 1_000)) if chance.random() < 0.35 else 0
            number = max(0, given - chance.randint(0, back)) if back else (given := given + 1)
            batch.append(b"id%d" % number)
        decisions -= len(batch)
        yield chance, batch


@pytest.mark.parametrize(
    ("seed", "decisions"),
    [*((seed, 4_000) for seed in range(4)), pytest.param(9, 1_000_000, marks=pytest.mark.long)],
)
@pytest.mark.parametrize("memory_bytes_max", [0, 1 << 20])
def test_a_ring_with_runs_remembers_what_the_rule_says(
    tmp_path: Path, seed: int, decisions: int, memory_bytes_max: int
) -> None:
    kept, model, most = Kept(tmp_path, 700, memory_bytes_max), Model(700), 0
    for chance, batch in batches(seed, decisions):
        is_committed = chance.random() < 0.9
        expected = model.decide(batch, is_committed=is_committed)
        assert kept.decide(batch, is_committed=is_committed) == expected
        if chance.random() < 0.02:
            kept.start()
        if chance.random() < 0.1:
            kept.ring.settle()
        most = max(most, kept.ring.runs)
    assert most > 4, "older ids were in runs"
    assert kept.ring.ids_held == len(model.ids) == 700


def test_a_start_reads_no_segment_that_a_run_covers(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 10_000)
    kept.fill(2_000)
    kept.ring.settle()
    ends = [int(path.stem.split("-")[1]) for path in kept.files]
    for segment_key, value in list(kept.store.scan(b"r"))[:-4]:
        segment = decode(value)
        if not any(segment.first < end <= segment.end for end in ends):
            kept.store.keep([Edit(segment_key, value[:-1])])
    kept.start()
    assert kept.ring.ids_held == 2_000
    assert kept.decide([b"new"]) == [False]


def test_the_runs_of_an_address_are_counted_whether_it_is_loaded_or_not(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 10_000)
    assert runs_of(kept.store, SEGMENTS, "a") == (0, 0)
    kept.fill(2_000)
    kept.ring.settle()
    found = runs_of(kept.store, SEGMENTS, "a")
    assert found.files == kept.ring.runs > 1
    assert found.bytes == sum(path.stat().st_size for path in kept.files)
    assert runs_of(kept.store, SEGMENTS, "b") == runs_of(StoreWithFolder(None), SEGMENTS, "a")


@pytest.mark.parametrize("what", ["all", "first", "middle", "last", "seed"])
def test_runs_that_are_missing_are_made_again(tmp_path: Path, what: str) -> None:
    kept = Kept(tmp_path, 10_000)
    kept.fill(2_000)
    kept.ring.settle()
    files = kept.files
    assert len(files) > 2
    chosen = {"all": files, "first": files[:1], "middle": files[1:2], "last": files[-1:]}
    for path in chosen.get(what, [tmp_path / "seed"]):
        path.unlink()
    kept.start()
    assert all(kept.decide([b"id%d" % number for number in range(2_000)]))


@pytest.mark.parametrize("seed", range(30))
def test_a_run_that_is_damaged_is_never_believed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kept = Kept(tmp_path, 10_000)
    kept.fill(1_000)
    kept.ring.settle()
    path = chance.choice(kept.files)
    content = bytearray(path.read_bytes())
    if chance.random() < 0.2:
        del content[chance.randrange(len(content)) :]
    else:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    given = [b"id%d" % number for number in range(1_000)]
    try:
        kept.start()
        assert all(kept.decide(given))
    except StoreCorruptError:
        kept.store.derived = tmp_path / "of the store that is restored"
        kept.start()
        assert all(kept.decide(given))


def test_runs_of_an_earlier_ring_of_the_same_name_are_not_used(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 10_000)
    kept.fill(500)
    kept.ring.settle()
    old = kept.files
    kept.store.apply([Edit(key, None) for key, _ in kept.store.scan(b"r")], POSITION)
    kept.ring = Kept(tmp_path / "none", 10_000).ring  # the one before is not in memory
    assert all(path.exists() for path in old)
    again = StoredSegments(SOURCE, kept.store, SEGMENTS, "a")
    kept.ring, folder = NativeStoredRing(again), kept.store.derived
    kept.store.derived = folder
    other = [b"other%d" % number for number in range(600)]
    assert not any(kept.decide(other))
    kept.start()
    assert all(kept.decide(other))
    assert not any(kept.decide([b"id%d" % number for number in range(500)]))


def test_runs_are_not_used_where_the_ring_before_had_the_same_origins(tmp_path: Path) -> None:
    """As imports have that name no record."""
    kept = Kept(tmp_path, 10_000)
    for prefix in (b"id", b"other"):
        draft = kept.ring.draft(10_000, PackedPositions(SOURCE))
        ids = [prefix + b"%d" % number for number in range(640)]
        assert not any(map(draft.admit, ids, repeat(-1), repeat(7)))
        change = some(draft.change("a"))
        kept.store.apply([*draft.deletions("a"), *change.edits], POSITION)
        kept.ring.apply(change.content)
        kept.ring.settle()
        kept.start()
        assert all(kept.decide(ids)), "also where there are files of the ring before"
        if prefix == b"id":
            kept.store.apply([Edit(key, None) for key, _ in kept.store.scan(b"r")], POSITION)
            folder, kept.store.derived = kept.store.derived, None
            kept.start()  # the ring in memory has no files, so those before stay
            kept.store.derived = folder
    assert kept.files


@pytest.mark.usefixtures("_few_whole")
def test_the_files_of_an_address_that_was_deleted_are_deleted(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 10_000)
    kept.fill(500)
    kept.ring.settle()
    kept.store.apply([Edit(key, None) for key, _ in kept.store.scan(b"r")], POSITION)
    with native_rings():
        Cache(1 << 20).memory(SOURCE, kept.store, "a", RingStrategy("id_cache_size"))
    assert not kept.files


@pytest.fixture
def _few_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence_state.cache.WHOLE_IDS_MAX", 100)


def test_an_id_that_was_forgotten_and_accepted_again_many_times_is_decided(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 10_000)
    for number in range(LENT + 10):
        kept.decide([b"same"])
        kept.decide([b"%d-%d" % (number, each) for each in range(40)])
        forgotten = forget_all(kept.store, "a", [some(kept.ring.committed(b"same"))])
        kept.store.apply(forgotten, POSITION)
        kept.ring.reread()
        kept.ring.settle()
    for _ in range(2):
        assert kept.ring.committed(b"same") is None
        assert kept.decide([b"same", b"same"]) == [False, True]
        forgotten = forget_all(kept.store, "a", [some(kept.ring.committed(b"same"))])
        kept.store.apply(forgotten, POSITION)
        kept.start()


def test_the_runs_of_a_ring_that_was_cleared_are_deleted(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 10_000)
    kept.fill(500)
    kept.ring.settle()
    kept.store.apply(clear(kept.store, "a"), POSITION)
    kept.start()
    assert not kept.files
    assert not any(kept.decide([b"id%d" % number for number in range(500)]))


def test_what_a_stopped_process_was_writing_is_deleted(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 10_000)
    kept.fill(500)
    kept.ring.settle()
    left = kept.files[0].with_name("1-1.new")
    left.write_bytes(b"half")
    kept.start()
    assert not left.exists()


def test_rings_whose_filters_do_not_fit_are_decided_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence_state.cache.WHOLE_IDS_MAX", 100)
    store, rings = StoreWithFolder(tmp_path), {}
    for address in "ab":
        rings[address] = Kept(tmp_path, 100_000, address=address, store=store)
        rings[address].fill(40_000)
    whole = sum(kept.ring.memory_bytes for kept in rings.values())
    assert all(kept.ring.shrink() for kept in rings.values())
    without = sum(kept.ring.memory_bytes for kept in rings.values())
    assert whole > 1.3 * without
    with native_rings():
        cache = Cache(without // 2)
        for _ in range(3):
            cache.begin(is_bounded=True)
            for address in "ab":
                ring = cache.memory(SOURCE, store, address, RingStrategy("id_cache_size"))
                assert isinstance(ring, NativeStoredRing)
                assert ring.committed(b"id7") == 7
                assert ring.committed(b"new") is None
        assert cache.memory_bytes <= without


def replayed_into(folder: Path, *changelogs: list[Edit], at_once: int = 7) -> StoreWithFolder:
    """A store that was restored from changelogs whose records came in turn."""
    store = StoreWithFolder(folder)
    (observer,) = (each for each in [FORMS.replayed(store)] if each is not None)
    edits = [edit for edits in zip_longest(*changelogs) for edit in edits if edit is not None]
    for at in range(0, len(edits), at_once):
        store.apply(edits[at : at + at_once], POSITION)
        observer.take(edits[at : at + at_once])
    observer.finish()
    return store


def changelog_of(kept: Kept) -> list[Edit]:
    """What its store holds, as a compacted log has it."""
    return [Edit(*each) for each in kept.store.scan(b"r")]


def test_runs_are_there_as_soon_as_a_changelog_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Kept(tmp_path / "first", 10_000)
    first.fill(1_000)
    first.store.apply(forget_all(first.store, "a", [3, 500]), POSITION)
    second = Kept(tmp_path / "second", 10_000, address="b")
    second.fill(300)
    small = Kept(tmp_path / "small", 10_000, address="c")
    small.fill(10)
    logs = [changelog_of(each) for each in (first, second, small)]
    logs[0][5:5] = logs[0][2:5]  # written again, as when they were joined
    store = replayed_into(tmp_path / "again", *logs)
    with monkeypatch.context() as patch:
        patch.setattr(RingRuns, "_build", lambda _self, _table, start, end: max(start, end))
        for kept in (first, second):
            kept.store = store
            kept.start()
            assert kept.ring.runs > 1
    known = first.decide([b"id%d" % number for number in range(1_000)])
    assert [at for at, is_known in enumerate(known) if not is_known] == [3, 500]
    assert all(second.decide([b"id%d" % number for number in range(300)]))
    assert len(list((tmp_path / "again").iterdir())) == 3, "the seed, and two folders"


class Logged(StoreWithFolder):
    """A store that keeps all edits, in order."""

    def __init__(self, derived: Path) -> None:
        super().__init__(derived)
        self.log: list[Edit] = []

    def apply(self, edits: Iterable[Edit], position: StorePosition) -> None:
        edits = list(edits)
        self.log += edits
        super().apply(edits, position)


def test_a_replay_that_goes_on_deletes_the_runs_whose_ids_are_evicted(tmp_path: Path) -> None:
    log = Logged(tmp_path / "first")
    kept = Kept(tmp_path, 200, store=log)
    kept.fill(2_000)
    kept.store = replayed_into(tmp_path / "again", log.log)
    assert kept.files[0].name.startswith("1"), "31 runs were written"
    assert 3 <= len(kept.files) <= 12
    kept.start()
    assert all(kept.decide([b"id%d" % number for number in range(1_800, 2_000)]))
    assert not any(kept.decide([b"id%d" % number for number in range(1_800)]))


@pytest.mark.parametrize("count", [100, 128], ids=["some are in no run", "all are in runs"])
def test_a_resize_that_a_changelog_ends_with_is_replayed(tmp_path: Path, count: int) -> None:
    kept = Kept(tmp_path / "first", 10_000)
    kept.fill(count)
    kept.capacity = 5_000
    resize = kept.ring.draft(kept.capacity, PackedPositions(SOURCE)).change("a")
    assert resize is not None
    kept.store = replayed_into(tmp_path / "again", [*changelog_of(kept), *resize.edits])
    kept.start()
    assert kept.decide([b"id99"]) == [True]


def test_a_disk_that_refuses_files_when_a_replay_begins_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailedError, match="Not a directory"):
        FORMS.replayed(StoreWithFolder(tmp_path / "file" / "derived"))


def test_addresses_that_are_replayed_beside_many_others_have_what_memory_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReplayedRuns, "ids_max", 100)
    rings = [Kept(tmp_path / name, 10_000, address=name) for name in "abcdefgh"]
    for kept in rings:
        kept.fill(200)
    store = replayed_into(tmp_path / "again", *map(changelog_of, rings))
    for kept in rings:
        kept.store = store
        kept.start()
        assert all(kept.decide([b"id%d" % number for number in range(200)]))


YOUNG = 100


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], None),
        ([100] * 2, None),
        ([100] * 3, slice(0, 3)),
        ([400, 100, 100], None),
        ([400, 100, 100, 100], slice(1, 4)),
        ([200, 100, 100], slice(0, 3)),
        ([400] * 3, None),
        ([1_600] * 4 + [400] * 3, slice(4, 7)),
        ([1_600] * 8, None),
        ([1_600] * 6 + [100] * 20, slice(6, 22)),
    ],
)
def test_adjacent_runs_of_about_one_size_are_merged(
    spans: list[int], expected: slice | None
) -> None:
    assert to_merge(spans, YOUNG) == expected


@pytest.mark.parametrize("count", [1_000, 20_000, 200_000])
def test_the_number_of_runs_grows_with_the_logarithm(count: int) -> None:
    spans: list[int] = []
    written = 0
    for _ in range(count // YOUNG):
        spans.append(YOUNG)
        while (due := to_merge(spans, YOUNG)) is not None:
            written += sum(spans[due])
            spans[due] = [sum(spans[due])]
    assert len(spans) < 14
    assert max(spans) <= max(count // 4, 4 * YOUNG)
    assert written < 7 * count
