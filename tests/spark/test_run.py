"""Tables from a real broker through the real connector: what is in them, and how often."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from pipeline.errors import BROKER, CONTRADICTION, PipelineError
from pipeline.run import Source, TableRows, update_tables
from pipeline.tables import read_table
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PARTITIONS = 2
COMMAND = 'from pipeline.command import app; app(prog_name="ringfence pipeline")'


def make_topic(broker: Broker) -> str:
    name = f"tables-{uuid4().hex[:12]}"
    admin = AdminClient(dict(broker.client_properties))
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        made.result(30)
    return name


class Publisher:
    """Sends records in transactions, which it commits, aborts, or leaves open."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.topic = topic
        self._sent = 0
        identity = {"transactional.id": f"{topic}-publisher"}
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
    first = update_tables(spark, source(broker, publisher.topic), tmp_path, once=True)
    assert first.tables == (TableRows("messages", added=100, total=100),)
    publisher.send(30, "committed")
    publisher.send(5, "open")
    second = update_tables(spark, source(broker, publisher.topic), tmp_path, once=True)
    assert second.tables == (TableRows("messages", added=30, total=130),)
    publisher.commit_open()
    third = update_tables(spark, source(broker, publisher.topic), tmp_path, once=True)
    assert third.tables == (TableRows("messages", added=5, total=135),)
    found = ids(spark, tmp_path)
    assert len(set(found)) == len(found) == 135
    assert not [one for one in found if one.startswith("aborted")]


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
    update_tables(spark, source(broker, topic), tmp_path, once=True)
    frame = read_table(spark, tmp_path, "messages").orderBy("offset")
    first, second = frame.collect()
    assert [(one["key"], one["value"]) for one in first["headers"]] == headers
    assert (first["key"], first["value"]) == (b"", None)
    assert (second["key"], second["value"], second["headers"]) == (None, b"", [])
    assert (second["topic"], second["partition"], second["offset"]) == (topic, 1, 1)
    assert frame.selectExpr("unix_millis(timestamp) AS t").first() == (time_ms,)


def test_an_expression_takes_every_topic_that_it_fits(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topics = [make_topic(broker) for _ in range(2)]
    for topic in topics:
        Publisher(broker, topic).send(3, "committed")
    expression = f"^({'|'.join(topic[:-1] for topic in topics)})"
    result = update_tables(spark, source(broker, expression), tmp_path, once=True)
    assert result.tables == (TableRows("messages", added=6, total=6),)


def test_a_missing_topic_is_told(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="does not exist") as told:
        update_tables(spark, source(broker, f"no-{uuid4().hex}"), tmp_path, once=True)
    assert told.value.exit_code == BROKER


@pytest.mark.parametrize("lost", ["messages", "checkpoints/messages"])
def test_half_a_target_is_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path, lost: str
) -> None:
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(2, "committed")
    update_tables(spark, source(broker, publisher.topic), tmp_path, once=True)
    shutil.rmtree(tmp_path / lost)
    with pytest.raises(PipelineError, match="do not belong together") as told:
        update_tables(spark, source(broker, publisher.topic), tmp_path, once=True)
    assert told.value.exit_code == CONTRADICTION


def test_a_topic_that_ends_before_what_was_read_is_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(10, "committed")
    update_tables(spark, source(broker, publisher.topic), tmp_path, once=True)
    admin = AdminClient(dict(broker.client_properties))
    admin.delete_topics([publisher.topic])[publisher.topic].result(30)
    time.sleep(1)
    admin.create_topics([NewTopic(publisher.topic, PARTITIONS, 1)])[publisher.topic].result(30)
    with pytest.raises(PipelineError, match="made anew") as told:
        update_tables(spark, source(broker, publisher.topic), tmp_path, once=True)
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
    deadline = time.monotonic() + 240
    while not condition():
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def files(target: Path) -> Sequence[Path]:
    return list((target / "messages").glob("*.parquet"))


def batches(target: Path) -> int:
    return len(list((target / "checkpoints" / "messages" / "commits").glob("[0-9]*")))


def test_a_run_killed_while_it_writes_adds_nothing_twice(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(40_000, "committed", value=os.urandom(1000))
    killed = start_command(broker, publisher.topic, tmp_path)
    with killed:
        wait_for(lambda: files(tmp_path), killed)
        os.killpg(killed.pid, signal.SIGKILL)
    assert read_table(spark, tmp_path, "messages").count() == 0
    result = update_tables(spark, source(broker, publisher.topic), tmp_path, once=True)
    assert result.tables == (TableRows("messages", added=40_000, total=40_000),)
    assert len(set(ids(spark, tmp_path))) == 40_000
    # The reason for read_table: whoever lists the files also finds what the killed run left.
    assert len(files(tmp_path)) > PARTITIONS


def test_a_single_run_that_is_terminated_does_not_end_with_0(
    broker: Broker, tmp_path: Path
) -> None:
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(40_000, "committed", value=os.urandom(1000))
    running = start_command(broker, publisher.topic, tmp_path)
    with running:
        wait_for(lambda: files(tmp_path), running)
        running.terminate()
        running.communicate(timeout=240)
    assert running.returncode != 0


def test_a_continuous_run_goes_on_until_it_is_terminated(broker: Broker, tmp_path: Path) -> None:
    publisher = Publisher(broker, make_topic(broker))
    publisher.send(10, "committed")
    running = start_command(broker, publisher.topic, tmp_path, "--continuous")
    with running:
        wait_for(lambda: batches(tmp_path) == 1, running)
        publisher.send(10, "committed")
        wait_for(lambda: batches(tmp_path) == 2, running)
        running.terminate()
        shown, _ = running.communicate(timeout=240)
    assert running.returncode == 0
    assert [word for word in shown.split() if word in ("messages", "20")] == [
        "messages",
        "20",
        "20",
    ]
