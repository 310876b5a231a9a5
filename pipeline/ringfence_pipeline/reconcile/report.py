"""HTML report of a reconciliation: one self-contained page, without scripts, fonts or images.

It answers the most important questions first: is anything wrong, and are the rings long enough?
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from ringfence_pipeline.charts import (
    CaptionedChart,
    ChartSeries,
    ReferenceLine,
    by_distance,
    over_time,
    rendered,
    share,
    slot_label,
    time_text,
)
from ringfence_pipeline.reconcile.results import (
    ACCEPTED,
    DUPLICATE,
    MARKED,
    NONE,
    AddressFound,
    ReconcileResult,
    Violation,
)

FAULTS_SHOWN: Final = 500

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


def to_html(findings: ReconcileResult) -> str:
    """Return the HTML page."""
    return rendered(
        "ringfence_pipeline.reconcile",
        "report.html",
        findings=findings,
        made_at=time_text(findings.made_at),
        tiles=[(name, f"{number:,}") for name, number in tiles(findings)],
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
    slots, labels = (
        findings.slots,
        [slot_label(s.begin_ms, findings.slot_ms) for s in findings.slots],
    )
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
            "From a record's time to its decision. Measured on dead letters, since only they have "
            "the time of their decision."
        )
        key = (("acc", "median"), ("miss", "99 %"))
        drawn.append(CaptionedChart("Latency", caption, Markup(latency), key))  # noqa: S704
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
        title, key = (
            f"How late copies come: {address}",
            (("acc", "caught"), ("miss", "went out again")),
        )
        drawn.append(CaptionedChart(title, caption, Markup(svg), key))  # noqa: S704
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
