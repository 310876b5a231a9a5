"""Jobs on executors of their own, which are killed in the middle of a batch, as is the driver."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from pipeline.backfill.decider import SparkRecord
from pipeline.backfill.inputs import BackfillInputs
from service.config.load import load
from state.model import PartitionId
from tests.spark.cluster import REPOSITORY, Batch, Driver, last_batch
from tests.spark.test_tables import Publisher, make_topic
from tests.unit.pipeline.backfill.histories import NOW_MS, history
from tests.unit.pipeline.backfill.the_service import Said, TheService
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

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
NO_BATCH: Final = Batch(-1, is_done=True, has_saved=False)


class History(NamedTuple):
    """A history, and a backfill of it that lost an executor and then its driver."""

    expected: Mapping[Place, Said]
    """What the service says."""
    target: Path
    job: Mapping[str, object]
    """The arguments of the backfill."""
    cut_short: Batch
    """The batch in which the driver was killed."""

    def batch(self) -> Batch:
        return last_batch(self.target / "checkpoint")


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
def cut_short(tmp_path_factory: pytest.TempPathFactory, code: Sequence[Path]) -> History:
    folder = tmp_path_factory.mktemp("cut-short")
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
    made = History(expected, target, {**names, "batch_records": len(rows) // BATCHES}, NO_BATCH)
    with Driver(folder / "driver", code) as driver:
        driver.begin("decide", **made.job)
        driver.kill_executor(lambda: made.batch().is_under_way)
        first = made.batch().number
        driver.kill_in_batch(lambda: made.batch().is_partly_saved and made.batch().number > first)
    return made._replace(cut_short=made.batch())


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, code: Sequence[Path]) -> Iterator[Driver]:
    with Driver(tmp_path_factory.mktemp("cluster") / "driver", code) as running:
        yield running


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
    cut_short: History, driver: Driver
) -> None:
    assert cut_short.cut_short.is_partly_saved
    target = cut_short.target
    driver.do("decide", **cut_short.job)
    assert said(driver.do("decided", target=str(target))) == cut_short.expected
    # As if it had been killed again, after the table listed the last batch.
    last = cut_short.batch().number
    for name in (f"{last}", f".{last}.crc"):
        (target / "checkpoint" / "commits" / name).unlink()
    driver.do("decide", **cut_short.job)
    assert said(driver.do("decided", target=str(target))) == cut_short.expected


def test_a_table_whose_run_loses_an_executor_has_each_committed_message_once(
    driver: Driver, broker: Broker, tmp_path: Path
) -> None:
    publisher = Publisher(broker, topic := make_topic(broker, ".unique"))
    for _ in range(2):
        publisher.send(SENT // 2, "committed")
        publisher.send(100, "aborted")
    place = {"servers": broker.bootstrap_servers, "topic": topic, "target": str(tmp_path)}
    end = driver.begin("tabulate", **place, batch_records=SENT // BATCHES)
    driver.kill_executor(lambda: last_batch(tmp_path / "checkpoints" / "messages").is_under_way)
    ids = end()
    assert len(set(ids)) == len(ids) == SENT
    assert not [each for each in ids if each.startswith("aborted")]


def test_a_reconciliation_that_loses_an_executor_finds_every_fault(driver: Driver) -> None:
    end = driver.begin("prove", records=1_000, each=4)
    driver.kill_executor(driver.has_kept_frames)
    planted, found = end()
    assert found == planted != {}
