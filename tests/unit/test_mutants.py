"""Mutants do not rot: what each of them breaks is still there, and so is what is explained."""

import pytest

from tests.mutation.operators import mutants_of
from tests.mutation.results import Explained
from tests.simulation.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_breaks_is_there_once(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text()
    assert text.count(mutant.source) == 1
    assert mutant.source != mutant.replacement
    compile(text.replace(mutant.source, mutant.replacement), mutant.path, "exec")


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_each_explanation_is_of_a_mutant_that_can_be_made() -> None:
    explained = Explained(ROOT / "tests" / "mutation" / "equivalent.toml")
    paths = {entry.split(" ")[0] for entry in explained.reasons}
    mutants = (each for path in paths for each in mutants_of(path, (ROOT / path).read_bytes()))
    assert explained.unknown(frozenset(mutant.identity for mutant in mutants)) == []
    assert all(explained.reasons.values())
