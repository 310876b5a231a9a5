"""Seeded runs on logs that lose records or are created again; a failing seed is printed.

RINGFENCE_SEED=n replays one seed; RINGFENCE_SIM_RUNS=n makes n / 10 runs.
"""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
import structlog

from service import takeover
from tests.simulation.invariants import Broken
from tests.simulation.odd_logs import simulate_odd_logs
from tests.simulation.test_simulation import be_quiet, told

RUNS = max(1, int(os.environ.get("RINGFENCE_SIM_RUNS") or 4_000) // 10)
SEED = os.environ.get("RINGFENCE_SEED") or ""

pytestmark = pytest.mark.simulation


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    be_quiet()
    yield
    structlog.reset_defaults()


def faults_of(first: int, runs: int, met: Counter[str] | None = None) -> list[str]:
    """Run consecutive seeds; what did not hold."""
    faults = []
    for seed in range(first, first + runs):
        try:
            found = simulate_odd_logs(seed)
        except Broken as broken:
            faults.append(f"seed {seed}: {broken}")
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        else:
            if met is not None:
                met.update(found)
    return faults


@pytest.mark.row(20)
@pytest.mark.timeout(1800)
def test_whatever_a_log_has_lost_nothing_is_passed_over_in_silence() -> None:
    first, runs = (int(SEED), 1) if SEED else (1, RUNS)
    met = Counter[str]()
    assert faults_of(first, runs, met) == []
    print(f"\n{runs} seeded runs on odd logs; {told(met)}")


def test_a_log_that_was_created_again_unnoticed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "check_identity", lambda _partition, _facts: None)
    assert faults_of(1, 40)
