"""Jobs on executors of their own, which are killed in the middle of a batch, as is the driver.

One cluster does all jobs, one after another. The last is a backfill whose driver is killed, and the
session that all tests share takes it up again.
"""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from ringfence_pipeline.backfill.decider import SparkRecord
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_service.config.load import load
from ringfence_state.model import PartitionId
from tests.spark.cluster import REPOSITORY, Batch, Driver, decide, decided, last_batch
from tests.spark.test_tables import Publisher, make_topic
from tests.unit.pipeline.backfill.histories import NOW_MS, history
from tests.unit.pipeline.backfill.the_service import Said, TheService
from tools.broker.cluster import Broker

# Each job runs again until an executor is caught in a batch, which a slow machine makes long.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]

ORDERS: Final = [PartitionId("orders", number) for number in range(3)]
RETURNS: Final = [PartitionId("returns", number) for number in range(2)]
RECORDS: Final = 1_000
BATCHES: Final = 5
SENT: Final = 2_000
CONFIGURATION: Final = """
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
[[routes]]
inputs = ["orders", "returns"]
scope = "partition"
[addresses."orders"]
strategy = "ring"
id_cache_size = 300
[addresses."returns"]
strategy = "window"
window_size = 300
window_ms = 100000000
"""
Place = tuple[PartitionId, int]


class History(NamedTuple):
    """A history, and a backfill of it."""

    expected: Mapping[Place, Said]
    """What the service says."""
    target: Path
    job: Mapping[str, Any]
    """The arguments of the backfill."""

    def batch(self) -> Batch:
        return last_batch(self.target / "checkpoint")

    def elsewhere(self) -> "History":
        """The same, with a backfill of its own."""
        target = self.target.with_name(f"{self.target.name}-more")
        return self._replace(target=target, job={**self.job, "target": str(target)})


class Lost(NamedTuple):
    """Jobs that each lost an executor, and what they found."""

    planted: Mapping[str, Sequence[str]]
    """Faults of the records that were reconciled, by kind."""
    proved: Mapping[str, Sequence[str]]
    ids: Sequence[str]
    """Of the messages in the table."""
    history: History
    cut_short: Batch
    """The batch of the backfill in which the driver was killed."""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """The zips that the page makes of the packages."""
    folder = tmp_path_factory.mktemp("code")
    for project in (REPOSITORY / "ringfence", REPOSITORY):
        program = f"from hatchling.build import build_wheel; build_wheel({str(folder / 'dist')!r})"
        subprocess.run([sys.executable, "-c", program], cwd=project, check=True)
    page = (REPOSITORY / "docs" / "backfill.md").read_text("utf-8")
    copies = re.findall(r"^cp dist/.*$", page, re.MULTILINE)
    subprocess.run(["bash", "-e"], input="\n".join(copies), text=True, cwd=folder, check=True)
    (names,) = re.findall(r"--py-files (\S+)", page)
    return [folder / name for name in names.split(",")]


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory, code: Sequence[Path], broker: Broker) -> Lost:
    folder = tmp_path_factory.mktemp("lost")
    history = history_in(folder)
    publisher = Publisher(broker, topic := make_topic(broker, ".unique"))
    for _ in range(2):
        publisher.send(SENT // 2, "committed")
        publisher.send(100, "aborted")
    with Driver(folder / "driver", code) as driver:
        planted, proved = proved_without_an_executor(driver)
        ids = tabled_without_an_executor(driver, broker, topic, folder)
        while not loses_executor_and_driver(driver, history):
            history = history.elsewhere()
    return Lost(planted, proved, ids, history, history.batch())


def proved_without_an_executor(driver: Driver) -> Any:
    """Reconcile with a job that loses an executor; return the planted faults, and what it found."""
    earlier = driver.kept_frames()
    proof = driver.begin("prove", records=1_000, each=4)
    if not driver.kill_executor(proof, lambda: bool(driver.kept_frames() - earlier)):
        return proved_without_an_executor(driver)  # it was done sooner than it was caught
    return proof.answer()


def tabled_without_an_executor(
    driver: Driver, broker: Broker, topic: str, folder: Path
) -> Sequence[str]:
    """Bring the topic into a table with a run that loses an executor; return the ids in it."""
    target = folder / "tables"
    place = {"servers": broker.bootstrap_servers, "topic": topic, "target": str(target)}
    job = driver.begin("tabulate", **place, batch_records=SENT // BATCHES)
    if not driver.kill_executor(
        job, lambda: last_batch(target / "checkpoints/messages").is_under_way
    ):
        # All batches were done sooner than one was caught.
        return tabled_without_an_executor(driver, broker, topic, folder / "more")
    ids: Sequence[str] = job.answer()
    return ids


def loses_executor_and_driver(driver: Driver, history: History) -> bool:
    """Backfill until both are killed, the driver in a later batch; False if it came to its end."""
    job = driver.begin("decide", **history.job)
    if not driver.kill_executor(job, lambda: history.batch().is_under_way):
        return False
    first = history.batch().number
    return driver.kill_in_batch(
        job, lambda: history.batch().is_partly_saved and history.batch().number > first
    )


def history_in(folder: Path) -> History:
    random = Random(1)
    rows = history(random, "ring", ORDERS, RECORDS) + history(random, "window", RETURNS, RECORDS)
    file, table, target = folder / "ringfence.toml", folder / "table", folder / "target"
    file.write_text(CONFIGURATION)
    table.mkdir()
    pq.write_table(arrow(rows), table / "records.parquet")
    inputs = BackfillInputs.of(load(file, {}), ("orders", "returns"), None)
    expected: dict[Place, Said] = {}
    for source in (*ORDERS, *RETURNS):
        own = [row for row in rows if row.source == source]
        expected |= TheService(source, inputs, Random(1), NOW_MS).say(own)
    names = {"config": str(file), "table": str(table), "target": str(target)}
    return History(expected, target, {**names, "batch_records": len(rows) // BATCHES})


def arrow(rows: Sequence[SparkRecord]) -> pa.Table:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {
        "topic": pa.array([row.source.topic for row in rows]),
        "partition": pa.array([row.source.partition for row in rows], pa.int32()),
        "offset": pa.array([row.own_offset for row in rows], pa.int64()),
        "timestamp": pa.array(
            [1_000 * row.timestamp_ms for row in rows], pa.timestamp("us", "UTC")
        ),
        "key": pa.array([row.own_key for row in rows], pa.binary()),
        "value": pa.array([row.own_value for row in rows], pa.binary()),
        "headers": pa.array(
            [[{"key": key, "value": value} for key, value in row.headers] for row in rows], headers
        ),
    }
    return pa.table(columns)


def said(rows: Sequence[Sequence[Any]]) -> Mapping[Place, Said]:
    """What the rows say, each of another record."""
    found: dict[Place, Said] = {}
    for topic, partition, offset, verdict, original in rows:
        place = None if original is None else "{}-{}@{}".format(*original)
        found[PartitionId(topic, partition), offset] = Said(verdict, place)
    assert len(found) == len(rows)
    return found


def test_a_backfill_that_loses_an_executor_and_its_driver_decides_each_record_once(
    lost: Lost, spark: SparkSession
) -> None:
    assert lost.cut_short.is_partly_saved
    history = lost.history
    decide(spark, **history.job)
    assert said(decided(spark, str(history.target))) == history.expected
    # As if it had been killed again, after the table listed the last batch.
    last = history.batch().number
    for name in (f"{last}", f".{last}.crc"):
        (history.target / "checkpoint" / "commits" / name).unlink()
    decide(spark, **history.job)
    assert said(decided(spark, str(history.target))) == history.expected


def test_a_table_whose_run_loses_an_executor_has_each_committed_message_once(lost: Lost) -> None:
    assert len(set(lost.ids)) == len(lost.ids) == SENT
    assert not [each for each in lost.ids if each.startswith("aborted")]


def test_a_reconciliation_that_loses_an_executor_finds_every_fault(lost: Lost) -> None:
    assert lost.proved == lost.planted != {}
