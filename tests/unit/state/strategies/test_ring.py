"""The ring against a deque, and what a deque cannot tell: originals, bounds and restarts."""

import hashlib
import sys
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_state.keys import UnknownFormatError
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Edit, Origin, PackedPositions
from ringfence_state.segment import SEGMENT_IDS_MAX, STORED_ID_BYTES_MAX, Segment, key, put
from ringfence_state.store import Identity, StorePosition
from ringfence_state.strategies.base import Occupancy
from ringfence_state.strategies.ring_admin import (
    bounds,
    clear,
    entries,
    entries_upwards,
    extent,
    forget_all,
)
from ringfence_state.strategies.ring_memory import InMemoryRing
from tests.oracle.ours import ADDRESS, SOURCE, OurModel, OurRing


class CountingStore(MemoryStore):
    """Counts the values that are read."""

    read = 0

    def get(self, key: bytes) -> bytes | None:
        self.read += 1
        return super().get(key)


class Step(NamedTuple):
    """A batch under a size, perhaps after a restart; `committed` or dropped."""

    size: int
    restart: bool
    ids: list[bytes]
    committed: bool


POSITION: Final = StorePosition(Identity("", "", "", 1), 1, 1, 1)
RUN: Final = Segment(0, 0, 9, (SOURCE,), (b"x", b"y"), (0, 0), (7, 8), (70, 80))

# Few letters, so that ids meet again; prefixes of each other, the empty one, and long ones.
IDS = st.one_of(
    st.text("ab", max_size=2).map(str.encode),
    st.integers(0, 9).map(lambda number: b"x" * STORED_ID_BYTES_MAX + b"%d" % number),
    st.binary(max_size=2),
)
STEPS = st.builds(
    Step,
    size=st.sampled_from([0, 1, 2, 3, 5, 8]),
    restart=st.booleans(),
    ids=st.lists(IDS, max_size=12),
    committed=st.booleans(),
)


@given(st.lists(STEPS, max_size=12))
def test_ring_agrees_with_a_deque(steps: list[Step]) -> None:
    ring, model = OurRing(0), OurModel(0)
    for step in steps:
        if step.restart:
            ring.restart(step.size)
        else:
            ring.resize(step.size)
        model.restart(step.size)
        assert ring.decide(step.ids, committed=step.committed) == model.decide(
            step.ids, committed=step.committed
        )
        assert len(ring) == len(model)


@given(st.lists(STEPS, max_size=12))
def test_a_duplicate_names_where_its_accepted_original_came_from(steps: list[Step]) -> None:
    ring = OurRing(0)
    accepted: dict[Origin, bytes] = {}
    offset = 0
    for step in steps:
        ring.restart(step.size)
        verdicts = ring.decide(step.ids, committed=step.committed)
        duplicates = []
        for place, (identifier, verdict) in enumerate(zip(step.ids, verdicts, strict=True), offset):
            if verdict:
                duplicates.append(identifier)
            else:
                accepted[Origin(*SOURCE, place, place)] = identifier
        offset += len(step.ids)
        assert [accepted[origin] for origin in ring.originals] == duplicates


def test_a_batch_sees_its_own_additions() -> None:
    assert OurRing(3).decide([b"a", b"a", b"b", b"a"]) == b"\0\1\0\1"


def test_a_dropped_draft_leaves_nothing_behind() -> None:
    ring = OurRing(2)
    ring.decide([b"a", b"b"])
    before = dict(ring.changelog)
    assert ring.decide([b"c", b"d", b"c"], committed=False) == b"\0\0\1"
    assert ring.changelog == before
    assert ring.decide([b"a", b"b", b"c"], committed=False) == b"\1\1\0"


def test_a_batch_of_duplicates_writes_nothing() -> None:
    ring = OurRing(3)
    ring.decide([b"a", b"b"])
    before = dict(ring.changelog)
    ring.decide([b"b", b"a", b"b"])
    assert ring.changelog == before


def test_a_batch_longer_than_a_run_is_cut_into_several() -> None:
    ring = OurRing(10 * SEGMENT_IDS_MAX)
    ids = [b"%d" % number for number in range(2 * SEGMENT_IDS_MAX + 1)]
    ring.decide(ids)
    assert len(ring.changelog) == 3
    ring.restart(10 * SEGMENT_IDS_MAX)
    assert ring.decide(ids) == b"\1" * len(ids)


def test_an_id_that_was_accepted_twice_is_forgotten_once() -> None:
    ring = OurRing(3)
    assert ring.decide([b"a", b"b", b"c", b"d", b"a"]) == bytes(5)
    assert ring.decide([b"x", b"y", b"z"]) == bytes(3)
    assert ring.decide([b"a", b"x", b"y", b"z", b"a"]) == b"\0\0\0\0\0"


def test_ids_longer_than_the_ring_keeps_are_distinguished() -> None:
    ring = OurRing(10)
    same = b"x" * STORED_ID_BYTES_MAX
    assert ring.decide([same, same + b"1", same + b"2", same + b"1"]) == b"\0\0\0\1"


def test_an_id_is_not_mistaken_for_a_long_one_with_that_digest() -> None:
    long = b"x" * (STORED_ID_BYTES_MAX + 1)
    assert OurRing(10).decide([long, hashlib.sha256(long).digest()]) == b"\0\0"


def test_a_resize_takes_effect_without_new_ids_and_survives_a_restart() -> None:
    ring = OurRing(3)
    ring.decide([b"a", b"b", b"c"])
    ring.resize(1)
    ring.restart(3)
    assert ring.decide([b"a", b"b", b"c"], committed=False)[:1] == b"\0"
    assert ring.decide([b"c", b"b", b"a"]) == b"\1\0\0"


def test_a_smaller_size_of_a_dropped_batch_has_forgotten_nothing() -> None:
    ring = InMemoryRing()
    draft = ring.draft(2, PackedPositions(SOURCE))
    draft.admit(b"a", 0, 0)
    draft.admit(b"b", 1, 0)
    ring.absorb(draft.seal())
    assert ring.draft(1, PackedPositions(SOURCE)).judge(b"a") is None
    assert ring.draft(2, PackedPositions(SOURCE)).judge(b"a") is not None


@pytest.mark.parametrize(
    ("size", "ids", "dropped", "following", "verdicts"),
    [
        (2, b"ab", b"ca", b"ab", b"\1\1"),
        (1, b"", b"aba", b"ba", b"\0\0"),
    ],
)
def test_what_a_dropped_batch_forgot_or_accepted_twice_is_as_it_was(
    size: int, ids: bytes, dropped: bytes, following: bytes, verdicts: bytes
) -> None:
    ring = OurRing(size)
    ring.decide([bytes([each]) for each in ids])
    ring.decide([bytes([each]) for each in dropped], committed=False)
    assert ring.decide([bytes([each]) for each in following]) == verdicts


def test_of_a_batch_longer_than_the_ring_what_is_held_is_written_and_known() -> None:
    ring = OurRing(SEGMENT_IDS_MAX)
    ids = [b"%d" % number for number in range(2 * SEGMENT_IDS_MAX)]
    ring.decide(ids)
    assert len(ring.changelog) == 1
    assert ring.decide(ids[SEGMENT_IDS_MAX:]) == b"\1" * SEGMENT_IDS_MAX


def test_what_a_ring_has_outlived_is_deleted_once_and_held_by_nobody() -> None:
    ring, name = InMemoryRing(), b"%d" % SEGMENT_IDS_MAX
    holders = sys.getrefcount(name)
    deleted = []
    for ids in ([name], [b"b"], [], []):
        draft = ring.draft(1, PackedPositions(SOURCE))
        for identifier in ids:
            draft.admit(identifier, 0, 0)
        deleted.append(len(draft.deletions(ADDRESS)))
        change = draft.change(ADDRESS)
        if change is not None:
            ring.apply(change.content)
    assert deleted == [0, 0, 1, 0]
    assert change is None
    del ids, identifier
    assert sys.getrefcount(name) == holders


def test_what_a_ring_takes_stays_bounded() -> None:
    ring = OurRing(100)
    most_runs = most_bytes = 0
    for batch in range(500):
        ring.decide([b"%06d" % number for number in range(batch * 7, batch * 7 + 7)])
        most_runs = max(most_runs, len(ring.changelog))
        most_bytes = max(most_bytes, ring.memory_bytes)
    assert most_runs <= 100 // 7 + 3
    assert most_bytes <= (100 + 2 * 7) * 256
    ring.resize(0)
    ring.decide(())
    assert ring.memory_bytes == 0
    assert len(ring.changelog) == 1, "the size and the newest number"


def test_a_resize_before_a_batch_longer_than_the_ring_leaves_no_key_behind() -> None:
    ring = OurRing(4)
    for size in (3, 2, 1):
        ring.resize(size)
        ring.decide([b"%d-%d" % (size, number) for number in range(2 * SEGMENT_IDS_MAX)])
    ring.decide(())
    assert len(ring.changelog) == 1


@pytest.fixture(params=[(), ("oracla", "oraclz")], ids=["alone", "between others"])
def store(request: pytest.FixtureRequest) -> CountingStore:
    """Of one address, or of two that stand before and after it as well."""
    found = CountingStore()
    found.apply([put(address, RUN) for address in request.param], POSITION)
    return found


@pytest.mark.parametrize(
    ("ids", "size", "told"),
    [
        (b"", 3, Occupancy(0)),
        (b"a", 3, Occupancy(1, 0, 0)),
        (b"abc", 3, Occupancy(3, 0, 2)),  # full, and nothing was forgotten for want of room
        (b"abcde", 3, Occupancy(3, 2, 4, 2)),
        (b"abcde", 4, Occupancy(3, 2, 4, 2)),  # it may hold more from now on, and has evicted two
        (b"abcde", 2, Occupancy(2, 3, 4, 1)),
    ],
)
def test_how_much_a_ring_holds_is_read_from_its_store(
    ids: bytes, size: int, told: Occupancy, store: CountingStore
) -> None:
    ring = OurRing(3)
    for identifier in ids:
        ring.decide([bytes([identifier])])
    store.apply([Edit(*each) for each in ring.changelog.items()], POSITION)
    assert extent(store, ADDRESS, size) == told
    if told.held > 1:
        store.apply([Edit(key(ADDRESS, told.oldest_ms or 0), None)], POSITION)
        with pytest.raises(UnknownFormatError):
            extent(store, ADDRESS, size)


@pytest.mark.parametrize(
    ("first", "end", "numbers", "runs_read", "runs_read_down"),
    [
        (0, 9, [3, 4, 5, 6, 7], 3, 3),  # what was there before is deleted
        (3, 9, [3, 4, 5, 6, 7], 3, 3),
        (3, 5, [3, 4], 2, 1),  # upwards it sees of the next that it begins beyond the end
        (5, 7, [5, 6], 2, 1),
        (6, 9, [6, 7], 2, 2),
        (7, 7, [], 1, 1),
        (8, 9, [], 1, 1),
    ],
)
def test_a_ring_is_read_from_any_number_and_no_run_that_lies_before(
    first: int,
    end: int,
    numbers: list[int],
    runs_read: int,
    runs_read_down: int,
    store: CountingStore,
) -> None:
    ring = OurRing(5)
    for ids in ([b"x", b"y", b"z"], [b"a", b"b"], [b"c", b"d"], [b"e"], []):
        ring.decide(ids)
    store.apply([Edit(*each) for each in ring.changelog.items()], POSITION)
    upwards = list(entries_upwards(store, ADDRESS, first, end))
    assert ([entry.number for entry in upwards], store.read) == (numbers, runs_read)
    store.read = 0
    assert list(entries(store, ADDRESS, end, first)) == upwards[::-1]
    assert store.read == runs_read_down
    assert [entry.identifier for entry in upwards] == [b"xyzabcde"[n : n + 1] for n in numbers]


def test_a_run_belongs_to_its_address_alone() -> None:
    draft = InMemoryRing().draft(1, PackedPositions(SOURCE))
    draft.admit(b"a", 0, 0)
    runs = draft.seal()
    keys = {edit.key for name in (ADDRESS, ADDRESS + "2") for edit in draft.edits(name, runs)}
    assert len(keys) == 2


def test_ids_are_forgotten_wherever_they_stand_and_a_cleared_ring_counts_on(
    store: CountingStore,
) -> None:
    ring = OurRing(5)
    for ids in ([b"a", b"b"], [b"c", b"d"], [b"e"]):
        ring.decide(ids)
    store.apply([Edit(*each) for each in ring.changelog.items()], POSITION)
    store.apply(forget_all(store, ADDRESS, [2, 1]), POSITION)
    assert [each.identifier for each in entries(store, ADDRESS, 9, 0)] == [b"e", b"d", b"a"]
    store.apply(clear(store, ADDRESS), POSITION)
    assert bounds(store, ADDRESS, 5) == (5, 5)
