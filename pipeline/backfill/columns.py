"""Columns of a backfill: from records to the input of a decider, and from there to verdicts.

Most records have one header that a check reads, the id. A decider gets it as a column, and neither
headers nor key or value, so that such records can be decided in columns. Other records have the
headers that some check reads. Records of transaction groups, which are stored whole, have all.
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
from ringfence.headers import DUPLICATE_ID_ALIASES, GROUP, ID_BYTES_MAX
from ringfence.spark.columns import PLACE, first, headers_of, place
from service.dedup.claim import NOT_PLAIN
from service.dedup.field import Field, HeaderField, KeyField
from service.dedup.route import InputRoute
from state.model import PartitionId

DECIDER: Final = ("decider_topic", "decider_partition")
"""The columns of the deciding partition; each has a slot, and its own state."""

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
    """Return the decider's input for records of topics; other topics are left out.

    A record whose only header that a check reads is its id has that in `id`, and no `headers`. Any
    other has the headers that some check reads, or all of them in a group. `named` is the field
    that alone decides the address, where it is the key or a header.
    """
    found = records.where(sf.col("topic").isin(*inputs.by_topic))
    found = found.withColumn("headers", headers_of(sf.col("headers")))
    only = sf.get("headers", sf.lit(0))
    has_only_id = (sf.size("headers") == 1) & only["key"].isin(*DUPLICATE_ID_ALIASES)
    read = sf.when(~has_only_id, _named("headers", inputs.header_names))
    found = found.withColumn("read", read).withColumn("identified", _identified(inputs, only))
    in_group = sf.isnotnull("read") & sf.exists("read", _is_of_group)
    named = inputs.named_headers
    rest = sf.filter("read", lambda header: ~header["key"].isin(*named)) if named else read
    is_bare = sf.isnotnull("identified") & (sf.isnull("read") | (sf.size(rest) == 1))
    headers = (
        sf.when(in_group, sf.col("headers"))
        .when(~is_bare, sf.coalesce("read", "headers"))
        .alias("headers")
    )
    is_needed = sf.isnull("identified") | sf.lit(inputs.reads_keys)
    topic, number = _decider(inputs)
    columns = found.select(
        *(field.name for field in PLACE.fields),
        # -1 for a record without a timestamp, as in Kafka's clients.
        sf.coalesce(sf.unix_millis("timestamp"), sf.lit(-1)).alias("timestamp_ms"),
        # In a stream this is the time of the batch, and the same if the batch is repeated.
        sf.unix_millis(sf.current_timestamp()).alias("now_ms"),
        sf.col("identified").alias("id"),
        _naming(inputs).alias("named"),
        sf.when(is_needed | in_group, sf.col("key")).alias("key"),
        sf.when(sf.lit(inputs.reads_values) | in_group, sf.col("value")).alias("value"),
        headers,
        topic.alias(DECIDER[0]),
        number.alias(DECIDER[1]),
    )
    return columns.withColumn(SLOT, slots_of(inputs).slot(*map(sf.col, DECIDER)))


def _named(headers: str, names: Sequence[str]) -> Column:
    return sf.filter(headers, lambda header: header["key"].isin(*names))


def _is_of_group(header: Column) -> Column:
    return (header["key"] == GROUP) & header["value"].isNotNull()


def _identified(inputs: BackfillInputs, only: Column) -> Column:
    """Return the id if it alone takes the record to a verdict, or null, as `plain_ids` does."""
    relevant = _named("read", [*sorted(DUPLICATE_ID_ALIASES), *sorted(NOT_PLAIN)])
    first = sf.get(relevant, sf.lit(0))
    is_alone = (sf.size(relevant) == 1) & first["key"].isin(*DUPLICATE_ID_ALIASES)
    found = sf.when(sf.isnull("read"), only["value"]).when(is_alone, first["value"])
    templated = [topic for topic, route in inputs.by_topic.items() if route.settings.id]
    if templated:
        found = sf.when(~sf.col("topic").isin(*templated), found)
    return sf.when(sf.octet_length(found) <= ID_BYTES_MAX, found)


def _naming(inputs: BackfillInputs) -> Column:
    """Return the value of the field that alone decides the address of a record's topic, or null."""
    found = sf.lit(None).cast("binary")
    for topic, route in inputs.by_topic.items():
        match route.address.field:
            case KeyField():
                value = sf.col("key")
            case HeaderField(header):
                value = first(sf.col("headers"), header)
            case _:
                continue
        found = sf.when(sf.col("topic") == topic, value).otherwise(found)
    return found


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
    headers = (first(sf.col("headers"), name) for name in names)
    return partition_of("topic", "key", value, *headers)


def _record(key: bytes | None, value: bytes | None) -> SparkRecord:
    """Return a record of which only key and value are known."""
    return SparkRecord(PartitionId("", 0), 0, 0, key, value, ())


def _headers(names: Sequence[str], row: Sequence[bytes | None]) -> list[tuple[str, bytes | None]]:
    return list(zip(names, row, strict=True))
