"""The horizon through any sequence of batches, sizes, clears and restarts: never more than known.

The model is a plain list of what was seen, oldest first, and of what was forgotten since the
address was empty. Rings are measured in memory, in all their forms, and in a store.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.config.addresses import AddressSettings
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Claim, Edit, Origin, PackedPositions, PartitionId
from ringfence_state.store import Identity, StorePosition
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.base import CommittedState, Occupancy
from ringfence_state.strategies.registry import STRATEGIES
from tests.support.native import native_rings, needs_native

SOURCE = PartitionId("orders", 1)
ADDRESS = "a"
POSITION = StorePosition(Identity("", "", "", 1), 1, 1, 1)

Form = Literal["whole", "stored"]


class Step(NamedTuple):
    """One thing that happens to an address."""

    what: Literal["add", "abort", "size", "time", "clear", "restart", "forget"]
    number: int


WHAT = ["add", "add", "add", "abort", "size", "time", "clear", "restart", "forget"]
STEPS = st.lists(st.builds(Step, st.sampled_from(WHAT), st.integers(0, 6)), max_size=24)


class Model(NamedTuple):
    """When the held ids were seen, oldest first, and when the newest forgotten one was."""

    held: list[int]
    lost_ms: list[int]
    """Empty, or one time."""

    def forget(self, count: int) -> None:
        for _ in range(count):
            self.lost_ms[:] = [self.held.pop(0)]


class Lived:
    """An address with its store, in one form, and the model."""

    def __init__(self, strategy: str, form: Form) -> None:
        self.strategy, self.form = STRATEGIES[strategy], form
        self.settings = AddressSettings(
            strategy=strategy, id_cache_size=3, window_size=3, window_ms=40
        )
        self.store, self.model = MemoryStore(), Model([], [])
        self.now_ms, self.ids = 1_000, 0
        self.memory = self.load()

    def load(self) -> CommittedState:
        entries = list(self.store.scan(b""))
        stored = self.strategy.forms.stored
        if self.form == "whole" or stored is None:
            return self.strategy.load(entries)
        return stored(StoredSegments(SOURCE, self.store, self.strategy.kind, ADDRESS))

    def write(self, edits: list[Edit]) -> None:
        self.store.apply(edits, POSITION)

    def settle(self) -> None:
        """What the model forgets under its size, and in a window by time."""
        self.model.forget(max(0, len(self.model.held) - self.settings.room))

    def batch(self, count: int, *, committed: bool) -> None:
        draft = self.memory.begin(self.settings, PackedPositions(SOURCE))
        before = Model(list(self.model.held), list(self.model.lost_ms))
        self.settle()
        for _ in range(count):
            self.ids, self.now_ms = self.ids + 1, self.now_ms + 7
            draft.remember(Claim(b"%d" % self.ids), Origin(*SOURCE, self.ids, self.now_ms))
            if not self.settings.room:
                continue  # detection is off: the record is unchecked, and not forgotten
            self.model.held.append(self.now_ms)
            if self.strategy.time_key:
                old = self.now_ms - self.settings.window_ms
                self.model.forget(sum(each < old for each in self.model.held))
            self.settle()
        if not committed:
            self.model.held[:], self.model.lost_ms[:] = before
            return
        change = draft.change(ADDRESS)
        if change is not None:
            self.write([*draft.deletions(ADDRESS), *change.edits])
            self.memory.apply(change.content)

    def take(self, step: Step) -> None:
        match step.what:
            case "add" | "abort":
                self.batch(step.number, committed=step.what == "add")
            case "size":
                size = step.number
                self.settings = replace(self.settings, id_cache_size=size, window_size=size)
                self.batch(0, committed=bool(step.number % 2))
            case "time":
                self.settings = replace(self.settings, window_ms=1 + 25 * step.number)
                self.now_ms += 30
            case "clear":
                self.write(self.strategy.clear(self.store, ADDRESS))
                self.model.held.clear()
                self.model.lost_ms.clear()
                self.memory = self.load()
            case "restart":
                self.memory = self.load()
            case "forget":
                self._forget()

    def _forget(self) -> None:
        """Delete the newest id by hand: it leaves its place."""
        if self.strategy.time_key or not self.model.held or not self.settings.room:
            return
        draft = self.memory.begin(self.settings, PackedPositions(SOURCE))
        newest = Claim(b"%d" % self.ids)
        if draft.verdict(newest, Origin(*SOURCE, 0, 0)) is None:
            return
        draft.renew(newest)
        self.write(self.strategy.renewals(self.store, ADDRESS, draft))
        self.memory = self.load()

    def told(self) -> Iterator[Occupancy]:
        yield self.memory.begin(self.settings, PackedPositions(SOURCE)).extent()
        stored = self.strategy.extent(self.store, ADDRESS, self.settings)
        if stored is not None:
            yield stored

    def check(self) -> None:
        seen = Model(list(self.model.held), list(self.model.lost_ms))
        seen.forget(max(0, len(seen.held) - self.settings.room))
        newest_ms = seen.held[-1] if seen.held else 0
        lasts = self.settings.window_ms if self.strategy.time_key else self.now_ms + 1
        lacks = bool(seen.lost_ms) and (not seen.held or newest_ms - seen.lost_ms[0] <= lasts)
        for told in self.told():
            assert told.held == len(seen.held)
            if told.horizon_ms is not None:
                assert told.horizon_ms == (newest_ms - seen.held[0] if seen.held else 0)
            elif self.settings.room:
                assert not lacks, "it has forgotten what it should know, and does not tell"


@pytest.mark.parametrize("strategy", ["ring", "window"])
@given(steps=STEPS)
def test_a_horizon_is_null_only_while_nothing_is_lost(strategy: str, steps: list[Step]) -> None:
    lived = Lived(strategy, "whole")
    for step in steps:
        lived.take(step)
        lived.check()


@needs_native
@pytest.mark.parametrize("strategy", ["ring", "window"])
@pytest.mark.parametrize("form", ["whole", "stored"])
@given(steps=STEPS)
def test_compiled_ones_tell_the_same(strategy: str, form: Form, steps: list[Step]) -> None:
    with native_rings():
        lived = Lived(strategy, form)
        for step in steps:
            lived.take(step)
            lived.check()


@pytest.mark.parametrize("strategy", ["ring", "window"])
def test_a_horizon_survives_growth_and_a_restart_and_ends_with_a_clear(strategy: str) -> None:
    lived = Lived(strategy, "whole")
    for step in (Step("add", 5), Step("size", 6), Step("restart", 0), Step("add", 1)):
        lived.take(step)
    assert [told.horizon_ms for told in lived.told()] == [21] * len(list(lived.told()))
    lived.take(Step("clear", 0))
    lived.take(Step("add", 2))
    assert {told.horizon_ms for told in lived.told()} == {None}
