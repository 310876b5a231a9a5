"""Tables from a real broker through the real connector: what is in them, and how often."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from pipeline.errors import BROKER, CONTRADICTION, USAGE, PipelineError
from pipeline.progress import Tally
from pipeline.run import Source, TableRows, Way, update_tables
from pipeline.tables import TRANSFORMS, Format, Shape, compact, read_table
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.demo.flights import FLIGHTS, load_flights

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PARTITIONS = 2
COMMAND = 'from pipeline.command import app; app(prog_name="ringfence pipeline")'


def make_topic(broker: Broker, suffix: str = "") -> str:
    name = f"tables-{uuid4().hex[:12]}{suffix}"
    admin = AdminClient(dict(broker.client_properties))
    # Some of the records are years old: by time they could be deleted at once.
    new = NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"})
    for made in admin.create_topics([new]).values():
        made.result(30)
    return name


class Publisher:
    """Sends records in transactions, which it commits, aborts, or leaves open."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        self._sent = 0
        # One that stays open while Spark reads is not to be ended by the broker.
        identity = {"transactional.id": f"{topic}-publisher", "transaction.timeout.ms": 600_000}
        self._producer = Producer({**broker.client_properties, **identity})
        self._producer.init_transactions(30)

    def send(self, records: int, end: str, value: bytes = b"v") -> None:
        self._producer.begin_transaction()
        for _ in range(records):
            self._sent += 1
            name = f"{end}-{self._sent}"
            headers: list[tuple[str, str | bytes | None]] = [("_DUPL_ID", name.encode())]
            self._producer.produce(
                self.topic, value, name, partition=self._sent % PARTITIONS, headers=headers
            )
            self._producer.poll(0)
        assert self._producer.flush(30) == 0
        if end == "committed":
            self._producer.commit_transaction(30)
        elif end == "aborted":
            self._producer.abort_transaction(30)

    def commit_open(self) -> None:
        self._producer.commit_transaction(30)


def source(broker: Broker, *outputs: str) -> Source:
    return Source(broker.bootstrap_servers, {}, {"messages": outputs})


def ids(spark: SparkSession, target: Path) -> list[str]:
    rows = read_table(spark, target, "messages").select("duplicate_id").collect()
    return [row["duplicate_id"].decode() for row in rows]


def test_each_committed_message_is_a_row_once_and_no_aborted_one_is(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    publisher = Publisher(broker, make_topic(broker))
    for end in ("committed", "aborted", "committed", "aborted"):
        publisher.send(50, end)
    first = update_tables(spark, source(broker, publisher.topic), tmp_path)
    assert first.tables == (TableRows("messages", added=100, total=100),)
    publisher.send(30, "committed")
    publisher.send(5, "open")
    second = update_tables(spark, source(broker, publisher.topic), tmp_path)
    assert second.tables == (TableRows("messages", added=30, total=130),)
    publisher.commit_open()
    third = update_tables(spark, source(broker, publisher.topic), tmp_path)
    assert third.tables == (TableRows("messages", added=5, total=135),)
    found = ids(spark, tmp_path)
    assert len(set(found)) == len(found) == 135
    assert not [one for one in found if one.startswith("aborted")]


def test_progress_tells_the_rows_of_every_batch_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(90, "committed")
    tally = Tally()
    update_tables(
        spark,
        source(broker, publisher.topic),
        tmp_path,
        way=Way(batch_records_max=50),
        shown=lambda _table, reports: tally.take(reports),
    )
    assert (tally.standing.rows, tally.standing.behind) == (90, 0)


def test_a_row_is_the_message_unchanged(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = make_topic(broker)
    producer = Producer(dict(broker.client_properties))
    headers: list[tuple[str, str | bytes | None]] = [
        ("a", b"2"),
        ("b", None),
        ("a", b""),
        ("é", b"\xff"),
    ]
    time_ms = 1_357_041_600_123
    producer.produce(topic, None, b"", partition=1, headers=headers, timestamp=time_ms)
    producer.produce(topic, b"", None, partition=1, timestamp=time_ms)
    assert producer.flush(30) == 0
    update_tables(spark, source(broker, topic), tmp_path)
    frame = read_table(spark, tmp_path, "messages").orderBy("offset")
    first, second = frame.collect()
    assert [(one["key"], one["value"]) for one in first["headers"]] == headers
    assert (first["key"], first["value"]) == (b"", None)
    assert (second["key"], second["value"], second["headers"]) == (None, b"", [])
    assert (second["topic"], second["partition"], second["offset"]) == (topic, 1, 1)
    assert frame.selectExpr("unix_millis(timestamp) AS t").first() == (time_ms,)


def test_rows_lie_by_day_and_address(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = make_topic(broker)
    producer = Producer(dict(broker.client_properties))
    day_ms = 86_400_000
    for key, time_ms in ((b"a/b", 0), (b"\xff", 0), (b"a/b", day_ms)):
        producer.produce(topic, b"v", key, partition=0, timestamp=time_ms + 1)
    assert producer.flush(30) == 0
    for shape in (Shape(address="of.{key}"), Shape("parquet", address="of.{key}")):
        target = tmp_path / shape.format
        update_tables(spark, source(broker, topic), target, shape)
        rows = read_table(spark, target, "messages").orderBy("offset").collect()
        found = [(str(row["day"]), row["address"]) for row in rows]
        assert found == [("1970-01-01", "of.a/b"), ("1970-01-01", None), ("1970-01-02", "of.a/b")]
        folders = {file.relative_to(target / "messages").parts[:-1] for file in files(target)}
        assert len(folders) == 3
        assert ("day=1970-01-02", "address=of.a%2Fb") in folders


def test_the_address_is_the_input_s_name(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = make_topic(broker, ".unique")
    Publisher(broker, topic).send(1, "committed")
    update_tables(spark, source(broker, topic), tmp_path)
    (row,) = read_table(spark, tmp_path, "messages").collect()
    assert row["address"] == topic.removesuffix(".unique")


def test_a_table_that_an_older_version_made_gets_the_columns_it_lacks(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(3, "committed")
    with monkeypatch.context() as older:
        newer = TRANSFORMS["messages"]
        older.setitem(
            TRANSFORMS, "messages", lambda *given: newer(*given).drop("epoch", "bookmark")
        )
        update_tables(spark, source(broker, publisher.topic), tmp_path)
    assert "epoch" not in read_table(spark, tmp_path, "messages").columns
    publisher.send(2, "committed")
    result = update_tables(spark, source(broker, publisher.topic), tmp_path)
    assert result.tables == (TableRows("messages", added=2, total=5),)
    assert {"epoch", "bookmark"} <= set(read_table(spark, tmp_path, "messages").columns)
    assert len(set(ids(spark, tmp_path))) == 5


def test_small_files_are_put_together_and_no_row_is_lost(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(60, "committed")
    way = Way(batch_records_max=20)
    update_tables(spark, source(broker, publisher.topic), tmp_path, way=way)
    table = spark.read.format("delta").load(str(tmp_path / "messages"))
    assert len(table.inputFiles()) > 1
    compact(spark, tmp_path, "messages")
    assert len(spark.read.format("delta").load(str(tmp_path / "messages")).inputFiles()) == 1
    assert len(set(ids(spark, tmp_path))) == 60


def test_an_expression_takes_every_topic_that_it_fits(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topics = [make_topic(broker) for _ in range(2)]
    for topic in topics:
        Publisher(broker, topic).send(3, "committed")
    expression = f"^({'|'.join(topic[:-1] for topic in topics)})"
    result = update_tables(spark, source(broker, expression), tmp_path)
    assert result.tables == (TableRows("messages", added=6, total=6),)


def test_a_missing_topic_is_told(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="does not exist") as told:
        update_tables(spark, source(broker, f"no-{uuid4().hex}"), tmp_path)
    assert told.value.exit_code == BROKER


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
@pytest.mark.parametrize("lost", ["messages", "checkpoints/messages"])
def test_half_a_target_is_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path, lost: str, table_format: Format
) -> None:
    publisher, shape = Publisher(broker, make_topic(broker)), Shape(table_format)
    publisher.send(2, "committed")
    update_tables(spark, source(broker, publisher.topic), tmp_path, shape)
    shutil.rmtree(tmp_path / lost)
    with pytest.raises(PipelineError, match="do not belong together") as told:
        update_tables(spark, source(broker, publisher.topic), tmp_path, shape)
    assert told.value.exit_code == CONTRADICTION


def test_a_table_of_which_nothing_was_committed_is_begun(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    # What a run leaves that is killed before its first commit.
    (tmp_path / "messages" / "_delta_log").mkdir(parents=True)
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(10, "committed")
    done = update_tables(spark, source(broker, publisher.topic), tmp_path)
    assert done.tables == (TableRows("messages", added=10, total=10),)


def test_a_table_keeps_its_format(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(2, "committed")
    update_tables(spark, source(broker, publisher.topic), tmp_path)
    with pytest.raises(PipelineError, match="is a delta table") as told:
        update_tables(spark, source(broker, publisher.topic), tmp_path, Shape("parquet"))
    assert told.value.exit_code == USAGE


def test_a_column_that_is_not_there_has_no_folders(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match="no column hour") as told:
        update_tables(spark, source(broker, "t"), tmp_path, Shape(partition_by=("hour",)))
    assert told.value.exit_code == USAGE


def test_a_topic_that_ends_before_what_was_read_is_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(10, "committed")
    update_tables(spark, source(broker, publisher.topic), tmp_path)
    admin = AdminClient(dict(broker.client_properties))
    admin.delete_topics([publisher.topic])[publisher.topic].result(30)
    eventually(lambda: publisher.topic not in admin.list_topics(timeout=10).topics)
    admin.create_topics([NewTopic(publisher.topic, PARTITIONS, 1)])[publisher.topic].result(30)
    with pytest.raises(PipelineError, match="made anew") as told:
        update_tables(spark, source(broker, publisher.topic), tmp_path)
    assert told.value.exit_code == CONTRADICTION


def start_command(broker: Broker, topic: str, target: Path, *more: str) -> subprocess.Popen[str]:
    words = ["--bootstrap-servers", broker.bootstrap_servers, "--outputs", topic]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "tables", *words, "--target", str(target), *more],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], object], running: subprocess.Popen[str]) -> None:
    eventually(lambda: running.poll() is not None or condition())
    assert running.poll() is None


def files(target: Path) -> Sequence[Path]:
    return list((target / "messages").glob("**/part-*.parquet"))


def batches(target: Path) -> int:
    return len(list((target / "checkpoints" / "messages" / "commits").glob("[0-9]*")))


@pytest.fixture(scope="module")
def flights(broker: Broker) -> str:
    """The messages of the demo as a service writes them, with aborted transactions in between."""
    topic = make_topic(broker, ".unique")
    producer = Producer({**broker.client_properties, "transactional.id": topic, "linger.ms": 20})
    producer.init_transactions(30)
    flights = load_flights()
    for begin in range(0, FLIGHTS, 20_000):
        for count, end in (
            (500, producer.abort_transaction),
            (20_000, producer.commit_transaction),
        ):
            producer.begin_transaction()
            for flight in flights[begin : begin + count]:
                producer.produce(topic, flight.value, flight.key, headers=flight.headers)
                producer.poll(0)
            assert producer.flush(60) == 0
            end(60)
    return topic


def test_a_run_that_is_killed_twice_has_every_flight_once(
    spark: SparkSession, broker: Broker, tmp_path: Path, flights: str
) -> None:
    words = ("--batch-records", "100000")
    for done in range(2):
        killed = start_command(broker, flights, tmp_path, *words)
        with killed:
            # In the middle of a batch: the one before is done, and files of this one are there.
            wait_for(lambda done=done: batches(tmp_path) >= done, killed)  # type: ignore[misc]
            found = len(files(tmp_path))
            wait_for(lambda found=found: len(files(tmp_path)) > found, killed)  # type: ignore[misc]
            os.killpg(killed.pid, signal.SIGKILL)
    way = Way(batch_records_max=100_000)
    result = update_tables(spark, source(broker, flights), tmp_path, Shape(), way)
    assert result.tables[0].total == FLIGHTS == 336_776
    table = read_table(spark, tmp_path, "messages")
    assert table.select("duplicate_id").distinct().count() == FLIGHTS
    assert table.groupBy("address").count().collect() == [
        (flights.removesuffix(".unique"), FLIGHTS)
    ]


def test_a_single_run_that_is_terminated_does_not_end_with_0(
    broker: Broker, tmp_path: Path, flights: str
) -> None:
    running = start_command(broker, flights, tmp_path)
    with running:
        wait_for(lambda: files(tmp_path), running)
        running.terminate()
        running.communicate(timeout=240)
    assert running.returncode != 0


def test_a_continuous_run_goes_on_until_it_is_terminated(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(10, "committed")
    running = start_command(broker, publisher.topic, tmp_path, "--continuous")
    with running:
        # The two partitions of a transaction become readable one after the other.
        wait_for(lambda: len(ids(spark, tmp_path)) == 10, running)
        publisher.send(10, "committed")
        wait_for(lambda: len(ids(spark, tmp_path)) == 20, running)
        running.terminate()
        shown, _ = running.communicate(timeout=240)
    assert running.returncode == 0
    assert [word for word in shown.split() if word in ("messages", "20")] == [
        "messages",
        "20",
        "20",
    ]
