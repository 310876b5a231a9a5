"""Seeded runs of the real loop with crashes at random steps; a failing seed is printed."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import pytest

import service.loop
from service.apply import apply
from service.assignment import Assignment
from service.part import Part
from service.plan import Output, Plan
from state.strategies.ring import RingContent
from tests.simulation.coverage import missed, rare, table
from tests.simulation.runs import RUNS, SEED, TIMEOUT_S, faults_of, found_by, told
from tests.simulation.world import simulate

pytestmark = pytest.mark.simulation
_RUNS_FOR_ALL = 10_000
"""So many runs meet every kind of fault at every step."""


@pytest.mark.row(9)
@pytest.mark.row(10)
@pytest.mark.row(12)
@pytest.mark.row(17)
@pytest.mark.row(26)
@pytest.mark.row(27)
@pytest.mark.timeout(TIMEOUT_S)
def test_every_invariant_holds_whatever_step_is_the_last() -> None:
    faults, met = found_by(simulate, RUNS)
    print(f"\n{RUNS:,} seeded runs, {len(faults)} faults; {told(rare(met))}\n\n{table(met)}")
    assert not faults, "\n".join(["replay with make sim SEED=n", *faults[:30]])
    if RUNS >= _RUNS_FOR_ALL and not SEED:
        assert {"lanes opened", "compact rings", "evictions"} <= met.keys()
        assert not missed(met)


@pytest.mark.row(28)
def test_nothing_depends_on_a_transactional_id_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an upgrade to a version that names its producers in another way: nobody fences
    what the older process has left, and what it does when it wakes up.
    """
    lives = count()
    monkeypatch.setattr(Part, "transactional_id", lambda *_: f"of life {next(lives)}")
    assert not faults_of(simulate, 200)


def test_state_that_is_applied_before_its_commit_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = service.loop.Loop._commit

    def early(loop: service.loop.Loop, plan: Plan, outputs: Iterable[Sequence[Output]]) -> None:
        decided = list(outputs)
        for sealed in plan.sealed:
            content = sealed.content
            if isinstance(content, RingContent):
                content = content._replace(deleted=0)
            loop.cache.apply(sealed.partition.source, sealed.address, sealed.memory, content)
        genuine(loop, plan, decided)

    monkeypatch.setattr(service.loop.Loop, "_commit", early)
    assert faults_of(simulate, 60)


def test_a_forgotten_rewind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Assignment, "rewind", lambda _assignment: None)
    assert faults_of(simulate, 400)


def test_a_store_that_forgets_what_was_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(plan: Plan, *rest: Any) -> None:
        plan.sealed.clear()
        apply(plan, *rest)

    monkeypatch.setattr("service.loop.apply", half)
    assert faults_of(simulate, 60)
