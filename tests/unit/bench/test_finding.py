"""Findings are shown and written as they were measured."""

import pytest

from bench.finding import Cell, Finding, shown
from bench.results import Spread

SPREAD = Spread(1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, ""),
        ("10 %", "10 %"),
        (20_000, "20,000"),
        (178_824.4, "178,824"),
        (0.4841, "0.48"),
        (0.0313, "0.0313"),
        (Spread(5.0, 5.0, 5.0), "5.00"),
        (SPREAD, "2.00 (1.00–3.00)"),  # noqa: RUF001 - a range
    ],
)
def test_a_cell_is_shown_with_what_was_measured_and_no_more(cell: Cell, text: str) -> None:
    assert shown(cell) == text


def test_a_row_may_lack_a_column() -> None:
    finding = Finding("it", {"batch": 1}, [{"arm": "a", "ms": SPREAD}, {"arm": "b", "more": 2}])
    assert finding.columns == ["arm", "ms", "more"]
    assert finding.to_json()["rows"] == [
        {"arm": "a", "ms": {"min": 1.0, "median": 2.0, "max": 3.0}},
        {"arm": "b", "more": 2},
    ]
