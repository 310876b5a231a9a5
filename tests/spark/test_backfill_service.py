"""A service and a backfill, killed half-way, decide one history; another service is seeded with it.

`RINGFENCE_BACKFILL_RECORDS` is how many records each strategy has; by default the ring has
100,000 and the others a fifth of that.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import pandas as pd
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pipeline.backfill.target import read_verdicts
from ringfence.headers import DeadLetter
from ringfence.spark_columns import place
from tests.broker.conftest import create_topic
from tests.broker.service import REPOSITORY, Service
from tests.spark.long_history import (
    ADDRESSES,
    FORGETTING,
    KEPT,
    PARTITIONS,
    Sent,
    history,
    left_out,
)
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(3600)]

FULL: Final = int(os.environ.get("RINGFENCE_BACKFILL_RECORDS", "0"))
COUNTS: Final = {
    kind: FULL or (100_000 if kind == "ring" else 20_000) for kind in (*KEPT, *FORGETTING)
}
BATCHES: Final = 4
BATCH_RECORDS: Final = sum(COUNTS.values()) // BATCHES
WAIT_S: Final = 1800.0
COMMAND: Final = 'from pipeline.command import app; app(prog_name="ringfence pipeline")'


class Venue(NamedTuple):
    """A broker with the history on it."""

    broker: Broker
    folder: Path
    prefix: str

    def topic(self, kind: str) -> str:
        return f"{self.prefix}-{kind}"

    def configuration(self, name: str, beginning: str) -> tuple[Path, int]:
        """That of a service with outputs of its own; the port of its API."""
        port = free_port(0)
        kafka = "\n".join(f'"{n}" = "{v}"' for n, v in self.broker.client_properties.items())
        topics = ", ".join(f'"{self.topic(kind)}"' for kind in COUNTS)
        tables = "\n".join(_address(self.topic(kind), ADDRESSES[kind]) for kind in COUNTS)
        file = self.folder / f"{name}.toml"
        file.write_text(f"""
[kafka]
{kafka}
[service]
group_id = "{self.prefix}-{name}"
state_dir = "{self.folder / name}"
on_missing_offset = "{beginning}"
[api]
port = {port}
[[routes]]
inputs = [{topics}]
scope = "partition"
output = "{{topic}}.{name}"
dead_letter = "{{topic}}.{name}.dlq"
{tables}
""")
        for kind in COUNTS:
            for end in (f".{name}", f".{name}.dlq"):
                self.make(f"{self.topic(kind)}{end}")
        return file, port

    def make(self, topic: str) -> None:
        client = self.broker.client_properties
        create_topic(client, topic, PARTITIONS, {"retention.ms": "-1"})

    def send(self, kind: str, records: Iterator[Sent], first: int = 0) -> int:
        """Publish; the value of each is its offset."""
        offsets = [first] * PARTITIONS
        producer = Producer({**self.broker.client_properties, "enable.idempotence": True})
        topic = self.topic(kind)
        for partition, timestamp_ms, headers in records:
            value = b"%d" % offsets[partition]
            offsets[partition] += 1
            told: list[tuple[str, str | bytes | None]] = [*headers]
            while True:
                try:
                    producer.produce(
                        topic, value, partition=partition, headers=told, timestamp=timestamp_ms
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(120) == 0
        return sum(offsets)

    def read(self, topics: list[str], count: int) -> pd.DataFrame:
        """What a service made of so many records: of each its place, its verdict, its original."""
        consumer = Consumer(
            {
                **self.broker.client_properties,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        places = [TopicPartition(topic, n, 0) for topic in topics for n in range(PARTITIONS)]
        consumer.assign(places)
        rows: list[tuple[str, int, int, str, str | None]] = []
        told: list[str] = []
        deadline = time.monotonic() + WAIT_S
        is_more = True
        while len(rows) < count or is_more:
            said = f"{len(rows):,} of {count:,} records were decided; {told}"
            assert time.monotonic() < deadline, said
            batch = consumer.consume(20_000, 0.5)
            is_more = bool(batch)
            for message in batch:
                if message.error() is None:
                    rows.append(_fate(message.topic() or "", message))
                else:  # what passes by itself is no loss
                    told.append(str(message.error()))
        consumer.close()
        fates = Counter((topic, *place) for topic, *place, _, _ in rows)
        assert len(rows) == count, [place for place, told in fates.items() if told > 1][:20]
        return pd.DataFrame(rows, columns=["topic", "partition", "offset", "verdict", "original"])


def _address(topic: str, keys: Mapping[str, object]) -> str:
    lines = "\n".join(
        f"{key} = {value}" if isinstance(value, int) else f'{key} = "{value}"'
        for key, value in keys.items()
    )
    return f'[addresses."{topic}"]\n{lines}'


def _fate(topic: str, message: object) -> tuple[str, int, int, str, str | None]:
    source = topic.partition(".")[0]
    offset = int(message.value())  # type: ignore[attr-defined]
    if not topic.endswith(".dlq"):
        return source, message.partition(), offset, "accepted", None  # type: ignore[attr-defined]
    told = dict(message.headers())  # type: ignore[attr-defined]
    original = told.get(DeadLetter.ORIGINAL.value)
    reason = told[DeadLetter.REASON.value].decode()
    partition = int(told[DeadLetter.PARTITION.value])
    return source, partition, offset, reason, None if original is None else original.decode()


@pytest.fixture(scope="module")
def venue(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Venue:
    made = Venue(broker, tmp_path_factory.mktemp("history"), f"h{uuid4().hex[:8]}")
    for kind, count in COUNTS.items():
        made.make(made.topic(kind))
        assert made.send(kind, history(kind, count)) == count
    return made


@pytest.fixture(scope="module")
def of_the_service(venue: Venue) -> Path:
    """What a service makes of the history, message by message."""
    config, port = venue.configuration("live", "earliest")
    service = Service(config, port, venue.folder / "live.log")
    service.start()
    try:
        topics = [f"{venue.topic(kind)}.live{end}" for kind in COUNTS for end in ("", ".dlq")]
        found = venue.read(topics, sum(COUNTS.values()))
        service.stop()
    finally:
        service.kill()
    found.to_parquet(venue.folder / "live.parquet")
    return venue.folder / "live.parquet"


@pytest.fixture(scope="module")
def target(venue: Venue) -> Path:
    """What a backfill makes of it, killed in its second batch and taken up again."""
    config, _ = venue.configuration("backfill", "earliest")
    folder = venue.folder / "target"
    with _backfill(config, folder) as running:
        _wait_for(lambda: len(list((folder / "checkpoint/commits").glob("[0-9]*"))) > 0, running)
        _wait_for(lambda: len(list((folder / "checkpoint/offsets").glob("[0-9]*"))) > 1, running)
        time.sleep(1.0)  # noqa: TID251 - the kill has to come in the midst of a batch
        os.killpg(running.pid, signal.SIGKILL)
    assert len(list((folder / "checkpoint/commits").glob("[0-9]*"))) < BATCHES
    with _backfill(config, folder) as running:
        told, _ = running.communicate(timeout=WAIT_S)
    assert running.returncode == 0, told
    return folder


def _backfill(config: Path, folder: Path) -> "subprocess.Popen[str]":
    words = ["backfill", "--config", str(config), "--target", str(folder)]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words, "--batch-records", str(BATCH_RECORDS)],
        cwd=REPOSITORY,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _wait_for(condition: Callable[[], bool], running: "subprocess.Popen[str]") -> None:
    eventually(lambda: running.poll() is not None or condition())
    assert running.poll() is None, running.communicate()[0]


def test_every_message_has_the_verdict_that_the_service_gave_it(
    spark: SparkSession, of_the_service: Path, target: Path
) -> None:
    keys = ["topic", "partition", "offset"]
    said = spark.read.parquet(str(of_the_service))
    said = said.select(*keys, "verdict", place(sf.col("original")).alias("original"))
    found = read_verdicts(spark, target).select(*keys, "verdict", "original")
    assert found.count() == said.count() == sum(COUNTS.values())
    both = found.alias("f").join(said.alias("s"), keys, "full_outer")
    is_same = sf.col("f.verdict").eqNullSafe(sf.col("s.verdict")) & sf.col("f.original").eqNullSafe(
        sf.col("s.original")
    )
    other = both.where(~is_same)
    assert other.count() == 0, other.limit(20).collect()
    counted = {
        (row["topic"].rpartition("-")[2], row["verdict"]): row["count"]
        for row in _counts(found).collect()
    }
    for kind in (*KEPT, *FORGETTING):
        assert counted[kind, "duplicate"] > COUNTS[kind] // 20
        assert counted[kind, "accepted"] > COUNTS[kind] // 2
    assert counted["ordered", "out-of-order"] > 0


def _counts(table: DataFrame) -> DataFrame:
    return table.groupBy("topic", "verdict").count()


@pytest.mark.usefixtures("of_the_service")  # it reads the history before that is sent once more
def test_a_service_that_was_seeded_accepts_none_of_it_again(venue: Venue, target: Path) -> None:
    config, port = venue.configuration("fresh", "latest")
    service = Service(config, port, venue.folder / "fresh.log")
    service.start()
    try:
        service.wait_ready(len(COUNTS) * PARTITIONS)
        seeded = _seed(port, target)
        assert seeded.returncode == 0, seeded.stdout
        assert "left out" not in seeded.stdout
        for kind in KEPT:
            venue.send(kind, history(kind, COUNTS[kind]))
        topics = [f"{venue.topic(kind)}.fresh{end}" for kind in KEPT for end in ("", ".dlq")]
        found = venue.read(topics, sum(COUNTS[kind] for kind in KEPT))
        assert found[found["verdict"] == "accepted"].empty
        # What never came is no copy of anything.
        late = left_out(COUNTS["audit"])
        venue.send("audit", iter(late))
        topic = f"{venue.topic('audit')}.fresh"
        assert len(venue.read([topic], len(late))) == len(late)
        service.stop()
    finally:
        service.kill()


def _seed(port: int, target: Path) -> "subprocess.CompletedProcess[str]":
    words = ["seed", "--target", str(target), "--url", f"http://127.0.0.1:{port}"]
    return subprocess.run(  # noqa: PLW1510 - its status is looked at
        [sys.executable, "-c", COMMAND, *words],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S,
    )
