"""Charts: series of numbers as attributes of SVG elements. Pure; the page styles them.

A chart is as many units wide as it has points and `HEIGHT` units high, and is stretched to its
place on the page; so its labels are outside the SVG element.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

HEIGHT: Final = 100.0
NOTHING: Final = 1e-9
"""Below this a value is drawn as none."""

Series = Sequence[float | None]


class ChartLine(NamedTuple):
    """One series: its name, the line along it and the area below it."""

    name: str
    kind: str
    """Chooses its colour, as a class."""
    line: str
    area: str


class ChartColumn(NamedTuple):
    """One column of a chart, and what is told of it to who points at it."""

    x: float
    told: str


class Chart(NamedTuple):
    """All that a page needs to draw one."""

    title: str
    summary: str
    """For who does not see it."""
    width: int
    lines: tuple[ChartLine, ...]
    ticks: tuple[float, ...]
    """Values of the scale, from the top."""
    stretches: tuple[ChartColumn, ...]
    empty: bool


def ceiling(largest: float) -> float:
    """The end of a scale: the next of some round numbers, of which each has a round half."""
    if largest < NOTHING:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    steps = (step * power for step in (1, 2, 3, 4, 6, 8) if step * power >= largest)
    return float(next(steps, 10 * power))  # a power that was rounded down is no reason to fail


def line_of(name: str, kind: str, values: Series, top: float) -> ChartLine:
    """Draw a series below `top`; it is broken where nothing is known."""
    strokes, areas = [], []
    for start, run in _runs(values):
        places = [f"{start + n:g} {_y(value, top):.2f}" for n, value in enumerate(run)]
        if len(run) == 1:  # a line from a place to itself is not drawn
            places.insert(0, f"{max(0.0, start - 0.5):g} {_y(run[0], top):.2f}")
        along = "L".join(places)
        first, last = places[0].partition(" ")[0], places[-1].partition(" ")[0]
        strokes.append(f"M{along}")
        areas.append(f"M{first} {HEIGHT:g}L{along}L{last} {HEIGHT:g}Z")
    return ChartLine(name, kind, "".join(strokes), "".join(areas))


def chart(
    title: str,
    summary: str,
    series: Sequence[tuple[str, str, Series]],
    told: Sequence[str],
    least: float = 0.0,
) -> Chart:
    """Draw series of one length on one scale, which reaches to `least` at the least."""
    known = [value for _, _, values in series for value in values if value is not None]
    top = ceiling(max([least, *known]))
    width = max(1, len(told) - 1)
    return Chart(
        title=title,
        summary=summary,
        width=width,
        lines=tuple(line_of(name, kind, values, top) for name, kind, values in series),
        ticks=(top, top / 2, 0.0),
        stretches=tuple(ChartColumn(n - 0.5, text) for n, text in enumerate(told)),
        empty=not known,
    )


def sparkline(values: Sequence[float], width: int) -> ChartLine | None:
    """A series without a scale, at the right end of so many units; None where nothing happened."""
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


def _y(value: float, top: float) -> float:
    return HEIGHT - HEIGHT * min(value, top) / top
