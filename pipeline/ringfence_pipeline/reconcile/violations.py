"""Violations of the guarantees, each with the position of the record that shows it.

`no-fate`: an input that was skipped, or whose output or dead letter is missing. `two-fates`: an
input with an output and a dead letter, or with two dead letters. `doubled`: a second output of an
input. `out-of-order`: an output behind a later one of its input. `let-through`: an id that was
accepted although its address must have held it. `false-duplicate`: a dead letter whose original has
another id, or was not accepted. `unknown-output`, `unknown-letter`: a record that has no input, or
that was changed. Pure: frames in, frames out.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from ringfence_pipeline.reconcile.cache_model import is_guessed, is_held, is_shared, lane_of_sharers
from ringfence_pipeline.reconcile.results import ACCEPTED, DUPLICATE, NONE, REJECTED
from ringfence_state.strategies.registry import STRATEGIES

KINDS: Final = (
    "no-fate",
    "two-fates",
    "doubled",
    "out-of-order",
    "let-through",
    "false-duplicate",
    "unknown-output",
    "unknown-letter",
)


OF_INPUTS: Final = ("no-fate", "let-through")
"""Kinds that are identified by the input."""


def of_inputs(pairs: DataFrame) -> DataFrame:
    """Return the inputs without a fate and without an excuse (`excused`)."""
    lost = pairs.where((sf.col("fate") == NONE) & sf.col("excuse").isNull())
    said = sf.lit("it has neither an output nor a dead letter")
    return lost.select(*_named("no-fate", sf.col("place"), said))


def of_outputs(pairs: DataFrame, *, complete: bool) -> DataFrame:
    """Return the surplus outputs; the output of a redriven dead letter is not one.

    Without `complete`, some inputs are deleted, and their outputs match no input.
    """
    output, first = sf.col("output"), sf.col("first")
    is_letter = sf.col("fate").isin(DUPLICATE, REJECTED) & ~sf.col("redriven")
    surplus = pairs.where(output.isNotNull() & (sf.col("fate").isNull() | is_letter))
    kind = (
        sf.when(first.isNull(), "unknown-output")
        .when(sf.col("free"), "doubled")
        .when(sf.col("fate").isNull(), "doubled")
        .otherwise("two-fates")
    )
    said = (
        sf.when(first.isNull(), "no input matches it")
        .when(sf.col("free"), sf.concat(written(first), sf.lit(" went out already")))
        .otherwise(sf.concat(written(first), sf.lit(" is a dead letter as well")))
    )
    found = surplus.withColumn("kind", kind)
    if not complete:
        found = found.where(sf.col("kind") != "unknown-output")
    return found.select(*_named(sf.col("kind"), output, said))


def of_letters(origins: DataFrame) -> DataFrame:
    """Return dead letters of inputs that do not exist, and second dead letters of an input."""
    unknown = origins.where(sf.col("place").isNull()).select(
        *_named(
            "unknown-letter",
            sf.col("letter.place"),
            sf.concat(sf.lit("there is no input "), written(sf.col("origin"))),
        )
    )
    twice = origins.where(sf.col("place").isNotNull() & (sf.col("letters") > 1)).select(
        *_named(
            "two-fates",
            sf.col("last_letter"),
            sf.concat(
                written(sf.col("place")),
                sf.lit(" is a dead letter at "),
                written(sf.col("letter.place")),
                sf.lit(" already"),
            ),
        )
    )
    return unknown.unionByName(twice)


def of_order(pairs: DataFrame) -> DataFrame:
    """Return outputs behind a later one of the same input partition, and address if that decides.

    Records of a transaction group are left out, since they take effect at its end.
    """
    went_out = pairs.where((sf.col("fate") == ACCEPTED) & sf.col("tx_id").isNull() & ~is_guessed())
    lane = Window.partitionBy(
        *("output.topic", "output.partition", "place.topic", "place.partition", lane_of_sharers())
    ).orderBy("output.offset")
    ordered = went_out.withColumn("before", sf.lag("place").over(lane))
    return ordered.where(sf.col("before.offset") > sf.col("place.offset")).select(
        *_named(
            "out-of-order",
            sf.col("output"),
            sf.concat(written(sf.col("place")), sf.lit(" behind "), written(sf.col("before"))),
        )
    )


def of_rings(measured: DataFrame, *, is_whole: bool) -> DataFrame:
    """Return ids that were accepted although their address held them.

    Without `is_whole`, an address on several input partitions may lack records between the two that
    were decided before the last run; so its id must have been accepted since (`recent`).
    """
    is_counted = sf.lit(is_whole) | ~is_shared() | sf.col("previous.recent")
    through = measured.where(
        (sf.col("fate") == ACCEPTED) & is_held() & sf.col("strict") & ~is_guessed() & is_counted
    )
    said = sf.concat(
        *(sf.lit("its id was accepted at "), written(sf.col("previous.place")), sf.lit(", ")),
        *(sf.col("gap").cast("string"), sf.lit(" ids before; it went out at ")),
        written(sf.col("output")),
    )
    return through.select(*_named("let-through", sf.col("place"), said))


def of_originals(known: DataFrame) -> DataFrame:
    """Return duplicates whose original has another id, or was not accepted."""
    mine = known.where(
        (sf.col("fate") == DUPLICATE)
        & sf.col("letter.original").isNotNull()
        & sf.col("identity").isNotNull()
        & sf.col("tx_id").isNull()
        & sf.col("strategy").isin([name for name, each in STRATEGIES.items() if each.holds_ids])
    ).select(
        "place",
        sf.col("letter.place").alias("letter_place"),
        "identity",
        sf.col("letter.original").alias("original"),
    )
    theirs = known.where(sf.col("fate").isNotNull()).select(
        sf.col("place").alias("original"),
        sf.col("identity").alias("original_identity"),
        sf.col("fate").alias("original_fate"),
    )
    differs = ~sf.col("identity").eqNullSafe(sf.col("original_identity"))
    refused = sf.col("original_fate").isin(DUPLICATE, REJECTED)
    said = sf.concat(
        written(sf.col("place")),
        sf.lit(" is called a copy of "),
        written(sf.col("original")),
        sf.when(differs, ", which has another id").otherwise(", which was not accepted"),
    )
    return (
        mine.join(theirs, "original")
        .where(differs | refused)
        .select(*_named("false-duplicate", sf.col("letter_place"), said))
    )


def written(place: Column) -> Column:
    """Return a position as topic-partition@offset."""
    return sf.concat(
        place["topic"],
        sf.lit("-"),
        place["partition"].cast("string"),
        sf.lit("@"),
        place["offset"].cast("string"),
    )


def _named(kind: str | Column, place: Column, said: Column) -> tuple[Column, ...]:
    what = sf.lit(kind) if isinstance(kind, str) else kind
    return what.alias("kind"), *_flat(place), said.alias("said")


def _flat(place: Column) -> tuple[Column, ...]:
    return tuple(place[name].alias(name) for name in ("topic", "partition", "offset"))
