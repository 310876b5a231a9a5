"""Rings: what each address had accepted when a record came, and how far back its id stood.

Records are taken in the order in which they were decided. Within a partition that decides alone
that is the order of offsets. Where an address comes by many partitions, nothing tells how they were
interleaved: the times of their records do, as far as they do, and `between` says how far that is.

Two distances are measured. The *gap* is what the ring went by: how many ids were accepted since the
last time that this one was, itself included; a ring knows an id up to a gap of its size. What is
*needed* is the size of a ring that would have known it since it came first, had it been that large
all along. Pure: frames in, frames out.
"""

from collections.abc import Callable, Iterable
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from pipeline.reconcile.results import ACCEPTED, DUPLICATE, MARKED, NONE
from pipeline.reconcile.scope import CacheSettings

_NEVER_MS: Final = 2**62

_CACHE: Final = ("cache", "decider")


# In this order at one time: in doubt a record is between.
_BEGINS, _ASKED, _IS_OVER = range(3)


def with_bounds(judged: DataFrame) -> DataFrame:
    """What addresses judged -> the same with `soonest_ms` and `latest_ms` of its decision.

    Records of a transaction group are decided at its end, later than what stands behind them.
    """
    lane = Window.partitionBy(*_CACHE, "place.topic", "place.partition")
    upto = (Window.unboundedPreceding, Window.currentRow)
    forth = lane.orderBy("place.offset").rowsBetween(*upto)
    # A frame to the end of its partition is computed anew for every row; this is the same.
    back = lane.orderBy(sf.desc("place.offset")).rowsBetween(*upto)
    alone = sf.col("tx_id").isNull()
    told = sf.when((sf.col("fate") == DUPLICATE) & alone, sf.col("letter.decided_ms"))
    soonest, latest = sf.max(told).over(forth), sf.min(told).over(back)
    return (
        judged.withColumn("soonest_ms", sf.coalesce(soonest, sf.lit(0)))
        .withColumn("latest_ms", sf.when(alone, latest))
        .withColumn("latest_ms", sf.coalesce("latest_ms", sf.lit(_NEVER_MS)))
    )


def with_greatest_gaps(measured: DataFrame) -> DataFrame:
    """The same with `gap_max`, for what was accepted although it may have been held; else null.

    It is the gap itself where the order is known.
    """
    repeated = (sf.col("fate") == ACCEPTED) & sf.col("previous").isNotNull()
    doubtful = repeated & ~sf.col("exact") & (sf.col("gap") <= sf.col("size"))
    # One look at the records serves all of it: what is asked stands among what is counted.
    moments = measured.select(*_CACHE, "place", sf.explode(_moments(doubtful)).alias("at")).select(
        *_CACHE, "place", "at.*"
    )
    so_far = (
        Window.partitionBy(*_CACHE)
        .orderBy("ms", "kind")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    bounds = (
        moments.withColumn("begun", sf.count_if(sf.col("kind") == _BEGINS).over(so_far))
        .withColumn("over", sf.count_if(sf.col("kind") == _IS_OVER).over(so_far))
        .where(sf.col("kind") == _ASKED)
        .groupBy("place")
        # Both of the two are among these, and a gap counts but the later one.
        .agg((sf.max("begun") - sf.min("over") - 1).alias("bound"))
    )
    gap = sf.when(sf.col("exact"), sf.col("gap"))
    return (
        measured.join(bounds, "place", "left")
        .withColumn("gap_max", sf.coalesce(gap, "bound"))
        .drop("bound")
    )


def _moments(doubtful: Column) -> Column:
    """Of one record: from when and until when it may have been decided, and what it asks."""
    soonest = sf.least("soonest_ms", "previous.soonest_ms")
    latest = sf.greatest("latest_ms", "previous.latest_ms")
    counted = sf.array(_moment("soonest_ms", _BEGINS), _moment("latest_ms", _IS_OVER))
    asked = sf.array(_moment(soonest, _ASKED), _moment(latest, _ASKED))
    nothing = sf.slice(counted, 1, 0)
    return sf.concat(
        sf.when(sf.col("counts"), counted).otherwise(nothing),
        sf.when(doubtful, asked).otherwise(nothing),
    )


def _moment(ms: str | Column, kind: int) -> Column:
    at = sf.col(ms) if isinstance(ms, str) else ms
    return sf.struct(at.alias("ms"), sf.lit(kind).alias("kind"))


_KINDS: Final = {
    "strategy": "string",
    "size": "long",
    "window_ms": "long",
    "strict": "boolean",
    "silent": "boolean",
    "former": "array<struct<until_ms: long, least: long, most: long, window_ms: long>>",
}

_NEXT: Final = 10
"""So many records behind one tell whether its time was ahead of the clock."""


def settings_frame(
    spark: SparkSession, settings: Iterable[tuple[str, CacheSettings, CacheSettings]]
) -> DataFrame:
    """How addresses remember: their own ids, and those that were stamped on the way."""
    own = ", ".join(f"{key} {kind}" for key, kind in _KINDS.items())
    bridge = ", ".join(f"bridge_{key} {kind}" for key, kind in _KINDS.items())
    rows = [(address, *memory, *bridged) for address, memory, bridged in settings]
    return spark.createDataFrame(rows, f"address string, {own}, {bridge}")


def remembered(pairs: DataFrame, settings: DataFrame) -> DataFrame:
    """Inputs with a fate -> the same with how their address remembers, and by what it knows them.

    `identity` is null for what claims nothing, and for `audit`, whose numbers say more than that
    they are equal.
    """
    known = pairs.join(sf.broadcast(settings), "address", "left")
    counted = sf.col("strategy").isin("sequence", "ordered", "audit")
    bridged = sf.col("stamped") & ~(counted & (sf.col("number") > 0))
    bridged = sf.coalesce(bridged, sf.lit(col=False))
    chosen = {
        key: sf.when(bridged, sf.col(f"bridge_{key}")).otherwise(sf.col(key)) for key in _KINDS
    }
    cache = sf.when(bridged, sf.concat(sf.lit("BRIDGE."), "address")).otherwise(sf.col("address"))
    return (
        known.withColumn("cache", cache)
        .withColumns(chosen)
        .drop(*(f"bridge_{key}" for key in _KINDS))
        .withColumn("identity", _identity())
    )


def measured(known: DataFrame) -> DataFrame:
    """What an address judged, in the order of its decisions, with `gap`, `needed`, `since_ms`.

    All three are null for an id that came for the first time; `exact` says what the order is worth.
    `accepted_ms` is the earliest time at which that last time may have been. `counts` says whether
    a record moves the ring on, `previous` is the last time that its id was accepted.
    """
    judged = known.where(
        sf.col("identity").isNotNull() & sf.col("fate").isin(ACCEPTED, MARKED, DUPLICATE, NONE)
    )
    order = ("decided_at_ms", "place")
    cache = Window.partitionBy("cache", "decider").orderBy(*order)
    same = Window.partitionBy("cache", "decider", "identity").orderBy(*order)
    upto = cache.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = same.rowsBetween(Window.unboundedPreceding, -1)
    accepted = sf.col("fate") == ACCEPTED
    # A window counts what was seen, refreshed by hits, so that all that came in between counts.
    # What is lost was accepted, as far as anybody knows, unless duplicates leave no trace.
    lost = (sf.col("fate") == NONE) & ~sf.col("silent")
    counts = accepted | lost | (sf.col("strategy") == "window")
    is_first = sf.col("nth") == 1
    lane = sf.concat_ws("-", "place.topic", "place.partition")
    whole = Window.partitionBy("cache", "decider")
    latest = sf.struct("place", "accepted_so_far", "decided_at_ms", "soonest_ms", "latest_ms")
    return (
        with_bounds(judged)
        .withColumn("exact", sf.min(lane).over(whole) == sf.max(lane).over(whole))
        .withColumn("nth", sf.row_number().over(same))
        .withColumn("counts", counts)
        .withColumn("accepted_so_far", sf.count_if("counts").over(upto))
        .withColumn("ids_so_far", sf.count_if(is_first).over(upto))
        .withColumn("previous", sf.max_by(latest, _when(accepted, "accepted_so_far")).over(before))
        .withColumn("accepted_ms", sf.max(_when(accepted, "least_ms")).over(before))
        .withColumn("first_id", sf.max(_when(is_first, "ids_so_far")).over(before))
        .withColumn("gap", sf.col("accepted_so_far") - sf.col("previous.accepted_so_far"))
        .withColumn("gap", sf.when(sf.col("counts"), sf.col("gap")).otherwise(sf.col("gap") + 1))
        .withColumn("needed", sf.col("ids_so_far") - sf.col("first_id") + 1)
        .withColumn("since_ms", sf.col("decided_at_ms") - sf.col("previous.decided_at_ms"))
        .drop("nth", "first_id", "ids_so_far", "accepted_so_far")
    )


def is_held() -> Column:
    """Whether the address must have known the id: it was accepted, and is not forgotten yet.

    What counts is the smallest size since, and the greatest gap that there can have been.
    """
    size, window_ms = _since("least", sf.array_min), _since("window_ms", sf.array_min)
    size, window_ms = sf.least("size", size), sf.least("window_ms", window_ms)
    age_ms = sf.col("decided_at_ms") - sf.col("accepted_ms")
    return sf.coalesce((sf.col("gap_max") <= size) & (age_ms <= window_ms), sf.lit(col=False))


def may_be_held() -> Column:
    """Whether the address may have known the id; sights that leave no trace keep it in a window."""
    size = sf.greatest("size", _since("most", sf.array_max))
    known = (sf.col("gap") <= size) | ~sf.col("exact") | is_guessed()
    return sf.coalesce(known & sf.col("gap").isNotNull(), sf.lit(col=False))


def is_guessed() -> Column:
    """Whether it is a guess which of several records that look alike went out.

    Where duplicates leave no trace, or retention has deleted it, nothing tells.
    """
    traceless = sf.col("silent") | sf.col("unsure")
    return sf.coalesce(traceless & sf.col("twins"), sf.lit(col=False))


def in_order(inputs: DataFrame) -> DataFrame:
    """Inputs with the time of their partition, which never goes back: `decided_at_ms`.

    The service takes no time for it that is ahead of the clock, which nobody can tell afterwards.
    But a time that the next records do not reach may be one; `least_ms` is by theirs.
    """
    partition = Window.partitionBy("place.topic", "place.partition").orderBy("place.offset")
    real_ms = sf.when(sf.col("time_ms") > 0, sf.col("time_ms"))
    least_ms = sf.min(real_ms).over(partition.rowsBetween(Window.currentRow, _NEXT))
    return inputs.withColumn("decided_at_ms", sf.max("time_ms").over(partition)).withColumn(
        "least_ms", sf.coalesce(least_ms, sf.lit(0))
    )


def _since(what: str, of: Callable[[Column], Column]) -> Column:
    """Of the settings that held once, and may have when the id was accepted or later."""
    former = sf.filter("former", lambda each: each["until_ms"] > sf.col("accepted_ms"))
    return of(sf.transform(former, lambda each: each[what]))


def _identity() -> Column:
    publisher = sf.coalesce(sf.col("publisher").cast("binary"), sf.lit(b""))
    stream = sf.when(sf.col("strategy") == "ordered", sf.coalesce("stream", sf.lit(0)))
    number = sf.when(
        (sf.col("number") > 0) & sf.col("publisher").isNotNull(),
        sf.concat_ws(" ", "publisher", stream.cast("string"), sf.col("number").cast("string")).cast(
            "binary"
        ),
    )
    return (
        sf.when(sf.col("strategy") == "ring", sf.col("id"))
        # The length keeps a name and an id apart from another pair that reads the same.
        .when(
            sf.col("strategy") == "window",
            sf.concat(sf.length(publisher).cast("string").cast("binary"), publisher, sf.col("id")),
        )
        .when(sf.col("strategy").isin("sequence", "ordered"), number)
    )


def _when(condition: Column, column: str) -> Column:
    return sf.when(condition, sf.col(column))
