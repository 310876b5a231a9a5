"""Compiled windows against the one in Python and the slowest rule: verdicts, and what is held."""

import random
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence_service.config.addresses import AddressSettings
from ringfence_service.native import window as compiled
from ringfence_service.native.runs import RingRuns
from ringfence_service.native.window import NativeStoredWindow
from ringfence_state.keys import UnknownFormatError
from ringfence_state.model import IMPORTED, Claim, Edit, Origin, PackedPositions, PartitionId
from ringfence_state.segment import decode, encode
from ringfence_state.store import StoreCorruptError
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.base import CommittedState, Hit
from ringfence_state.strategies.registry import STRATEGIES
from ringfence_state.strategies.window import PYTHON, WINDOW, name_of
from tests.support.native import needs_native
from tests.unit.service.native.test_ring import StoreWithFolder
from tests.unit.state.strategies.test_ring import POSITION

pytestmark = needs_native

SOURCES = [PartitionId("orders", 1), PartitionId("payments", 7)]
ADDRESS = "a"


@pytest.fixture(autouse=True)
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs so small that few ids make many."""
    monkeypatch.setattr(RingRuns, "young_ids", 4)
    monkeypatch.setattr(RingRuns, "built_ids", 6)


class Sight(NamedTuple):
    """A record: how much later it comes, its id, and what is done with it."""

    later_ms: int
    identifier: bytes
    publisher: str | None
    source: int
    how: str


class Step(NamedTuple):
    """A batch."""

    sights: list[Sight]
    committed: bool
    then: str
    size: int


SIGHTS = st.builds(
    Sight,
    st.integers(0, 9),
    st.sampled_from([b"%d" % number for number in range(9)] + [bytes(64), b"x" * 90]),
    st.sampled_from([None, None, None, "p", "q" * 40]),
    st.integers(0, 1),
    st.sampled_from(["judge", "judge", "judge", "judge", "renew", "import"]),
)
STEPS = st.lists(
    st.builds(
        Step,
        st.lists(SIGHTS, max_size=12),
        st.booleans() | st.just(value=True),
        st.sampled_from(["", "", "restart", "settle", "change form", "forget the count"]),
        st.sampled_from([4, 4, 4, 2, 7, 0]),
    ),
    max_size=14,
)


class Written:
    """A window in some form, and the store that it outlives."""

    def __init__(self, form: str, folder: Path | None = None, **limits: Any) -> None:
        self.form = form
        self.store = StoreWithFolder(folder if form == "runs" else None)
        self.settings = AddressSettings(strategy="window", **limits)
        self.offset = 0
        self.memory = self.load()

    def load(self) -> CommittedState:
        """As it is after a restart."""
        segments = StoredSegments(SOURCES[0], self.store, WINDOW, ADDRESS, memory_bytes_max=1 << 20)
        if self.form == "python":
            return PYTHON.whole(segments.entries())
        if self.form == "whole":
            return compiled.whole(segments.entries())
        return NativeStoredWindow(segments)

    def decide(self, sights: list[Sight], time_ms: int, *, committed: bool) -> list[object]:
        """All that a batch shows."""
        draft = self.memory.begin(self.settings, PackedPositions(SOURCES[0]))
        told: list[object] = [draft.extent()]
        for offset, sight in enumerate(sights, self.offset):
            time_ms += sight.later_ms
            claim = Claim(sight.identifier, publisher=sight.publisher)
            at = Origin(*SOURCES[sight.source], offset, time_ms)
            why = draft.verdict(claim, at)
            told.append(why)
            if sight.how == "import":
                if why is None:
                    draft.remember(claim, at._replace(offset=IMPORTED, time_ms=time_ms - 9))
            elif why is None:
                draft.remember(claim, at)
            elif sight.how == "renew":
                draft.remember(draft.renew(claim), at)
            else:
                draft.repeated(claim, at)
        told.append(dict(draft.accepted()))
        change = draft.change(ADDRESS)
        if not committed:
            return told
        self.offset += len(sights)
        if change is not None:
            self.store.apply([*draft.deletions(ADDRESS), *change.edits], POSITION)
            self.memory.apply(change.content)
        told.append(self.memory.ids_held)
        return told

    def forget_the_count(self) -> None:
        """Have the segments that a version before has written, which do not count."""
        kept = [(key, decode(value)) for key, value in self.store.scan(b"w")]
        self.store.keep([Edit(key, encode(each._replace(held=None))) for key, each in kept])
        self.memory = self.load()

    def held(self) -> list[tuple[object, ...]]:
        """The ids that are stored, in order, as an export lists them."""
        entries = self.store.scan(b"w")
        return [tuple(each) for each in STRATEGIES["window"].held_ids(entries, self.settings)]

    def seen(self, time_ms: int) -> list[list[Hit]]:
        """Where every id was seen."""
        draft = self.memory.begin(self.settings, PackedPositions(SOURCES[0]))
        ids = [*(b"%d" % number for number in range(10)), bytes(64), b"x" * 90]
        return list(map(sorted, draft.sightings(ids, time_ms)))


@pytest.mark.parametrize("form", ["whole", "stored", "runs"])
@pytest.mark.parametrize("refreshes", [True, False])
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_a_compiled_window_tells_what_the_one_in_python_does(
    tmp_path_factory: pytest.TempPathFactory, form: str, *, refreshes: bool, steps: list[Step]
) -> None:
    limits: dict[str, Any] = {"window_ms": 30, "window_size": 4, "refresh_on_hit": refreshes}
    ours = Written(form, tmp_path_factory.mktemp("derived"), **limits)
    theirs = Written("python", **limits)
    has_imports = any(sight.how == "import" for step in steps for sight in step.sights)
    time_ms = 100
    for step in steps:
        for each in (ours, theirs):
            each.settings = replace(each.settings, window_size=step.size)
        told = [
            each.decide(step.sights, time_ms, committed=step.committed) for each in (ours, theirs)
        ]
        # An imported id may be older than the one before it, and is forgotten sooner or later then.
        verdicts = slice(1, 1 + len(step.sights)) if has_imports else slice(None)
        assert told[0][verdicts] == told[1][verdicts]
        time_ms += sum(sight.later_ms for sight in step.sights)
        assert has_imports or ours.held() == theirs.held()
        for mine, wanted in zip(ours.seen(time_ms), theirs.seen(time_ms), strict=True):
            assert [where for where, _ in mine] == [where for where, _ in wanted]
            pairs = zip(mine, wanted, strict=True)
            assert all(0 < least <= slots for (_, least), (_, slots) in pairs)
        match step.then:
            case "restart":
                ours.memory, theirs.memory = ours.load(), theirs.load()
            case "settle":
                if isinstance(ours.memory, NativeStoredWindow):
                    ours.memory.settle()
            case "change form":
                ours.store.keep([Edit(key, None) for key, _ in list(ours.store.scan(b"w"))])
                ours.store.keep([Edit(*each) for each in theirs.store.scan(b"w")])
                ours.memory = ours.load()
            case "forget the count":
                ours.forget_the_count()


class SlowestRule:
    """All sights in order, of which the last of each id counts."""

    def __init__(self, limits: AddressSettings) -> None:
        self.limits = limits
        self.seen: OrderedDict[bytes, int] = OrderedDict()

    def decide(self, batch: list[tuple[int, bytes]], *, committed: bool) -> list[bool]:
        seen, known = self.seen.copy(), []
        for time_ms, identifier in batch:
            at = seen.get(identifier)
            known.append(at is not None and time_ms - at <= self.limits.window_ms)
            if not known[-1] or self.limits.refresh_on_hit:
                seen[identifier] = time_ms
                seen.move_to_end(identifier)
            while seen and (
                len(seen) > self.limits.window_size
                or time_ms - next(iter(seen.values())) > self.limits.window_ms
            ):
                seen.popitem(last=False)
        if committed:
            self.seen = seen
        return known


def batches(seed: int, decisions: int) -> Iterator[tuple[random.Random, list[tuple[int, bytes]]]]:
    """Batches with new ids, near copies and old ones, and now and then a pause."""
    chance, time_ms, following = random.Random(seed), 1_000, 0
    while decisions > 0:
        batch = []
        for _ in range(chance.choice([1, 2, 40, 300])):
            time_ms += chance.choice([0, 0, 1, 2])
            if chance.random() < 0.6 or not following:
                number, following = following, following + 1
            else:
                number = max(0, following - 1 - int(chance.paretovariate(0.4)))
            batch.append((time_ms, b"id%d" % number))
        if chance.random() < 0.002:
            time_ms += 4_000
        decisions -= len(batch)
        yield chance, batch


@pytest.mark.parametrize(
    ("refreshes", "size", "lasts_ms"),
    [(True, 3_000, 10**9), (False, 3_000, 10**9), (True, 10**6, 5_000), (False, 2_500, 3_000)],
)
@pytest.mark.parametrize(
    "decisions", [20_000, pytest.param(250_000, marks=pytest.mark.long)], ids=["few", "many"]
)
def test_verdicts_are_those_of_the_slowest_rule_through_restarts_and_aborts(
    tmp_path: Path, *, refreshes: bool, size: int, lasts_ms: int, decisions: int
) -> None:
    ours = Written("runs", tmp_path, window_ms=lasts_ms, window_size=size, refresh_on_hit=refreshes)
    rule, most_runs = SlowestRule(ours.settings), 0
    for chance, batch in batches(decisions + size, decisions):
        committed = chance.random() < 0.9
        begun_ms = batch[0][0]
        times = [0, *(later - sooner for (sooner, _), (later, _) in pairwise(batch))]
        sights = [
            Sight(later, identifier, None, 0, "judge")
            for later, (_, identifier) in zip(times, batch, strict=True)
        ]
        told = ours.decide(sights, begun_ms, committed=committed)[1 : 1 + len(batch)]
        assert [why is not None for why in told] == rule.decide(batch, committed=committed)
        if chance.random() < 0.02:
            ours.memory = ours.load()
        if committed:
            assert ours.memory.ids_held >= len(rule.seen)
        assert isinstance(ours.memory, NativeStoredWindow)
        most_runs = max(most_runs, ours.memory.runs)
    assert most_runs > 1


def test_an_id_that_comes_for_ever_takes_one_place_however_many_segments_it_is_in(
    tmp_path: Path,
) -> None:
    ours = Written("runs", tmp_path, window_ms=10**9, window_size=10)
    for number in range(400):
        hot = Sight(1, b"hot", None, 0, "judge")
        new = Sight(0, b"%d" % number, None, 0, "judge")
        ours.decide([hot, hot, new, hot], number, committed=True)
    assert ours.memory.ids_held == 10
    draft = ours.memory.begin(ours.settings, PackedPositions(SOURCES[0]))
    at = Origin(*SOURCES[0], 0, 401)
    names = (b"hot", b"399", b"391", b"390")
    known = [each for each in names if draft.verdict(Claim(each), at)]
    assert known == [*names[:3]]


def test_a_window_that_was_made_smaller_says_what_is_left_until_an_id_is_forgotten() -> None:
    ours = Written("whole", window_ms=1_000, window_size=7)
    sights = [Sight(0, b"%d" % number, None, 0, "judge") for number in range(7)]
    ours.decide(sights, 100, committed=True)
    ours.settings = replace(ours.settings, window_size=4)
    slots = [[each.slots_to_eviction for each in hits] for hits in ours.seen(100)]
    assert slots[2:7] == [[], [1], [2], [3], [4]]


def test_no_record_knows_an_id_beyond_a_size_that_is_much_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "_READ_MAX", 2)
    ours = Written("stored", window_ms=1_000, window_size=10_000)
    for first in range(0, 4_000, 500):
        sights = [
            Sight(0, b"%d" % number, None, 0, "judge") for number in range(first, first + 500)
        ]
        ours.decide(sights, 100, committed=True)
    ours.settings = replace(ours.settings, window_size=10)
    copies = [Sight(0, b"%d" % number, None, 0, "judge") for number in (3_995, 500, 3_989)]
    _, known, *others, _, held = ours.decide(copies, 100, committed=True)
    assert known is not None
    assert others == [None, None]
    assert held == 10


def test_a_window_whose_count_is_more_than_its_numbers_is_refused() -> None:
    ours = Written("whole", window_ms=10**9, window_size=10)
    ours.decide([Sight(0, b"1", None, 0, "judge")], 0, committed=True)
    ((key, value),) = ours.store.scan(b"w")
    damaged = [Edit(key, encode(decode(value)._replace(held=2)))]
    ours.store.keep(damaged)
    for form in ("whole", "stored"):
        ours.form = form
        with pytest.raises((UnknownFormatError, StoreCorruptError)):
            ours.load()


def test_a_long_pause_is_forgotten_over_several_batches_and_known_in_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_READ_MAX", 2)
    ours = Written("runs", tmp_path, window_ms=1_000, window_size=10**6)
    for first in range(0, 5_000, 500):
        ids = [b"%d" % number for number in range(first, first + 500)]
        ours.decide([Sight(0, each, None, 0, "judge") for each in ids], 0, committed=True)
    held = []
    for number in range(6):
        told = ours.decide([Sight(0, b"%d" % number, None, 0, "judge")], 9_000, committed=True)
        assert told[1] is None, "it is old"
        held.append(ours.memory.ids_held)
    assert held == [3_501, 2_002, 503, 4, 5, 6]


def test_the_name_of_an_id_without_a_publisher_is_what_the_extension_makes_of_it() -> None:
    assert name_of(Claim(b"id")) == b"\0\0id"
