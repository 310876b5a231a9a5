import re

from hypothesis import given
from hypothesis import strategies as st

from api.console.charts import ceiling, chart, line_of, sparkline
from tests.support.helpers import some

SERIES = st.lists(st.none() | st.floats(0.0, 1e9), max_size=120)


@given(SERIES)
def test_no_line_leaves_its_drawing(values: list[float | None]) -> None:
    drawn = chart("t", "s", [("a", "accepted", values)], ["told"] * len(values))
    for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", drawn.lines[0].line):
        assert 0 <= float(x) <= max(drawn.width, 0.5)
        assert 0 <= float(y) <= 100


@given(SERIES)
def test_a_line_is_broken_exactly_where_nothing_is_known(values: list[float | None]) -> None:
    runs = "".join("." if value is None else "x" for value in values).split(".")
    assert line_of("a", "k", values, 1.0).line.count("M") == sum(bool(run) for run in runs)


@given(st.floats(1e-6, 1e12))
def test_a_scale_ends_above_its_values_and_below_ten_times_them(largest: float) -> None:
    assert largest <= ceiling(largest) * (1 + 1e-9)
    assert ceiling(largest) <= largest * 10


def test_a_chart_of_nothing_says_so() -> None:
    assert chart("t", "s", [("a", "k", [None, None])], ["", ""]).empty
    assert not chart("t", "s", [("a", "k", [None, 0.0])], ["", ""]).empty


def test_a_sparkline_of_nothing_is_none() -> None:
    assert sparkline((), 60) is None
    assert sparkline((0.0, 0.0), 60) is None


def test_a_short_sparkline_stands_at_the_right() -> None:
    line = some(sparkline((1.0, 2.0), 10))
    assert line.line == "M8 50.00L9 0.00"
