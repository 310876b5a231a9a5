"""Quality values: the views of `ringfence.spark.quality` over the tables, short enough to show.

Lists have the first rows of a view and the number of all its rows.
"""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from ringfence_client.spark import quality
from ringfence_pipeline.charts import slot_width_ms
from ringfence_pipeline.errors import CONTRADICTION, PipelineError
from ringfence_pipeline.session import SessionOptions, session_for
from ringfence_pipeline.steps import say
from ringfence_pipeline.storage import StorageFolder
from ringfence_pipeline.table_format import format_of
from ringfence_pipeline.tables import read_table
from ringfence_service.printable import visible

FORMAT: Final = 1

ROWS_MAX: Final = 100
"""Rows of each list, which the driver collects: page and JSON stay short whatever the tables hold.

The number of all rows is beside each list.
"""

SECONDS: Final = (0.01, 0.1, 1, 10, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
"""Upper bounds of the bars of times between a record and its copy; the last bar has none."""

OFFSETS: Final = tuple(10**power for power in range(9))
"""Upper bounds of the bars of offsets between a record and its copy; the last bar has none."""


class RecordCounts(NamedTuple):
    """Records by what became of them."""

    records: int
    accepted: int
    duplicates: int
    rejected: int
    without_id: int

    @property
    def duplicates_percent(self) -> float:
        """The share of duplicates in all records."""
        return 100 * self.duplicates / self.records if self.records else 0.0


class NamedCounts(NamedTuple):
    """The counts of a publisher or an address; null where a record has none."""

    name: str | None
    counts: RecordCounts


class SlotCounts(NamedTuple):
    """The counts of a time slot."""

    begin_ms: int
    counts: RecordCounts


class ReasonCount(NamedTuple):
    """Dead letters with one reason and one general cause."""

    reason: str | None
    cause: str | None
    records: int


class RepeatedId(NamedTuple):
    """An id that came more than once."""

    address: str | None
    id: str
    copies: int
    accepted: int
    first_ms: int
    last_ms: int


class Distances(NamedTuple):
    """Distances between records and their copies: quantiles, and counts up to each bound."""

    copies: int
    p50: float
    p90: float
    p99: float
    p999: float
    max: float
    counts: tuple[int, ...]
    """By bound, one more than there are bounds."""


class QualityResult(NamedTuple):
    """The quality of what is in the tables."""

    target: str
    made_at: str
    since: str | None
    total: RecordCounts
    slot_ms: int
    slots: tuple[SlotCounts, ...]
    publishers: tuple[NamedCounts, ...]
    publishers_total: int
    addresses: tuple[NamedCounts, ...]
    addresses_total: int
    reasons: tuple[ReasonCount, ...]
    reasons_total: int
    seconds: Distances | None
    """None without copies."""
    offsets: Distances | None
    ids: tuple[RepeatedId, ...]
    ids_total: int


def run_quality(
    target: str, since: date | None, by: str, *, session: SessionOptions
) -> QualityResult:
    """Compute the views of the tables in a session of its own; raise PipelineError."""
    say(f"starting Spark, which then reads the tables in {visible(target)}")
    with session_for(session) as spark:
        return quality_of(spark, target, since, by)


def quality_of(
    spark: SparkSession, target: str | Path, since: date | None = None, by: str = "duplicate_id"
) -> QualityResult:
    """Return the quality of the tables in `target`, of the days from `since` on.

    `by` is the column of which the id of the route is made. Raises PipelineError if there is no
    table.
    """
    folder = StorageFolder.of(spark, target)
    if not any(format_of(folder / name) for name in ("messages", "dead_letters")):
        raise PipelineError(
            f"{folder} has neither a table of messages nor one of dead letters: "
            "write them with ringfence pipeline tables",
            exit_code=CONTRADICTION,
        )
    messages, letters = (
        _since(read_table(spark, target, name), since) for name in ("messages", "dead_letters")
    )
    slots, slot_ms = _slots(messages, letters)
    publishers = _named(quality.by_publisher(messages, letters), "publisher")
    addresses = _named(quality.by_address(messages, letters), "address")
    reasons, reasons_total = _listed(quality.by_reason(letters))
    ids, ids_total = _listed(quality.repeated_ids(messages, letters, by))
    seconds, offsets = _distances(quality.resends(messages, letters, by))
    return QualityResult(
        target=str(target),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        since=None if since is None else since.isoformat(),
        total=RecordCounts(
            *(sum(counts) for counts in zip(*(slot.counts for slot in slots), strict=True))
        )
        if slots
        else RecordCounts(0, 0, 0, 0, 0),
        slot_ms=slot_ms,
        slots=slots,
        publishers=publishers[0],
        publishers_total=publishers[1],
        addresses=addresses[0],
        addresses_total=addresses[1],
        reasons=tuple(ReasonCount(row["reason"], row["cause"], row["records"]) for row in reasons),
        reasons_total=reasons_total,
        seconds=seconds,
        offsets=offsets,
        ids=tuple(map(_repeated, ids)),
        ids_total=ids_total,
    )


def to_json(found: QualityResult) -> str:
    """Return the values as JSON text."""

    def plain(value: Any) -> Any:  # noqa: ANN401 - any value of a result
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return {name: plain(each) for name, each in value._asdict().items()}
        return [plain(each) for each in value] if isinstance(value, tuple) else value

    document = {"format": FORMAT, **plain(found)}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _since(table: DataFrame, since: date | None) -> DataFrame:
    return table if since is None else table.where(sf.col("day") >= sf.lit(since))


def _slots(messages: DataFrame, letters: DataFrame) -> tuple[tuple[SlotCounts, ...], int]:
    """Return the counts by time slot, and the width of a slot in milliseconds."""
    time_ms = sf.unix_millis("time")
    ends = quality.decisions(messages, letters).agg(
        sf.min(time_ms).alias("low"), sf.max(time_ms).alias("high")
    )
    (row,) = ends.collect()
    if row["low"] is None:
        return (), 1
    width_ms = slot_width_ms(row["high"] - row["low"])
    by_time = quality.by_time(messages, letters, f"{width_ms} milliseconds")
    begin_ms = sf.unix_millis("begins").alias("begin_ms")
    rows = by_time.select(begin_ms, *RecordCounts._fields).collect()
    return tuple(SlotCounts(row["begin_ms"], _counts(row)) for row in rows), width_ms


def _named(view: DataFrame, name: str) -> tuple[tuple[NamedCounts, ...], int]:
    rows, total = _listed(view)
    return tuple(NamedCounts(row[name], _counts(row)) for row in rows), total


def _listed(view: DataFrame) -> tuple[list[Row], int]:
    """Return the first rows, and the number of all; most views have no more than these."""
    rows = view.limit(ROWS_MAX).collect()
    return rows, view.count() if len(rows) == ROWS_MAX else len(rows)


def _counts(row: Row) -> RecordCounts:
    return RecordCounts(*(row[name] for name in RecordCounts._fields))


def _repeated(row: Row) -> RepeatedId:
    first_ms, last_ms = (round(row[name].timestamp() * 1000) for name in ("first", "last"))
    return RepeatedId(row["address"], row["id"], row["copies"], row["accepted"], first_ms, last_ms)


def _distances(found: DataFrame) -> tuple[Distances | None, Distances | None]:
    """Return the distances in time and in offsets."""
    found = found.select("seconds", "offsets").persist()
    bounds = {"seconds": SECONDS, "offsets": OFFSETS}
    measures = [
        sf.struct(
            sf.count(name).alias("copies"), sf.array(*_bars(name, limits)).alias("counts")
        ).alias(name)
        for name, limits in bounds.items()
    ]
    (bars,) = found.agg(*measures).collect()
    (row,) = quality.resend_quantiles(found).collect()
    found.unpersist()
    seconds, offsets = (
        Distances(bars[name]["copies"], **row[name].asDict(), counts=tuple(bars[name]["counts"]))
        if bars[name]["copies"]
        else None
        for name in bounds
    )
    return seconds, offsets


def _bars(name: str, limits: tuple[float, ...]) -> list[Column]:
    value = sf.col(name)
    edges = zip((None, *limits), (*limits, None), strict=True)
    return [
        sf.count_if(
            (sf.lit(col=True) if low is None else value > low)
            & (value.isNotNull() if high is None else value <= high)
        )
        for low, high in edges
    ]
