"""Seeded redrives with crashes at random steps: none lost, none doubled; one for 25 runs."""

import pytest

from service.redrive import owner
from state.edit import Source
from state.redriven import Mark, put
from tests.simulation.redriving import simulate_redrive
from tests.simulation.runs import RUNS, TIMEOUT_S, faults_of, found_by, told

pytestmark = pytest.mark.simulation


@pytest.mark.timeout(TIMEOUT_S)
def test_whatever_goes_wrong_each_letter_is_redriven_once() -> None:
    faults, met = found_by(simulate_redrive, max(1, RUNS // 25))
    print(f"\n{RUNS // 25:,} seeded redrives, {len(faults)} faults; {told(met)}")
    assert faults == []


def test_a_mark_that_is_not_looked_at_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "mark_of", lambda _store, _name, _letters: Mark())
    assert faults_of(simulate_redrive, 40)


def test_a_mark_that_is_written_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def further(name: str, letters: Source, mark: Mark) -> object:
        return put(name, letters, mark._replace(done=mark.done + 1))

    monkeypatch.setattr(owner, "put", further)
    assert faults_of(simulate_redrive, 40)
