"""Between: how many ids an address may have accepted, at most, between two copies of one.

Where its records come by many partitions, nothing tells how those were interleaved. But dead
letters bear the time of their decision, and what comes by one partition to one address is decided
in its order. So a record was decided no sooner than the last dead letter before it there, and no
later than the first behind it. What was decided before the one copy for sure, or behind the other
for sure, is not between them; all else may be. Pure: frames in, frames out.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from pipeline.reconcile.findings import ACCEPTED, DUPLICATE

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
