"""Seeded runs on logs that lose records or are created again; one for 10 runs."""

import pytest

from tests.simulation.odd_logs import simulate_odd_logs
from tests.simulation.runs import RUNS, TIMEOUT_S, found_by, told

pytestmark = pytest.mark.simulation


@pytest.mark.row(20)
@pytest.mark.timeout(TIMEOUT_S)
def test_whatever_a_log_has_lost_nothing_is_passed_over_in_silence() -> None:
    faults, met = found_by(simulate_odd_logs, max(1, RUNS // 10))
    print(f"\n{RUNS // 10:,} seeded runs on odd logs, {len(faults)} faults; {told(met)}")
    assert faults == []
