"""Tables from a real broker through the real connector: what is in them, and how often."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from typer.testing import Result

from ringfence_pipeline.admin import KafkaPartition
from ringfence_pipeline.checkpoint import TableCheckpoint
from ringfence_pipeline.errors import BROKER, CONTRADICTION, USAGE, PipelineError
from ringfence_pipeline.gaps import OffsetGap, gap_ends
from ringfence_pipeline.progress import MetricsAddress, observed
from ringfence_pipeline.storage import StorageFolder
from ringfence_pipeline.table_format import Format
from ringfence_pipeline.tables import (
    TRANSFORMS,
    RunOptions,
    TableLayout,
    TableRows,
    TableSource,
    read_table,
    update_tables,
)
from tests.broker.conftest import create_topic
from tests.broker.reading import still_open
from tests.broker.topics import delete_topic
from tests.spark.lake import lake
from tests.support.waiting import LIMIT_S, eventually
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PARTITIONS = 2
NOON_MS, DAY_MS = 1_357_041_600_123, 86_400_000
COMMAND = 'from ringfence_pipeline.command import app; app(prog_name="ringfence pipeline")'
BATCH, BATCHES = 2_000, 6


def make_topic(broker: Broker, suffix: str = "") -> str:
    name = f"tables-{uuid4().hex[:12]}{suffix}"
    # The records are years old: by time they could be deleted at once.
    create_topic(broker.client_properties, name, PARTITIONS, {"retention.ms": "-1"})
    return name


class Publisher:
    """Sends records in transactions, which it commits, aborts, or leaves open."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        self._client = dict(broker.client_properties)
        self._sent = 0
        # One that stays open while Spark reads is not to be ended by the broker.
        identity = {"transactional.id": f"{topic}-publisher", "transaction.timeout.ms": 600_000}
        self._producer = Producer({**broker.client_properties, **identity})
        self._producer.init_transactions(LIMIT_S)

    def send(self, records: int, end: str, value: bytes = b"v") -> None:
        self._producer.begin_transaction()
        for _ in range(records):
            self._sent += 1
            name = f"{end}-{self._sent}"
            headers: list[tuple[str, str | bytes | None]] = [("_DUPL_ID", name.encode())]
            self._producer.produce(
                *(self.topic, value, name),
                partition=self._sent % PARTITIONS,
                headers=headers,
                timestamp=NOON_MS,
            )
            self._producer.poll(0)
        assert self._producer.flush(LIMIT_S) == 0
        if end == "committed":
            self._producer.commit_transaction(LIMIT_S)
        elif end == "aborted":
            self._producer.abort_transaction(LIMIT_S)
        if end != "open":
            self._wait_ended()

    def commit_open(self) -> None:
        self._producer.commit_transaction(LIMIT_S)
        self._wait_ended()

    def _wait_ended(self) -> None:
        """The broker answers before it has written how a transaction ended."""
        eventually(lambda: not still_open(self._client, self.topic))


def source(broker: Broker, *outputs: str) -> TableSource:
    return TableSource(broker.bootstrap_servers, {}, {"messages": outputs})


def files(target: Path) -> Sequence[Path]:
    return list((target / "messages").glob("**/part-*.parquet"))


class Walk(NamedTuple):
    """Three runs over two topics, and what was there after each of them."""

    source: TableSource
    target: str
    """By URI, on a file system that is not the local one."""
    topics: Sequence[str]
    tables: Sequence[TableRows]
    columns: Sequence[Sequence[str]]
    lines: Sequence[Mapping[str, Any]]
    """What the first run wrote where there is no terminal."""
    metrics: Mapping[str, float]
    """What it served to Prometheus, by name; all have the same table."""
    files: Sequence[int]
    """That the second run left, and the third, which has put them together."""


@pytest.fixture(scope="module")
def walk(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Walk:
    folder = tmp_path_factory.mktemp("walk")
    # What a run leaves that is killed before its first commit.
    (folder / "messages" / "_delta_log").mkdir(parents=True)
    target = lake(spark, folder)
    topics = [make_topic(broker, ".unique") for _ in range(2)]
    one, other = (Publisher(broker, topic) for topic in topics)
    for end in ("committed", "aborted", "committed", "aborted"):
        one.send(30, end)
    other.send(30, "committed")
    expression = f"^({'|'.join(topic[:-1] for topic in topics)})"
    given = source(broker, expression)
    tables: list[TableRows] = []
    columns: list[list[str]] = []
    kept: list[int] = []

    def run(way: RunOptions) -> None:
        result = update_tables(spark, given, target, TableLayout(), way)
        tables.extend(result.tables)
        columns.append(read_table(spark, target, "messages").columns)
        table = spark.read.format("delta").load(f"{target}/messages")
        kept.append(len(table.inputFiles()))

    newer = TRANSFORMS["messages"]
    with pytest.MonkeyPatch.context() as older:
        older.setitem(
            TRANSFORMS, "messages", lambda *given: newer(*given).drop("epoch", "bookmark")
        )
        written = StringIO()
        with observed(spark, Console(file=written), MetricsAddress("127.0.0.1", 0)) as observer:
            run(RunOptions(batch_records_max=50))
            observer.wait_ended(LIMIT_S)
            with urlopen(f"http://127.0.0.1:{observer.port}/metrics") as answer:
                served = answer.read().decode()
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    metrics = {
        sample.name: sample.value
        for family in text_string_to_metric_families(served)
        for sample in family.samples
        if sample.labels == {"table": "messages"}
    }
    one.send(30, "committed")
    other.send(5, "open")
    run(RunOptions())
    other.commit_open()
    run(RunOptions(compact=True))
    return Walk(given, target, topics, tables, columns, lines, metrics, kept[1:])


def test_each_committed_message_is_a_row_once_and_no_aborted_one_is(
    spark: SparkSession, walk: Walk
) -> None:
    assert walk.tables == [
        TableRows("messages", added=90, total=90),
        TableRows("messages", added=30, total=120),
        TableRows("messages", added=5, total=125),
    ]
    rows = read_table(spark, walk.target, "messages").select("address", "duplicate_id").collect()
    found = [(row["address"], bytes(row["duplicate_id"]).decode()) for row in rows]
    assert len(set(found)) == len(found) == 125
    assert not [name for _, name in found if name.startswith("aborted")]
    # The address of an output is the name of its input.
    assert {address for address, _ in found} == {
        each.removesuffix(".unique") for each in walk.topics
    }


def test_each_batch_is_a_line_and_metrics_add_up_to_the_rows(walk: Walk) -> None:
    begins, *batches, ends = walk.lines
    assert (begins["event"], ends["event"]) == ("stream-begins", "stream-ends")
    assert {line["event"] for line in batches} == {"batch"}
    assert len(batches) > 1
    assert sum(line["rows"] for line in batches) == 90
    lags = [line["lag_records"] for line in batches]
    assert sorted(lags, reverse=True) == lags
    assert walk.metrics["ringfence_spark_rows_total"] == 90
    assert walk.metrics["ringfence_spark_lag_records"] == 0
    assert walk.metrics["ringfence_spark_batch_duration_seconds_count"] == len(batches)


def test_a_table_that_an_older_version_made_gets_the_columns_it_lacks(walk: Walk) -> None:
    before, after, _ = walk.columns
    assert set(after) - set(before) == {"epoch", "bookmark"}


def test_small_files_are_put_together_and_no_row_is_lost(walk: Walk) -> None:
    before, after = walk.files
    assert before > after == 1


def test_a_table_keeps_its_format(spark: SparkSession, walk: Walk) -> None:
    with pytest.raises(PipelineError, match="is a delta table") as told:
        update_tables(spark, walk.source, walk.target, TableLayout("parquet"))
    assert told.value.exit_code == USAGE


def test_a_topic_that_was_read_cannot_be_left_out(spark: SparkSession, walk: Walk) -> None:
    kept = walk.source._replace(topics={"messages": walk.topics[:1]})
    with pytest.raises(PipelineError, match=f"has read {walk.topics[1]}, which") as failed:
        update_tables(spark, kept, walk.target)
    assert failed.value.exit_code == CONTRADICTION


def test_a_topic_that_ends_before_what_was_read_is_refused(
    spark: SparkSession, broker: Broker, walk: Walk
) -> None:
    admin, topic = AdminClient(dict(broker.client_properties)), walk.topics[0]
    delete_topic(broker.client_properties, topic)

    def is_there_again() -> bool:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(LIMIT_S)
        return True

    eventually(is_there_again)
    with pytest.raises(PipelineError, match="recreated") as told:
        update_tables(spark, walk.source, walk.target)
    assert told.value.exit_code == CONTRADICTION


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_row_is_the_message_unchanged_by_day_and_address_and_half_a_target_is_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path, table_format: Format
) -> None:
    by_both = ("day", "address")
    topic, shape = make_topic(broker), TableLayout(table_format, by_both, address="of.{key}")
    producer = Producer(dict(broker.client_properties))
    for key, time_ms in ((b"a/b", 0), (b"\xff", 0), (b"a/b", DAY_MS)):
        producer.produce(topic, b"v", key, partition=0, timestamp=time_ms + 1)
    headers: list[tuple[str, str | bytes | None]] = [
        *(("a", b"2"), ("b", None), ("a", b""), ("é", b"\xff")),
    ]
    producer.produce(topic, None, b"", partition=1, headers=headers, timestamp=NOON_MS)
    producer.produce(topic, b"", None, partition=1, timestamp=NOON_MS)
    assert producer.flush(LIMIT_S) == 0
    update_tables(spark, source(broker, topic), tmp_path, shape)
    table = read_table(spark, tmp_path, "messages").withColumn("ms", sf.unix_millis("timestamp"))
    *by_day, first, second = table.orderBy("partition", "offset").collect()
    found = [(str(row["day"]), row["address"]) for row in by_day]
    assert found == [("1970-01-01", "of.a/b"), ("1970-01-01", None), ("1970-01-02", "of.a/b")]
    folders = {file.relative_to(tmp_path / "messages").parts[:-1] for file in files(tmp_path)}
    assert ("day=1970-01-02", "address=of.a%2Fb") in folders
    assert [(one["key"], one["value"]) for one in first["headers"]] == headers
    assert (first["key"], first["value"]) == (b"", None)
    assert (second["key"], second["value"], second["headers"]) == (None, b"", [])
    assert (second["topic"], second["partition"], second["offset"]) == (topic, 1, 1)
    assert second["ms"] == NOON_MS
    with pytest.raises(PipelineError, match="is partitioned by day, address") as refused:
        update_tables(spark, source(broker, topic), tmp_path, shape._replace(partition_by=("day",)))
    assert refused.value.exit_code == USAGE
    producer.produce(topic, b"v", b"a/b", partition=0, timestamp=1)
    assert producer.flush(LIMIT_S) == 0
    update_tables(spark, source(broker, topic), tmp_path, shape._replace(partition_by=None))
    assert {file.relative_to(tmp_path / "messages").parts[1] for file in files(tmp_path)} == {
        "address=of.a%2Fb",
        "address=__HIVE_DEFAULT_PARTITION__",
        "address=of.",
    }
    for lost in ("messages", "checkpoints/messages"):
        half = shutil.copytree(tmp_path, tmp_path / "halves" / lost, ignore=_halves)
        shutil.rmtree(half / lost)
        with pytest.raises(PipelineError, match="do not belong together") as told:
            update_tables(spark, source(broker, topic), half, shape)
        assert told.value.exit_code == CONTRADICTION


def _halves(_folder: str, _names: Sequence[str]) -> Sequence[str]:
    return ["halves"]


def test_a_table_continues_behind_deleted_records_on_demand_and_lists_each_gap_once(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, admin = make_topic(broker), AdminClient(dict(broker.client_properties))
    producer = Producer(dict(broker.client_properties))

    def send(records: int) -> None:
        for number in range(records * PARTITIONS):
            producer.produce(topic, b"v", b"k", number % PARTITIONS, timestamp=NOON_MS)
        assert producer.flush(LIMIT_S) == 0

    def delete_before(offset: int) -> None:
        place = TopicPartition(topic, 0, offset)
        admin.delete_records([place])[place].result(LIMIT_S)

    noticed: list[OffsetGap] = []

    def rows(way: RunOptions) -> int:
        run = update_tables(
            *(spark, source(broker, topic), tmp_path, TableLayout(), way), noticed.append
        )
        return run.tables[0].total

    accepting = RunOptions(accept_gap=True)
    send(10)
    assert rows(accepting) == 20
    send(10)
    delete_before(15)
    with pytest.raises(PipelineError, match="continue with --accept-gap") as failed:
        rows(RunOptions())
    assert failed.value.exit_code == CONTRADICTION
    with monkeypatch.context() as killed:
        killed.setattr(TableCheckpoint, "begin_another", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rows(accepting)
    delete_before(17)
    assert rows(accepting) == 20 + 3 + 10
    gaps = [OffsetGap("messages", topic, 0, 10, end) for end in (15, 17)]
    assert noticed == gaps
    table = spark.read.format("delta").load(str(tmp_path / "gaps"))
    assert [row[:5] for row in table.collect()] == [gaps[1]]
    assert gap_ends(spark, tmp_path, "messages") == {KafkaPartition(topic, 0): 17}
    assert gap_ends(spark, tmp_path, "dead_letters") == {}
    assert not table.where("noticed_at IS NULL").count()
    send(1)
    assert rows(RunOptions()) == 20 + 3 + 10 + 2
    # A batch can be in the table and not be done in the checkpoint: the table decides.
    folder = StorageFolder.of(spark, tmp_path)
    last = TableCheckpoint.of(folder, "messages").folder
    (last / "commits" / "1").delete()
    checkpoint = TableCheckpoint.of(folder, "messages")
    assert last.name == "messages.2"
    assert set(checkpoint.positions(lambda _: True).values()) == {21}
    assert set(checkpoint.positions(lambda _: False).values()) == {20}
    (last / "commits" / "0").delete()
    assert set(checkpoint.positions(lambda _: False).values()) == {17, 10}


def test_gaps_of_a_parquet_table_are_not_accepted(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match="--accept-gap needs --format delta") as failed:
        update_tables(
            *(spark, source(broker, "t"), tmp_path, TableLayout("parquet")),
            RunOptions(accept_gap=True),
        )
    assert failed.value.exit_code == USAGE


def test_a_missing_topic_is_reported(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="does not exist") as told:
        update_tables(spark, source(broker, f"no-{uuid4().hex}"), tmp_path)
    assert told.value.exit_code == BROKER


def test_a_column_that_is_not_there_has_no_folders(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match="no column hour") as told:
        update_tables(spark, source(broker, "t"), tmp_path, TableLayout(partition_by=("hour",)))
    assert told.value.exit_code == USAGE


def start_command(broker: Broker, topic: str, target: Path, *more: str) -> subprocess.Popen[str]:
    words = ["--bootstrap-servers", broker.bootstrap_servers, "--outputs", topic]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "tables", *words, "--target", str(target), *more],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], object], running: subprocess.Popen[str]) -> None:
    def is_so() -> object:
        assert running.poll() is None, running.communicate()
        return condition()

    eventually(is_so)


def batches(target: Path) -> int:
    return len(list((target / "checkpoints" / "messages" / "commits").glob("[0-9]*")))


def has_more_files(target: Path) -> Callable[[], bool]:
    """Whether the table has files that it had not at first, whether they are committed or not."""
    known = len(files(target))
    return lambda: len(files(target)) > known


def has_rows(spark: SparkSession, target: Path, rows: int) -> Callable[[], bool]:
    """Whether the table has so many rows; it is looked at once after each batch."""
    counted: dict[int, int] = {}

    def is_so() -> bool:
        done = batches(target)
        if done not in counted:
            counted[done] = read_table(spark, target, "messages").count()
        return counted[done] >= rows

    return is_so


def test_the_file_of_the_service_names_topics_and_addresses(
    spark: SparkSession, broker: Broker, tmp_path: Path, command: Callable[..., Result]
) -> None:
    one, other = make_topic(broker), make_topic(broker)
    letters = f"{one}.dlq"
    producer = Producer(dict(broker.client_properties))
    for topic in (f"{one}.unique", f"{other}.out", letters):
        create_topic(broker.client_properties, topic, 1, {"retention.ms": "-1"})
        producer.produce(topic, b"v", b"k", timestamp=NOON_MS)
    assert producer.flush(LIMIT_S) == 0
    file = tmp_path / "ringfence.toml"
    file.write_text(
        f'[kafka]\n"bootstrap.servers" = "{broker.bootstrap_servers}"\n'
        f'[[routes]]\ninputs = ["{one}"]\n[[routes]]\ninputs = ["{other}"]\n'
        'address = "of.{key}"\noutput = "{topic}.out"\n',
        "utf-8",
    )
    target = str(tmp_path / "target")
    ran = command("tables", "--config", str(file), "--target", target)
    assert ran.exit_code == 0, ran.output
    found = read_table(spark, target, "messages").select("topic", "address").collect()
    assert {tuple(row) for row in found} == {(f"{one}.unique", one), (f"{other}.out", "of.k")}
    (letter,) = read_table(spark, target, "dead_letters").select("topic").collect()
    assert letter["topic"] == letters


def test_runs_that_are_killed_and_terminated_leave_to_the_next_one_each_row_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    publisher = Publisher(broker, make_topic(broker))

    def publish(batches: int) -> None:
        for _ in range(batches):
            publisher.send(500, "aborted")
            publisher.send(BATCH, "committed")

    publish(BATCHES)
    rows = BATCH * BATCHES
    words = ("--batch-records", str(BATCH))
    with start_command(broker, publisher.topic, tmp_path, *words) as running:
        # In the middle of the second batch, which the next run begins with: files are there.
        wait_for(lambda: batches(tmp_path) > 0, running)
        wait_for(has_more_files(tmp_path), running)
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=LIMIT_S)
    assert running.returncode != 0
    assert read_table(spark, tmp_path, "messages").count() < rows
    continuing = ("--continuous", "--every", "1s")
    with start_command(broker, publisher.topic, tmp_path, *continuing) as running:
        wait_for(has_rows(spark, tmp_path, rows), running)
        publisher.send(10, "committed")
        wait_for(has_rows(spark, tmp_path, rows + 10), running)
        in_a_batch = has_more_files(tmp_path)
        publish(1)
        wait_for(in_a_batch, running)
        running.terminate()
        shown, told = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 0, told
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert [line["event"] for line in lines if line["event"] != "batch"] == [
        "stream-begins",
        "stream-ends",
    ]
    assert sum(line["rows"] for line in lines if line["event"] == "batch") >= 10
    before = read_table(spark, tmp_path, "messages").count()
    assert {"messages", f"{before:,}"} <= set(shown.split())
    rows += 10 + BATCH
    update_tables(spark, source(broker, publisher.topic), tmp_path)
    names = read_table(spark, tmp_path, "messages").select(sf.col("duplicate_id").cast("string"))
    assert names.count() == names.distinct().count() == rows
    assert names.where("duplicate_id LIKE 'aborted%'").isEmpty()
