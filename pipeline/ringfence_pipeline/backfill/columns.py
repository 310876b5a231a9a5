"""Columns of a backfill: from records to the input of a decider, and from there to verdicts.

What a task sends to Python costs by the column, so it has few: partitions are numbers, and a record
whose only header that a check reads is its id has that as a column and nothing else. What a check
needs of any other record is in `rest`, as JSON: the headers that some check reads, or the whole
record if it belongs to a transaction group, which is stored whole.
"""

from collections.abc import Callable, Mapping, Sequence
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

from ringfence_client.headers import DUPLICATE_ID_ALIASES, GROUP, ID_BYTES_MAX
from ringfence_client.spark.columns import PLACE, first, headers_of, place
from ringfence_pipeline.backfill.decider import SparkRecord
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.slots import SLOT, Slots
from ringfence_service.dedup.claim import NOT_PLAIN
from ringfence_service.dedup.field import Field, HeaderField, KeyField
from ringfence_service.dedup.route import InputRoute
from ringfence_state.model import PartitionId

PLACE_INDEX: Final = "place"
"""The column with the index of a record's own partition, as `Slots` counts them."""

JUDGED: Final = StructType(
    [
        StructField(PLACE_INDEX, LongType()),
        StructField("offset", LongType()),
        StructField("timestamp_ms", LongType()),
        StructField(SLOT, LongType()),
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
    [
        *PLACE.fields,
        StructField("timestamp_ms", LongType()),
        StructField("decider_topic", StringType()),
        StructField("decider_partition", IntegerType()),
        *(field for field in JUDGED.fields[4:-1]),
        StructField("original", PLACE),
    ]
)
"""The table of verdicts."""


def to_judge(records: DataFrame, inputs: BackfillInputs) -> DataFrame:
    """Return the decider's input for records of topics; other topics are left out.

    `id` is the id if it alone takes the record to a verdict, and `rest` is null if no check reads
    more of its headers. `named` is there if the key or a header alone decides the address of some
    topic, `key` and `value` if a template reads them.
    """
    slots, plain = slots_of(inputs), _plain_id(inputs)
    whole = {
        "headers": headers_of(sf.col("headers")),
        "key": sf.col("key"),
        "value": sf.col("value"),
        "is_header_read": _is_header_read(inputs),
    }
    optional = {
        "named": _naming(inputs),
        "key": sf.col("key") if inputs.reads_keys else None,
        "value": sf.col("value") if inputs.reads_values else None,
    }
    more = {name: column.alias(name) for name, column in optional.items() if column is not None}
    # Each projection copies its rows, so the first one leaves out what nothing reads.
    found = records.where(sf.col("topic").isin(*inputs.by_topic)).select(
        slots.slot(slots.index(*_decider(inputs))).alias(SLOT),
        slots.index(sf.col("topic"), sf.col("partition")).alias(PLACE_INDEX),
        "offset",
        # -1 for a record without a timestamp, as in Kafka's clients.
        sf.coalesce(sf.unix_millis("timestamp"), sf.lit(-1)).alias("timestamp_ms"),
        plain.alias("plain"),
        sf.when(plain.isNull(), _struct(whole)).alias("other"),
        *more.values(),
    )
    found = found.withColumn("read", _named(sf.col("other")["headers"], inputs.header_names))
    found = found.withColumn("id", sf.coalesce("plain", _identified()))
    return found.select(
        SLOT,
        PLACE_INDEX,
        "offset",
        "timestamp_ms",
        _now_ms().alias("now_ms"),
        "id",
        sf.when(sf.isnotnull("other"), _rest(inputs)).alias("rest"),
        *more,
    )


def _plain_id(inputs: BackfillInputs) -> Column:
    """Return the id of a record that has no other header, or null."""
    only = sf.get("headers", sf.lit(0))
    is_id = (sf.size("headers") == 1) & only["key"].isin(*DUPLICATE_ID_ALIASES)
    is_short = sf.octet_length(only["value"]) <= ID_BYTES_MAX
    return sf.when(is_id & is_short & _is_header_read(inputs), only["value"])


def _is_header_read(inputs: BackfillInputs) -> Column:
    """Return whether the id of a record is that of a header, and not of its topic's template."""
    templated = [topic for topic, route in inputs.by_topic.items() if route.settings.id]
    return ~sf.col("topic").isin(*templated)


def _struct(fields: Mapping[str, Column]) -> Column:
    return sf.struct(*(column.alias(name) for name, column in fields.items()))


def _now_ms() -> Column:
    """Return the time of the batch in a stream, which is the same if the batch is repeated.

    Spark writes the time as a number into the code that it generates for most expressions, and
    would compile that code again for each batch. It evaluates a lambda function without generated
    code.
    """
    now_ms = sf.unix_millis(sf.current_timestamp())
    return sf.get(sf.transform(sf.array(now_ms), lambda time_ms: time_ms), sf.lit(0))


def _rest(inputs: BackfillInputs) -> Column:
    """Return what a check needs of a record beside its id, as JSON, or null.

    Spark writes binary values as base64, and leaves null fields out.
    """
    other = sf.col("other")
    in_group = sf.exists("read", _is_of_group)
    named = inputs.named_headers
    unnamed = (
        sf.filter("read", lambda header: ~header["key"].isin(*named)) if named else sf.col("read")
    )
    has_only_id = sf.isnotnull("id") & (sf.size(unnamed) == 1)
    headers = sf.when(in_group, other["headers"]).otherwise(sf.col("read"))
    needed = {"headers": headers}
    if not inputs.reads_keys:
        needed["key"] = sf.when(sf.isnull("id") | in_group, other["key"])
    if not inputs.reads_values:
        needed["value"] = sf.when(in_group, other["value"])
    return sf.when(in_group | ~has_only_id, sf.to_json(_struct(needed)))


def _named(headers: Column, names: Sequence[str]) -> Column:
    return sf.filter(headers, lambda header: header["key"].isin(*names))


def _is_of_group(header: Column) -> Column:
    return (header["key"] == GROUP) & header["value"].isNotNull()


def _identified() -> Column:
    """Return the id if it alone takes the record to a verdict, or null, as `plain_ids` does."""
    relevant = _named(sf.col("read"), [*sorted(DUPLICATE_ID_ALIASES), *sorted(NOT_PLAIN)])
    first = sf.get(relevant, sf.lit(0))
    is_alone = (sf.size(relevant) == 1) & first["key"].isin(*DUPLICATE_ID_ALIASES)
    is_short = sf.octet_length(first["value"]) <= ID_BYTES_MAX
    return sf.when(sf.col("other")["is_header_read"] & is_alone & is_short, first["value"])


def _naming(inputs: BackfillInputs) -> Column | None:
    """Return the value of the field that alone decides the address of a record's topic, or null.

    Returns None if no topic has such a field.
    """
    found = None
    for topic, route in inputs.by_topic.items():
        match route.address.field:
            case KeyField():
                value = sf.col("key")
            case HeaderField(header):
                value = first(sf.col("headers"), header)
            case _:
                continue
        others = sf.lit(None).cast("binary") if found is None else found
        found = sf.when(sf.col("topic") == topic, value).otherwise(others)
    return found


def slots_of(inputs: BackfillInputs) -> Slots:
    """Return the slots of the deciding partitions."""
    return Slots([inputs.by_address.topic, *inputs.topics])


def verdicts(judged: DataFrame, inputs: BackfillInputs) -> DataFrame:
    """Return the table of verdicts for the output of deciders."""
    slots = slots_of(inputs)
    topic, partition = slots.columns(sf.col(PLACE_INDEX))
    decider_topic, decider_partition = slots.columns(sf.col(SLOT))
    found = {
        "topic": topic,
        "partition": partition,
        "decider_topic": decider_topic,
        "decider_partition": decider_partition,
        "original": place(sf.col("original")),
    }
    return judged.select(*(found.get(name, sf.col(name)).alias(name) for name in VERDICTS.names))


def _decider(inputs: BackfillInputs) -> tuple[Column, Column]:
    """Return the topic and the number of the partition that decides a record."""
    own, number, by_address = sf.col("topic"), sf.col("partition"), inputs.by_address.topic
    rendered = [topic for topic, route in inputs.by_topic.items() if _is_rendered(route)]
    if rendered:
        number = sf.when(sf.col("topic").isin(*rendered), _by_fields(inputs)).otherwise(number)
    for topic, route in inputs.by_topic.items():
        if route.settings.is_repartitioned:
            own = sf.when(sf.col("topic") == topic, by_address).otherwise(own)
            if topic not in rendered:
                constant = inputs.number(PartitionId(topic, 0), _record(None, None), ())
                number = sf.when(sf.col("topic") == topic, constant).otherwise(number)
    return own, number.cast("int")


def _is_rendered(route: InputRoute) -> bool:
    scope = route.settings.scope
    return scope == "id" or (scope == "address" and route.address.constant is None)


def _by_fields(inputs: BackfillInputs) -> Column:
    """Return the partition that follows from an address, or an id, which each record has."""
    routes = inputs.by_topic.values()
    pieces = {piece for each in routes for piece in each.address.pieces}
    fields = {part for piece in pieces if isinstance(piece, Field) for part in piece.parts}
    headers = {field.header for field in fields if isinstance(field, HeaderField)}
    if any(route.settings.scope == "id" for route in routes):
        fields, headers = set(inputs.fields), {*headers, *inputs.header_names}
    names = sorted(headers)
    value = (
        sf.col("value") if any(field.in_value for field in fields) else sf.lit(None).cast("binary")
    )

    def numbers(
        topics: pd.Series,
        partitions: pd.Series,
        keys: pd.Series,
        values: pd.Series,
        *headers: pd.Series,
    ) -> pd.Series:
        rows = zip(*headers, strict=True) if headers else iter([()] * len(topics))
        sources = map(PartitionId, topics, partitions)
        return pd.Series(
            [
                inputs.number(source, _record(key, value), _headers(names, row))
                for source, key, value, row in zip(sources, keys, values, rows, strict=True)
            ],
            dtype="int32",
        )

    # The stubs of pandas_udf allow only one or two columns.
    udf = cast("Callable[[object, IntegerType], Callable[..., Column]]", pandas_udf)
    partition_of = udf(numbers, IntegerType())
    columns = (first(sf.col("headers"), name) for name in names)
    return partition_of("topic", "partition", "key", value, *columns)


def _record(key: bytes | None, value: bytes | None) -> SparkRecord:
    """Return a record of which only key and value are known."""
    return SparkRecord(PartitionId("", 0), 0, 0, key, value, ())


def _headers(names: Sequence[str], row: Sequence[bytes | None]) -> list[tuple[str, bytes | None]]:
    return list(zip(names, row, strict=True))
