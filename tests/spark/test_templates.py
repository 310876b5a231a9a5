"""Templates as columns give what the service makes of the same records."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from ringfence_client.spark.columns import RECORD
from ringfence_pipeline.templates import filled, filled_text, input_topic
from ringfence_service.dedup.claim import identifier_of
from ringfence_service.dedup.dead_letter import RedrivenRecord
from ringfence_service.dedup.field import UnrenderableError
from ringfence_service.dedup.route import Template

pytestmark = pytest.mark.spark

HEADERS: list[tuple[str, bytes | None]] = [("A", None), ("A", b"x"), ("A", b"y"), ("B", b"\xff")]
RECORDS = [
    (b"key", b"value", HEADERS),
    (None, None, []),
    (b"\xff", b"", HEADERS),
    (b'{"n": 1}', b'{"a": {"b": "x", "c": [1.0, true]}, "a/b": 12345678901234567890}', HEADERS),
    (b"[]", b'{"a": {"b": "\\ud800", "c": {}}}', []),
    (b"a-\\b", b'{"a": {"b": " X\\u00c4 "}}', HEADERS),
]


def letter(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> RedrivenRecord:
    return RedrivenRecord(0, "orders", 0, 0, 0, key, value, tuple(headers), 0)


def rendered(template: str, record: RedrivenRecord) -> str | None:
    try:
        return Template.parse(template, "orders").render(record, record.headers, "")
    except UnrenderableError:
        return None


def test_addresses_and_ids_are_those_of_the_service(spark: SparkSession) -> None:
    addresses = ["{topic}", "all", "{key}", "a.{topic}.{header:A}", "{header:B}", "{header:none}"]
    addresses += ["{json:/a/b}", "{key-json:/n}.{json:/a~1b}", "{json:/a/c/1}"]
    addresses += ["{header:A}{topic}{header:A or key}", "{plain}{key}.{header:A}"]
    ids = ["{key}", "{header:B}-{key}", "v{sha256:value}", "{json:/a/c/0}"]
    ids += ["{key}{header:B}{json:/a/b}", "{plain}{key}{header:B}", "{key}-{header:A}"]
    ids += [
        "{json:/none or header:A or key}",
        "{lower:trim:json:/a/b}",
        "{sha256-json:/a without /c}",
    ]
    records = spark.createDataFrame(
        [("orders", 0, n, None, *r) for n, r in enumerate(RECORDS)], RECORD
    )
    columns = [filled_text(template, sf.col("topic")) for template in addresses]
    columns += [filled(template, sf.col("topic")) for template in ids]
    found = records.orderBy("offset").select(*columns).collect()
    for number, template in enumerate(addresses):
        expected = [rendered(template, letter(*each)) for each in RECORDS]
        assert [row[number] for row in found] == expected, template
    for number, template in enumerate(ids, len(addresses)):
        identifier = identifier_of(template)
        assert identifier is not None
        made = [identifier.of(letter(*each), each[2]) for each in RECORDS]
        assert [row[number] and bytes(row[number]) for row in found] == made, template


def test_the_input_of_an_output_is_derived_from_the_template(spark: SparkSession) -> None:
    topics = ["a.b.unique", "a.b", ".unique"]
    frame = spark.createDataFrame([(topic,) for topic in topics], "topic string")
    found = frame.select(input_topic("{topic}.unique", sf.col("topic"))).collect()
    assert [row[0] for row in found] == ["a.b", "a.b", ".unique"]
