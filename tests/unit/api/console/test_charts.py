import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_api.console.charts import MARKS_MAX, ceiling, chart, line_of, sparkline, time_marks
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


@given(st.floats(0.0, 2e9), st.floats(120.0, 1e6), st.integers(2, 120))
def test_every_label_of_the_time_axis_is_a_whole_minute_at_its_own_place(
    first_s: float, span_s: float, count: int
) -> None:
    times_s = [first_s + span_s * n / (count - 1) for n in range(count)]
    marks = time_marks(times_s)
    assert 1 <= len(marks) <= MARKS_MAX
    for mark in marks:
        assert (mark.time.second, mark.time.microsecond) == (0, 0)
        there_s = first_s + span_s * mark.percent / 100
        assert there_s == pytest.approx(mark.time.timestamp(), abs=0.01)


def test_a_label_is_at_its_place_between_points_of_unequal_distance() -> None:
    (minute, *_) = time_marks([30.0, 50.0, 90.0, 91.0])
    assert minute.percent == pytest.approx((1 + 10 / 40) / 3 * 100)


def test_a_time_axis_of_one_point_has_no_labels() -> None:
    assert time_marks([60.0]) == ()


def test_a_sparkline_of_nothing_is_none() -> None:
    assert sparkline((), 60) is None
    assert sparkline((0.0, 0.0), 60) is None


def test_a_short_sparkline_stands_at_the_right() -> None:
    line = some(sparkline((1.0, 2.0), 10))
    assert line.line == "M8 50.00L9 0.00"
