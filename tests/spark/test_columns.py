"""What the columns say of a record, on small frames and without a broker."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from ringfence_client.headers import DeadLetter
from ringfence_client.spark.columns import CLAIM, DEAD_LETTERS, MESSAGES, RECORD
from ringfence_client.spark.reader import dead_letters, messages

pytestmark = pytest.mark.spark

Headers = list[tuple[str, bytes | None]]
NOON = datetime(2013, 1, 1, 12, 0, 0, 123000, tzinfo=UTC)
OURS: Headers = [
    (DeadLetter.REASON, b"duplicate"),
    (DeadLetter.CAUSE, "seen at Zürich".encode()),
    (DeadLetter.TOPIC, b"flights"),
    (DeadLetter.PARTITION, b"3"),
    (DeadLetter.OFFSET, b"4000000000"),
    (DeadLetter.TIMESTAMP, b"1357041600123"),
    (DeadLetter.ADDRESS, b"flights"),
    (DeadLetter.STRATEGY, b"ring"),
    (DeadLetter.ID, b"UA-1545"),
    (DeadLetter.ORIGINAL, b"flights-eu-2@17"),
    (DeadLetter.REDRIVES, b"2"),
]
NO_CLAIM: tuple[None, ...] = (None,) * len(CLAIM)


def plain(headers: Headers | None) -> Headers | None:
    """Spark takes plain strings, no members of an enumeration."""
    return headers and [(str(name), value) for name, value in headers]


def frame(spark: SparkSession, *headers: Headers | None) -> DataFrame:
    rows = [("t", 0, offset, NOON, b"k", b"v", plain(one)) for offset, one in enumerate(headers)]
    return spark.createDataFrame(rows, RECORD)


def types(table: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in table.schema]


def test_a_message_keeps_every_column_and_gains_its_id_and_its_claims(
    spark: SparkSession,
) -> None:
    named: Headers = [("a", b"2"), ("_DUPL_ID", b"x"), ("a", None), ("a", b"")]
    claims: Headers = [
        ("_PUBLISHER", "Zürich".encode()),
        ("_SEQ", b"9223372036854775807"),
        ("_SEQ_ID", b"2"),
        ("_PREV", b"0"),
        ("_PUBLISHER_EPOCH", b"7"),
        ("_TX_ID", b"\xff"),
        ("_TX_SIZE", b"3"),
        ("_TX_SEQ", b"1"),
        ("_EXPIRES_AT", b"1357041600123"),
        ("_BOOKMARK", b"42|7|"),
        ("ringfence.duplicate", b"flights-2@17"),
    ]
    claimed = ("Zürich", 2**63 - 1, 2, 0, 7, b"\xff", 3, 1, NOON)
    given: list[tuple[object, ...]] = [
        ("t", 0, 0, NOON, b"k", b"v", named),
        ("t", 0, 1, NOON, None, b"", []),
        ("t", 0, 2, NOON, b"", None, []),
        ("t", 0, 3, NOON, b"k", b"v", claims),
    ]
    gained: list[tuple[object, ...]] = [
        (b"x", *NO_CLAIM[1:], None, None),
        (*NO_CLAIM, None, None),
        (*NO_CLAIM, None, None),
        (None, *claimed, "42|7|", ("flights", 2, 17)),
    ]
    whole = [(*one, *more) for one, more in zip(given, gained, strict=True)]
    expected = spark.createDataFrame(whole, MESSAGES)
    found = messages(spark.createDataFrame(given, RECORD))
    assert types(found) == types(expected)
    assert found.collect() == expected.collect()


def test_the_id_is_the_first_of_any_name_that_is_not_null(spark: SparkSession) -> None:
    null: Headers = [("_DUPL_ID", None)]
    aliases = ("_DUPL_ID", "_AMQ_DUPL_ID", "_HQ_DUPL_ID")
    named: list[Headers] = [[("other", b"no"), (alias, b"\xff\x00")] for alias in aliases]
    cases: list[tuple[Headers | None, bytes | None]] = [
        *((headers, b"\xff\x00") for headers in named),
        ([("_DUPL_ID", b"1"), ("_DUPL_ID", b"2")], b"1"),
        (null, None),
        ([("_DUPL_ID", b"")], b""),
        ([*null, ("_HQ_DUPL_ID", b"x")], b"x"),
        ([*null, ("_DUPL_ID", b"second")], b"second"),
        (None, None),
    ]
    rows = messages(frame(spark, *(headers for headers, _ in cases))).collect()
    assert [row["duplicate_id"] for row in rows] == [expected for _, expected in cases]
    assert rows[-1]["headers"] == []


def test_a_claim_that_cannot_be_read_is_null(spark: SparkSession) -> None:
    cases = [
        ("_SEQ", b"9223372036854775808", "number"),
        ("_SEQ", b"-1", "number"),
        ("_SEQ", b" 1", "number"),
        ("_SEQ", b"1\n", "number"),
        ("_PUBLISHER", b"\xff", "publisher"),
        ("_EXPIRES_AT", b"soon", "expires_at"),
        ("ringfence.duplicate", b"", "duplicate_of"),
    ]
    claims: list[Headers] = [[(name, value)] for name, value, _ in cases]
    rows = messages(frame(spark, *claims)).collect()
    assert [row[column] for row, (_, _, column) in zip(rows, cases, strict=True)] == [None] * 7


def test_a_dead_letter_has_typed_columns(spark: SparkSession) -> None:
    headers: Headers = [("_DUPL_ID", b"UA-1545"), *OURS]
    row = ("t", 0, 0, NOON, b"k", b"v", plain(headers), b"UA-1545", *NO_CLAIM[1:])
    why = ("duplicate", "seen at Zürich", "flights", 3, 4_000_000_000, NOON, "flights", "ring")
    rest = ("UA-1545", ("flights-eu", 2, 17), 2)
    expected = spark.createDataFrame([(*row, *why, *rest)], DEAD_LETTERS)
    found = dead_letters(frame(spark, headers))
    assert types(found) == types(expected)
    assert found.collect() == expected.collect()


def test_what_a_dead_letter_lacks_or_cannot_be_read_is_null_and_stops_nothing(
    spark: SparkSession,
) -> None:
    last: Headers = [(DeadLetter.REASON, b"missing-id"), (DeadLetter.OFFSET, b"7")]
    broken = [
        (DeadLetter.PARTITION, b"three", "input_partition"),
        (DeadLetter.PARTITION, b"99999999999", "input_partition"),
        (DeadLetter.OFFSET, b"", "input_offset"),
        (DeadLetter.TIMESTAMP, b"9223372036854775807", "input_timestamp"),
        (DeadLetter.TIMESTAMP, b"-1", "input_timestamp"),
        (DeadLetter.ORIGINAL, b"flights", "original"),
    ]
    several, none, latin, *rows = dead_letters(
        frame(
            spark,
            [*OURS, *last],
            [("_DUPL_ID", b"x")],
            [(DeadLetter.REASON, b"duplicate"), (DeadLetter.CAUSE, b"a\xffb")],
            *([*OURS, (name, value)] for name, value, _ in broken),
        )
    ).collect()
    # Of several sets only the last is read.
    assert (several["reason"], several["input_offset"]) == ("missing-id", 7)
    assert (several["id"], several["original"], several["input_topic"]) == (None, None, None)
    ours = DEAD_LETTERS.fields[len(RECORD.fields) + len(CLAIM.fields) :]
    assert [none[field.name] for field in ours] == [None] * 11
    assert latin["cause"] == "a\N{REPLACEMENT CHARACTER}b"
    assert [row[column] for row, (_, _, column) in zip(rows, broken, strict=True)] == [None] * 6
