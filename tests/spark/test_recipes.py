"""The recipes of the page run as they are written, on tables in another folder."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from ringfence_pipeline.tables import TABLES
from tests.spark.jars import AVRO, JARS

pytestmark = pytest.mark.spark

PAGE: Final = Path(__file__).parents[2] / "docs" / "pipeline.md"
FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "address")


def recipe(about: str) -> str:
    """The block of code that follows a heading in bold."""
    text = PAGE.read_text("utf-8")
    found = re.search(rf"\*\*{about}\.\*\*.*?```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def run(spark: SparkSession, about: str, folder: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"spark": spark}
    exec(recipe(about).replace("/data/", f"{folder}/"), names)  # noqa: S102 - our own page
    return names


def append(spark: SparkSession, folder: Path, *rows: tuple[int, bytes | None, bytes]) -> None:
    """Append messages of one partition: offset, key, value."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    records = [("t.unique", 0, offset, noon, key, value, "t") for offset, key, value in rows]
    kinds = {field.name: field.dataType for field in TABLES["messages"].fields}
    schema = ", ".join(f"`{name}` {kinds[name].simpleString()}" for name in FIELDS)
    frame: DataFrame = spark.createDataFrame(records, schema)
    for name, kind in kinds.items():
        if name not in FIELDS:
            frame = frame.withColumn(name, sf.lit(None).cast(kind))
    path = str(folder / "tables" / "messages")
    frame.select(*kinds).write.format("delta").mode("append").save(path)


def test_the_latest_message_of_each_key_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    append(spark, tmp_path, (0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"2"), (3, None, b"x"))
    run(spark, "The latest message of each key", tmp_path)
    append(spark, tmp_path, (4, b"b", b"2"), (5, b"c", b"1"))
    spark.sql(f"OPTIMIZE delta.`{tmp_path}/tables/messages`").collect()
    run(spark, "The latest message of each key", tmp_path)
    latest = spark.read.format("delta").load(str(tmp_path / "latest"))
    found = {bytes(row["key"]): (row["offset"], bytes(row["value"])) for row in latest.collect()}
    assert found == {b"a": (2, b"2"), b"b": (4, b"2"), b"c": (5, b"1")}
    assert latest.count() == 3


def test_avro_payloads_of_a_producer_with_a_schema_registry_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / AVRO).symlink_to(JARS.fetched() / AVRO)
    of_schema_seven = bytes([0, 0, 0, 0, 7])
    # Avro has the length of a text before it, and every integer twice as large.
    late, early = (of_schema_seven + each for each in (b"\x04UA\xb4\x01", b"\x04DL\x0a"))
    append(spark, tmp_path, (0, b"a", late), (1, b"a", early), (2, b"a", b"no Avro"))
    found = run(spark, "Avro payloads", tmp_path)
    assert [tuple(row) for row in found["late"].collect()] == [("t.unique", 0, "UA", 90)]
    assert [row["flight"]["carrier"] for row in found["flights"].orderBy("offset").collect()] == [
        *("UA", "DL", None)
    ]


def test_payloads_and_names_are_read(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late, early = b'{"carrier": "UA", "delay": 90}', b'{"carrier": "DL", "delay": 5}'
    append(spark, tmp_path, (0, b"a", late), (1, b"a", early), (2, b"a", b"no JSON"))
    found = run(spark, "Payloads", tmp_path)["late"].collect()
    assert [tuple(row) for row in found] == [("t.unique", 0, "UA", 90)]
    run(spark, "Names in a catalog", tmp_path)
    assert "|      t|       3|" in capsys.readouterr().out
    append(spark, tmp_path, (3, b"a", early))
    assert spark.table("flights_messages").count() == 4
    spark.sql("DROP TABLE flights_messages")
