"""Seeded redrives with crashes at random steps: none lost, none doubled; one for 25 runs."""

from collections import Counter

import pytest

from tests.simulation.redriving import simulate_redrive
from tests.simulation.runs import RUNS, TIMEOUT_S, found_by, told
from tests.support.native import native_rings, needs_native

pytestmark = pytest.mark.simulation


@pytest.mark.timeout(TIMEOUT_S)
def test_whatever_goes_wrong_each_letter_is_redriven_once() -> None:
    faults, met = found_by(simulate_redrive, max(1, RUNS // 25))
    print(f"\n{RUNS // 25:,} seeded redrives, {len(faults)} faults; {told(met)}")
    assert faults == []


def simulate_compiled_redrive(seed: int) -> Counter[str]:
    """The same run on the compiled fast path."""
    with native_rings():
        return simulate_redrive(seed)


@needs_native
@pytest.mark.timeout(TIMEOUT_S)
def test_each_letter_is_redriven_once_on_the_compiled_path_too() -> None:
    faults, met = found_by(simulate_compiled_redrive, max(1, RUNS // 25))
    print(f"\n{RUNS // 25:,} seeded redrives on the compiled path; {told(met)}")
    assert faults == []
