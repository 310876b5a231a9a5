"""Seeded runs of the real loop with crashes at random steps; a failing seed is printed.

RINGFENCE_SEED=n replays one seed; RINGFENCE_SIM_RUNS=n makes as many runs, 10,000 in `make sim`.
"""

import faulthandler
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from typing import Any, NamedTuple

import pytest
import structlog

import service.loop
from service.apply import apply
from service.assignment import Assignment
from service.part import Part
from service.plan import Output, Plan
from state.strategies.ring import RingContent
from tests.simulation.invariants import Broken
from tests.simulation.world import simulate

RUNS = int(os.environ.get("RINGFENCE_SIM_RUNS") or 4_000)
SEED = os.environ.get("RINGFENCE_SEED") or ""
CHUNK = 250
CHUNK_S_MAX = 300

pytestmark = pytest.mark.simulation


def be_quiet() -> None:
    """The service tells of every fault, and here nearly everything is one."""
    silent = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=silent)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    be_quiet()
    yield
    structlog.reset_defaults()


class Found(NamedTuple):
    """What came of some runs."""

    faults: list[str]
    met: Counter[str]


def faults_of(first: int, runs: int) -> list[str]:
    """Run consecutive seeds; what did not hold."""
    return found_by(first, runs).faults


def found_by(first: int, runs: int) -> Found:
    """Run consecutive seeds; an exception that nothing foresaw is a fault as well."""
    faults, met = list[str](), Counter[str]()
    for seed in range(first, first + runs):
        try:
            met += simulate(seed)
        except Broken as broken:
            faults.append(f"seed {seed}: {broken}")
        except Exception as error:  # noqa: BLE001 - the seed is worth more than the traceback
            faults.append(f"seed {seed}: {error!r}")
    return Found(faults, met)


def found_apart(first: int, runs: int) -> Found:
    """As `found_by`, in a process of its own: one that hangs says where, and ends."""
    faulthandler.dump_traceback_later(CHUNK_S_MAX, exit=True)
    try:
        return found_by(first, runs)
    finally:
        faulthandler.cancel_dump_traceback_later()


def told(met: Counter[str]) -> str:
    """How often the rare things happened, the most frequent first."""
    return ", ".join(f"{name}: {count:,}" for name, count in met.most_common())


@pytest.mark.row(9)
@pytest.mark.row(10)
@pytest.mark.row(12)
@pytest.mark.row(17)
@pytest.mark.row(26)
@pytest.mark.row(27)
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(SEED), reason="one seed was asked for")
def test_every_invariant_holds_whatever_step_is_the_last() -> None:
    apart = get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=apart, initializer=be_quiet) as pool:
        firsts = range(1, RUNS + 1, CHUNK)
        counts = [min(CHUNK, RUNS + 1 - first) for first in firsts]
        found = list(pool.map(found_apart, firsts, counts))
    faults = [fault for each in found for fault in each.faults]
    met = sum((each.met for each in found), Counter[str]())
    print(f"\n{RUNS} seeded runs, {len(faults)} faults; {told(met)}")
    missed = sorted({"lanes opened", "compact rings", "evictions"} - met.keys())
    assert not (missed and RUNS >= 100), f"no run has met: {missed}"
    assert not faults, "\n".join(["replay with make sim SEED=n", *faults[:10]])


@pytest.mark.skipif(not SEED, reason="no seed was asked for")
def test_the_seed_that_was_asked_for() -> None:
    structlog.reset_defaults()
    simulate(int(SEED))


@pytest.mark.row(28)
def test_nothing_depends_on_a_transactional_id_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an upgrade to a version that names its producers in another way: nobody fences
    what the older process has left, and what it does when it wakes up.
    """
    lives = count()
    monkeypatch.setattr(Part, "transactional_id", lambda *_: f"of life {next(lives)}")
    assert not faults_of(1, 200)


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
    assert faults_of(1, 60)


def test_a_forgotten_rewind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Assignment, "rewind", lambda _assignment: None)
    assert faults_of(1, 400)


def test_a_store_that_forgets_what_was_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(plan: Plan, *rest: Any) -> None:
        plan.sealed.clear()
        apply(plan, *rest)

    monkeypatch.setattr("service.loop.apply", half)
    assert faults_of(1, 60)
