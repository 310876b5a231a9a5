"""Seeded runs of the real loop with crashes at random steps; a failing seed is printed."""

from collections import Counter
from itertools import count

import pytest

from ringfence_service.config.tasks import Task
from tests.simulation.coverage import missed, rare, table
from tests.simulation.mutants import MUTANTS, found
from tests.simulation.runs import RUNS, SEED, TIMEOUT_S, faults_of, found_by, told
from tests.simulation.world import simulate
from tests.support.native import native_rings, needs_native

pytestmark = pytest.mark.simulation
_RUNS_FOR_ALL = 10_000
"""So many runs meet every kind of fault at every step."""


@pytest.mark.row(9)
@pytest.mark.row(10)
@pytest.mark.row(12)
@pytest.mark.row(17)
@pytest.mark.row(26)
@pytest.mark.row(27)
@pytest.mark.row(38)
@pytest.mark.timeout(TIMEOUT_S)
def test_every_invariant_holds_whatever_step_is_the_last() -> None:
    faults, met = found_by(simulate, RUNS)
    print(f"\n{RUNS:,} seeded runs, {len(faults)} faults; {told(rare(met))}\n\n{table(met)}")
    assert not faults, "\n".join(["replay with make sim SEED=n", *faults[:30]])
    if RUNS >= _RUNS_FOR_ALL and not SEED:
        assert not missed(met, has_files=False)


def simulate_compiled(seed: int) -> Counter[str]:
    """The same run on the compiled fast path."""
    with native_rings():
        return simulate(seed)


@needs_native
@pytest.mark.timeout(TIMEOUT_S)
def test_every_invariant_holds_on_the_compiled_path_too() -> None:
    runs = RUNS if RUNS >= _RUNS_FOR_ALL else RUNS // 4
    faults, met = found_by(simulate_compiled, runs)
    print(f"\n{runs:,} seeded runs on the compiled path, {len(faults)} faults; {told(rare(met))}")
    assert not faults, "\n".join(faults[:30])
    if runs >= _RUNS_FOR_ALL and not SEED:
        assert not missed(met, has_files=True)
    assert SEED or (met["ids left in the store"] and met["runs merged"])


@pytest.mark.row(28)
def test_nothing_depends_on_a_transactional_id_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an upgrade to a version that names its producers in another way: nobody fences
    what the older process has left, and what it does when it wakes up.
    """
    lives = count()
    monkeypatch.setattr(Task, "transactional_id", lambda *_: f"of life {next(lives)}")
    assert not faults_of(simulate, 100)


@pytest.mark.parametrize(
    "name",
    [
        "apply before commit",
        "a rewind keeps what was read",
        "a run is deleted one too early",
        "an input that was created again passes at the takeover",
        "the mark of a redrive is not written",
        "the mark of a redrive is written too far",
        "a record that waits stops every partition of its process",
        "the loop waits for a schema",
    ],
)
def test_a_service_that_is_broken_is_found(name: str) -> None:
    """Those of the table that the first seeds find; `make sim-mutants` hunts them all."""
    (mutant,) = (each for each in MUTANTS if each.name == name)
    assert "seed" in (found(mutant, 400) or "")
