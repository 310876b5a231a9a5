"""Seeded redrives with crashes at random steps: none lost, none doubled; one for 25 runs."""

import pytest

from tests.simulation.redriving import simulate_redrive
from tests.simulation.runs import RUNS, TIMEOUT_S, found_by, told

pytestmark = pytest.mark.simulation


@pytest.mark.timeout(TIMEOUT_S)
def test_whatever_goes_wrong_each_letter_is_redriven_once() -> None:
    faults, met = found_by(simulate_redrive, max(1, RUNS // 25))
    print(f"\n{RUNS // 25:,} seeded redrives, {len(faults)} faults; {told(met)}")
    assert faults == []
