"""Summary: what the report tells beside faults, as few rows as it shows.

Sizes that would have caught a share of the copies are told for the addresses that have missed
something, and for those with most copies. Pure: frames in, values out.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf

from pipeline.reconcile.findings import (
    ACCEPTED,
    DUPLICATE,
    MARKED,
    REJECTED,
    AddressFound,
    Distances,
    Slot,
)
from pipeline.reconcile.rings import is_held

ADDRESSES_MAX: Final = 200
DRAWN_MAX: Final = 4
_SLOTS: Final = 60
_SHARES: Final = (0.99, 0.999, 1.0)
_PRECISION: Final = 100_000
_WIDTHS_MS: Final = (
    *(1, 10, 100, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000),
    *(4 * 3_600_000, 24 * 3_600_000, 7 * 24 * 3_600_000, 30 * 24 * 3_600_000),
    365 * 24 * 3_600_000,
)


def addresses(measured: DataFrame) -> tuple[tuple[AddressFound, ...], int]:
    """The addresses that matter most, and how many there are."""
    accepted = sf.col("fate") == ACCEPTED
    needed = sf.percentile_approx("needed", list(_SHARES), _PRECISION)
    per_address = measured.groupBy("cache").agg(
        sf.first("strategy").alias("strategy"),
        sf.first("size").alias("size"),
        sf.count_if(accepted).alias("accepted"),
        sf.count_if(sf.col("fate").isin(DUPLICATE, MARKED)).alias("duplicates"),
        sf.count_if(_missed()).alias("missed"),
        sf.count("needed").alias("copies"),
        needed.alias("needed"),
        sf.max("since_ms").alias("latest"),
        sf.min("exact").alias("exact"),
    )
    ordered = per_address.orderBy(sf.desc("missed"), sf.desc("copies"), "cache")
    return tuple(map(_address, ordered.limit(ADDRESSES_MAX).collect())), per_address.count()


def distances(measured: DataFrame, drawn: tuple[AddressFound, ...]) -> tuple[Distances, ...]:
    """How far back copies stood, for these addresses."""
    names = [found.address for found in drawn if found.copies]
    power = sf.ceil(sf.log2(sf.col("needed"))).cast("int")
    rows = (
        measured.where(sf.col("cache").isin(*names) & sf.col("needed").isNotNull())
        .groupBy("cache", power.alias("power"))
        .agg(sf.count_if(~_missed()).alias("caught"), sf.count_if(_missed()).alias("missed"))
        .orderBy("cache", "power")
        .collect()
    )
    return tuple(
        Distances(row["cache"], row["power"], row["caught"], row["missed"]) for row in rows
    )


def slots(judged: DataFrame) -> tuple[tuple[Slot, ...], int]:
    """What came when, by the times of the records, and how long a slot is.

    The few that are far out count in the first and last slot.
    """
    (ends,) = judged.select(sf.percentile_approx("time_ms", [0.002, 0.998]).alias("e")).collect()
    if ends["e"] is None:
        return (), 1
    low, high = ends["e"]
    width = next((w for w in _WIDTHS_MS if (high - low) / w <= _SLOTS), _WIDTHS_MS[-1])
    first = low - low % width
    slot = sf.floor((sf.least(sf.greatest("time_ms", sf.lit(low)), sf.lit(high)) - first) / width)
    latency = sf.col("letter.decided_ms") - sf.col("letter.input_ms")
    rows = (
        judged.groupBy(slot.cast("int").alias("slot"))
        .agg(
            sf.count_if(sf.col("fate") == ACCEPTED).alias("accepted"),
            sf.count_if(sf.col("fate").isin(DUPLICATE, MARKED)).alias("duplicates"),
            sf.count_if(sf.col("fate") == REJECTED).alias("rejected"),
            sf.percentile_approx(latency, [0.5, 0.99]).alias("latency"),
        )
        .orderBy("slot")
        .collect()
    )
    return tuple(_slot(row, first, width) for row in rows), width


def _slot(row: Row, first_ms: int, width_ms: int) -> Slot:
    half, nearly_all = row["latency"] or (None, None)
    begin_ms = first_ms + row["slot"] * width_ms
    return Slot(begin_ms, row["accepted"], row["duplicates"], row["rejected"], half, nearly_all)


def _address(row: Row) -> AddressFound:
    share_99, share_999, share_all = row["needed"] or (0, 0, 0)
    return AddressFound(
        row["cache"],
        row["strategy"],
        row["size"],
        row["accepted"],
        row["duplicates"],
        row["missed"],
        row["copies"],
        share_99,
        share_999,
        share_all,
        row["latest"] or 0,
        row["exact"],
    )


def _missed() -> Column:
    """Whether a copy was accepted because its id was forgotten."""
    return (sf.col("fate") == ACCEPTED) & sf.col("gap").isNotNull() & ~is_held()
