"""Charts: series of numbers as paths of SVG elements. Pure; the page styles them.

A chart is as many units wide as it has points, and `HEIGHT` units high. The page stretches it, so
its labels are outside the SVG element.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

HEIGHT: Final = 100.0
NOTHING: Final = 1e-9
"""A smaller value is drawn as 0."""

MARKS_MAX: Final = 5
"""Labels of a time axis: they are beside each other, and more might overlap on a narrow page."""
_MARK_EVERY_S: Final = (60, 300)
"""Steps between the labels of a short span; the first with which `MARKS_MAX` suffice is used.

A minute serves the shortest span of `history.SPANS_S`, and five minutes the next one.
"""
_QUARTER_S: Final = 900
"""Times of a longer span are whole quarters of an hour, in every time zone."""

Series = Sequence[float | None]


class ChartLine(NamedTuple):
    """One series: its name, the line along it and the area below it."""

    name: str
    kind: str
    """CSS class that selects its colour."""
    line: str
    area: str


class ChartColumn(NamedTuple):
    """One column of a chart, and its tooltip."""

    x: float
    tooltip: str


class TimeMark(NamedTuple):
    """One label of the time axis."""

    percent: float
    """Distance from the left edge, in percent of the width."""
    time: datetime


class Chart(NamedTuple):
    """The data that a page needs to draw a chart."""

    title: str
    summary: str
    """Text alternative for screen readers."""
    width: int
    lines: tuple[ChartLine, ...]
    ticks: tuple[float, ...]
    """Labels of the scale, from the top."""
    columns: tuple[ChartColumn, ...]
    empty: bool


def ceiling(largest: float) -> float:
    """Return the top of a scale: the next round number whose half is round too."""
    if largest < NOTHING:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    steps = (step * power for step in (1, 2, 3, 4, 6, 8) if step * power >= largest)
    return float(next(steps, 10 * power))  # in case log10 was rounded down


def line_of(name: str, kind: str, values: Series, top: float) -> ChartLine:
    """Draw a series on a scale up to `top`, with a gap where a value is None."""
    strokes, areas = [], []
    for start, run in _runs(values):
        points = [f"{start + n:g} {_y(value, top):.2f}" for n, value in enumerate(run)]
        if len(run) == 1:  # a path of one point is not visible
            points.insert(0, f"{max(0.0, start - 0.5):g} {_y(run[0], top):.2f}")
        along = "L".join(points)
        first, last = points[0].partition(" ")[0], points[-1].partition(" ")[0]
        strokes.append(f"M{along}")
        areas.append(f"M{first} {HEIGHT:g}L{along}L{last} {HEIGHT:g}Z")
    return ChartLine(name, kind, "".join(strokes), "".join(areas))


def chart(
    title: str,
    summary: str,
    series: Sequence[tuple[str, str, Series]],
    tooltips: Sequence[str],
    min_top: float = 0.0,
) -> Chart:
    """Draw series of the same length on one scale, which reaches at least to `min_top`."""
    known = [value for _, _, values in series for value in values if value is not None]
    top = ceiling(max([min_top, *known]))
    width = max(1, len(tooltips) - 1)
    return Chart(
        title=title,
        summary=summary,
        width=width,
        lines=tuple(line_of(name, kind, values, top) for name, kind, values in series),
        ticks=(top, top / 2, 0.0),
        columns=tuple(ChartColumn(n - 0.5, text) for n, text in enumerate(tooltips)),
        empty=not known,
    )


def time_marks(times_s: Sequence[float]) -> tuple[TimeMark, ...]:
    """Return the labels of the time axis: whole minutes, each where the chart draws its time.

    Args:
        times_s: the time of each point of the chart, ascending, in seconds since 1970 (UTC)

    """
    if len(times_s) < 2:
        return ()
    first_s, last_s = times_s[0], times_s[-1]
    span_s = last_s - first_s
    quarters_s = _QUARTER_S * (1 + int(span_s / (_QUARTER_S * MARKS_MAX)))
    every_s = next((s for s in _MARK_EVERY_S if span_s < s * MARKS_MAX), quarters_s)
    begin_s = every_s * math.ceil(first_s / every_s)
    return tuple(
        TimeMark(_percent(time_s, times_s), datetime.fromtimestamp(time_s, UTC))
        for time_s in range(begin_s, math.floor(last_s) + 1, every_s)
    )


def tooltip(time_s: float, text: str) -> str:
    """Return the tooltip of a point; the page's script finds the time in it."""
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC: {text}"


def sparkline(values: Sequence[float], width: int) -> ChartLine | None:
    """Draw the end of a series, right-aligned in `width` units; None if all values are 0."""
    shown = values[-width:]
    if not any(shown):
        return None
    padded: list[float | None] = [None] * (width - len(shown))
    return line_of("", "accepted", [*padded, *shown], max(shown))


def _runs(values: Series) -> list[tuple[int, list[float]]]:
    runs: list[tuple[int, list[float]]] = []
    before: float | None = None
    for n, value in enumerate(values):
        if value is not None:
            if before is None:
                runs.append((n, []))
            runs[-1][1].append(value)
        before = value
    return runs


def _percent(time_s: float, times_s: Sequence[float]) -> float:
    right = min(bisect_right(times_s, time_s), len(times_s) - 1)
    before_s, after_s = times_s[right - 1], times_s[right]
    return 100 * (right - 1 + (time_s - before_s) / (after_s - before_s)) / (len(times_s) - 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - HEIGHT * min(value, top) / top
