"""Templates as columns give what the service makes of the same records."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from pipeline.templates import filled, filled_text, input_topic
from ringfence.spark_columns import RECORD
from service.identifier import identifier_of
from service.letter_values import Letter
from service.route import Template, UnrenderableError

pytestmark = pytest.mark.spark

HEADERS: list[tuple[str, bytes | None]] = [("A", None), ("A", b"x"), ("A", b"y"), ("B", b"\xff")]
RECORDS = [(b"key", b"value", HEADERS), (None, None, []), (b"\xff", b"", HEADERS)]


def letter(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> Letter:
    return Letter(0, "orders", 0, 0, 0, key, value, tuple(headers), 0)


def rendered(template: str, record: Letter) -> str | None:
    try:
        return Template.parse(template, "orders").render(record.key(), record.headers, "")
    except UnrenderableError:
        return None


@pytest.mark.parametrize(
    "template", ["{topic}", "all", "{key}", "a.{topic}.{header:A}", "{header:B}", "{header:none}"]
)
def test_an_address_is_the_service_s(spark: SparkSession, template: str) -> None:
    rows = [("orders", 0, 0, None, *record) for record in RECORDS]
    frame = spark.createDataFrame(rows, RECORD)
    found = frame.select(filled_text(template, sf.col("topic"))).collect()
    assert [row[0] for row in found] == [rendered(template, letter(*each)) for each in RECORDS]


@pytest.mark.parametrize("template", ["{key}", "{header:B}-{key}", "v{sha256:value}"])
def test_an_id_is_the_service_s(spark: SparkSession, template: str) -> None:
    rows = [("orders", 0, 0, None, *record) for record in RECORDS]
    frame = spark.createDataFrame(rows, RECORD)
    identifier = identifier_of(template)
    assert identifier is not None
    expected = [identifier.of(letter(*each), each[2]) for each in RECORDS]
    found = frame.select(filled(template, sf.col("topic"))).collect()
    assert [row[0] and bytes(row[0]) for row in found] == expected


def test_the_input_of_an_output_is_told_by_the_template(spark: SparkSession) -> None:
    topics = ["a.b.unique", "a.b", ".unique"]
    frame = spark.createDataFrame([(topic,) for topic in topics], "topic string")
    found = frame.select(input_topic("{topic}.unique", sf.col("topic"))).collect()
    assert [row[0] for row in found] == ["a.b", "a.b", ".unique"]
