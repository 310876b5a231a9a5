"""Seeded redrives with crashes at random steps: none lost, none doubled; a failing seed is printed.

RINGFENCE_SEED=n replays one seed; RINGFENCE_SIM_RUNS=n makes n / 25 runs.
"""

import os
from collections.abc import Iterator

import pytest
import structlog

from service.redrive import owner
from state.edit import Source
from state.redriven import Mark, put
from tests.simulation.invariants import Broken
from tests.simulation.redriving import simulate_redrive
from tests.simulation.test_simulation import be_quiet

RUNS = max(1, int(os.environ.get("RINGFENCE_SIM_RUNS") or 4_000) // 25)
SEED = os.environ.get("RINGFENCE_SEED") or ""

pytestmark = pytest.mark.simulation


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    be_quiet()
    yield
    structlog.reset_defaults()


def faults_of(first: int, runs: int) -> list[str]:
    """Run consecutive seeds; what did not hold."""
    faults = []
    for seed in range(first, first + runs):
        try:
            simulate_redrive(seed)
        except Broken as broken:
            faults.append(f"seed {seed}: {broken}")
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    return faults


@pytest.mark.timeout(1800)
def test_whatever_goes_wrong_each_letter_is_redriven_once() -> None:
    first, runs = (int(SEED), 1) if SEED else (1, RUNS)
    assert faults_of(first, runs) == []


def test_a_mark_that_is_not_looked_at_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "mark_of", lambda _store, _name, _letters: Mark())
    assert faults_of(1, 40)


def test_a_mark_that_is_written_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def further(name: str, letters: Source, mark: Mark) -> object:
        return put(name, letters, mark._replace(done=mark.done + 1))

    monkeypatch.setattr(owner, "put", further)
    assert faults_of(1, 40)
