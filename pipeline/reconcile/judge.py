"""Judge: everything that is found, from the records of inputs, outputs and dead letters.

Frames in, findings out: where the records come from is not known here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pipeline.reconcile import faults, remains, rings, summary
from pipeline.reconcile.between import with_greatest_gaps
from pipeline.reconcile.cut import Cut
from pipeline.reconcile.evidence import Prints, inputs_of, letters_of, outputs_of
from pipeline.reconcile.excuses import excused
from pipeline.reconcile.findings import NONE, REJECTED, Fault, Findings
from pipeline.reconcile.matching import matched, with_letters
from pipeline.reconcile.plan import Plan
from pipeline.reconcile.settings import memory_of
from service.redrive.job import Span


class Look(NamedTuple):
    """How closely to look."""

    redriven: bool = False
    """Whether any dead letter may have been redriven, and not only those that the plan lists."""
    resized: bool = False
    """Whether the file had other sizes once: then nobody knows what its rings held."""
    faults_max: int = 10_000
    """How many faults are named; all are counted."""


class Evidence(NamedTuple):
    """What there is to look at: records as the connector gives them, up to the cut."""

    plan: Plan
    cut: Cut
    inputs: DataFrame
    outputs: DataFrame
    letters: DataFrame
    carried: DataFrame
    """Places of inputs that are on their way between the hops."""


def judge(spark: SparkSession, given: Evidence, look: Look) -> Findings:
    """What the records tell of all that the group has decided."""
    origins, pairs = _paired(spark, given, look)
    known = _known(spark, given, origins, pairs)
    measured = kept(with_greatest_gaps(kept(rings.measured(known.where("judged")))))
    begins, complete = given.plan.from_the_first_fate, given.cut.is_complete
    lost = kept(excused(known, measured, given.carried, begins=begins, complete=complete))
    named = kept(_faults(given, origins, known, measured, lost))
    judged = known.where("judged")
    addresses, addresses_total = summary.addresses(measured)
    slots, slot_ms = summary.slots(judged)
    return Findings(
        group=given.plan.group,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        inputs=given.plan.inputs,
        fates=_fates(judged, lost),
        faults_total=_totals(named),
        faults=_first(named, look.faults_max),
        addresses=addresses,
        addresses_total=addresses_total,
        distances=summary.distances(measured, addresses[: summary.DRAWN_MAX]),
        slots=slots,
        slot_ms=slot_ms,
    )


def _paired(spark: SparkSession, given: Evidence, look: Look) -> tuple[DataFrame, DataFrame]:
    """Inputs with their letters, and the pairs that they make with outputs."""
    plan, cut = given.plan, given.cut
    prints = Prints.of(cut.cluster_id, plan.inputs, stamps=plan.stamps)
    inputs = inputs_of(given.inputs, plan.rules, prints)
    letters = letters_of(given.letters, plan.inputs)
    if look.redriven:
        letters = letters.withColumn("redriven", sf.lit(col=True))
    else:
        letters = _with_redriven(spark, letters, plan.redriven)
    limits = sf.broadcast(_limits(spark, cut))
    judged = sf.col("place.offset") < sf.col("committed")
    there = sf.col("origin.offset") >= sf.coalesce("begin", sf.lit(0))
    origins = kept(
        with_letters(
            rings.in_order(_limited(inputs, "place", limits).withColumn("judged", judged)).drop(
                "begin", "committed"
            ),
            _limited(letters, "origin", limits).where(there).drop("begin", "committed"),
        )
    )
    outputs = outputs_of(given.outputs, prints)
    there_is = origins.where(sf.col("place").isNotNull())
    # A record without a time, or with the time 0, goes out with that of its decision.
    timeless = not there_is.where(sf.col("time_ms") <= 0).isEmpty()
    return origins, matched(there_is, outputs, by_time=cut.keeps_time and not timeless)


def _known(spark: SparkSession, given: Evidence, origins: DataFrame, pairs: DataFrame) -> DataFrame:
    """The pairs, with how their addresses remember, and whether a fate of theirs may be gone."""
    known = kept(rings.remembered(pairs, _settings(spark, given, origins)))
    written = {**given.cut.outputs, **given.cut.letters}
    ways = remains.shortened(given.plan, given.cut.inputs, written)
    unsure = remains.with_unsure(spark, known, ways)
    return kept(unsure) if ways else unsure


def _settings(spark: SparkSession, given: Evidence, origins: DataFrame) -> DataFrame:
    """How the addresses that were met remember."""
    met = origins.select("address").where(sf.col("address").isNotNull()).distinct().collect()
    book, earlier = given.plan.book, given.plan.earlier
    own = [memory_of(book, row[0], earlier) for row in met]
    bridged = [memory_of(book, row[0], earlier, bridged=True) for row in met]
    names = [row[0] for row in met]
    return rings.settings_frame(spark, zip(names, own, bridged, strict=True))


def _faults(
    given: Evidence,
    origins: DataFrame,
    known: DataFrame,
    measured: DataFrame,
    lost: DataFrame,
) -> DataFrame:
    every = (
        faults.of_inputs(lost),
        faults.of_outputs(known, complete=given.cut.is_complete),
        faults.of_letters(origins),
        faults.of_order(known),
        faults.of_rings(measured),
        faults.of_originals(known),
    )
    return reduce(DataFrame.unionByName, every)


def _totals(named: DataFrame) -> dict[str, int]:
    found = {row["kind"]: row["count"] for row in named.groupBy("kind").count().collect()}
    return {kind: found.get(kind, 0) for kind in faults.KINDS}


def _first(named: DataFrame, limit: int) -> tuple[Fault, ...]:
    rows = named.orderBy("kind", "topic", "partition", "offset").limit(limit).collect()
    return tuple(Fault(*row) for row in rows)


def _fates(judged: DataFrame, lost: DataFrame) -> dict[str, int]:
    """How many inputs had which fate; excuses stand for those that had none."""
    reason = sf.when(sf.col("fate") == REJECTED, sf.concat(sf.lit("rejected: "), "letter.reason"))
    went_out_later = sf.col("redriven") & sf.col("output").isNotNull()
    seen = judged.where(sf.col("fate").isNotNull() & (sf.col("fate") != NONE))
    without = lost.select(
        sf.coalesce(sf.concat(sf.lit("excused: "), "excuse"), sf.lit(NONE)).alias("fate")
    )
    rows = (
        seen.select(
            sf.when(went_out_later, "redriven").otherwise(sf.coalesce(reason, "fate")).alias("fate")
        )
        .unionByName(without)
        .groupBy("fate")
        .count()
        .orderBy("fate")
        .collect()
    )
    return {row["fate"]: row["count"] for row in rows}


def _with_redriven(spark: SparkSession, letters: DataFrame, redriven: Sequence[Span]) -> DataFrame:
    """Dead letters, with whether a redrive went over them; no two spans share any."""
    spans = spark.createDataFrame(list(redriven), "log string, number int, start long, end long")
    is_inside = (
        (sf.col("place.topic") == sf.col("log"))
        & (sf.col("place.partition") == sf.col("number"))
        & (sf.col("place.offset") >= sf.col("start"))
        & (sf.col("place.offset") < sf.col("end"))
    )
    found = letters.join(sf.broadcast(spans), is_inside, "left")
    return found.withColumn("redriven", sf.col("log").isNotNull()).drop(*spans.columns)


def _limits(spark: SparkSession, cut: Cut) -> DataFrame:
    rows = [
        (topic, number, judged.span.begin, judged.committed)
        for (topic, number), judged in cut.inputs.items()
    ]
    return spark.createDataFrame(rows, "in_topic string, in_number int, begin long, committed long")


def _limited(frame: DataFrame, place: str, limits: DataFrame) -> DataFrame:
    same = (sf.col(f"{place}.topic") == limits["in_topic"]) & (
        sf.col(f"{place}.partition") == limits["in_number"]
    )
    return frame.join(limits, same, "left").drop("in_topic", "in_number")


def kept(frame: DataFrame) -> DataFrame:
    """The frame, computed once, on disk where memory is short, until nothing refers to it.

    Unlike one that is cached it forgets how it was made. Plans that hold one another grow so large
    that Spark spends longer on writing them down than on all of the records.
    """
    return frame.localCheckpoint()
