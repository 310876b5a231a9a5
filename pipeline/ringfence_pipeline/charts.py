"""Charts and style of the HTML reports: SVG text and a style sheet, both part of the page itself.

A page needs no script, font or image, and shows light and dark. Charts escape all text in them.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

_WIDTH: Final = 760

_HEIGHT: Final = 236

_LEFT: Final = 62

_RIGHT: Final = 14

_TOP: Final = 42

_BOTTOM: Final = 34

_PLOT_WIDTH: Final = _WIDTH - _LEFT - _RIGHT

_PLOT_HEIGHT: Final = _HEIGHT - _TOP - _BOTTOM

_X_LABELS_MAX: Final = 12
"""Twice `_X_LABELS_NARROW`, so that a narrow window, which shows every second one, has six."""

_X_LABELS_NARROW: Final = 6
"""Of more labels a narrow window shows every second one."""

_MARK_ROW: Final = 18
"""Height of a label of a reference line; each line has a row of its own."""

_CHARACTER_WIDTH: Final = 6.5

_LABEL_GAP: Final = 14

_STEPS: Final = (1, 2, 2.5, 5, 10)


def rendered(package: str, template: str, **values: object) -> str:
    """Return the page of a template in a package, which extends `page.html`."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name, ".") for name in (package, "ringfence_pipeline")]),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


class CaptionedChart(NamedTuple):
    """A chart with title and caption."""

    title: str
    caption: str
    svg: Markup
    key: tuple[tuple[str, str], ...] = ()
    """Colours, by their class names, and what they stand for."""


def time_text(iso: str) -> str:
    """Return a time in ISO format as a page shows it."""
    return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


class ChartSeries(NamedTuple):
    """A series of values in one colour."""

    name: str
    colour: str
    """Class name in the style sheet."""
    values: Sequence[float | None]


class ReferenceLine(NamedTuple):
    """A vertical line at a position of the horizontal axis."""

    at: float
    text: str
    colour: str


def over_time(
    labels: Sequence[str], series: Sequence[ChartSeries], unit: Callable[[float], str], title: str
) -> str:
    """Return an SVG chart with bars for the first series and points for the others.

    Each label has one position on the horizontal axis.
    """
    top = _nice_top(value for each in series for value in each.values if value is not None)
    step = _PLOT_WIDTH / max(len(labels), 1)
    drawn = [_horizontals([(share * top, unit(share * top)) for share in (0, 0.5, 1)], top)]
    for row, each in enumerate(series):
        for number, value in enumerate(each.values):
            if value is None:
                continue
            y = _TOP + _PLOT_HEIGHT * (1 - value / top)
            tooltip = f"{labels[number]}: {each.name} {unit(value)}"
            x = _LEFT + number * step
            drawn.append(
                _bar(x + step * 0.1, y, step * 0.8, each.colour, tooltip)
                if row == 0
                else _point(x + step / 2, y, each.colour, tooltip)
            )
    label_width = _LABEL_GAP + _CHARACTER_WIDTH * max(map(len, labels), default=0)
    shown = min(_X_LABELS_MAX, math.floor(_PLOT_WIDTH / label_width))
    every = math.ceil(max(len(labels), 1) / max(shown, 1))
    drawn += _x_labels(
        (_LEFT + (number + 0.5) * step, labels[number]) for number in range(0, len(labels), every)
    )
    return _svg(drawn, title)


def by_distance(
    powers: Sequence[int], series: Sequence[ChartSeries], marks: Sequence[ReferenceLine], title: str
) -> str:
    """Return an SVG chart with pairs of bars over doubling distances, on a logarithmic scale.

    A bar at power p is for distances above 2^(p-1), up to 2^p; marks are at their logarithm.
    """
    low = min([*powers, *(math.floor(mark.at) + 1 for mark in marks)], default=0) - 1
    high = max([*powers, *(math.ceil(mark.at) for mark in marks)], default=1)
    step = _PLOT_WIDTH / (high - low)
    most = max((value or 0 for each in series for value in each.values), default=1)
    decades = max(1, math.ceil(math.log10(max(most, 2))))
    ticks = [(n + 1.0, f"{10**n:,}") for n in range(decades + 1)]
    top = decades + 1.0
    drawn = [_horizontals([(0.0, "0"), *ticks], top)]
    for row, each in enumerate(series):
        for power, value in zip(powers, each.values, strict=True):
            if not value:
                continue
            y = _TOP + _PLOT_HEIGHT * (1 - (1 + math.log10(value)) / top)
            x = _LEFT + (power - 1 - low) * step + step * (0.08 + 0.42 * row)
            tooltip = f"up to {2**power:,} ids back: {int(value):,} {each.name}"
            drawn.append(_bar(x, y, step * 0.42, each.colour, tooltip))
    every = math.ceil((high - low + 1) / _X_LABELS_MAX)
    drawn += _x_labels(
        (_LEFT + (power - low) * step, _short(2**power))
        for power in range(max(low, 0), high + 1, every)
    )
    drawn += [
        _reference_line(mark, _LEFT + (mark.at - low) * step, _TOP - 6 - row * _MARK_ROW)
        for row, mark in enumerate(marks)
    ]
    return _svg(drawn, title)


def share(value: float, most: float, colour: str) -> str:
    """Return an SVG bar for a table cell."""
    width = 0 if most <= 0 else max(1 if value else 0, round(100 * value / most))
    return (
        '<svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{colour}" width="{width}" height="10"/></svg>'
    )


def _nice_top(values: Iterable[float]) -> float:
    """Return a round number at or above all values."""
    most = max(values, default=0)
    if most <= 0:
        return 1
    power = 10 ** math.floor(math.log10(most))
    return float(next(step * power for step in _STEPS if step * power >= most))


def _short(number: int) -> str:
    for size, letter in ((2**30, "G"), (2**20, "M"), (2**10, "k")):
        if number >= size:
            return f"{number // size}{letter}"
    return str(number)


def _horizontals(ticks: Iterable[tuple[float, str]], top: float) -> str:
    found = []
    for value, label in ticks:
        y = _TOP + _PLOT_HEIGHT * (1 - value / top)
        found.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        found.append(_text(_LEFT - 8, y + 4, label, "end"))
    return "".join(found)


def _bar(x: float, y: float, width: float, colour: str, tooltip: str) -> str:
    height = max(_TOP + _PLOT_HEIGHT - y, 0)
    return (
        f'<rect class="{colour}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" '
        f'height="{height:.1f}"><title>{escape(tooltip)}</title></rect>'
    )


def _point(x: float, y: float, colour: str, tooltip: str) -> str:
    return (
        f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
        f"<title>{escape(tooltip)}</title></circle>"
    )


def _x_labels(labels: Iterable[tuple[float, str]]) -> list[str]:
    shown = list(labels)
    is_many = len(shown) > _X_LABELS_NARROW
    return [
        _text(x, _HEIGHT - 9, label, "middle", "wide" if is_many and number % 2 else None)
        for number, (x, label) in enumerate(shown)
    ]


def _reference_line(mark: ReferenceLine, x: float, y: float) -> str:
    side = "end" if x > _WIDTH * 0.7 else "start"
    shift = -6 if side == "end" else 6
    return (
        f'<line class="mark {mark.colour}" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 8:.1f}" '
        f'y2="{_TOP + _PLOT_HEIGHT}"/>' + _text(x + shift, y, mark.text, side)
    )


def _text(x: float, y: float, text: str, anchor: str, class_: str | None = None) -> str:
    named = "" if class_ is None else f' class="{class_}"'
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(drawn: Iterable[str], title: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">{"".join(drawn)}</svg>'
    )


WIDTHS_MS: Final = (
    *(1, 10, 100, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000),
    *(4 * 3_600_000, 24 * 3_600_000, 7 * 24 * 3_600_000, 30 * 24 * 3_600_000),
    365 * 24 * 3_600_000,
)
"""Widths that a time slot may have."""

_SLOTS: Final = 60

_DAY_MS: Final = 86_400_000
"""The length of a day."""


def slot_width_ms(span_ms: float) -> int:
    """Return the least width with which a chart of this time has few enough slots."""
    return next((width for width in WIDTHS_MS if span_ms / width <= _SLOTS), WIDTHS_MS[-1])


def slot_label(at_ms: int, slot_ms: int) -> str:
    """Return the beginning of a slot as text, as exact as its width."""
    form = "%H:%M:%S" if slot_ms < 60_000 else "%H:%M" if slot_ms < _DAY_MS else "%Y-%m-%d"
    if _DAY_MS > slot_ms >= 3_600_000:
        form = "%m-%d %H:%M"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)
