"""HTML page of the quality views: one self-contained page in the look of the reconciliation."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from ringfence_pipeline.charts import (
    CaptionedChart,
    ChartSeries,
    over_time,
    rendered,
    share,
    slot_label,
    time_text,
)
from ringfence_pipeline.quality.views import OFFSETS, SECONDS, Distances, NamedCounts, QualityResult

NAMES_SHOWN: Final = 20

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class NamedRow(NamedTuple):
    """A row of the table of publishers, or of addresses."""

    name: str | None
    records: int
    duplicates: int
    percent: str
    bar: Markup
    rejected: int
    without_id: int


class DistanceRow(NamedTuple):
    """A row of the table of distances."""

    name: str
    copies: int
    quantiles: tuple[str, ...]


def to_html(found: QualityResult) -> str:
    """Return the HTML page."""
    return rendered(
        "ringfence_pipeline.quality",
        "report.html",
        found=found,
        made_at=time_text(found.made_at),
        tiles=tiles(found),
        charts=[*_over_time(found), *_distances(found)],
        distances=_distance_rows(found),
        tables=[
            ("Publishers", "publisher", _rows(found.publishers), found.publishers_total),
            ("Addresses", "address", _rows(found.addresses), found.addresses_total),
        ],
        ids=found.ids[:NAMES_SHOWN],
        slot_label=lambda at_ms: slot_label(at_ms, found.slot_ms),
        reason_percent=[percent(each.records, found.total.records) for each in found.reasons],
    )


def tiles(found: QualityResult) -> list[tuple[str, str]]:
    """Return the key figures of the page, as names and numbers."""
    total = found.total
    return [
        ("records", f"{total.records:,}"),
        ("accepted", f"{total.accepted:,}"),
        ("duplicates", f"{total.duplicates:,}"),
        ("share of duplicates", percent(total.duplicates, total.records)),
        ("rejected otherwise", f"{total.rejected:,}"),
        ("without an id", f"{total.without_id:,}"),
    ]


def percent(part: int, whole: int) -> str:
    """Return a share with three digits; a part that is not zero never looks like it."""
    if not part or not whole:
        return "0 %"
    value = 100 * part / whole
    return "< 0.001 %" if value < 0.001 else f"{value:.3g} %"


def seconds_text(seconds: float) -> str:
    """Return a time in the largest unit that fits, with two or three digits."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{1000 * seconds:.3g} ms"


def short(number: float) -> str:
    """Return a number of records in few characters: 123,456 or 12.3 M."""
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,.0f}"


def _rows(named: Sequence[NamedCounts]) -> list[NamedRow]:
    most = max((each.counts.duplicates for each in named), default=0)
    return [
        NamedRow(
            name,
            counts.records,
            counts.duplicates,
            percent(counts.duplicates, counts.records),
            Markup(share(counts.duplicates, most, "dup")),  # noqa: S704 - numbers alone
            counts.rejected,
            counts.without_id,
        )
        for name, counts in named[:NAMES_SHOWN]
    ]


def _over_time(found: QualityResult) -> list[CaptionedChart]:
    if not found.slots:
        return []
    first_ms = found.slots[0].begin_ms
    slots = {slot.begin_ms: slot.counts for slot in found.slots}
    times = range(first_ms, found.slots[-1].begin_ms + 1, found.slot_ms)
    counts = [slots.get(at_ms) for at_ms in times]
    labels = [slot_label(at_ms, found.slot_ms) for at_ms in times]
    shares = over_time(
        labels,
        [ChartSeries("duplicates", "dup", [each and each.duplicates_percent for each in counts])],
        lambda value: f"{value:.3g} %",
        "Share of duplicates over time",
    )
    records = over_time(
        labels,
        [ChartSeries("records", "acc", [each and each.records for each in counts])],
        short,
        "Records over time",
    )
    width = f"each bar covers {seconds_text(found.slot_ms / 1000)}"
    return [
        CaptionedChart(
            "Duplicates over time",
            f"The share of duplicates among the records, by record time (UTC); {width}.",
            Markup(shares),  # noqa: S704 - charts escape their input
        ),
        CaptionedChart("Records over time", f"All records; {width}.", Markup(records)),  # noqa: S704
    ]


def _distances(found: QualityResult) -> list[CaptionedChart]:
    charts = []
    if found.seconds is not None:
        svg = _bars(found.seconds, SECONDS, seconds_text, "Time between a record and its copy")
        caption = "Copies by the time since the accepted message; each bar reaches up to its label."
        charts.append(CaptionedChart("How much later copies come", caption, svg))
    if found.offsets is not None:
        svg = _bars(found.offsets, OFFSETS, short, "Records between a record and its copy")
        caption = (
            "Copies by the number of offsets since the accepted record, where both are in one "
            "input partition; each bar reaches up to its label."
        )
        charts.append(CaptionedChart("How many records later copies come", caption, svg))
    return charts


def _bars(
    found: Distances, limits: Sequence[float], unit: Callable[[float], str], title: str
) -> Markup:
    last = max(at for at, count in enumerate(found.counts) if count)
    labels = [*map(unit, limits), "more"][: last + 1]
    shares: list[float | None] = [100 * each / found.copies for each in found.counts[: last + 1]]
    series = [ChartSeries("of the copies", "acc", shares)]
    return Markup(over_time(labels, series, lambda value: f"{value:.3g} %", title))  # noqa: S704


def _distance_rows(found: QualityResult) -> list[DistanceRow]:
    kinds = (("time", found.seconds, seconds_text), ("offsets", found.offsets, short))
    return [
        DistanceRow(
            name,
            measured.copies,
            tuple(
                unit(each)
                for each in (
                    *(measured.p50, measured.p90, measured.p99, measured.p999),
                    measured.max,
                )
            ),
        )
        for name, measured, unit in kinds
        if measured is not None
    ]
