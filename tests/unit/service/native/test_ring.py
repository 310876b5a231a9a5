"""The compiled ring against the one in Python: verdicts, origins, and what both write."""

import gc
import sys
from itertools import pairwise, repeat
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence_service.native.ring import AnyRing, NativeRing, NativeStoredRing, whole
from ringfence_service.native.runs import RingRuns
from ringfence_state.cache import Cache
from ringfence_state.keys import SEGMENTS, UnknownFormatError
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import OFFSET_MAX, Claim, Edit, Origin, PackedPositions, PartitionId
from ringfence_state.segment import Segment, decode, encode, key
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.ring import RingDraft
from ringfence_state.strategies.ring_admin import forget_all
from ringfence_state.strategies.ring_memory import InMemoryRing, RingStrategy
from tests.support.native import native_rings, needs_native
from tests.unit.state.strategies.test_ring import POSITION, STEPS, Step

pytestmark = needs_native

SOURCES = [PartitionId("orders", 1), PartitionId("payments", 7), PartitionId("héron", 0)]
STEPS_OF_SOURCES = st.lists(
    st.tuples(STEPS, st.lists(st.integers(0, 2), min_size=12, max_size=12), st.booleans()),
    max_size=12,
)
BIG = st.sampled_from([0, 1, -1, 255, 256, 65_536, 1 << 31, 1 << 33, 1 << 61, -(1 << 61)])


class StoreWithFolder(MemoryStore):
    """A store in memory beside which files may be kept."""

    def __init__(self, derived: Path | None) -> None:
        super().__init__()
        self.derived = derived


@pytest.fixture(autouse=True)
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs so small that few ids make many."""
    monkeypatch.setattr(RingRuns, "young_ids", 3)
    monkeypatch.setattr(RingRuns, "built_ids", 5)


class Written:
    """One ring, and the values that it has written."""

    def __init__(self, form: str, folder: Path | None = None) -> None:
        self.form = form
        self.store = StoreWithFolder(folder if form == "runs" else None)
        self.load()

    @property
    def stored(self) -> tuple[object, ...]:
        """What is stored: held ids with numbers and origins, and what the newest segment says."""
        segments = [decode(value) for _, value in self.store.scan(b"")]
        for before, after in pairwise(segments):
            assert before.end <= after.first
        floor = segments[-1].floor if segments else 0
        rows = [
            (number, segment.ids[number - segment.first], segment.origin(number))
            for segment in segments
            for number in range(max(floor, segment.first), segment.end)
        ]
        newest = [(each.end, each.floor, each.capacity, each.has_evicted) for each in segments[-1:]]
        return rows, newest

    def load(self) -> None:
        """As it is after a restart."""
        self.ring: InMemoryRing | AnyRing
        segments = StoredSegments(SOURCES[0], self.store, SEGMENTS, "a", memory_bytes_max=1 << 20)
        if self.form == "python":
            self.ring = InMemoryRing()
            self.ring.absorb([decode(value) for _, value in segments.entries()])
        elif self.form == "whole":
            self.ring = whole(segments.entries())
        else:
            self.ring = NativeStoredRing(segments)

    def decide(self, step: Step, rows: list[tuple[int, int, int]]) -> list[object]:
        """All that a batch shows: origins, edits, counts, the bounds afterwards."""
        if step.restart:
            self.load()
        positions = PackedPositions(SOURCES[0])
        draft = self.ring.draft(step.size, positions)
        told: list[object] = []
        for identifier, (source, offset, time_ms) in zip(step.ids, rows, strict=False):
            position = positions.base(SOURCES[source]) + offset
            number = draft.admit(identifier, position, time_ms)
            told += [number, None if number is None else draft.origin(number)]
            told.append(draft.judge(identifier))
            if source == 2 and offset % 2 and step.size:
                claim = draft.renew(Claim(identifier))
                told += [draft.judge(identifier), claim, list(draft.renewed)]
                draft.admit(identifier, position, time_ms)
        told += [dict(draft.accepted()), list(draft.evicted), draft.extent() if step.size else 0]
        change = draft.change("a")
        if step.committed and change is not None:
            self.store.apply([*draft.deletions("a"), *change.edits], POSITION)
            renewed = list(draft.renewed)
            self.ring.apply(change.content)
            if renewed:
                self.forget(renewed)
        told += [self.ring.ids_held, self.ring.ids_evicted]
        return told

    def forget(self, renewed: list[int]) -> None:
        """As the service does with what was renewed: rewrite the segments; copies of them stay."""
        self.store.apply(forget_all(self.store, "a", renewed), POSITION)
        self.ring.reread()  # a ring in memory still has the ids, and takes them for new


@pytest.mark.parametrize("form", ["whole", "stored", "runs"])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS_OF_SOURCES, data=st.data())
def test_a_compiled_ring_tells_and_writes_what_the_one_in_python_does(
    tmp_path_factory: pytest.TempPathFactory,
    form: str,
    steps: list[tuple[Step, list[int], bool]],
    data: st.DataObject,
) -> None:
    ours, theirs = Written(form, tmp_path_factory.mktemp("derived")), Written("python")
    offset = 0
    for step, sources, is_wide in steps:
        rows = []
        for source in sources:
            offset += 1
            wide = data.draw(BIG) if is_wide else 0
            rows.append((source, offset + wide, offset + 3 * wide))
        if isinstance(ours.ring, NativeStoredRing) and data.draw(st.booleans()):
            ours.ring.settle()
        assert ours.decide(step, rows) == theirs.decide(step, rows)
        assert ours.stored == theirs.stored


def ids(first: int, count: int) -> list[bytes]:
    return [b"id%d" % number for number in range(first, first + count)]


def admitted(cache: Cache, store: MemoryStore, batch: list[bytes]) -> RingDraft:
    """The open draft of a batch that has new ids only."""
    memory = cache.memory(SOURCES[0], store, "a", RingStrategy("id_cache_size"))
    draft = cast("InMemoryRing", memory).draft(5_000, PackedPositions(SOURCES[0]))
    assert not any(map(draft.admit, batch, range(len(batch)), repeat(0)))
    return draft


@pytest.mark.parametrize("capacity", [6, 511, 512, 513, 518, 1_024, 5_000])
def test_a_long_batch_writes_the_segments_that_it_does_not_evict_itself(capacity: int) -> None:
    step = Step(capacity, restart=False, ids=ids(0, 1_030), committed=True)
    rows = [(0, number, 7) for number in range(1_030)]
    ours, theirs = Written("whole"), Written("python")
    assert ours.decide(step, rows) == theirs.decide(step, rows)
    assert ours.stored == theirs.stored


def test_the_cache_counts_what_its_rings_have_after_aborts_and_commits() -> None:
    cache, store = Cache(1 << 30), MemoryStore()
    sizes = []
    with native_rings():
        for first in range(0, 60_000, 6_000):
            admitted(cache, store, ids(first, 6_000))  # aborted
            change = admitted(cache, store, ids(first, 3_000)).change("a")
            assert change is not None
            memory = cache.look(SOURCES[0], "a")
            assert isinstance(memory, NativeRing)
            cache.apply(SOURCES[0], "a", memory, change.content)
            sizes.append(cache.memory_bytes)
            assert cache.memory_bytes == memory.memory_bytes
        cache.drop(SOURCES[0])
    assert cache.memory_bytes == 0
    assert max(sizes) < 5_000 * 70  # segments that were evicted are not kept


@pytest.mark.parametrize("form", ["python", "whole", "stored"])
def test_the_largest_offset_of_an_origin_is_kept_beside_those_of_other_partitions(
    form: str,
) -> None:
    assert OFFSET_MAX < 1 << 62, "what a packed position can hold"
    written = Written(form)
    rows = [(source, offset, 7) for source in (0, 1) for offset in (OFFSET_MAX, 0, -1)]
    step = Step(20, restart=False, ids=ids(0, len(rows)), committed=True)
    written.decide(step, rows)
    written.load()
    found = [written.ring.origin(number) for number in range(len(rows))]
    assert found == [Origin(*SOURCES[source], offset, time) for source, offset, time in rows]


def test_a_draft_is_freed_without_a_garbage_collection() -> None:
    ring = NativeRing()
    references = sys.getrefcount(ring), sys.getrefcount(ring.table)
    gc.disable()
    try:
        for capacity in (0, 5_000):
            draft = ring.draft(capacity, PackedPositions(SOURCES[0]))
            for identifier in ids(0, 1_000):
                draft.admit(identifier, 1, 1)
            lane = (draft.native, "out", 0, 0)
            del draft, lane
            assert (sys.getrefcount(ring), sys.getrefcount(ring.table)) == references
    finally:
        gc.enable()
    assert ring.memory_bytes < 1_000


@pytest.mark.parametrize("form", ["whole", "stored"])
def test_a_segment_whose_numbers_the_table_cannot_have_is_refused(form: str) -> None:
    def loaded(first: int) -> InMemoryRing | AnyRing:
        segment = Segment(first, first, 10, (SOURCES[0],), (b"a",), [0], [5], [6])
        written = Written(form)
        written.store.keep([Edit(key("a", first), encode(segment))])
        written.load()
        return written.ring

    assert loaded((1 << 62) - 1).ids_held
    for first in (1 << 62, (1 << 64) - 1):
        with pytest.raises(UnknownFormatError):
            loaded(first)


@pytest.mark.parametrize("indexes", [(3, 0), (0, 3), (3, 3), (-1, 0), (0, -1), (-1, -1)])
@pytest.mark.parametrize("ids", [(b"a", b"b"), (b"a", b"bc")])
def test_a_segment_with_a_source_that_it_does_not_name_is_refused(
    indexes: tuple[int, int], ids: tuple[bytes, bytes]
) -> None:
    segment = Segment(0, 0, 10, tuple(SOURCES[:3]), ids, indexes, [5, 6], [7, 8])
    with pytest.raises(UnknownFormatError):
        whole([(b"", encode(segment))])


SEGMENT_COLUMNS = st.lists(
    st.tuples(
        st.binary(max_size=66),
        st.integers(0, 2),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.integers(0, 1 << 40) | BIG,
    ),
    max_size=5,
)


def segment_of(rows: list[tuple[bytes, int, int, int]]) -> Segment:
    identifiers, sources, offsets, times_ms = zip(*rows, strict=True) if rows else ((),) * 4
    return Segment(7, 3, 10, tuple(SOURCES), identifiers, sources, offsets, times_ms)


@settings(max_examples=400, deadline=None)
@given(rows=SEGMENT_COLUMNS, damage=st.data())
def test_compiled_code_takes_the_bytes_that_are_a_segment_and_no_others(
    rows: list[tuple[bytes, int, int, int]], damage: st.DataObject
) -> None:
    value = bytearray(encode(segment_of(rows)))
    for _ in range(damage.draw(st.integers(0, 2))):
        at = damage.draw(st.integers(0, len(value) - 1))
        end = damage.draw(st.integers(at, min(len(value), at + 9)))
        value[at:end] = damage.draw(st.binary(min_size=0, max_size=9))
    given_value = bytes(value)
    try:
        segment = decode(given_value)
    except UnknownFormatError:
        with pytest.raises(UnknownFormatError):
            whole([(b"", given_value)])
        return
    if max(segment.first, segment.floor) >= 1 << 62:
        return
    ring = whole([(b"", given_value)])
    bounds = segment.end, segment.floor, segment.capacity
    assert (ring.next, ring.floor, ring.capacity) == bounds
    for number in range(segment.first, segment.end):
        assert ring.origin(number) == segment.origin(number)
