"""Join of inputs with their outputs and dead letters.

A dead letter names its input. Outputs and inputs are joined by fingerprint: among those with the
same one, the first output belongs to the first input without a dead letter, and so on, in the order
of their positions; further outputs belong to inputs whose dead letters were redriven, and then to
the others. So an output without an input is surplus, and an input without an output has no fate.
Pure: frames in, frames out.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from ringfence_client.headers import REPEATED
from ringfence_pipeline.reconcile.results import ACCEPTED, DUPLICATE, MARKED, NONE, REJECTED


def with_letters(inputs: DataFrame, letters: DataFrame) -> DataFrame:
    """Join inputs with their first dead letter and the number of dead letters (a full join).

    A record that was redriven and rejected again has further dead letters, which count their
    redrives. `redriven` is whether a redrive covered a dead letter, or one of an input.
    """
    fields = sf.struct("redrives", "place", "reason", "original", "decided_ms", "input_ms")
    by_origin = letters.groupBy("origin").agg(
        sf.min(fields).alias("letter"),
        sf.max(sf.when(sf.col("redrives") == 0, sf.col("place"))).alias("last_letter"),
        sf.count_if(sf.col("redrives") == 0).alias("letters"),
        sf.bool_or("redriven").alias("redriven"),
    )
    return inputs.join(by_origin, inputs["place"] == by_origin["origin"], "full")


def matched(inputs: DataFrame, outputs: DataFrame, *, by_time: bool) -> DataFrame:
    """Pair inputs, with their dead letters, and outputs; either side may be missing.

    With `by_time`, outputs have the times of their inputs, and records are alike only if their
    times are equal. `twins` is whether the fingerprint has several inputs, `free` whether one of
    them has no dead letter, and `first` is the first of them.
    """
    is_input = sf.col("side") == 0
    whole = Window.partitionBy("print")
    # A single shuffle by fingerprint serves all of it.
    ranked = Window.partitionBy("print", "side").orderBy("rank", "place")
    numbered = (
        _sides(_timed(inputs, by_time=by_time), _timed(outputs, by_time=by_time))
        .withColumn("copy", sf.row_number().over(ranked))
        .withColumn("twins", sf.count_if(is_input).over(whole) > 1)
        .withColumn("free", sf.max(is_input & ~sf.col("late")).over(whole))
        .withColumn("first", sf.min(sf.when(is_input, sf.struct("late", "place"))).over(whole))
    )
    pairs = numbered.groupBy("print", "copy").agg(
        sf.first(sf.when(is_input, sf.col("data")), ignorenulls=True).alias("input"),
        sf.first(sf.when(~is_input, sf.struct("place", "late")), ignorenulls=True).alias("output"),
        sf.first("twins").alias("twins"),
        sf.first("free").alias("free"),
        sf.first("first.place").alias("first"),
    )
    return pairs.select(
        "input.*",
        _fate().alias("fate"),
        sf.col("output.place").alias("output"),
        *("twins", "free", "first"),
    )


def _timed(side: DataFrame, *, by_time: bool) -> DataFrame:
    time_ms = sf.col("time_ms") if by_time else sf.lit(0).cast("bigint")
    return side.withColumn("print", sf.struct("print.a", "print.b", time_ms.alias("time_ms")))


def _sides(inputs: DataFrame, outputs: DataFrame) -> DataFrame:
    """Return both sides in one frame; `late` are inputs with a dead letter and marked outputs.

    Rows with a lower `rank` are paired first.
    """
    data = sf.struct(*(name for name in inputs.columns if name != "print"))
    kind = inputs.select(data.alias("data")).schema["data"].dataType
    side = inputs.select(
        "print",
        sf.lit(0).alias("side"),
        sf.col("letter").isNotNull().alias("late"),
        sf.when(sf.col("letter").isNull(), 0)
        .when(sf.col("redriven"), 1)
        .otherwise(2)
        .alias("rank"),
        "place",
        data.alias("data"),
    )
    return side.unionByName(
        outputs.select(
            "print",
            sf.lit(1).alias("side"),
            sf.col("marked").alias("late"),
            sf.col("marked").cast("int").alias("rank"),
            "place",
            sf.lit(None).cast(kind).alias("data"),
        )
    )


def _fate() -> Column:
    """Return the fate of the input; null without an input."""
    letter, output = sf.col("input.letter"), sf.col("output")
    repeated = letter["reason"].isin(*(reason.value for reason in REPEATED))
    return (
        sf.when(sf.col("input").isNull(), sf.lit(None).cast("string"))
        .when(letter.isNotNull() & repeated, DUPLICATE)
        .when(letter.isNotNull(), REJECTED)
        .when(output.isNull(), NONE)
        .when(output["late"], MARKED)
        .otherwise(ACCEPTED)
    )
