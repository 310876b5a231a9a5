"""No case is forgotten."""

import re
from pathlib import Path

from tests.cases import NOT_OURS, TO_COME

ALL = set(range(1, 63))


def numbers_with_a_test() -> set[int]:
    """The numbers in the names of tests and in the rows of tables."""
    texts = [path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    found = (re.findall(r"def test_case_(\d\d)_|\bCase\(\s*(\d+),", text) for text in texts)
    return {int(name or row) for pairs in found for name, row in pairs}


def test_every_case_is_tested_or_has_a_stated_reason() -> None:
    assert ALL - numbers_with_a_test() - NOT_OURS.keys() - TO_COME.keys() == set()
    assert (numbers_with_a_test() | NOT_OURS.keys() | TO_COME.keys()) - ALL == set()


def test_no_case_is_both_tested_and_listed_as_not_ours() -> None:
    assert not NOT_OURS.keys() & (numbers_with_a_test() | TO_COME.keys())
