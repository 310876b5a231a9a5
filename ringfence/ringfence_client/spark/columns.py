"""Spark columns of Ringfence's topics, and how each is read from a record's headers.

Key, value, header values and ids are binary; null differs from empty. Headers keep their order and
repeats; a record without headers has an empty list. Numbers, times and positions, which are text in
headers, have typed columns; text that cannot be parsed becomes null and never stops a stream. Of
several headers with the same name the first that is not null counts, as in the service.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ringfence_client.headers import (
    BOOKMARK,
    DUPLICATE_ID,
    DUPLICATE_ID_ALIASES,
    EPOCH,
    EXPIRES_AT,
    GROUP,
    GROUP_POSITION,
    GROUP_SIZE,
    MARK,
    NUMBER,
    PREVIOUS,
    PUBLISHER,
    STREAM,
    DeadLetter,
)


def _schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


HEADERS: Final = ArrayType(_schema(key=StringType(), value=BinaryType()))
PLACE: Final = _schema(topic=StringType(), partition=IntegerType(), offset=LongType())
RECORD: Final = StructType(
    [
        *PLACE.fields,
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
    ]
)
CLAIM: Final = _schema(
    duplicate_id=BinaryType(),
    publisher=StringType(),
    number=LongType(),
    stream=LongType(),
    previous=LongType(),
    epoch=LongType(),
    tx_id=BinaryType(),
    tx_size=LongType(),
    tx_position=LongType(),
    expires_at=TimestampType(),
)
"""What a record's headers claim."""
MESSAGES: Final = StructType(
    [
        *RECORD.fields,
        *CLAIM.fields,
        StructField("bookmark", StringType()),
        StructField("duplicate_of", PLACE),
    ]
)
DEAD_LETTERS: Final = StructType(
    [
        *RECORD.fields,
        *CLAIM.fields,
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
        StructField("redrives", LongType()),
    ]
)

_YEAR_9999_MS: Final = 253_402_300_799_999
"""Later times are read as null, since they would overflow and stop the stream."""
_DIGITS: Final = r"^[0-9]{1,19}\z"


def headers_of(headers: Column) -> Column:
    """Return the headers; an empty list if the record has none."""
    return sf.coalesce(headers, sf.array().cast(HEADERS))


def first(headers: Column, name: str) -> Column:
    """Return the value of the first header of that name that is not null."""
    found = sf.filter(headers, lambda header: (header["key"] == name) & ~header["value"].isNull())
    return sf.get(found, sf.lit(0))["value"]


def duplicate_id(headers: Column) -> Column:
    """Return the duplicate id; in an accepted message all its aliases are equal."""
    aliases = (DUPLICATE_ID, *sorted(DUPLICATE_ID_ALIASES - {DUPLICATE_ID}))
    return sf.coalesce(*(first(headers, alias) for alias in aliases))


def claim(headers: Column) -> list[Column]:
    """Return the columns of `CLAIM`."""
    columns = {
        "duplicate_id": duplicate_id(headers),
        "publisher": sf.try_validate_utf8(first(headers, PUBLISHER).cast("string")),
        "number": number(first(headers, NUMBER)),
        "stream": number(first(headers, STREAM)),
        "previous": number(first(headers, PREVIOUS)),
        "epoch": number(first(headers, EPOCH)),
        "tx_id": first(headers, GROUP),
        "tx_size": number(first(headers, GROUP_SIZE)),
        "tx_position": number(first(headers, GROUP_POSITION)),
        "expires_at": time(first(headers, EXPIRES_AT)),
    }
    return [column.alias(name) for name, column in columns.items()]


def outcome(headers: Column) -> list[Column]:
    """Return the columns that the service adds to an output message.

    Of each header name, the last one counts.
    """
    return [
        text(headers, BOOKMARK).alias("bookmark"),
        place(text(headers, MARK)).alias("duplicate_of"),
    ]


def verdict(headers: Column) -> list[Column]:
    """Return the columns that the service adds to a dead letter."""
    ours = last_set(headers)
    columns = {
        "reason": text(ours, DeadLetter.REASON),
        "cause": text(ours, DeadLetter.CAUSE),
        "input_topic": text(ours, DeadLetter.TOPIC),
        "input_partition": text(ours, DeadLetter.PARTITION).try_cast("int"),
        "input_offset": text(ours, DeadLetter.OFFSET).try_cast("bigint"),
        "input_timestamp": time(text(ours, DeadLetter.TIMESTAMP)),
        "address": text(ours, DeadLetter.ADDRESS),
        "strategy": text(ours, DeadLetter.STRATEGY),
        "id": text(ours, DeadLetter.ID),
        "original": place(text(ours, DeadLetter.ORIGINAL)),
        "redrives": text(ours, DeadLetter.REDRIVES).try_cast("bigint"),
    }
    return [column.alias(name) for name, column in columns.items()]


def last_set(headers: Column) -> Column:
    """Return the headers that the last writer of a dead letter added: from the last reason on.

    The last header of each name would be wrong: an earlier set may have names that the last set
    lacks.
    """
    from_end = sf.array_position(sf.reverse(headers["key"]), sf.lit(str(DeadLetter.REASON)))
    length = from_end.cast("int")
    return sf.when(length > 0, sf.slice(headers, -length, length)).otherwise(sf.array())


def text(headers: Column, name: str) -> Column:
    """Return the last header of that name, as text."""
    named = sf.filter(headers, lambda header: header["key"] == str(name))
    return sf.make_valid_utf8(sf.try_element_at(named, sf.lit(-1))["value"].cast("string"))


def number(value: Column) -> Column:
    """Return a number written as in the contract: decimal digits, up to 2^63 - 1; else null."""
    digits = value.cast("string")
    return sf.when(digits.rlike(_DIGITS), digits.try_cast("bigint"))


def time(digits: Column) -> Column:
    """Return decimal milliseconds since the epoch as a timestamp, or null."""
    time_ms = digits.cast("string").try_cast("bigint")
    return sf.when(time_ms.between(0, _YEAR_9999_MS), sf.timestamp_millis(time_ms))


def place(written: Column) -> Column:
    """Return the topic, partition and offset of `topic-partition@offset`, or null."""
    parts = [sf.regexp_extract(written, r"^(.+)-(\d+)@(\d+)$", group) for group in (1, 2, 3)]
    return sf.when(
        parts[0] != "",
        sf.struct(
            parts[0].alias("topic"),
            parts[1].try_cast("int").alias("partition"),
            parts[2].try_cast("bigint").alias("offset"),
        ),
    )
