"""Quality views count every record once, and measure a copy from the message that it repeats."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from typer.testing import Result

from ringfence.spark import quality
from ringfence_pipeline.errors import CONTRADICTION
from ringfence_pipeline.tables import TABLES

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


class Tables(NamedTuple):
    """Two small tables, and the folder that they are in."""

    messages: DataFrame
    letters: DataFrame
    target: Path


def row(name: str, **values: object) -> tuple[object, ...]:
    return tuple(values.get(field) for field in TABLES[name].fieldNames())


def message(minute: float, name: bytes | None, **values: object) -> tuple[object, ...]:
    return row(
        "messages",
        **{"timestamp": at(minute), "day": at(minute).date(), "duplicate_id": name}
        | {"key": b"k", "address": "orders", "publisher": "web"}
        | values,
    )


def letter(minute: float, name: bytes | None, **values: object) -> tuple[object, ...]:
    """A dead letter of a record of that time, decided an hour later."""
    return row(
        "dead_letters",
        **{"timestamp": at(minute + 60), "day": at(minute + 60).date(), "duplicate_id": name}
        | {"input_timestamp": at(minute), "reason": "duplicate", "key": b"k", "publisher": "web"}
        | {"address": "orders", "input_topic": "orders", "input_partition": 1}
        | {"cause": "its id was accepted at orders-1@7 already"}
        | values,
    )


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    target = tmp_path_factory.mktemp("quality")
    rows = {
        "messages": [
            message(0, b"a"),
            message(1, b"b", publisher=None),
            message(90, b"a"),  # forgotten meanwhile, and accepted again
            message(91, None, address="prices", publisher=None),
            message(92, b"b", duplicate_of=("orders", 1, 8)),  # marked, and let through
        ],
        "dead_letters": [
            letter(2, b"a", original=("orders", 1, 7), input_offset=17),
            letter(95, b"a", original=("orders", 2, 7), input_offset=99),
            letter(95, b"a", original=("orders", 2, 7), input_offset=99, redrives=1),
            letter(3, b"\xff", original=("orders", 1, 9), input_offset=20),  # its original is gone
            letter(4, None, reason="missing-id", cause="it has no header _DUPL_ID", address=None),
        ],
    }
    for name, given in rows.items():
        frame = spark.createDataFrame(given, TABLES[name]).coalesce(1)
        frame.write.format("delta").save(str(target / name))
    read = {name: spark.read.format("delta").load(str(target / name)) for name in rows}
    return Tables(read["messages"], read["dead_letters"], target)


def counted(view: DataFrame, name: str) -> dict[object, tuple[int, ...]]:
    columns = ("records", "accepted", "duplicates", "rejected", "without_id")
    return {each[name]: tuple(each[n] for n in columns) for each in view.collect()}


def test_each_record_counts_once_at_its_publisher_address_and_hour(tables: Tables) -> None:
    both = (tables.messages, tables.letters)
    assert counted(quality.by_publisher(*both), "publisher") == {
        "web": (7, 2, 4, 1, 1),
        None: (2, 2, 0, 0, 1),
    }
    assert counted(quality.by_address(*both), "address") == {
        "orders": (7, 3, 4, 0, 0),
        "prices": (1, 1, 0, 0, 1),
        None: (1, 0, 0, 1, 1),
    }
    hours = quality.by_time(*both).withColumn("hour", sf.hour("begins"))
    # By the times of the records; the dead letters are an hour later.
    assert counted(hours, "hour") == {12: (5, 2, 2, 1, 1), 13: (4, 2, 2, 0, 1)}
    assert [each["duplicates_percent"] for each in hours.collect()] == [40, 50]


def test_a_copy_is_measured_from_the_last_message_with_its_id(tables: Tables) -> None:
    found = quality.resends(tables.messages, tables.letters)
    rows = {(each["id"], each["time"]): each for each in found.collect()}
    measured = {(name, each["seconds"], each["offsets"]) for (name, _), each in rows.items()}
    assert measured == {("a", 120, 10), ("a", 300, None), ("b", 91 * 60, None)}
    (all_of,) = quality.resend_quantiles(found).collect()
    assert (all_of["copies"], all_of["seconds"]["p50"], all_of["seconds"]["max"]) == (3, 300, 5460)
    assert all_of["offsets"] == Row(p50=10, p90=10, p99=10, p999=10, max=10)
    # By key all records of an address are alike, and the last message before is the original.
    by_key = quality.resends(tables.messages, tables.letters, by="key")
    assert {each["seconds"] for each in by_key.collect()} == {60, 120, 300}


def test_causes_that_differ_in_positions_count_together(tables: Tables) -> None:
    rows = [
        (each["reason"], each["cause"], each["records"])
        for each in quality.by_reason(tables.letters).collect()
    ]
    assert rows == [
        ("duplicate", "its id was accepted at … already", 3),
        ("missing-id", "it has no header _DUPL_ID", 1),
    ]


def test_an_id_that_went_out_twice_is_among_the_repeated_ones(tables: Tables) -> None:
    rows = quality.repeated_ids(tables.messages, tables.letters).collect()
    assert [(each["id"], each["copies"], each["accepted"]) for each in rows] == [
        ("a", 2, 2),
        ("b", 1, 1),
        ("hex:ff", 1, 0),
    ]
    assert (rows[0]["first"].astimezone(UTC), rows[0]["last"].astimezone(UTC)) == (at(0), at(95))


def test_the_command_shows_the_tables_as_a_page_and_as_json(
    command: Callable[..., Result], tables: Tables, tmp_path: Path
) -> None:
    page = tmp_path / "quality.html"
    words = ("quality", "--target", str(tables.target), "--html", str(page))
    done = command(*words, "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["total"] == {
        "records": 9,
        "accepted": 4,
        "duplicates": 4,
        "rejected": 1,
        "without_id": 2,
    }
    assert sum(each["counts"]["records"] for each in document["slots"]) == 9
    assert sum(document["seconds"]["counts"]) == document["seconds"]["copies"] == 3
    assert "hex:ff" in page.read_text("utf-8")
    later = command("quality", "--target", str(tables.target), "--since", "2026-01-02")
    assert later.exit_code == 0, later.stderr
    assert "0 records: 0 accepted" in later.stdout


def test_a_folder_without_tables_is_refused(command: Callable[..., Result], tmp_path: Path) -> None:
    done = command("quality", "--target", str(tmp_path))
    assert done.exit_code == CONTRADICTION
    assert "ringfence pipeline tables" in done.stderr
