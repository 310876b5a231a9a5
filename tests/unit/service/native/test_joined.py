"""Small segments of a ring, which the compiled path joins: what is stored, and how often."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from ringfence_service.native.ring import AnyRing, NativeStoredRing, whole
from ringfence_service.native.runs import RingRuns
from ringfence_state.keys import SEGMENTS
from ringfence_state.model import Claim, Origin, PackedPositions, PartitionId
from ringfence_state.segment import SEGMENT_IDS_MAX, Segment, decode
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.ring_memory import InMemoryRing, RingStrategy
from tests.support.helpers import some
from tests.support.native import needs_native
from tests.unit.service.native.test_ring import StoreWithFolder
from tests.unit.service.native.test_runs import Model
from tests.unit.state.strategies.test_ring import POSITION

pytestmark = needs_native

SOURCES = [PartitionId("orders", 0), PartitionId("payments", 3)]


class Written:
    """A ring that is written in small batches."""

    def __init__(self, folder: Path, form: str, capacity: int) -> None:
        self.store, self.form, self.capacity = StoreWithFolder(folder), form, capacity
        self.offset = self.ids_written = 0
        self.ring = self.load()

    def load(self) -> AnyRing:
        """As a process does that has the store."""
        segments = StoredSegments(SOURCES[0], self.store, SEGMENTS, "a")
        return whole(segments.entries()) if self.form == "whole" else NativeStoredRing(segments)

    def decide(self, batch: list[bytes], *, is_committed: bool = True) -> list[bool]:
        """Decide a batch of both partitions; return which of its ids are known."""
        positions = PackedPositions(SOURCES[0])
        draft, known = self.ring.draft(self.capacity, positions), []
        for offset, identifier in enumerate(batch, self.offset):
            base = positions.base(SOURCES[offset % 2])
            known.append(draft.admit(identifier, base + offset, 7 * offset) is not None)
        change = draft.change("a")
        if is_committed and change is not None:
            edits = [*draft.deletions("a"), *change.edits]
            self.ids_written += sum(len(decode(each.value).ids) for each in edits if each.value)
            self.store.apply(edits, POSITION)
            self.ring.apply(change.content)
            self.offset += len(batch)
        return known

    @property
    def segments(self) -> list[Segment]:
        """What is stored, in order."""
        return [decode(value) for _, value in self.store.scan(b"")]


@pytest.fixture(autouse=True)
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RingRuns, "young_ids", 40)
    monkeypatch.setattr(RingRuns, "built_ids", 100)


@pytest.mark.parametrize("capacity", [3, 10, 100, 2_000])
@pytest.mark.parametrize("form", ["whole", "runs"])
@pytest.mark.parametrize("largest", [1, 3, 12, 90, 600])
def test_joined_segments_hold_what_the_rule_says(
    tmp_path: Path, form: str, capacity: int, largest: int
) -> None:
    chance = random.Random(f"{form} {capacity} {largest}")
    written, model, given = Written(tmp_path, form, capacity), Model(capacity), 0
    for _ in range(400):
        batch = []
        for _ in range(chance.randint(1, largest)):
            given += chance.random() < 0.8
            back = chance.choice((0, 0, 0, 1, 30, 3_000))
            batch.append(b"id%d" % max(0, given - chance.randint(0, back)))
        is_committed = chance.random() < 0.9
        expected = model.decide(batch, is_committed=is_committed)
        assert written.decide(batch, is_committed=is_committed) == expected
        if chance.random() < 0.05:
            written.ring = written.load()
    segments, ring = written.segments, written.ring
    assert all(before.end <= after.first for before, after in pairwise(segments))
    last = segments[-1]
    assert (ring.next, ring.floor, ring.capacity) == (last.end, last.floor, capacity)
    stored = {n: each for each in segments for n in range(each.first, each.end)}
    held = [stored[n].ids[n - stored[n].first] for n in range(last.floor, last.end)]
    assert held == list(model.ids)
    again = InMemoryRing()
    again.absorb(segments)
    assert [again.committed(each) for each in held] == [*range(last.floor, last.end)]
    for number in range(last.floor, last.end):
        assert ring.origin(number) == again.origin(number)


@pytest.mark.parametrize("form", ["whole", "runs"])
@pytest.mark.parametrize("each", [1, 5, 20, 100, 300])
def test_an_address_with_few_ids_in_a_batch_has_few_segments(
    tmp_path: Path, form: str, each: int
) -> None:
    written = Written(tmp_path, form, 10_000)
    for first in range(0, 4_000, each):
        written.decide([b"%d" % number for number in range(first, min(4_000, first + each))])
    assert written.ids_written <= 4 * 4_000
    segments = written.segments
    assert len(segments) <= 4_000 / min(each, 256) + 24 if each > 64 else len(segments) < 40
    assert max(len(segment.ids) for segment in segments) <= SEGMENT_IDS_MAX


def test_a_ring_that_shrinks_deletes_no_segment_that_has_taken_in_others(tmp_path: Path) -> None:
    written = Written(tmp_path, "runs", 100)
    for number in range(40):
        written.decide([b"%d" % number])
    written.capacity = 20
    written.decide([b"new"])
    written.decide([b"newer"])
    assert all(written.decide([b"%d" % number for number in range(22, 40)]))
    assert not any(written.decide([b"%d" % number for number in range(20)]))


@pytest.mark.parametrize("form", ["whole", "runs"])
def test_an_id_that_was_made_new_is_in_no_segment_that_is_joined_later(
    tmp_path: Path, form: str
) -> None:
    written = Written(tmp_path, form, 1_000)
    for number in range(5):
        written.decide([b"x%d" % number])
    draft = written.ring.draft(1_000, PackedPositions(SOURCES[0]))
    claim = draft.renew(Claim(b"x1"))
    draft.remember(claim, Origin(*SOURCES[0], 5, 5))
    change = some(draft.change("a"))
    renewals = RingStrategy("id_cache_size").renewals(written.store, "a", draft)
    written.store.apply([*change.edits, *renewals], POSITION)
    written.ring.apply(change.content)
    if not written.ring.reread():  # as the service does with a cache that is rewritten
        written.ring = written.load()
    for number in range(9):
        written.decide([b"y%d" % number])
    assert [each for segment in written.segments for each in segment.ids].count(b"x1") == 1


def test_copies_are_found_in_segments_that_were_joined_after_a_run_was_written(
    tmp_path: Path,
) -> None:
    written = Written(tmp_path, "runs", 10_000)
    for number in range(300):
        written.decide([b"%d" % number])
        if isinstance(written.ring, NativeStoredRing):
            written.ring.settle()
        near = [b"%d" % each for each in range(max(0, number - 60), number + 1)]
        assert all(written.decide(near))


def test_a_ring_of_small_segments_that_an_earlier_version_wrote_is_joined_in_parts(
    tmp_path: Path,
) -> None:
    written = Written(tmp_path, "whole", 100_000)
    positions = PackedPositions(SOURCES[0])
    ring = InMemoryRing()
    for number in range(20_000):
        draft = ring.draft(100_000, positions)
        draft.admit(b"%d" % number, number, number)
        change = some(draft.change("a"))
        written.store.apply(change.edits, POSITION)
        ring.apply(change.content)
    written.ring = written.load()
    written.decide([b"new"])
    assert written.ids_written == SEGMENT_IDS_MAX
    assert all(written.decide([b"%d" % number for number in range(0, 20_000, 7)]))
