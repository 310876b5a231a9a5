"""HTML report of a reconciliation: one self-contained page, without scripts, fonts or images.

It answers the most important questions first: is anything wrong, and are the rings long enough?
"""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from pipeline.reconcile.results import (
    ACCEPTED,
    DUPLICATE,
    MARKED,
    NONE,
    AddressFound,
    ReconcileResult,
    Violation,
)

_WIDTH: Final = 760

_HEIGHT: Final = 220

_LEFT: Final = 62

_RIGHT: Final = 14

_TOP: Final = 26

_BOTTOM: Final = 34

_PLOT_WIDTH: Final = _WIDTH - _LEFT - _RIGHT

_PLOT_HEIGHT: Final = _HEIGHT - _TOP - _BOTTOM

_X_LABELS_MAX: Final = 8

_STEPS: Final = (1, 2, 2.5, 5, 10)


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
    every = math.ceil(max(len(labels), 1) / _X_LABELS_MAX)
    drawn += [
        _text(_LEFT + (number + 0.5) * step, _HEIGHT - 12, label, "middle")
        for number, label in enumerate(labels)
        if number % every == 0
    ]
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
    every = math.ceil((high - low + 1) / 12)
    drawn += [
        _text(_LEFT + (power - low) * step, _HEIGHT - 12, _short(2**power), "middle")
        for power in range(max(low, 0), high + 1)
        if (power - max(low, 0)) % every == 0
    ]
    drawn += [_reference_line(mark, _LEFT + (mark.at - low) * step) for mark in marks]
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


def _reference_line(mark: ReferenceLine, x: float) -> str:
    side = "end" if x > _WIDTH * 0.7 else "start"
    shift = -6 if side == "end" else 6
    return (
        f'<line class="mark {mark.colour}" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 14}" '
        f'y2="{_TOP + _PLOT_HEIGHT}"/>' + _text(x + shift, _TOP - 6, mark.text, side)
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(drawn: Iterable[str], title: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">{"".join(drawn)}</svg>'
    )


FAULTS_SHOWN: Final = 500

_DAY_MS: Final = 86_400_000

_MEANING: Final = {
    "no-fate": "inputs with neither an output nor a dead letter",
    "two-fates": "inputs with a dead letter and another fate",
    "doubled": "outputs of an input that already has one",
    "out-of-order": "outputs behind a later one of the same input",
    "let-through": "ids that were accepted although their ring held them",
    "false-duplicate": "dead letters that are not a copy of the record they name",
    "unknown-output": "outputs that match no input",
    "unknown-letter": "dead letters of inputs that do not exist",
}


class RingRow(NamedTuple):
    """A row of the table of addresses."""

    found: AddressFound
    headroom: float | None
    """Size divided by the size needed; None without copies or without a limit."""
    verdict: str
    colour: str
    bar: Markup


class CaptionedChart(NamedTuple):
    """A chart with title and caption."""

    title: str
    caption: str
    svg: Markup


def to_html(findings: ReconcileResult) -> str:
    """Return the HTML page."""
    environment = Environment(
        loader=PackageLoader("pipeline.reconcile", "."),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html")
    return page.render(
        findings=findings,
        tiles=tiles(findings),
        meaning=_MEANING,
        rings=rings(findings.addresses),
        answer=answer(findings.addresses),
        charts=[*_distances(findings), *_over_time(findings)],
        faults=_by_kind(findings.faults),
        faults_shown=FAULTS_SHOWN,
    )


def tiles(findings: ReconcileResult) -> list[tuple[str, int]]:
    """Return the key figures of the page, as names and numbers."""
    fates = findings.fates
    rejected = sum(n for name, n in fates.items() if name.startswith("rejected"))
    excused = sum(n for name, n in fates.items() if name.startswith("excused"))
    return [
        ("records", sum(fates.values())),
        ("accepted", fates.get(ACCEPTED, 0)),
        ("duplicates", fates.get(DUPLICATE, 0) + fates.get(MARKED, 0)),
        ("rejected otherwise", rejected),
        ("not decided yet, or silent", excused),
        ("without a fate", fates.get(NONE, 0)),
    ]


def answer(found: Sequence[AddressFound]) -> str:
    """Return whether the rings are long enough, in a sentence or two."""
    short = [each for each in found if each.missed]
    if short:
        worst = short[0]
        missed = sum(each.missed for each in short)
        where = f"{len(short)} addresses" if len(short) > 1 else f"address {worst.address!r}"
        return (
            f"No. At {where} {_copies(missed)} arrived after the ring had forgotten their ids, and "
            f"went out. A ring of {worst.needed_99:,} would have caught 99 % of the copies of "
            f"{worst.address!r}, {worst.needed_999:,} 99.9 %, {worst.needed_all:,} all of them; "
            f"it has {worst.size:,}."
        )
    limited = [each for each in found if each.copies and each.is_ring]
    if not limited:
        return "Unknown: no copy has arrived at an address with a ring."
    tight = min(limited, key=lambda each: each.size / each.needed_all)
    times = tight.size / tight.needed_all
    return (
        f"Yes: every copy was caught. The tightest is the ring of {tight.address!r}: the latest "
        f"copy needed {tight.needed_all:,} of its {tight.size:,} ids, so the ring is "
        f"{times:,.1f} times as long as needed."
    )


def rings(found: Sequence[AddressFound]) -> list[RingRow]:
    """Return the rows of the table of addresses."""
    most = max((each.copies for each in found), default=0)
    return [
        RingRow(each, _headroom(each), *_verdict(each), Markup(share(each.copies, most, "dup")))  # noqa: S704 - numbers alone
        for each in found
    ]


def _verdict(found: AddressFound) -> tuple[str, str]:
    headroom = _headroom(found)
    if found.missed:
        return f"too short: {_copies(found.missed)} went out", "bad"
    if headroom is None:
        return "no limit" if found.copies else "no copies", "plain"
    if headroom < 2:
        return f"long enough, but only {headroom:.1f} times", "warn"
    return f"long enough, {headroom:,.0f} times over", "good"


def _headroom(found: AddressFound) -> float | None:
    if not found.needed_all or not found.is_ring:
        return None
    return found.size / found.needed_all


def _over_time(findings: ReconcileResult) -> list[CaptionedChart]:
    slots, labels = findings.slots, [_time(s.begin_ms, findings.slot_ms) for s in findings.slots]
    if not slots:
        return []
    rates = [
        100 * s.duplicates / all_of if (all_of := s.accepted + s.duplicates + s.rejected) else None
        for s in slots
    ]
    rate = over_time(
        labels,
        [ChartSeries("duplicates", "dup", rates)],
        lambda percent: f"{percent:.3g} %",
        "Share of duplicates over time",
    )
    p50 = [None if s.latency_p50_ms is None else s.latency_p50_ms / 1000 for s in slots]
    p99 = [None if s.latency_p99_ms is None else s.latency_p99_ms / 1000 for s in slots]
    drawn = [
        CaptionedChart(
            "Duplicates over time",
            "The share of copies among the records, by record time (UTC).",
            Markup(rate),  # noqa: S704 - charts escape their input
        )
    ]
    if any(value is not None for value in p50):
        latency = over_time(
            labels,
            [ChartSeries("median", "acc", p50), ChartSeries("99 %", "miss", p99)],
            _seconds,
            "Latency over time",
        )
        caption = (
            "From a record's time to its decision: bars are the median, points 99 %. Measured on "
            "dead letters, since only they have the time of their decision."
        )
        drawn.append(CaptionedChart("Latency", caption, Markup(latency)))  # noqa: S704
    return drawn


def _distances(findings: ReconcileResult) -> list[CaptionedChart]:
    named = {each.address: each for each in findings.addresses}
    drawn = []
    for address in dict.fromkeys(each.address for each in findings.distances):
        found = named[address]
        rows = [each for each in findings.distances if each.address == address]
        powers = [each.power for each in rows]
        series = [
            ChartSeries("caught", "acc", [each.caught for each in rows]),
            ChartSeries("missed", "miss", [each.missed for each in rows]),
        ]
        marks = [ReferenceLine(math.log2(found.needed_all), f"all: {found.needed_all:,}", "soft")]
        if found.is_ring and found.size:
            marks.append(ReferenceLine(math.log2(found.size), f"ring: {found.size:,}", "ring"))
        svg = by_distance(powers, series, marks, f"Distances of copies at {address}")
        caption = (
            "The number of other ids between a record and its copy. To the right of the ring's "
            "line an id is forgotten; its copy is caught only if it was accepted again meanwhile"
            + ("." if found.is_exact else "; estimated by time, since it has several partitions.")
        )
        drawn.append(CaptionedChart(f"How late copies come: {address}", caption, Markup(svg)))  # noqa: S704
    return drawn


def _by_kind(faults: Sequence[Violation]) -> dict[str, list[Violation]]:
    found: dict[str, list[Violation]] = {}
    for fault in faults[:FAULTS_SHOWN]:
        found.setdefault(fault.kind, []).append(fault)
    return found


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count:,} copies"


def _time(at_ms: int, slot_ms: int) -> str:
    form = "%H:%M:%S" if slot_ms < 60_000 else "%H:%M" if slot_ms < _DAY_MS else "%Y-%m-%d"
    if _DAY_MS > slot_ms >= 3_600_000:
        form = "%m-%d %H:%M"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)
