"""Backfill of a table on a real Spark: in which order, to which verdicts, and on over restarts."""

import json
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, cast

import httpx2
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.query import StreamingQuery
from typer.testing import Result

from ringfence_client.spark.columns import RECORD
from ringfence_pipeline.backfill.decider import SparkRecord
from ringfence_pipeline.backfill.run import (
    BackfillSource,
    BatchLimits,
    VerdictCount,
    backfill,
    inputs_of,
    read_verdicts,
    run_query,
)
from ringfence_pipeline.backfill.seed import seed
from ringfence_pipeline.errors import CONTRADICTION, USAGE, PipelineError
from ringfence_service.config.load import load
from ringfence_service.config.model import Config
from ringfence_state.model import PartitionId as Partition
from tests.spark.lake import lake
from tests.unit.pipeline.backfill.histories import NOW_MS, history
from tests.unit.pipeline.backfill.the_service import Said, TheService

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PACE = BatchLimits(batch_records=1_500)
CONFIGURATION = """
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
[[routes]]
inputs = ["orders"]
address = "all.{header:_TENANT}"
[[routes]]
inputs = ["returns"]
scope = "partition"
[addresses."#"]
strategy = "window"
window_size = 300
window_ms = 4000
[addresses."all.b"]
strategy = "ring"
id_cache_size = 150
[addresses."returns"]
strategy = "ring"
id_cache_size = 250
"""
ORDERS = [Partition("orders", number) for number in range(3)]
RETURNS = [Partition("returns", number) for number in range(2)]


class World(NamedTuple):
    config: Config
    source: BackfillSource
    target: str
    """By URI, on a file system that is not the local one."""
    folder: Path
    """Where the file system keeps its files."""
    rows: Sequence[SparkRecord]
    counts: tuple[VerdictCount, ...]
    said: Mapping[tuple[Partition, int], Said]
    """What the table of verdicts holds, by the place of the record."""
    deciders: Mapping[Partition, list[SparkRecord]]
    """The records of each deciding partition, in the order that the verdicts tell."""


def frame(spark: SparkSession, rows: Sequence[SparkRecord]) -> DataFrame:
    content = [
        (
            *row.source,
            row.own_offset,
            EPOCH + timedelta(milliseconds=row.timestamp_ms),
            row.own_key,
            row.own_value,
            [(name, value) for name, value in row.headers],
        )
        for row in rows
    ]
    return spark.createDataFrame(content, RECORD)


def configured(folder: Path, text: str = CONFIGURATION) -> Config:
    file = folder / "ringfence.toml"
    file.write_text(text)
    return load(file, {})


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A table of records in no order, in more files than one, decided in a few batches."""
    random, folder = Random(1), tmp_path_factory.mktemp("backfill")
    rows = [
        row._replace(headers=[*row.headers, ("_TENANT", random.choice([b"a", b"b", b"c", None]))])
        for row in history(random, "window", ORDERS, 2_500, groups=False)
    ]
    rows += history(random, "window", RETURNS, 2_000)
    shuffled = frame(spark, random.sample(rows, len(rows)))
    shuffled.repartition(3).write.parquet(str(folder / "table"))
    config = configured(folder)
    place = lake(spark, folder)
    source = BackfillSource("", {}, (), f"{place}/table", "parquet")
    target = f"{place}/target"
    counts = backfill(spark, config, source, target, limits=PACE)
    verdicts = read_verdicts(spark, target).orderBy("position").collect()
    said = found(verdicts)
    return World(
        config, source, target, folder / "target", rows, counts, said, deciders(rows, verdicts)
    )


def found(verdicts: Sequence[SparkRow]) -> Mapping[tuple[Partition, int], Said]:
    said = {}
    for row in verdicts:
        original = row["original"]
        place = None if original is None else "{}-{}@{}".format(*original)
        said[Partition(row["topic"], row["partition"]), row["offset"]] = Said(row["verdict"], place)
    assert len(said) == len(verdicts)
    return said


def deciders(
    rows: Sequence[SparkRecord], verdicts: Sequence[SparkRow]
) -> Mapping[Partition, list[SparkRecord]]:
    by_place = {(row.source, row.own_offset): row for row in rows}
    decided: dict[Partition, list[SparkRecord]] = {}
    for row in verdicts:
        if row["topic"] == "orders":
            decider = Partition(row["decider_topic"], row["decider_partition"])
            place = (Partition(row["topic"], row["partition"]), row["offset"])
            decided.setdefault(decider, []).append(by_place[place])
    for source in RETURNS:
        decided[source] = [row for row in rows if row.source == source]
    return decided


def test_the_verdicts_are_those_of_the_service_in_the_same_order(world: World) -> None:
    inputs = inputs_of(world.config, world.source._replace(topics=("orders", "returns")))
    expected: dict[tuple[Partition, int], Said] = {}
    for decider, rows in world.deciders.items():
        if decider.partition >= 0:
            expected |= TheService(decider, inputs, Random(1), NOW_MS).say(rows)
        else:
            nowhere = {(row.source, row.own_offset): Said("no-address", None) for row in rows}
            expected |= nowhere
    assert world.said == expected
    assert {"accepted", "duplicate", "duplicate-in-transaction", "expired", "no-address"} < {
        said.verdict for said in expected.values()
    }


def test_records_of_a_partition_stay_in_order_and_partitions_are_merged_by_time(
    world: World,
) -> None:
    for decider, rows in world.deciders.items():
        for source in {row.source for row in rows}:
            offsets = [row.own_offset for row in rows if row.source == source]
            assert offsets == sorted(offsets)
        if decider.topic == "ringfence.by-address":
            ahead = [
                max(earlier.timestamp_ms for earlier in rows[: at + 1]) - row.timestamp_ms
                for at, row in enumerate(rows)
            ]
            # By as much as times go back within a partition, and no more.
            assert max(ahead) <= 3_200


def test_the_counts_at_the_end_include_every_verdict(world: World) -> None:
    assert {each.address for each in world.counts} == {"all.a", "all.b", "all.c", "returns", None}
    assert sum(each.records for each in world.counts) == len(world.said)
    # The others wait for the rest of their groups.
    assert 0.97 * len(world.rows) < len(world.said) < len(world.rows)


def test_what_is_remembered_is_handed_over_with_the_places_of_what_was_accepted(
    spark: SparkSession, world: World
) -> None:
    lines: list[tuple[str, Mapping[str, Any]]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        address = request.url.path.split("/")[3]
        told = [(address, json.loads(line)) for line in request.content.splitlines()]
        lines.extend(told)
        return httpx2.Response(200, json={"ids": len(told), "new": len(told)})

    with httpx2.Client(base_url="http://api", transport=httpx2.MockTransport(answer)) as client:
        result = seed(spark, world.target, client, reason="test")
    accepted = {place for place, each in world.said.items() if each.verdict == "accepted"}
    assert lines
    assert {address for address, _ in lines} >= {"all.a", "all.b", "all.c", "returns"}
    for _, row in lines:
        assert (Partition(row["topic"], row["partition"]), row["offset"]) in accepted
    assert sum(each.sent for each in result.addresses) == len(lines)
    assert ["publisher" in why for why in result.left_out] == [True]


def test_another_run_decides_nothing_twice_and_lists_again_the_steps_that_a_kill_left_out(
    spark: SparkSession, world: World
) -> None:
    steps = world.folder / "steps"
    listed = sorted(steps.glob("_delta_log/*.json"))
    assert len(listed) == len(list(steps.glob("part-*"))) > 2
    last = listed[-1]
    names = sorted(each.name for each in steps.iterdir())
    before = last.read_text()
    last.unlink()
    assert backfill(spark, world.config, world.source, world.target, limits=PACE) == world.counts
    assert sorted(each.name for each in steps.iterdir()) == names
    assert last.read_text() == before


def test_missing_steps_are_not_recreated_under_a_backfill_that_has_begun(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    shutil.copytree(world.folder, target)
    (target / "steps" / "_SUCCESS").unlink()
    with pytest.raises(PipelineError, match="is gone or not whole") as told:
        backfill(spark, world.config, world.source, target, limits=PACE)
    assert told.value.exit_code == CONTRADICTION


def test_other_settings_are_refused(spark: SparkSession, world: World, tmp_path: Path) -> None:
    other = configured(tmp_path, CONFIGURATION.replace("300", "400"))
    with pytest.raises(PipelineError, match=r"another patterns\.#\.window_size, ") as told:
        backfill(spark, other, world.source, world.target, limits=PACE)
    assert told.value.exit_code == CONTRADICTION


def test_a_table_without_a_column_is_refused(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    lacking = frame(spark, world.rows[:1]).drop("offset", "headers")
    lacking.write.parquet(str(tmp_path / "lacking"))
    source = world.source._replace(table=str(tmp_path / "lacking"))
    with pytest.raises(PipelineError, match="has no column offset, headers") as told:
        backfill(spark, world.config, source, tmp_path / "target")
    assert told.value.exit_code == USAGE


def test_a_topic_that_no_route_reads_is_refused(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    only = configured(tmp_path, '[kafka]\n"bootstrap.servers" = "x:1"\n[[routes]]\ninputs = ["a"]')
    with pytest.raises(PipelineError, match="no route reads orders, returns"):
        backfill(spark, only, world.source, tmp_path / "target")
    stands = world.source._replace(instead_of="a")
    assert set(inputs_of(only, stands._replace(topics=("x",))).by_topic) == {"x"}


def test_half_a_target_is_refused(spark: SparkSession, world: World, tmp_path: Path) -> None:
    for half in ("verdicts", "checkpoint"):
        folder = tmp_path / half
        (folder / half).mkdir(parents=True)
        with pytest.raises(PipelineError, match="give another folder, or delete this one"):
            backfill(spark, world.config, world.source, folder)


def test_a_wrong_configuration_and_a_folder_without_a_backfill_are_reported(
    command: Callable[..., Result], tmp_path: Path
) -> None:
    file = tmp_path / "ringfence.toml"
    file.write_text("[servic]")
    words = ["backfill", "--config", str(file), "--target", str(tmp_path / "target")]
    wrong = command(*words)
    no_backfill = command("seed", "--target", str(tmp_path))
    assert wrong.exit_code == no_backfill.exit_code == USAGE
    assert "servic" in wrong.stderr
    assert "is not the folder of a backfill" in no_backfill.stderr


class FakeQuery(NamedTuple):
    """A query that ends at once, by a failure or by itself, as a user may interrupt it."""

    failure: str | None = None
    lastProgress: object = None  # noqa: N815 - Spark's name
    is_interrupted: bool = False

    def awaitTermination(self, _timeout_s: float) -> bool:  # noqa: N802 - Spark's name
        if self.is_interrupted:
            signal.raise_signal(signal.SIGTERM)
        if self.failure is not None:
            raise StreamingQueryException(self.failure)
        return True

    def stop(self) -> None:
        pass


LATE: Final = FakeQuery("Python worker failed to connect back.")


@pytest.mark.parametrize(
    ("starts", "told"),
    [
        ([LATE, LATE, FakeQuery()], None),
        ([LATE] * 5, "took too long to start"),
        ([LATE] * 4 + [LATE._replace(lastProgress={"batchId": 7})] + [LATE] * 4, "took too long"),
        ([LATE, FakeQuery("TopicAuthorizationException")], "check the rights"),
    ],
)
def test_a_query_whose_python_worker_starts_late_is_started_again(
    starts: Sequence[FakeQuery], told: str | None
) -> None:
    left = list(starts)
    with nullcontext() if told is None else pytest.raises(PipelineError, match=told):
        run_query(lambda: cast("StreamingQuery", left.pop(0)), "b:9092", once=True)
    assert not left


@pytest.mark.parametrize("once", [True, False])
def test_an_interrupt_is_obeyed_although_the_query_fails_then(
    capsys: pytest.CaptureFixture[str], *, once: bool
) -> None:
    left = [LATE._replace(is_interrupted=True)]
    with pytest.raises(KeyboardInterrupt) if once else nullcontext():
        run_query(lambda: cast("StreamingQuery", left.pop(0)), "b:9092", once=once)
    assert not left
    assert "starting again" not in capsys.readouterr().err
