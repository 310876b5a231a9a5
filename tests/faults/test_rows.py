"""No row of the fault matrix is forgotten, and none is marked that is not there."""

import re
from pathlib import Path

from tests.faults import ROWS

TESTS = Path(__file__).parents[1]
MARK = re.compile(r"pytest\.mark\.row\((\d+)\)")


def marked() -> dict[int, list[str]]:
    """The files that prove each row."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for number in MARK.findall(path.read_text("utf-8")):
            found.setdefault(int(number), []).append(path.name)
    return found


def test_every_row_has_a_test_and_every_mark_a_row() -> None:
    assert marked().keys() == ROWS.keys()


def test_every_mark_tells_its_number_in_the_same_way() -> None:
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text("utf-8")
        if path.name != "test_rows.py":
            assert text.count("mark.row(") == len(MARK.findall(text)), path
