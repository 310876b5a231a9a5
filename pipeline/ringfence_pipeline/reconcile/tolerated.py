"""Tolerated gaps: inputs whose missing fate has an explanation other than loss.

Retention may have deleted the beginning of outputs and dead letters. In each partition they were
written to, records of an input partition are in the order of their offsets; with scope `address`,
those of one address are, and with scope `id` those of one share of it. So in a truncated partition
the first record that is left of them is a limit: the fate of an earlier one may be deleted, that of
a later one is not. If none is left, there is no limit. Pure: frames in, frames out.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from ringfence_client.headers import Reason
from ringfence_pipeline.admin import KafkaPartition, OffsetSpan
from ringfence_pipeline.reconcile.cache_model import (
    is_shared,
    lane_of_sharers,
    may_be_held,
    may_be_held_from_before,
)
from ringfence_pipeline.reconcile.results import ACCEPTED, MARKED, NONE
from ringfence_pipeline.reconcile.scope import ReconcileScope

_LANE: Final = ("in_topic", "in_number", "by")

_INTO: Final = ("into_topic", "into_number")

_NO_LIMIT: Final = 2**62


class TruncatedPath(NamedTuple):
    """A path from an input partition to a partition that retention has truncated."""

    in_topic: str
    in_number: int
    into_topic: str
    into_number: int


def truncated_paths(
    plan: ReconcileScope,
    inputs: Collection[KafkaPartition],
    written: Mapping[KafkaPartition, OffsetSpan],
    wanted: Callable[[KafkaPartition], int] = lambda _: 0,
) -> tuple[TruncatedPath, ...]:
    """Return the paths on which fates may be deleted; none if no partition is truncated.

    `wanted` is the offset from which a partition is needed.
    """
    count = Counter(each.topic for each in (*inputs, *written))
    gone = [each for each, span in written.items() if span.begin > wanted(each)]
    return tuple(
        TruncatedPath(*lane, *into)
        for lane in inputs
        for into in gone
        if into.topic in plan.targets[lane.topic]
        # With equal numbers of partitions a record keeps its partition number.
        and (into.number == lane.number or count[into.topic] != count[lane.topic])
    )


def with_unsure(
    spark: SparkSession, known: DataFrame, paths: Collection[TruncatedPath]
) -> DataFrame:
    """Add `unsure`: whether the fate of the input, or of an identical one, may be deleted."""
    if not paths:
        return known.withColumn("unsure", sf.lit(col=False))
    lanes = (
        known.withColumn("in_topic", sf.col("place.topic"))
        .withColumn("in_number", sf.col("place.partition"))
        .withColumn("by", sf.when(is_shared(), lane_of_sharers()).otherwise(""))
    )
    limits = _limits(lanes.where(sf.col("place").isNotNull()), _frame(spark, paths))
    unsure = (
        lanes.join(limits, [*_LANE])
        .where(sf.col("place.offset") < sf.col("limit"))
        .select("first", sf.lit(col=True).alias("unsure"))
        .distinct()
    )
    return known.join(unsure, "first", "left").withColumn(
        "unsure", sf.coalesce("unsure", sf.lit(col=False))
    )


def _limits(lanes: DataFrame, paths: DataFrame) -> DataFrame:
    """Return for each lane the offset from which all its paths are complete."""
    # Records of a transaction group take effect at its end, and so are in another order.
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
        .join(sf.broadcast(paths), ["in_topic", "in_number"])
        .join(firsts, [*_LANE, *_INTO], "left")
        .groupBy(*_LANE)
        .agg(sf.max(sf.coalesce("first_left", sf.lit(_NO_LIMIT))).alias("limit"))
    )


def _output() -> Column:
    """Return the partition of the output, unless identical inputs could also have written it."""
    went_out = sf.col("fate").isin(ACCEPTED, MARKED) & ~sf.col("twins")
    return sf.when(went_out, _partition("output"))


def _letter() -> Column:
    return sf.when(sf.col("letter.redrives") == 0, _partition("letter.place"))


def _partition(place: str) -> Column:
    return sf.struct(
        sf.col(f"{place}.topic").alias("topic"), sf.col(f"{place}.partition").alias("partition")
    )


def _frame(spark: SparkSession, paths: Collection[TruncatedPath]) -> DataFrame:
    columns = "in_topic string, in_number int, into_topic string, into_number int"
    return spark.createDataFrame([*paths], columns)


_OF_WHOLE_GROUPS: Final = (Reason.DUPLICATE_IN_GROUP, Reason.OUT_OF_ORDER)
"""Other reasons may apply to one record while the rest of its group keeps waiting."""

_GROUP: Final = ("decider", "address", "tx_id")


def waiting(members: DataFrame, *, complete: bool) -> DataFrame:
    """Return positions of group records without a fate, with `waits` and `traceless`.

    `silenced` is whether the address may have known the record's id. Without `complete`, some
    inputs are deleted, and a group may lack a position for that reason.
    """
    lost, offset = sf.col("fate") == NONE, sf.col("place.offset")
    lane = Window.partitionBy(*_GROUP, "place.topic", "place.partition")
    copies = Window.partitionBy(*_GROUP, "place.topic", "place.partition", "tx_position")
    position = Window.partitionBy(*_GROUP, "tx_position")
    group = Window.partitionBy(*_GROUP)
    is_open = sf.col("open")
    replaced = lost & sf.col("silent") & (offset < sf.max("place.offset").over(copies))
    overtaken = lost & (offset <= sf.max(sf.when(_settled(), offset)).over(lane))
    passed_over = sf.col("nth") <= sf.max("decided").over(group) - sf.col("decided")
    positions = sf.size(sf.collect_set(sf.when(is_open, sf.col("tx_position"))).over(group))
    return (
        members.withColumn("replaced", replaced)
        .withColumn("overtaken", sf.coalesce(overtaken & ~sf.col("replaced"), sf.lit(col=False)))
        .withColumn("open", lost & ~sf.col("replaced") & ~sf.col("overtaken"))
        # A decided group had every position.
        .withColumn("decided", sf.count_if(_decided() | sf.col("overtaken")).over(position))
        .withColumn("nth", sf.count_if(is_open).over(position.orderBy("place")))
        .withColumn("open", is_open & ~(passed_over & sf.lit(complete)))
        .withColumn("whole", positions >= sf.col("tx_size"))
        .withColumn("hushed", sf.max(is_open & sf.col("silenced")).over(group))
        .where(lost)
        .select(
            "place",
            (is_open & ~sf.col("whole")).alias("waits"),
            (sf.col("replaced") | (is_open & sf.col("hushed"))).alias("traceless"),
        )
    )


def _decided() -> Column:
    """Return whether the fate shows that the group was complete."""
    refused = sf.col("letter.reason").isin(*(reason.value for reason in _OF_WHOLE_GROUPS))
    went_out = sf.col("fate").isin(ACCEPTED, MARKED)
    return went_out | sf.coalesce(refused, sf.lit(col=False))


def _settled() -> Column:
    """Return whether the fate shows that the group, complete or not, had ended."""
    given_up = sf.col("letter.reason") == Reason.GROUP_INCOMPLETE.value
    return _decided() | sf.coalesce(given_up, sf.lit(col=False))


LATER: Final = "after the cut"

BEFORE: Final = "before the group began"

CARRIED: Final = "between the hops"

PARKED: Final = "in an open transaction group"

SILENT: Final = "duplicate without a trace"

GONE: Final = "before what retention has left"


def excused(
    known: DataFrame,
    measured: DataFrame,
    carried: DataFrame,
    *,
    begins: bool,
    complete: bool,
    partial: bool = False,
) -> DataFrame:
    """Return the inputs without a fate, with an excuse or null.

    `begins`: the group started at its first fate and never read the records before it.
    `complete`: the inputs have all offsets from 0 on.
    `partial`: earlier records were reconciled before, and an id may be known from one of them.
    """
    known_before = sf.lit(partial) & (may_be_held_from_before() | is_shared())
    may_be_silent = may_be_held() | known_before
    held = measured.where((sf.col("fate") == NONE) & sf.col("silent") & may_be_silent)
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
        "place", "fate", "time_ms", "fresh", excuse.alias("excuse")
    )


def _begun(lost: DataFrame, known: DataFrame, *, begins: bool) -> DataFrame:
    """Add the offset at which the group started; 0 if it started at the beginning."""
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
    """Return the group records that have a fate, and those that should have one."""
    fated = known.where(sf.col("fate") != NONE)
    overdue = lost.where(sf.col("early").isNull()).drop("early")
    members = fated.withColumn("silenced", sf.lit(col=False)).unionByName(overdue)
    return members.where(sf.col("tx_id").isNotNull())
