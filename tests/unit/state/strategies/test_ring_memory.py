"""The compact ring against the one that holds everything, whatever its index takes for known."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence_state.id_index import HashIndex, MakeIndex
from ringfence_state.keys import UnknownFormatError
from ringfence_state.model import Claim, Origin, PackedPositions
from ringfence_state.segment import (
    SEGMENT_IDS_MAX,
    SegmentEntry,
    SegmentSummary,
    decode,
    encode,
    row_of,
    summary,
)
from ringfence_state.strategies.base import HeldId
from ringfence_state.strategies.registry import STRATEGIES
from ringfence_state.strategies.ring import RingDraft
from ringfence_state.strategies.ring_memory import IndexedRing, InMemoryRing
from tests.oracle.ours import SOURCE
from tests.support.helpers import some
from tests.unit.state.indexes import INDEXES
from tests.unit.state.strategies.kept import SOURCE as KEPT_SOURCE
from tests.unit.state.strategies.kept import Kept
from tests.unit.state.strategies.test_ring import STEPS, Step

IDS = tuple(b"id-%d" % number for number in range(9))
ANYWHERE = Origin(*KEPT_SOURCE, 99, 99)

Told = tuple[list[Origin | None], list[bytes]]
"""Origins that were returned for a batch, and what it wrote."""


class Pair:
    """The same ring in both forms, on one store."""

    def __init__(self, make_index: MakeIndex = HashIndex, at_once: int = 1) -> None:
        """`at_once` is how many ids are admitted together."""
        self.make_index, self.at_once = make_index, at_once
        self.values: dict[int, bytes] = {}
        self.whole, self.compact = InMemoryRing(), self.loaded()
        self._sent = 0

    def loaded(self) -> IndexedRing:
        """As it is after a restart."""
        ring = IndexedRing(self._row, self.make_index(8))
        for first in sorted(self.values):
            ring.take(summary(self.values[first]))
        return ring

    def _row(self, first: int, number: int) -> SegmentEntry:
        return row_of(self.values[first], number)

    def decide(self, step: Step) -> tuple[Told, Told]:
        """What each of them names as the origins of one batch."""
        if step.restart:
            self.compact = self.loaded()
        whole = self._decided(self.whole, step)
        deleted = self.whole.evicted()
        compact = self._decided(self.compact, step)
        if step.committed:
            for first in deleted:
                self.values.pop(first, None)
        self._sent += len(step.ids)
        return whole, compact

    def _decided(self, ring: InMemoryRing | IndexedRing, step: Step) -> Told:
        draft, told, written = ring.draft(step.size, PackedPositions(SOURCE)), [], list[bytes]()
        numbers = self._numbers(draft, step)
        told += [None if number is None else draft.origin(number) for number in numbers]
        if step.committed:
            runs = draft.seal()
            written = [encode(run) for run in runs]
            self.values.update(zip([run.first for run in runs], written, strict=True))
            ring.absorb(runs, len(draft.evicted))
            ring.forget()
        return told, written

    def _numbers(self, draft: RingDraft, step: Step) -> Iterator[int | None]:
        rows = list(zip(step.ids, range(self._sent, self._sent + len(step.ids)), strict=True))
        is_together = self.at_once > 1 and draft.by_id is not None
        for begin in range(0, len(rows), self.at_once):
            ids, places = zip(*rows[begin : begin + self.at_once], strict=True)
            if not is_together or len(ids) == 1:  # both ways in one draft
                yield from map(draft.admit, ids, places, places)
                continue
            known = dict(draft.admit_run(ids, places, places))
            yield from map(known.get, range(len(ids)))


@pytest.fixture(params=INDEXES, ids=lambda index: index.name)
def make_index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MakeIndex:
    """Indexes, also ones that take nearly everything for known."""
    made: MakeIndex = request.param.made(monkeypatch)
    return made


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=12))
def test_both_forms_give_the_same_verdicts_and_origins(
    make_index: MakeIndex, steps: list[Step]
) -> None:
    pair = Pair(make_index)
    for step in steps:
        whole, compact = pair.decide(step)
        assert compact == whole
        held = pair.whole.ids_held, pair.whole.ids_evicted
        assert (pair.compact.ids_held, pair.compact.ids_evicted) == held
        assert {*pair.compact.evicted()} <= {*pair.whole.evicted()}


@pytest.mark.parametrize("at_once", [2, 5, 12])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=12))
def test_ids_that_are_admitted_together_get_the_verdicts_that_they_get_one_by_one(
    make_index: MakeIndex, at_once: int, steps: list[Step]
) -> None:
    alone, together = Pair(make_index), Pair(make_index, at_once)
    for step in steps:
        expected, _ = alone.decide(step)
        whole, compact = together.decide(step)
        assert whole == compact == expected


@pytest.mark.parametrize("form", ["whole", "compact"])
def test_an_id_that_was_accepted_again_outlasts_the_segment_that_had_it_first(form: str) -> None:
    pair = Pair()
    for identifier in (b"a", b"b", b"a"):
        pair.decide(Step(1, restart=False, ids=[identifier], committed=True))
    ring: InMemoryRing | IndexedRing = getattr(pair, form)
    assert list(pair.values) == [2]
    assert ring.draft(1, PackedPositions(SOURCE)).judge(b"a") == 2


def test_a_full_ring_takes_no_more_memory_however_many_ids_come() -> None:
    pair, sizes_bytes = Pair(), list[int]()
    for number in range(8):
        pair.decide(Step(2, restart=False, ids=[b"%d" % number], committed=True))
        sizes_bytes.append(pair.whole.memory_bytes)
    assert sizes_bytes[0] < sizes_bytes[1]
    assert len(set(sizes_bytes[3:])) == 1


@pytest.mark.parametrize(
    ("size_now", "offsets"), [(5, range(3, 8)), (100, range(3, 8)), (2, [6, 7]), (0, [])]
)
def test_what_a_changelog_says_that_a_ring_holds_is_what_the_ring_knows(
    size_now: int, offsets: Sequence[int]
) -> None:
    kept = Kept("ring", id_cache_size=5)
    for batch in (b"ab", b"cd", b"ef", b"gh"):
        kept.decide([Claim(b"%c" % letter) for letter in batch])
    assert len(kept.entries) == 4, "more than the ring holds is still stored"
    kept.restart(id_cache_size=size_now)
    wanted = [HeldId(b"%c" % b"abcdefgh"[at], Origin(*KEPT_SOURCE, at, at)) for at in offsets]
    assert held_by(kept) == wanted
    draft = kept.begun()
    known = [n for n in range(8) if draft.verdict(Claim(b"%c" % b"abcdefgh"[n]), ANYWHERE)]
    assert known == list(offsets)


def test_what_was_let_go_is_not_held() -> None:
    kept = Kept("ring", id_cache_size=5)
    draft = kept.begun()
    for offset, identifier in enumerate((b"a", b"b", b"a")):
        draft.remember(draft.renew(Claim(identifier)), Origin(*KEPT_SOURCE, offset, offset))
    kept.write(draft)
    found = [(held.identifier, held.origin.offset) for held in held_by(kept)]
    assert found == [(b"b", 1), (b"a", 2)]
    assert held_by(Kept("ring")) == []


def held_by(kept: Kept) -> list[HeldId]:
    return list(STRATEGIES["ring"].held_ids(sorted(kept.entries.items()), kept.settings))


@pytest.mark.parametrize("form", ["whole", "compact"])
def test_what_a_dropped_draft_has_let_go_is_known_and_what_it_added_is_not(form: str) -> None:
    pair = Pair()
    a = b"a" * 99
    pair.decide(Step(8, restart=False, ids=[a, b"b"], committed=True))
    ring: InMemoryRing | IndexedRing = getattr(pair, form)
    dropped = ring.draft(8, PackedPositions(SOURCE))
    assert dropped.admit(b"c", 8, 8) is None
    for each in (a, b"c", b"d"):
        assert dropped.renew(Claim(each)) == Claim(each)
        assert dropped.admit(each, 9, 9) is None
    assert dropped.renew(Claim()) == Claim(), "without an id there is nothing to let go"
    assert dropped.renewed == [0], "the number of the one that is committed"
    draft = ring.draft(8, PackedPositions(SOURCE))
    assert [draft.judge(each) for each in (a, b"b", b"c", b"d")] == [0, 1, None, None]


def test_what_was_taken_back_once_is_not_taken_back_again() -> None:
    ring, other = InMemoryRing(), InMemoryRing()
    for each in (ring, other):
        draft = each.draft(2, PackedPositions(SOURCE))
        assert [draft.admit(b"%c" % i, i, i) for i in b"ab"] == [None, None]
        each.absorb(draft.seal())
    dropped = ring.draft(2, PackedPositions(SOURCE))
    assert [dropped.admit(b"%c" % i, i, i) for i in b"cda"] == [None] * 3
    draft = other.draft(2, PackedPositions(SOURCE))
    assert [draft.admit(b"%c" % i, i, i) for i in b"ca"] == [None, None]
    ring.absorb(draft.seal())
    for _ in range(2):
        draft = ring.draft(2, PackedPositions(SOURCE))
        assert [draft.judge(b"%c" % i) for i in b"abcd"] == [3, None, 2, None]


def test_a_ring_that_was_just_loaded_is_read_without_a_draft() -> None:
    pair = Pair()
    pair.decide(Step(8, restart=False, ids=[b"a", b"b"], committed=True))
    ring = pair.loaded()
    assert ring.origin(some(ring.number_of(b"b"))) == Origin(*SOURCE, 1, 1)
    assert ring.draft(8, PackedPositions(SOURCE)).time_of(1) == 1


def test_what_a_compact_ring_takes_grows_with_its_runs() -> None:
    one, many = (
        IndexedRing(lambda *_: SegmentEntry(b"", Origin("", 0, 0, 0)), HashIndex(9))
        for _ in range(2)
    )
    one.take(SegmentSummary(0, 0, 9, IDS))
    for number, name in enumerate(IDS):
        many.take(SegmentSummary(number, 0, 9, (name,)))
    assert many.memory_bytes - one.memory_bytes == 8 * 8


def some_values() -> Iterator[bytes]:
    ring = InMemoryRing()
    for length in (0, 1, 2, SEGMENT_IDS_MAX):
        draft = ring.draft(length or 7, PackedPositions(SOURCE))
        for number in range(length):
            draft.admit(b"%d" % number * (1 + number % 3), 1000 * number, 5 + number)
        runs = draft.seal()
        ring.absorb(runs)
        yield from map(encode, runs)


def test_an_outline_and_a_row_say_what_the_run_says() -> None:
    for value in some_values():
        run = decode(value)
        outline = summary(value)
        assert outline._replace(ids=tuple(outline.ids)) == SegmentSummary(
            run.first, run.floor, run.capacity, run.ids
        )
        for row, identifier in enumerate(run.ids):
            assert row_of(value, run.first + row) == (identifier, run.origin(run.first + row))


def test_a_row_that_a_run_does_not_have_is_an_error() -> None:
    for value in some_values():
        for number in (-1, decode(value).end, 1 << 40):
            with pytest.raises(UnknownFormatError):
                row_of(value, number)
