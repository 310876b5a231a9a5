"""Mutants do not rot: the code that each of them breaks is still there."""

import pytest

from tests.simulation.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_breaks_is_there_once(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text()
    assert text.count(mutant.source) == 1
    assert mutant.source != mutant.replacement
    compile(text.replace(mutant.source, mutant.replacement), mutant.path, "exec")


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
