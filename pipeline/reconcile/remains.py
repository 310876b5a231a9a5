"""Remains: what retention has left of outputs and dead letters, and whose fate may be gone with it.

Records of an input partition stand in the order of their offsets in each partition that they were
written to; with scope `address`, those of one address do. So where such a partition has lost its
beginning, the first that is left of them is a limit: what came before it may have had its fate in
what is gone, what came behind it has not. Where nothing is left of them, there is no limit.
Pure: frames in, frames out.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from pipeline.admin import Partition, Span
from pipeline.reconcile.findings import ACCEPTED, MARKED
from pipeline.reconcile.plan import Plan

_LANE: Final = ("in_topic", "in_number", "by")
_INTO: Final = ("into_topic", "into_number")
_NO_LIMIT: Final = 2**62


class Way(NamedTuple):
    """From an input partition to one that has lost its beginning."""

    in_topic: str
    in_number: int
    into_topic: str
    into_number: int


def shortened(
    plan: Plan, inputs: Collection[Partition], written: Mapping[Partition, Span]
) -> tuple[Way, ...]:
    """The ways that fates may have gone and are not seen any more; none where all is there."""
    count = Counter(each.topic for each in (*inputs, *written))
    gone = [each for each, span in written.items() if span.begin > 0]
    return tuple(
        Way(*lane, *into)
        for lane in inputs
        for into in gone
        if into.topic in plan.targets[lane.topic]
        # With as many partitions on both sides a record keeps its number.
        and (into.number == lane.number or count[into.topic] != count[lane.topic])
    )


def with_unsure(spark: SparkSession, known: DataFrame, ways: Collection[Way]) -> DataFrame:
    """Inputs with `unsure`: whether its fate, or that of one that looks alike, may be gone."""
    if not ways:
        return known.withColumn("unsure", sf.lit(col=False))
    lanes = (
        known.withColumn("in_topic", sf.col("place.topic"))
        .withColumn("in_number", sf.col("place.partition"))
        .withColumn("by", sf.when(sf.col("decider") == "", sf.col("address")))
        .withColumn("by", sf.coalesce("by", sf.lit("")))
    )
    limits = _limits(lanes.where(sf.col("place").isNotNull()), _frame(spark, ways))
    unsure = (
        lanes.join(limits, [*_LANE])
        .where(sf.col("place.offset") < sf.col("limit"))
        .select("first", sf.lit(col=True).alias("unsure"))
        .distinct()
    )
    return known.join(unsure, "first", "left").withColumn(
        "unsure", sf.coalesce("unsure", sf.lit(col=False))
    )


def _limits(lanes: DataFrame, ways: DataFrame) -> DataFrame:
    """Where the worst way of each lane is whole from."""
    # Records of a transaction group take effect at its end, and stand in another order.
    alone = lanes.where(sf.col("tx_id").isNull())
    into = sf.explode(sf.array(_output(), _letter())).alias("into")
    left = alone.select(*_LANE, sf.col("place.offset").alias("offset"), into)
    firsts = (
        left.where(sf.col("into").isNotNull())
        .groupBy(
            *_LANE,
            sf.col("into.topic").alias("into_topic"),
            sf.col("into.partition").alias("into_number"),
        )
        .agg(sf.min("offset").alias("first_left"))
    )
    return (
        lanes.select(*_LANE)
        .distinct()
        .join(sf.broadcast(ways), ["in_topic", "in_number"])
        .join(firsts, [*_LANE, *_INTO], "left")
        .groupBy(*_LANE)
        .agg(sf.max(sf.coalesce("first_left", sf.lit(_NO_LIMIT))).alias("limit"))
    )


def _output() -> Column:
    """Where it went out, if nothing looks like it: an output may be that of any of its like."""
    went_out = sf.col("fate").isin(ACCEPTED, MARKED) & ~sf.col("twins")
    return sf.when(went_out, _partition("output"))


def _letter() -> Column:
    return sf.when(sf.col("letter.redrives") == 0, _partition("letter.place"))


def _partition(place: str) -> Column:
    return sf.struct(
        sf.col(f"{place}.topic").alias("topic"), sf.col(f"{place}.partition").alias("partition")
    )


def _frame(spark: SparkSession, ways: Collection[Way]) -> DataFrame:
    columns = "in_topic string, in_number int, into_topic string, into_number int"
    return spark.createDataFrame([*ways], columns)
