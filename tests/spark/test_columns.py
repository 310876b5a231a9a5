"""What the columns say of a record, on small frames and without a broker."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.testing import assertDataFrameEqual

from ringfence.headers import DeadLetter
from ringfence.spark import dead_letters, messages
from ringfence.spark_columns import CLAIM, DEAD_LETTERS, MESSAGES, RECORD

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


def ids(spark: SparkSession, *headers: Headers | None) -> list[bytes | None]:
    return [row["duplicate_id"] for row in messages(frame(spark, *headers)).collect()]


def letters(spark: SparkSession, *headers: Headers) -> list[Row]:
    return dead_letters(frame(spark, *headers)).collect()


def test_a_message_keeps_every_column_and_gains_its_id(spark: SparkSession) -> None:
    headers: Headers = [("a", b"2"), ("_DUPL_ID", b"x"), ("a", None), ("a", b"")]
    row = ("t", 0, 0, NOON, b"k", b"v", headers, b"x", *NO_CLAIM[1:], None, None)
    expected = spark.createDataFrame([row], MESSAGES)
    assertDataFrameEqual(messages(frame(spark, headers)), expected)


def test_null_and_empty_stay_apart(spark: SparkSession) -> None:
    rows: list[tuple[object, ...]] = [
        ("t", 0, 0, NOON, None, b"", []),
        ("t", 0, 1, NOON, b"", None, []),
    ]
    whole = [(*row, *NO_CLAIM, None, None) for row in rows]
    expected = spark.createDataFrame(whole, MESSAGES)
    assertDataFrameEqual(messages(spark.createDataFrame(rows, RECORD)), expected)


def test_a_record_without_headers_has_an_empty_list_and_no_id(spark: SparkSession) -> None:
    row = messages(frame(spark, None)).collect()[0]
    assert (row["headers"], row["duplicate_id"]) == ([], None)


def test_each_alias_is_read(spark: SparkSession) -> None:
    aliases = ("_DUPL_ID", "_AMQ_DUPL_ID", "_HQ_DUPL_ID")
    headers: list[Headers] = [[("other", b"no"), (alias, b"\xff\x00")] for alias in aliases]
    assert ids(spark, *headers) == [b"\xff\x00"] * 3


def test_of_several_ids_the_first_counts(spark: SparkSession) -> None:
    assert ids(spark, [("_DUPL_ID", b"1"), ("_DUPL_ID", b"2")]) == [b"1"]


def test_a_null_id_is_absent_and_an_empty_one_is_an_id(spark: SparkSession) -> None:
    null: Headers = [("_DUPL_ID", None)]
    assert ids(spark, null, [("_DUPL_ID", b"")]) == [None, b""]
    assert ids(spark, [*null, ("_HQ_DUPL_ID", b"x")]) == [b"x"]
    assert ids(spark, [*null, ("_DUPL_ID", b"second")]) == [b"second"]


def test_what_a_publisher_claims_is_typed(spark: SparkSession) -> None:
    headers: Headers = [
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
    row = ("t", 0, 0, NOON, b"k", b"v", headers, None, *claimed, "42|7|", ("flights", 2, 17))
    assertDataFrameEqual(messages(frame(spark, headers)), spark.createDataFrame([row], MESSAGES))


@pytest.mark.parametrize(
    ("header", "column"),
    [
        (("_SEQ", b"9223372036854775808"), "number"),
        (("_SEQ", b"-1"), "number"),
        (("_SEQ", b" 1"), "number"),
        (("_SEQ", b"1\n"), "number"),
        (("_PUBLISHER", b"\xff"), "publisher"),
        (("_EXPIRES_AT", b"soon"), "expires_at"),
        (("ringfence.duplicate", b""), "duplicate_of"),
    ],
)
def test_a_claim_that_cannot_be_read_is_null(
    spark: SparkSession, header: tuple[str, bytes], column: str
) -> None:
    (row,) = messages(frame(spark, [header])).collect()
    assert row[column] is None


def test_a_dead_letter_has_typed_columns(spark: SparkSession) -> None:
    headers: Headers = [("_DUPL_ID", b"UA-1545"), *OURS]
    row = ("t", 0, 0, NOON, b"k", b"v", plain(headers), b"UA-1545", *NO_CLAIM[1:])
    why = ("duplicate", "seen at Zürich", "flights", 3, 4_000_000_000, NOON, "flights", "ring")
    rest = ("UA-1545", ("flights-eu", 2, 17), 2)
    expected = spark.createDataFrame([(*row, *why, *rest)], DEAD_LETTERS)
    assertDataFrameEqual(dead_letters(frame(spark, headers)), expected)


def test_of_several_sets_only_the_last_is_read(spark: SparkSession) -> None:
    last: Headers = [(DeadLetter.REASON, b"missing-id"), (DeadLetter.OFFSET, b"7")]
    (row,) = letters(spark, [*OURS, *last])
    assert (row["reason"], row["input_offset"]) == ("missing-id", 7)
    assert (row["id"], row["original"], row["input_topic"]) == (None, None, None)


def test_a_record_that_is_no_dead_letter_has_nulls(spark: SparkSession) -> None:
    (row,) = letters(spark, [("_DUPL_ID", b"x")])
    ours = DEAD_LETTERS.fields[len(RECORD.fields) + len(CLAIM.fields) :]
    assert [row[field.name] for field in ours] == [None] * 11


def test_what_cannot_be_read_is_null_and_stops_nothing(spark: SparkSession) -> None:
    broken = [
        (DeadLetter.PARTITION, b"three", "input_partition"),
        (DeadLetter.PARTITION, b"99999999999", "input_partition"),
        (DeadLetter.OFFSET, b"", "input_offset"),
        (DeadLetter.TIMESTAMP, b"9223372036854775807", "input_timestamp"),
        (DeadLetter.TIMESTAMP, b"-1", "input_timestamp"),
        (DeadLetter.ORIGINAL, b"flights", "original"),
    ]
    rows = letters(spark, *([*OURS, (name, value)] for name, value, _ in broken))
    for row, (_, _, column) in zip(rows, broken, strict=True):
        assert row[column] is None


def test_text_that_is_not_utf_8_stops_nothing(spark: SparkSession) -> None:
    (row,) = letters(spark, [(DeadLetter.REASON, b"duplicate"), (DeadLetter.CAUSE, b"a\xffb")])
    assert row["cause"] == "a\N{REPLACEMENT CHARACTER}b"
