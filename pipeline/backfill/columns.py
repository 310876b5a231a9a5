"""Columns of a backfill: from records to the input of a decider, and from there to verdicts.

A decider's input has the record's position, time and key, and a column for each header that some
check reads: of several headers with the same name the first that is not null, as in all checks.
Records of transaction groups, which are stored whole, also have their value and all headers.
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

from pipeline.backfill.decider import SparkRecord
from pipeline.backfill.inputs import BackfillInputs
from pipeline.backfill.slots import SLOT, Slots
from ringfence.headers import GROUP
from ringfence.spark.columns import PLACE, first, headers_of, place
from service.dedup.field import Field, HeaderField
from service.dedup.route import InputRoute
from state.model import PartitionId

DECIDER: Final = ("decider_topic", "decider_partition")
"""The columns of the deciding partition; each has a slot, and its own state."""

HEADER_COLUMN: Final = "header_"
"""Prefix of the header columns; the number of the header follows."""

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
"""The output of a decider."""

VERDICTS: Final = StructType(
    [StructField("original", PLACE) if f.name == "original" else f for f in JUDGED.fields]
)
"""The table of verdicts."""


def to_judge(records: DataFrame, inputs: BackfillInputs) -> DataFrame:
    """Return the decider's input for records of topics; other topics are left out."""
    headers = headers_of(sf.col("headers"))
    in_group = sf.isnotnull(first(headers, GROUP))
    header_columns = [
        first(headers, name).alias(f"{HEADER_COLUMN}{number}")
        for number, name in enumerate(inputs.header_names)
    ]
    value = sf.col("value")
    value = value if inputs.reads_values else sf.when(in_group, value)
    columns = records.where(sf.col("topic").isin(*inputs.by_topic)).select(
        *(field.name for field in PLACE.fields),
        # -1 for a record without a timestamp, as in Kafka's clients.
        sf.coalesce(sf.unix_millis("timestamp"), sf.lit(-1)).alias("timestamp_ms"),
        # In a stream this is the time of the batch, and the same if the batch is repeated.
        sf.unix_millis(sf.current_timestamp()).alias("now_ms"),
        "key",
        value.alias("value"),
        sf.when(in_group, headers).alias("headers"),
        *header_columns,
    )
    topic, number = _decider(inputs)
    decided = columns.withColumn(DECIDER[0], topic).withColumn(DECIDER[1], number)
    return decided.withColumn(SLOT, slots_of(inputs).slot(*map(sf.col, DECIDER)))


def slots_of(inputs: BackfillInputs) -> Slots:
    """Return the slots of the deciding partitions."""
    return Slots([inputs.by_address.topic, *inputs.topics])


def verdicts(judged: DataFrame) -> DataFrame:
    """Return the table of verdicts for the output of deciders."""
    return judged.withColumn("original", place(sf.col("original")))


def _decider(inputs: BackfillInputs) -> tuple[Column, Column]:
    """Return the topic and the number of the partition that decides a record."""
    own, number, by_address = sf.col("topic"), sf.col("partition"), inputs.by_address.topic
    rendered = [topic for topic, route in inputs.by_topic.items() if _is_rendered(route)]
    if rendered:
        number = sf.when(sf.col("topic").isin(*rendered), _by_fields(inputs)).otherwise(number)
    for topic, route in inputs.by_topic.items():
        if route.settings.scope == "address":
            own = sf.when(sf.col("topic") == topic, by_address).otherwise(own)
            if topic not in rendered:
                constant = inputs.number(topic, _record(None, None), ())
                number = sf.when(sf.col("topic") == topic, constant).otherwise(number)
    return own, number.cast("int")


def _is_rendered(route: InputRoute) -> bool:
    return route.settings.scope == "address" and route.address.constant is None


def _by_fields(inputs: BackfillInputs) -> Column:
    """Return the partition of an address that is rendered from each record."""
    routes = inputs.by_topic.values()
    fields = {piece for each in routes for piece in each.address.pieces if isinstance(piece, Field)}
    names = sorted(field.header for field in fields if isinstance(field, HeaderField))
    indexes = [inputs.header_names.index(name) for name in names]
    value = (
        sf.col("value") if any(field.in_value for field in fields) else sf.lit(None).cast("binary")
    )

    def numbers(
        topics: pd.Series, keys: pd.Series, values: pd.Series, *headers: pd.Series
    ) -> pd.Series:
        rows = zip(*headers, strict=True) if headers else iter([()] * len(topics))
        return pd.Series(
            [
                inputs.number(topic, _record(key, value), _headers(names, row))
                for topic, key, value, row in zip(topics, keys, values, rows, strict=True)
            ],
            dtype="int32",
        )

    # The stubs of pandas_udf allow only one or two columns.
    udf = cast("Callable[[object, IntegerType], Callable[..., Column]]", pandas_udf)
    partition_of = udf(numbers, IntegerType())
    return partition_of("topic", "key", value, *(f"{HEADER_COLUMN}{index}" for index in indexes))


def _record(key: bytes | None, value: bytes | None) -> SparkRecord:
    """Return a record of which only key and value are known."""
    return SparkRecord(PartitionId("", 0), 0, 0, key, value, ())


def _headers(names: Sequence[str], row: Sequence[bytes | None]) -> list[tuple[str, bytes | None]]:
    return list(zip(names, row, strict=True))
