"""Excuses: why an input may have no fate and nothing is wrong. Pure: frames in, frames out.

It came after what the group had committed; it came before the group began; it is on its way
between the hops; it waits for the rest of its transaction group; it is a duplicate of an address
that leaves no trace of some; or retention may have deleted its fate. Which of them holds, or none,
is `excuse`.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pipeline.reconcile.findings import NONE
from pipeline.reconcile.groups import waiting
from pipeline.reconcile.rings import may_be_held

LATER: Final = "after the cut"
BEFORE: Final = "before the group began"
CARRIED: Final = "between the hops"
PARKED: Final = "in an open transaction group"
SILENT: Final = "duplicate without a trace"
GONE: Final = "before what retention has left"


def excused(
    known: DataFrame, measured: DataFrame, carried: DataFrame, *, begins: bool, complete: bool
) -> DataFrame:
    """Inputs, of which those without a fate have an excuse or null.

    `begins`: the group began where its first fate is; what lies before it was never its own.
    `complete`: the inputs are there from their beginning.
    """
    held = measured.where((sf.col("fate") == NONE) & sf.col("silent") & may_be_held())
    lost = (
        known.where(sf.col("fate") == NONE)
        .join(
            carried.select(
                sf.col("origin").alias("place"), sf.lit(col=True).alias("carried")
            ).distinct(),
            "place",
            "left",
        )
        .join(held.select("place", sf.lit(col=True).alias("silenced")), "place", "left")
        .withColumn("silenced", sf.coalesce("silenced", sf.lit(col=False)))
    )
    early = (
        sf.when(~sf.col("judged"), LATER)
        .when(sf.col("place.offset") < sf.coalesce("begin", sf.lit(0)), BEFORE)
        .when(sf.col("carried"), CARRIED)
    )
    lost = _begun(lost, known, begins=begins).withColumn("early", early).drop("begin", "carried")
    excuse = (
        sf.when(sf.col("early").isNotNull(), sf.col("early"))
        .when(sf.col("waits"), PARKED)
        .when(sf.col("silenced") | sf.col("traceless"), SILENT)
        .when(sf.col("unsure"), GONE)
    )
    members = _members(known, lost)
    return lost.join(waiting(members, complete=complete), "place", "left").select(
        "place", "fate", "time_ms", excuse.alias("excuse")
    )


def _begun(lost: DataFrame, known: DataFrame, *, begins: bool) -> DataFrame:
    """With the offset that the group began at; 0 where it began at the beginning."""
    if not begins:
        return lost.withColumn("begin", sf.lit(0))
    first = (
        known.where(sf.col("fate") != NONE)
        .groupBy("place.topic", "place.partition")
        .agg(sf.min("place.offset").alias("begin"))
        .select(sf.struct("topic", "partition").alias("lane"), "begin")
    )
    lane = sf.struct("place.topic", "place.partition")
    return lost.withColumn("lane", lane).join(sf.broadcast(first), "lane", "left").drop("lane")


def _members(known: DataFrame, lost: DataFrame) -> DataFrame:
    """Records of transaction groups: those with a fate, and those that ought to have one."""
    fated = known.where(sf.col("fate") != NONE)
    overdue = lost.where(sf.col("early").isNull()).drop("early")
    members = fated.withColumn("silenced", sf.lit(col=False)).unionByName(overdue)
    return members.where(sf.col("tx_id").isNotNull())
