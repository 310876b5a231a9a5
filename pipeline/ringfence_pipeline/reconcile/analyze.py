"""Analysis: violations and statistics from the records of inputs, outputs and dead letters.

Frames in, results out; this module does not read topics.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from ringfence_pipeline.charts import slot_width_ms
from ringfence_pipeline.reconcile import cache_model, tolerated, violations
from ringfence_pipeline.reconcile.blocks import kept
from ringfence_pipeline.reconcile.cache_model import is_held, with_greatest_gaps
from ringfence_pipeline.reconcile.extract import Fingerprints, inputs_of, letters_of, outputs_of
from ringfence_pipeline.reconcile.join import matched, with_letters
from ringfence_pipeline.reconcile.results import (
    ACCEPTED,
    DUPLICATE,
    MARKED,
    NONE,
    REJECTED,
    AddressFound,
    DuplicateDistances,
    ReconcileResult,
    TimeSlot,
    Violation,
)
from ringfence_pipeline.reconcile.scope import ReconcileScope, memory_of
from ringfence_pipeline.reconcile.since import NO_FLOOR, InputMark, Since
from ringfence_pipeline.reconcile.snapshot import Snapshot
from ringfence_pipeline.reconcile.tolerated import excused
from ringfence_service.metadata.redrive_job import DeadLetterRange

ADDRESSES_MAX: Final = 200
"""Addresses in the report, those with most misses first; the driver collects them.

Publishers may decide how many addresses there are. The report names the number of all.
"""

DRAWN_MAX: Final = 4
"""Addresses with a chart of distances, the first of the report: those with most misses.

More charts would make the page long, and the table has the figures of the others.
"""

_SHARES: Final = (0.99, 0.999, 1.0)

_PRECISION: Final = 100_000


def address_rows(measured: DataFrame) -> tuple[tuple[AddressFound, ...], int]:
    """Return the addresses with most misses or copies, and the number of all addresses."""
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
    rows = ordered.limit(ADDRESSES_MAX).collect()
    total = len(rows) if len(rows) < ADDRESSES_MAX else per_address.count()
    return tuple(map(_address, rows)), total


def distances(
    measured: DataFrame, drawn: tuple[AddressFound, ...]
) -> tuple[DuplicateDistances, ...]:
    """Return the distribution of the distances of copies, for these addresses."""
    names = [found.address for found in drawn if found.copies]
    if not names:
        return ()
    power = sf.ceil(sf.log2(sf.col("needed"))).cast("int")
    rows = (
        measured.where(sf.col("cache").isin(*names) & sf.col("needed").isNotNull())
        .groupBy("cache", power.alias("power"))
        .agg(sf.count_if(~_missed()).alias("caught"), sf.count_if(_missed()).alias("missed"))
        .orderBy("cache", "power")
        .collect()
    )
    return tuple(
        DuplicateDistances(row["cache"], row["power"], row["caught"], row["missed"]) for row in rows
    )


def time_slots(judged: DataFrame) -> tuple[tuple[TimeSlot, ...], int]:
    """Return the counts per time slot, by record time, and the length of a slot in milliseconds.

    Outliers count in the first and the last slot.
    """
    (ends,) = judged.select(sf.percentile_approx("time_ms", [0.002, 0.998]).alias("e")).collect()
    if ends["e"] is None:
        return (), 1
    low, high = ends["e"]
    width = slot_width_ms(high - low)
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


def _slot(row: Row, first_ms: int, width_ms: int) -> TimeSlot:
    half, nearly_all = row["latency"] or (None, None)
    begin_ms = first_ms + row["slot"] * width_ms
    return TimeSlot(begin_ms, row["accepted"], row["duplicates"], row["rejected"], half, nearly_all)


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
    """Return whether a copy was accepted because its id was forgotten."""
    return (sf.col("fate") == ACCEPTED) & sf.col("gap").isNotNull() & ~is_held()


class AnalyzeOptions(NamedTuple):
    """The user's assumptions, and the limit of the report."""

    redriven: bool = False
    """Whether any dead letter may have been redriven, not only those in known redrives."""
    resized: bool = False
    """Whether the file had other sizes earlier: then the content of cache_model is unknown."""
    faults_max: int = 10_000
    """Maximum number of violations to list; all are counted."""


class Evidence(NamedTuple):
    """The records to analyze, as the connector returns them, up to the snapshot."""

    plan: ReconcileScope
    cut: Snapshot
    inputs: DataFrame
    outputs: DataFrame
    letters: DataFrame
    carried: DataFrame
    """Input positions of the records between the stages."""
    since: Since | None = None
    """Where the last run ended; the snapshot begins at its context. None for all records."""


class ComparedRecords(NamedTuple):
    """What a judgement has found, as frames."""

    known: DataFrame
    """Pairs of inputs and outputs."""
    lost: DataFrame
    """Inputs without a fate, with their excuses."""
    named: DataFrame
    """The violations."""


def judge(
    spark: SparkSession,
    given: Evidence,
    look: AnalyzeOptions,
    append: Callable[[ComparedRecords], int] | None = None,
) -> ReconcileResult:
    """Return what the records show about all that the group has decided, or has since a run.

    `append` is given the records, and returns how many of the violations are new.
    """
    since = given.since
    origins = _origins(spark, given, look)
    of_addresses = _of_addresses(origins)
    timeless = any(row["timeless"] for row in of_addresses)
    pairs = _pairs(spark, given, origins, timeless=timeless)
    addresses = [row["address"] for row in of_addresses if row["address"] is not None]
    known = _known(spark, given, pairs, addresses)
    measured = _measured(given, known)
    lost = kept(
        excused(
            *(known, measured, given.carried),
            begins=given.plan.from_the_first_fate and since is None,
            complete=given.cut.is_complete,
            partial=since is not None,
        )
    )
    named = _violations(given, origins, known, measured, lost)
    named = kept(named if since is None else since.news(spark, named, violations.OF_INPUTS))
    compared = ComparedRecords(known, lost, named)
    judged, lost = known.where("judged AND fresh"), lost.where("fresh")
    measured = measured.where("fresh")
    found, addresses_total = address_rows(measured)
    slots, slot_ms = time_slots(judged)
    faults, faults_total = _faults(named, look.faults_max)
    return ReconcileResult(
        group=given.plan.group,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        inputs=given.plan.inputs,
        fates=_fates(judged, lost),
        faults_total=faults_total,
        faults=faults,
        addresses=found,
        addresses_total=addresses_total,
        distances=distances(measured, found[:DRAWN_MAX]),
        slots=slots,
        slot_ms=slot_ms,
        faults_new=None if append is None else append(compared),
    )


def _fingerprints(given: Evidence) -> Fingerprints:
    plan = given.plan
    return Fingerprints.of(given.cut.cluster_id, plan.inputs, stamps=plan.stamps)


def _origins(spark: SparkSession, given: Evidence, look: AnalyzeOptions) -> DataFrame:
    """Return the inputs with their dead letters."""
    plan, cut = given.plan, given.cut
    inputs = inputs_of(given.inputs, plan, _fingerprints(given))
    letters = letters_of(given.letters, plan.inputs)
    if look.redriven:
        letters = letters.withColumn("redriven", sf.lit(col=True))
    else:
        letters = _with_redriven(spark, letters, plan.redriven)
    limits = sf.broadcast(_limits(spark, cut, given.since))
    judged = sf.col("place.offset") < sf.col("committed")
    fresh = sf.col("place.offset") >= sf.col("done")
    is_retained = sf.col("origin.offset") >= sf.coalesce("begin", sf.lit(0))
    return kept(
        with_letters(
            _waiting(
                spark,
                cache_model.in_order(
                    _limited(inputs, "place", limits)
                    .withColumn("judged", judged)
                    .withColumn("fresh", fresh)
                )
                .withColumn("decided_at_ms", sf.greatest("decided_at_ms", "floor_ms"))
                .drop(*_LIMITS),
                given.since,
            ),
            _limited(letters, "origin", limits).where(is_retained).drop(*_LIMITS),
        )
    )


def _of_addresses(origins: DataFrame) -> list[Row]:
    """Return each address of the inputs, and none, with the number of `timeless` records.

    A record without a time, or with the time 0, goes out with the time of its decision.
    """
    existing = origins.where(sf.col("place").isNotNull())
    timeless = sf.count_if(sf.col("time_ms") <= 0)
    return existing.groupBy("address").agg(timeless.alias("timeless")).collect()


def _pairs(
    spark: SparkSession, given: Evidence, origins: DataFrame, *, timeless: bool
) -> DataFrame:
    """Return the pairs of inputs and outputs; `timeless` is whether an input is."""
    outputs = outputs_of(given.outputs, _fingerprints(given))
    if given.since is not None and given.since.ignored is not None:
        outputs = outputs.join(given.since.ignored, "place", "left_anti")
    existing = origins.where(sf.col("place").isNotNull())
    pairs = matched(existing, outputs, by_time=given.cut.keeps_time and not timeless)
    return _with_recent(spark, pairs, given.since)


def _waiting(spark: SparkSession, inputs: DataFrame, since: Since | None) -> DataFrame:
    """Return the inputs, where those that waited at the last run are fresh as well."""
    if since is None or not since.pending:
        return inputs
    rows = [((topic, number, offset), True) for topic, number, offset in since.pending]
    waited = spark.createDataFrame(
        rows, "place struct<topic: string, partition: int, offset: bigint>, waited boolean"
    )
    found = inputs.join(sf.broadcast(waited), "place", "left")
    return found.withColumn(
        "fresh", sf.col("fresh") | sf.coalesce("waited", sf.lit(col=False))
    ).drop("waited")


def _with_recent(spark: SparkSession, pairs: DataFrame, since: Since | None) -> DataFrame:
    """Add `recent`: whether the record went out since the last run."""
    if since is None:
        return pairs.withColumn("recent", sf.lit(col=True))
    marks = spark.createDataFrame(
        [(*each, span.end) for each, span in since.written.items()],
        "out_topic string, out_number int, new bigint",
    )
    same = (sf.col("output.topic") == sf.col("out_topic")) & (
        sf.col("output.partition") == sf.col("out_number")
    )
    recent = sf.col("output.offset") >= sf.coalesce("new", sf.lit(0))
    return (
        pairs.join(sf.broadcast(marks), same, "left")
        .withColumn("recent", sf.coalesce(recent, sf.lit(col=False)))
        .drop("out_topic", "out_number", "new")
    )


def _known(
    spark: SparkSession, given: Evidence, pairs: DataFrame, addresses: Sequence[str]
) -> DataFrame:
    """Return the pairs with their addresses' settings, and whether retention may hide a fate."""
    known = kept(cache_model.remembered(pairs, _settings(spark, given, addresses)))
    written = {**given.cut.outputs, **given.cut.letters}
    wanted = given.since.wanted if given.since else (lambda _each: 0)
    paths = tolerated.truncated_paths(given.plan, given.cut.inputs, written, wanted)
    unsure = tolerated.with_unsure(spark, known, paths)
    return kept(unsure) if paths else unsure


def _settings(spark: SparkSession, given: Evidence, addresses: Sequence[str]) -> DataFrame:
    """Return the settings of the addresses that occur."""
    book, earlier = given.plan.book, given.plan.earlier
    own = [memory_of(book, each, earlier) for each in addresses]
    bridged = [memory_of(book, each, earlier, bridged=True) for each in addresses]
    return cache_model.settings_frame(spark, zip(addresses, own, bridged, strict=True))


def _measured(given: Evidence, known: DataFrame) -> DataFrame:
    """Return the records that an address judged, with the distances to earlier ones."""
    shared = any(rule.scope != "partition" for rule in given.plan.rules)
    measured = kept(cache_model.measured(known.where("judged"), shared=shared))
    return kept(with_greatest_gaps(measured)) if shared else measured


def _violations(
    given: Evidence,
    origins: DataFrame,
    known: DataFrame,
    measured: DataFrame,
    lost: DataFrame,
) -> DataFrame:
    since, cut = given.since, given.cut
    complete = cut.is_complete if since is None else since.has_all_new(cut)
    every = (
        violations.of_inputs(lost),
        violations.of_outputs(known, complete=complete),
        violations.of_letters(origins),
        violations.of_order(known),
        violations.of_rings(measured, is_whole=since is None or _has_one_partition(given)),
        violations.of_originals(known),
    )
    return reduce(DataFrame.unionByName, every)


def _has_one_partition(given: Evidence) -> bool:
    """Return whether all addresses that input partitions may share are on one of them."""
    topics = {
        topic for rule in given.plan.rules if rule.scope != "partition" for topic in rule.topics
    }
    return sum(each.topic in topics for each in given.cut.inputs) <= 1


def _faults(named: DataFrame, limit: int) -> tuple[tuple[Violation, ...], dict[str, int]]:
    """Return the first violations, and the number of all by kind."""
    ordered = named.orderBy("kind", "topic", "partition", "offset")
    first = tuple(Violation(*row) for row in ordered.limit(limit).collect())
    if len(first) < limit:
        found: Mapping[str, int] = Counter(violation.kind for violation in first)
    else:
        found = {row["kind"]: row["count"] for row in named.groupBy("kind").count().collect()}
    return first, {kind: found.get(kind, 0) for kind in violations.KINDS}


def _fates(judged: DataFrame, lost: DataFrame) -> dict[str, int]:
    """Return the number of inputs by fate; one without a fate counts under its excuse."""
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


def _with_redriven(
    spark: SparkSession, letters: DataFrame, redriven: Sequence[DeadLetterRange]
) -> DataFrame:
    """Return the dead letters with whether a redrive covered them; the spans are disjoint."""
    spans = spark.createDataFrame(list(redriven), "log string, number int, start long, end long")
    is_inside = (
        (sf.col("place.topic") == sf.col("log"))
        & (sf.col("place.partition") == sf.col("number"))
        & (sf.col("place.offset") >= sf.col("start"))
        & (sf.col("place.offset") < sf.col("end"))
    )
    found = letters.join(sf.broadcast(spans), is_inside, "left")
    return found.withColumn("redriven", sf.col("log").isNotNull()).drop(*spans.columns)


_LIMITS: Final = ("begin", "committed", "done", "floor_ms")


def _limits(spark: SparkSession, cut: Snapshot, since: Since | None) -> DataFrame:
    marks = since.inputs if since else {}
    unknown = InputMark(0, 0, NO_FLOOR)
    rows = [
        (*each, judged.span.begin, judged.committed, *marks.get(each, unknown)[1:])
        for each, judged in cut.inputs.items()
    ]
    columns = ", ".join(f"{name} long" for name in _LIMITS)
    return spark.createDataFrame(rows, f"in_topic string, in_number int, {columns}")


def _limited(frame: DataFrame, place: str, limits: DataFrame) -> DataFrame:
    same = (sf.col(f"{place}.topic") == limits["in_topic"]) & (
        sf.col(f"{place}.partition") == limits["in_number"]
    )
    return frame.join(limits, same, "left").drop("in_topic", "in_number")
