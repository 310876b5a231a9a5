"""The columns of a backfill: records in, what is to be judged, and the verdicts that come out.

A record is told by its place, its time, its key and the headers that some check looks at, each in
a column of its own: of several with one name the first that is not null, as all checks have it.
Value and headers come whole where they are kept whole: of records of a transaction group.
"""

from collections.abc import Callable, Sequence
from typing import Final, cast

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pipeline.backfill.inputs import BackfillInputs
from ringfence.headers import GROUP
from ringfence.spark.columns import PLACE, first, headers_of, place
from service.dedup.record import Field
from service.dedup.route import InputRoute

DECIDER: Final = ("decider_topic", "decider_partition")
"""The partition that decides: all that it remembers is apart from all others."""

TOLD: Final = "header_"
"""Before the number of a header in the columns of what is judged."""

JUDGED: Final = StructType(
    [
        *PLACE.fields,
        StructField("timestamp_ms", LongType()),
        StructField(DECIDER[0], StringType()),
        StructField(DECIDER[1], IntegerType()),
        StructField("position", LongType()),
        StructField("address", StringType()),
        StructField("strategy", StringType()),
        StructField("id", BinaryType()),
        StructField("verdict", StringType()),
        StructField("cause", StringType()),
        StructField("original", StringType()),
    ]
)
"""As a judge tells it."""

VERDICTS: Final = StructType(
    [StructField("original", PLACE) if f.name == "original" else f for f in JUDGED.fields]
)
"""The table."""


def to_judge(records: DataFrame, inputs: BackfillInputs) -> DataFrame:
    """Records with the columns of a topic -> what is judged of them; other topics are left out."""
    headers = headers_of(sf.col("headers"))
    in_group = sf.isnotnull(first(headers, GROUP))
    told = [
        first(headers, name).alias(f"{TOLD}{number}")
        for number, name in enumerate(inputs.header_names)
    ]
    value = sf.col("value")
    value = value if inputs.reads_values else sf.when(in_group, value)
    columns = records.where(sf.col("topic").isin(*inputs.by_topic)).select(
        *(field.name for field in PLACE.fields),
        # Of a record without a time, as Kafka's clients tell it.
        sf.coalesce(sf.unix_millis("timestamp"), sf.lit(-1)).alias("timestamp_ms"),
        # Of a stream the time of its batch, which stays the same when the batch is done again.
        sf.unix_millis(sf.current_timestamp()).alias("now_ms"),
        "key",
        value.alias("value"),
        sf.when(in_group, headers).alias("headers"),
        *told,
    )
    topic, number = _decider(inputs)
    return columns.withColumn(DECIDER[0], topic).withColumn(DECIDER[1], number)


def verdicts(judged: DataFrame) -> DataFrame:
    """What a judge tells -> the table."""
    return judged.withColumn("original", place(sf.col("original")))


def _decider(inputs: BackfillInputs) -> tuple[Column, Column]:
    """Topic and partition that decide a record."""
    own, number, by_address = sf.col("topic"), sf.col("partition"), inputs.by_address.topic
    rendered = [topic for topic, route in inputs.by_topic.items() if _is_rendered(route)]
    if rendered:
        number = sf.when(sf.col("topic").isin(*rendered), _asked(inputs)).otherwise(number)
    for topic, route in inputs.by_topic.items():
        if route.settings.scope == "address":
            own = sf.when(sf.col("topic") == topic, by_address).otherwise(own)
            if topic not in rendered:
                constant = inputs.number(topic, None, ())
                number = sf.when(sf.col("topic") == topic, constant).otherwise(number)
    return own, number.cast("int")


def _is_rendered(route: InputRoute) -> bool:
    return route.settings.scope == "address" and route.address.constant is None


def _asked(inputs: BackfillInputs) -> Column:
    """The partition of an address that records tell."""
    routes = inputs.by_topic.values()
    fields = {piece for each in routes for piece in each.address.pieces}
    names = sorted(field.header for field in fields if isinstance(field, Field) and field.header)
    places = [inputs.header_names.index(name) for name in names]

    def numbers(topics: pd.Series, keys: pd.Series, *told: pd.Series) -> pd.Series:
        rows = zip(*told, strict=True) if told else iter([()] * len(topics))
        return pd.Series(
            [
                inputs.number(topic, key, _headers(names, row))
                for topic, key, row in zip(topics, keys, rows, strict=True)
            ],
            dtype="int32",
        )

    # Its types are told for one or two columns at a time.
    made_of = cast("Callable[[object, IntegerType], Callable[..., Column]]", pandas_udf)
    ask = made_of(numbers, IntegerType())
    return ask("topic", "key", *(f"{TOLD}{at}" for at in places))


def _headers(names: Sequence[str], row: Sequence[bytes | None]) -> list[tuple[str, bytes | None]]:
    return list(zip(names, row, strict=True))
