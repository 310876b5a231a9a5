"""The columns of the tables, and how each is read from a record's headers.

Bytes stay bytes: key, value and header values are binary, null apart from empty, headers in their
order with repeats. A record without headers has an empty list. What is text on the wire is typed
where it is a number or a time; what cannot be read as its type is null and never stops a stream.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ringfence.headers import DUPLICATE_ID, DUPLICATE_ID_ALIASES, DeadLetter

HEADERS: Final = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
PLACE: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
    ]
)
RECORD: Final = StructType(
    [
        *PLACE.fields,
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
    ]
)
MESSAGES: Final = StructType([*RECORD.fields, StructField("duplicate_id", BinaryType())])
DEAD_LETTERS: Final = StructType(
    [
        *RECORD.fields,
        StructField("reason", StringType()),
        StructField("cause", StringType()),
        StructField("input_topic", StringType()),
        StructField("input_partition", IntegerType()),
        StructField("input_offset", LongType()),
        StructField("input_timestamp", TimestampType()),
        StructField("address", StringType()),
        StructField("strategy", StringType()),
        StructField("id", StringType()),
        StructField("original", PLACE),
    ]
)
TABLES: Final = {"messages": MESSAGES, "dead_letters": DEAD_LETTERS}

_YEAR_9999_MS: Final = 253_402_300_799_999
"""A later time is nobody's, and would stop the stream where it overflows."""


def _named(headers: Column, name: str) -> Column:
    return sf.filter(headers, lambda header: header["key"] == name)


def duplicate_id(headers: Column) -> Column:
    """The id a message came with: of each alias the first counts, and null is absent."""
    aliases = (DUPLICATE_ID, *sorted(DUPLICATE_ID_ALIASES - {DUPLICATE_ID}))
    return sf.coalesce(*(sf.get(_named(headers, alias), sf.lit(0))["value"] for alias in aliases))


def last_set(headers: Column) -> Column:
    """The headers that the last writer of a dead letter added: from the last reason on.

    Not the last of each name: an earlier set may name what the last one leaves out.
    """
    from_end = sf.array_position(sf.reverse(headers["key"]), sf.lit(str(DeadLetter.REASON)))
    length = from_end.cast("int")
    return sf.when(length > 0, sf.slice(headers, -length, length)).otherwise(sf.array())


def text(ours: Column, name: DeadLetter) -> Column:
    """The last header of that name, as text."""
    value = sf.try_element_at(_named(ours, str(name)), sf.lit(-1))["value"]
    return sf.make_valid_utf8(value.cast("string"))


def time(digits: Column) -> Column:
    """Milliseconds since the epoch, written in decimal, as a time."""
    time_ms = digits.try_cast("bigint")
    return sf.when(time_ms.between(0, _YEAR_9999_MS), sf.timestamp_millis(time_ms))


def place(written: Column) -> Column:
    """`topic-partition@offset` as its three parts."""
    parts = [sf.regexp_extract(written, r"^(.+)-(\d+)@(\d+)$", group) for group in (1, 2, 3)]
    return sf.when(
        parts[0] != "",
        sf.struct(
            parts[0].alias("topic"),
            parts[1].try_cast("int").alias("partition"),
            parts[2].try_cast("bigint").alias("offset"),
        ),
    )
