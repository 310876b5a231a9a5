"""Faults: what must not be, each named by the place of the record that shows it.

`no-fate`: an input that was passed over, or whose output or dead letter is gone. `two-fates`: an
input that went out and is a dead letter as well, or is one twice. `doubled`: an output that stands
there once more. `out-of-order`: an output before which a later one of its input stands.
`let-through`: an id that was accepted although its address must have held it. `false-duplicate`: a
dead letter that names an original with another id, or one that was not accepted. `unknown-output`,
`unknown-letter`: what no input is behind, or what was changed. Pure: frames in, frames out.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from pipeline.reconcile.cache_model import is_guessed, is_held
from pipeline.reconcile.results import ACCEPTED, DUPLICATE, NONE, REJECTED

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


def of_inputs(pairs: DataFrame) -> DataFrame:
    """Inputs without a fate, and without a reason to have none (`excused`)."""
    lost = pairs.where((sf.col("fate") == NONE) & sf.col("excuse").isNull())
    said = sf.lit("neither its output nor a dead letter of it is there")
    return lost.select(*_named("no-fate", sf.col("place"), said))


def of_outputs(pairs: DataFrame, *, complete: bool) -> DataFrame:
    """Outputs that are one too many; that of a dead letter which was redriven is none.

    Without `complete`, some inputs are gone, and their outputs look like those of none.
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
        sf.when(first.isNull(), "no input is like it")
        .when(sf.col("free"), sf.concat(written(first), sf.lit(" went out already")))
        .otherwise(sf.concat(written(first), sf.lit(" is a dead letter as well")))
    )
    found = surplus.withColumn("kind", kind)
    if not complete:
        found = found.where(sf.col("kind") != "unknown-output")
    return found.select(*_named(sf.col("kind"), output, said))


def of_letters(origins: DataFrame) -> DataFrame:
    """Letters of inputs that are not there, and second letters of one input."""
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
    """Outputs that stand behind a later one of the same input, and of the same address if need be.

    Records of a transaction group take effect at its end, so they are left out.
    """
    went_out = pairs.where((sf.col("fate") == ACCEPTED) & sf.col("tx_id").isNull() & ~is_guessed())
    address = sf.when(sf.col("decider") == "", sf.col("address")).otherwise("")
    lane = Window.partitionBy(
        *("output.topic", "output.partition", "place.topic", "place.partition", address)
    ).orderBy("output.offset")
    ordered = went_out.withColumn("before", sf.lag("place").over(lane))
    return ordered.where(sf.col("before.offset") > sf.col("place.offset")).select(
        *_named(
            "out-of-order",
            sf.col("output"),
            sf.concat(written(sf.col("place")), sf.lit(" behind "), written(sf.col("before"))),
        )
    )


def of_rings(measured: DataFrame) -> DataFrame:
    """Ids that were accepted although their address held them."""
    through = measured.where(
        (sf.col("fate") == ACCEPTED) & is_held() & sf.col("strict") & ~is_guessed()
    )
    said = sf.concat(
        *(sf.lit("its id was accepted at "), written(sf.col("previous.place")), sf.lit(", ")),
        *(sf.col("gap").cast("string"), sf.lit(" ids before; it went out at ")),
        written(sf.col("output")),
    )
    return through.select(*_named("let-through", sf.col("place"), said))


def of_originals(known: DataFrame) -> DataFrame:
    """Duplicates whose original has another id, or was no accepted record."""
    mine = known.where(
        (sf.col("fate") == DUPLICATE)
        & sf.col("letter.original").isNotNull()
        & sf.col("identity").isNotNull()
        & sf.col("tx_id").isNull()
        & sf.col("strategy").isin("ring", "window")
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
    """A place as dead letters write it."""
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
