"""Cache model: what each address had accepted before a record, and how far back its id was.

Records are processed in the order of their decisions. Within one deciding input partition that is
the order of offsets. For an address on several input partitions the interleaving is not recorded:
it is estimated from the times of the records, and `with_bounds` gives the limits of the estimate.

Two distances are measured. The *gap* is the one the ring used: the number of ids accepted since
this one was last accepted, itself included; a ring knows an id up to a gap of its size. *Needed* is
the size that a ring would have needed from the beginning to know the id since its first record.
Pure: frames in, frames out.
"""

from collections.abc import Callable, Iterable
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from ringfence_pipeline.reconcile.blocks import with_running_counts
from ringfence_pipeline.reconcile.results import ACCEPTED, DUPLICATE, MARKED, NONE
from ringfence_pipeline.reconcile.scope import CacheSettings
from ringfence_state.strategies.registry import STRATEGIES

_NEVER_MS: Final = 2**62
"""Stands for no upper bound of the time of decision: later than any clock of a service."""

_CACHE: Final = ("cache", "decider")

_SPREAD: Final = "share "
"""What the `decider` of a record with scope `id` begins with."""

_COUNTING: Final = [name for name, each in STRATEGIES.items() if each.numbers is not None]
_REFRESHING: Final = [name for name, each in STRATEGIES.items() if each.refreshes]


def share_of(number: Column) -> Column:
    """Return the `decider` of a record with scope `id`, by the number of its deciding partition."""
    return sf.concat(sf.lit(_SPREAD), number.cast("string"))


def is_shared() -> Column:
    """Return whether several input partitions share what decides a record.

    With scope `address` that is the address, and `decider` is empty; with scope `id` a share of it.
    """
    return (sf.col("decider") == "") | sf.col("decider").startswith(_SPREAD)


def lane_of_sharers() -> Column:
    """Return what keeps the order of an input partition's records: an address, or its shares."""
    return sf.when(sf.col("decider") == "", sf.col("address")).otherwise(sf.col("decider"))


# The order of events at the same time: in doubt, a record lies in between.
_BEGINS, _ASKED, _IS_OVER = range(3)


def with_bounds(judged: DataFrame) -> DataFrame:
    """Add `soonest_ms` and `latest_ms`, the bounds of the time of decision.

    Records of a transaction group are decided at its end, later than records behind them.
    """
    lane = Window.partitionBy(*_CACHE, "place.topic", "place.partition")
    upto = (Window.unboundedPreceding, Window.currentRow)
    forth = lane.orderBy("place.offset").rowsBetween(*upto)
    # Spark recomputes a window to the end of its partition for every row; this one is equivalent.
    back = lane.orderBy(sf.desc("place.offset")).rowsBetween(*upto)
    alone = sf.col("tx_id").isNull()
    decided = sf.when((sf.col("fate") == DUPLICATE) & alone, sf.col("letter.decided_ms"))
    soonest, latest = sf.max(decided).over(forth), sf.min(decided).over(back)
    return (
        judged.withColumn("soonest_ms", sf.coalesce(soonest, sf.lit(0)))
        .withColumn("latest_ms", sf.when(alone, latest))
        .withColumn("latest_ms", sf.coalesce("latest_ms", sf.lit(_NEVER_MS)))
    )


def with_greatest_gaps(measured: DataFrame) -> DataFrame:
    """Add `gap_max`, for a record that was accepted although its id may have been held; else null.

    It equals the gap if the order is known.
    """
    repeated = (sf.col("fate") == ACCEPTED) & sf.col("previous").isNotNull()
    doubtful = repeated & ~sf.col("exact") & (sf.col("gap") <= sf.col("size"))
    # A single pass: queries are events among the counted ones.
    moments = measured.select(*_CACHE, "place", sf.explode(_moments(doubtful)).alias("at")).select(
        *_CACHE, "place", "at.*"
    )
    kinds = {"begun": sf.col("kind") == _BEGINS, "over": sf.col("kind") == _IS_OVER}
    bounds = (
        with_running_counts(moments, _CACHE, ("ms", "kind"), kinds)
        .where(sf.col("kind") == _ASKED)
        .groupBy("place")
        # Both records are counted here, and a gap counts only the later one.
        .agg((sf.max("begun") - sf.min("over") - 1).alias("bound"))
    )
    gap = sf.when(sf.col("exact"), sf.col("gap"))
    return (
        measured.join(bounds, "place", "left")
        .withColumn("gap_max", sf.coalesce(gap, "bound"))
        .drop("bound")
    )


def _moments(doubtful: Column) -> Column:
    """Return a record's events: the bounds of its decision, and its queries."""
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
"""How many following records show whether a record's time was ahead of the clock."""


def settings_frame(
    spark: SparkSession, settings: Iterable[tuple[str, CacheSettings, CacheSettings]]
) -> DataFrame:
    """Return the settings of addresses: for their own ids, and for ids that a bridge stamped."""
    own = ", ".join(f"{key} {kind}" for key, kind in _KINDS.items())
    bridge = ", ".join(f"bridge_{key} {kind}" for key, kind in _KINDS.items())
    rows = [(address, *memory, *bridged) for address, memory, bridged in settings]
    return spark.createDataFrame(rows, f"address string, {own}, {bridge}")


def remembered(pairs: DataFrame, settings: DataFrame) -> DataFrame:
    """Add the settings of the address, and `identity`, by which the address knows a record.

    `identity` is null for a record without a claim, and where more than equality decides.
    """
    known = pairs.join(sf.broadcast(settings), "address", "left")
    counted = sf.col("strategy").isin(_COUNTING)
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


def measured(known: DataFrame, *, shared: bool) -> DataFrame:
    """Add `gap`, `needed` and `since_ms` to the records that an address judged, in order.

    Unless an address may be `shared` by input partitions, all orders are known, so `gap_max`, which
    `with_greatest_gaps` adds, is there too.

    All three are null for the first record of an id, whose gap is `gap_least` or more if an earlier
    record was not read. `exact` is whether the order is known. `previous` is the last accepted
    record of the id, `accepted_ms` the earliest time at which that may have been accepted, `counts`
    whether a record advances the ring.
    """
    judged = known.where(
        sf.col("identity").isNotNull() & sf.col("fate").isin(ACCEPTED, MARKED, DUPLICATE, NONE)
    )
    order = ("decided_at_ms", "place")
    same = Window.partitionBy(*_CACHE, "identity").orderBy(*order)
    before = same.rowsBetween(Window.unboundedPreceding, -1)
    accepted = sf.col("fate") == ACCEPTED
    # A window is refreshed by hits, so all records in between count.
    # A lost record counts as accepted, unless duplicates leave no trace.
    lost = (sf.col("fate") == NONE) & ~sf.col("silent")
    counts = accepted | lost | sf.col("strategy").isin(_REFRESHING)
    is_first = sf.col("nth") == 1
    lane = sf.concat_ws("-", "place.topic", "place.partition")
    latest = ["place", "accepted_so_far", "decided_at_ms", "recent"]
    if shared:
        exact = judged.groupBy(*_CACHE).agg((sf.min(lane) == sf.max(lane)).alias("exact"))
        judged = with_bounds(judged).join(sf.broadcast(exact), [*_CACHE])
        latest += ["soonest_ms", "latest_ms"]
    else:
        judged = judged.withColumn("exact", sf.lit(col=True))
    ordered = judged.withColumns({"nth": sf.row_number().over(same), "counts": counts})
    so_far = {"accepted_so_far": sf.col("counts"), "ids_so_far": is_first}
    previous = sf.max_by(sf.struct(*latest), _when(accepted, "accepted_so_far")).over(before)
    gap = sf.col("accepted_so_far") - sf.col("previous.accepted_so_far")
    found = (
        with_running_counts(ordered, _CACHE, order, so_far)
        .withColumns(
            {
                "previous": previous,
                "accepted_ms": sf.max(_when(accepted, "least_ms")).over(before),
                "first_id": sf.max(_when(is_first, "ids_so_far")).over(before),
            }
        )
        .withColumns(
            {
                "gap": sf.when(sf.col("counts"), gap).otherwise(gap + 1),
                "gap_least": sf.col("accepted_so_far") + sf.when(~sf.col("counts"), 1).otherwise(0),
                "needed": sf.col("ids_so_far") - sf.col("first_id") + 1,
                "since_ms": sf.col("decided_at_ms") - sf.col("previous.decided_at_ms"),
            }
        )
        .drop("nth", "first_id", "ids_so_far", "accepted_so_far")
    )
    return found if shared else found.withColumn("gap_max", sf.col("gap"))


def is_held() -> Column:
    """Return whether the address must have known the id: accepted, and not yet forgotten.

    It uses the smallest size since then, and the greatest possible gap.
    """
    size, window_ms = _since("least", sf.array_min), _since("window_ms", sf.array_min)
    size, window_ms = sf.least("size", size), sf.least("window_ms", window_ms)
    age_ms = sf.col("decided_at_ms") - sf.col("accepted_ms")
    return sf.coalesce((sf.col("gap_max") <= size) & (age_ms <= window_ms), sf.lit(col=False))


def may_be_held() -> Column:
    """Return whether the address may have known the id.

    Duplicates without a trace may have refreshed it in a window.
    """
    size = sf.greatest("size", _since("most", sf.array_max))
    known = (sf.col("gap") <= size) | ~sf.col("exact") | is_guessed()
    return sf.coalesce(known & sf.col("gap").isNotNull(), sf.lit(col=False))


def may_be_held_from_before() -> Column:
    """Return whether the address may have known the id from a record that was not read.

    If enough others came since the first that was read, it had forgotten each such id.
    """
    most = sf.array_max(sf.transform("former", lambda each: each["most"]))
    forgotten = sf.col("exact") & (sf.col("gap_least") > sf.greatest("size", most))
    return sf.col("gap").isNull() & ~sf.coalesce(forgotten, sf.lit(col=False))


def is_guessed() -> Column:
    """Return whether it is a guess which of several identical records went out.

    That is so if duplicates leave no trace, or if retention has deleted the trace.
    """
    traceless = sf.col("silent") | sf.col("unsure")
    return sf.coalesce(traceless & sf.col("twins"), sf.lit(col=False))


def in_order(inputs: DataFrame) -> DataFrame:
    """Add `decided_at_ms`, the time of the partition, which never goes back, and `least_ms`.

    The service ignores a time that is ahead of the clock, which cannot be seen afterwards. But a
    time that the next records do not reach may be one; `least_ms` is the lowest of those.
    """
    partition = Window.partitionBy("place.topic", "place.partition").orderBy("place.offset")
    real_ms = sf.when(sf.col("time_ms") > 0, sf.col("time_ms"))
    least_ms = sf.min(real_ms).over(partition.rowsBetween(Window.currentRow, _NEXT))
    return inputs.withColumn("decided_at_ms", sf.max("time_ms").over(partition)).withColumn(
        "least_ms", sf.coalesce(least_ms, sf.lit(0))
    )


def _since(what: str, of: Callable[[Column], Column]) -> Column:
    """Return a value of the earlier settings that may have applied since the id was accepted."""
    former = sf.filter("former", lambda each: each["until_ms"] > sf.col("accepted_ms"))
    return of(sf.transform(former, lambda each: each[what]))


def _identity() -> Column:
    """Return what a duplicate repeats, as bytes; null where the strategy checks nothing."""
    fields = {
        "identifier": sf.col("id"),
        "publisher": sf.col("publisher").cast("binary"),
        "stream": _digits("stream"),
        "number": sf.when(sf.col("number") > 0, _digits("number")),
    }
    found = sf.lit(None).cast("binary")
    for name, each in STRATEGIES.items():
        if each.identity is not None:
            optional = [sf.coalesce(fields[key], sf.lit(b"")) for key in each.identity.optional]
            parts = [*optional, *(fields[key] for key in each.identity.required)]
            found = sf.when(sf.col("strategy") == name, _joined(parts)).otherwise(found)
    return found


def _digits(column: str) -> Column:
    return sf.col(column).cast("string").cast("binary")


def _joined(parts: Iterable[Column]) -> Column:
    """Return all parts as bytes, each behind its length, so that no others give the same."""
    lengths = ((sf.length(part).cast("string").cast("binary"), part) for part in parts)
    return sf.concat(*(each for size, part in lengths for each in (size, sf.lit(b":"), part)))


def _when(condition: Column, column: str) -> Column:
    return sf.when(condition, sf.col(column))
