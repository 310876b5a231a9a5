"""The batch form of a backfill on a real Spark: its verdicts, its state, and how it is resumed."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import httpx2
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from typer.testing import Result

from ringfence_pipeline.backfill import batch, held_store, slot_decider
from ringfence_pipeline.backfill.accepted import AcceptedTable, accepted_rows
from ringfence_pipeline.backfill.batch import Spread, backfill_at_once, judged_at_once, spread_of
from ringfence_pipeline.backfill.columns import PLACE_INDEX, slots_of
from ringfence_pipeline.backfill.decider import SparkRecord
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.paged_store import unpacked_page
from ringfence_pipeline.backfill.run import (
    BackfillSource,
    BatchLimits,
    VerdictCount,
    backfill,
    inputs_of,
    read_verdicts,
)
from ringfence_pipeline.backfill.seed import seed
from ringfence_pipeline.backfill.slots import SLOT
from ringfence_pipeline.errors import CONTRADICTION, USAGE, PipelineError
from ringfence_service.config.model import Config, RouteSettings
from ringfence_state.model import PartitionId
from tests.spark.lake import lake
from tests.spark.test_backfill import ORDERS, RETURNS, configured, found, frame
from tests.unit.pipeline.backfill.histories import NOW_MS, history

pytestmark = pytest.mark.spark


class World(NamedTuple):
    config: Config
    source: BackfillSource
    place: str
    """The URI of a folder that has the table, `stream` and `batch`."""
    folder: Path
    """The same folder."""
    counts: Sequence[VerdictCount]
    """Of the batch form."""

    @property
    def stream(self) -> str:
        return f"{self.place}/stream"

    @property
    def batch(self) -> str:
        return f"{self.place}/batch"


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A table of records in no order, decided as a stream of one step, and in one job."""
    random, folder = Random(3), tmp_path_factory.mktemp("batch")
    rows = [
        row._replace(headers=[*row.headers, ("_TENANT", random.choice([b"a", b"b", b"c", None]))])
        for row in history(random, "window", ORDERS, 1_000)
    ]
    rows += history(random, "window", RETURNS, 1_000)
    shuffled = frame(spark, random.sample(rows, len(rows))).withColumn("more", sf.lit("x"))
    shuffled.repartition(3).write.parquet(str(folder / "table"))
    config, place = configured(folder), lake(spark, folder)
    source = BackfillSource("", {}, (), f"{place}/table", "parquet")
    backfill(spark, config, source, f"{place}/stream", limits=BatchLimits(batch_records=10_000))
    counts = backfill_at_once(spark, config, source, f"{place}/batch")
    return World(config, source, place, folder, counts)


def seeded(spark: SparkSession, target: str) -> Sequence[Mapping[str, object]]:
    """What is sent to a service."""
    lines: list[Mapping[str, object]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        told = [json.loads(line) for line in request.content.splitlines()]
        lines.extend({"address": request.url.path, **line} for line in told)
        return httpx2.Response(200, json={"ids": len(told), "new": len(told)})

    with httpx2.Client(base_url="http://api", transport=httpx2.MockTransport(answer)) as client:
        seed(spark, target, client)
    return lines


def same(one: DataFrame, other: DataFrame) -> bool:
    """Whether these are the same verdicts; how late an expired record was depends on the run."""
    cause = sf.regexp_replace("cause", r"^expired \d+ ms", "expired")
    one, other = (each.withColumn("cause", cause) for each in (one, other))
    return one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty()


def rows_of(table: DataFrame) -> Sequence[object]:
    return sorted(tuple(row) for row in table.select("topic", "partition", "offset").collect())


def test_the_table_of_verdicts_is_that_of_a_stream_of_one_step(
    spark: SparkSession, world: World
) -> None:
    in_one_job, streamed = (read_verdicts(spark, each) for each in (world.batch, world.stream))
    assert in_one_job.schema == streamed.schema
    assert same(in_one_job, streamed)
    assert sum(each.records for each in world.counts) == streamed.count() > 1_900
    assert not (world.folder / "batch" / "draft").exists()


def test_the_verdicts_do_not_depend_on_how_the_records_are_cut(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = {"spark.sql.execution.arrow.maxRecordsPerBatch": "70"}
    monkeypatch.setattr(batch, "_SETTINGS", {**batch._SETTINGS, **cut})
    monkeypatch.setattr(batch, "_TASKS_MAX", 2)  # several deciding partitions in a task
    target = f"{world.place}/cut"
    backfill_at_once(spark, world.config, world.source, target, table_format="parquet")
    assert same(read_verdicts(spark, target), read_verdicts(spark, world.batch))
    assert seeded(spark, target) == seeded(spark, world.batch)


def test_a_service_is_seeded_with_what_a_stream_of_one_step_remembers(
    spark: SparkSession, world: World
) -> None:
    told = seeded(spark, world.batch)
    assert told == seeded(spark, world.stream)
    assert len(told) > 500


def test_every_page_of_every_slot_comes_out_behind_its_verdicts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_store, "PAGE_BYTES", 400)
    monkeypatch.setattr(slot_decider, "_PAGES_AT_ONCE", 3)
    route = RouteSettings(name="orders", inputs=("orders",), scope="partition")
    inputs = BackfillInputs((route,), {}, "g", 1, 1 << 20, ("orders",))
    slots, counts = slots_of(inputs), [100, 250, 7]
    rows: list[dict[str, object]] = [
        {PLACE_INDEX: index, SLOT: index, "offset": at, "timestamp_ms": 1_000 + at}
        | {"now_ms": 10_000, "id": b"id-%04d" % at, "rest": None}
        for number, count in enumerate(counts)
        for index in [slots.index_of(PartitionId("orders", number))]
        for at in range(count)
    ]
    kinds = {"id": pa.binary(), "rest": pa.string()}
    columns = {
        name: pa.array([row[name] for row in rows], kinds.get(name, pa.int64())) for name in rows[0]
    }
    whole = pa.RecordBatch.from_pydict(columns)
    cut = [whole.slice(at, 40) for at in range(0, len(rows), 40)]
    decider = slot_decider.SlotDecider(inputs, to_arrow_schema(batch.DECIDED))
    given = [row for each in decider(cut) for row in each.to_pylist()]
    remembered: dict[int, set[bytes]] = {number: set() for number in range(len(counts))}
    verdicts = Counter[int]()
    for row in given:
        number = slots.partition(row[SLOT]).partition
        if row["page"] is None:
            assert not remembered[number]
            verdicts[number] += 1
        else:
            entries = unpacked_page(row["content"])
            remembered[number] |= {text for _, value in entries for text in ids_in(value)}
    assert [verdicts[number] for number in range(len(counts))] == counts
    ids = [{b"id-%04d" % at for at in range(count)} for count in counts]
    assert [remembered[number] for number in range(len(counts))] == ids


def ids_in(value: bytes) -> Sequence[bytes]:
    return re.findall(rb"id-\d{4}", value)


def test_a_table_is_shuffled_once(spark: SparkSession, world: World) -> None:
    inputs = inputs_of(world.config, world.source._replace(topics=("orders", "returns")))
    rows = spark.read.parquet(str(world.source.table))
    decided = judged_at_once(rows, inputs, spread_of(rows, inputs))
    plan = decided._jdf.queryExecution().executedPlan().toString()
    assert "Window" in plan
    assert plan.count("Exchange") == 1


def test_the_partitions_with_most_records_have_the_first_tasks(
    spark: SparkSession, world: World
) -> None:
    skewed = {("orders", 0): 1, ("orders", 3): 2, ("returns", 0): 3, ("returns", 1): 7}
    places = [place for place, count in skewed.items() for _ in range(count)]
    rows = frame(spark, [record(*place, at) for at, place in enumerate(places)])
    inputs = inputs_of(world.config, world.source._replace(topics=("orders", "returns")))
    spread = spread_of(rows, inputs)
    slots, count = slots_of(inputs), inputs.by_address_partitions
    by_rank = sorted(spread.ranks, key=lambda index: spread.ranks[index])
    first, second, *others = (slots.partition(index) for index in by_rank)
    assert (first, second) == (PartitionId("returns", 1), PartitionId("returns", 0))
    assert {each.topic for each in others} == {inputs.by_address.topic}
    assert len(others) == count
    assert spread.tasks == count + 2
    decided = judged_at_once(rows, inputs, spread).withColumn("task", sf.spark_partition_id())
    tasks = decided.where(sf.isnotnull("page")).select(SLOT, "task").distinct().collect()
    found = {slots.partition(row[SLOT]): row["task"] for row in tasks}
    assert (found[first], found[second]) == (0, 1)
    assert len(set(found.values())) == len(found)


def test_a_decided_table_is_not_decided_again(spark: SparkSession, world: World) -> None:
    said: list[str] = []
    version = sorted(world.folder.glob("batch/verdicts/_delta_log/*.json"))
    counts = backfill_at_once(spark, world.config, world.source, world.batch, say=said.append)
    assert counts == world.counts
    assert "is decided already" in said[0]
    assert sorted(world.folder.glob("batch/verdicts/_delta_log/*.json")) == version


def test_a_run_that_failed_leaves_no_verdicts_and_the_next_one_ends_it(
    spark: SparkSession, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"

    def run() -> Sequence[VerdictCount]:
        return backfill_at_once(spark, world.config, world.source, target)

    def failing(records: DataFrame, inputs: BackfillInputs, spread: Spread) -> DataFrame:
        late = sf.when(sf.col("page").isNull(), sf.raise_error(sf.lit("by intent")))
        judged = judged_at_once(records, inputs, spread)
        return judged.withColumn("cause", sf.coalesce(late, sf.col("cause")))

    with monkeypatch.context() as patch:
        patch.setattr(batch, "judged_at_once", failing)
        with pytest.raises(PipelineError, match=r"could not be decided: .*by intent"):
            run()
    assert read_verdicts(spark, target).count() == 0
    with pytest.raises(PipelineError, match="is not decided yet"):
        seeded(spark, str(target))
    # The job is done, but the tables are not.
    with monkeypatch.context() as patch:
        patch.setattr(batch, "verdicts", _refused)
        with pytest.raises(PipelineError, match="could not be decided"):
            run()
    assert (target / "draft" / "_SUCCESS").exists()
    assert read_verdicts(spark, target).count() == 0
    with monkeypatch.context() as patch:
        patch.setattr(batch, "judged_at_once", _refused)  # what is decided is not decided again
        assert run() == world.counts


def _refused(*_: object) -> DataFrame:
    raise PySparkException("by intent")


def test_neither_form_goes_on_with_what_the_other_began(spark: SparkSession, world: World) -> None:
    with pytest.raises(PipelineError, match="in steps: leave --batch out") as told:
        backfill_at_once(spark, world.config, world.source, world.stream)
    assert told.value.exit_code == CONTRADICTION
    with pytest.raises(PipelineError, match="in one job: add --batch") as told:
        backfill(spark, world.config, world.source, world.batch)
    assert told.value.exit_code == CONTRADICTION


def test_a_batch_whose_state_was_deleted_is_refused(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    shutil.copytree(world.folder / "batch", target)
    (target / "state").rename(tmp_path / "state")
    with pytest.raises(PipelineError, match="lacks its verdicts or its state"):
        backfill_at_once(spark, world.config, world.source, target)


def test_the_accepted_rows_are_a_table_of_their_own(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    said = found(read_verdicts(spark, world.batch).collect())
    places = sorted((*place[0], place[1]) for place, each in said.items() if each[0] == "accepted")
    for name, target in (("of-stream", world.stream), ("of-batch", world.batch)):
        accepted = AcceptedTable.of(spark, f"{world.place}/{name}", target)
        accepted.check()
        accepted.write(world.source)
        written = spark.read.format("delta").load(f"{world.place}/{name}")
        assert rows_of(written) == places
        assert written.columns == spark.read.parquet(str(world.source.table)).columns
    again: list[str] = []
    accepted.write(world.source, again.append)
    assert "is written already" in again[0]
    with pytest.raises(PipelineError, match="is another table") as told:
        AcceptedTable.of(spark, f"{world.place}/of-stream", tmp_path / "target").check()
    assert told.value.exit_code == CONTRADICTION


def test_the_join_in_the_documents_gives_the_accepted_rows(
    spark: SparkSession, world: World
) -> None:
    table = spark.read.parquet(str(world.source.table))
    verdicts = read_verdicts(spark, world.stream)
    text = Path("docs/backfill.md").read_text(encoding="utf-8")
    (recipe,) = (each for each in text.split("```python\n")[1:] if "left_semi" in each)
    names: dict[str, DataFrame] = {"messages": table, "verdicts": verdicts}
    exec(recipe.partition("```")[0], names)  # noqa: S102 - a block of our own page
    assert rows_of(names["unique"]) == rows_of(accepted_rows(table, verdicts))
    assert set(names["unique"].columns) == set(table.columns)


def record(topic: str, partition: int, offset: int) -> SparkRecord:
    source = PartitionId(topic, partition)
    return SparkRecord(source, offset, NOW_MS, None, b"v", [("_DUPL_ID", b"id-%d" % offset)])


def test_a_batch_from_the_command_line_needs_a_table_and_an_end(
    command: Callable[..., Result], world: World, tmp_path: Path
) -> None:
    words = ["backfill", "--config", str(world.folder / "ringfence.toml"), "--batch"]
    words += ["--target", str(tmp_path / "target")]
    without = command(*words)
    table = ["--table", str(world.source.table), "--table-format", "parquet"]
    endless = command(*words, *table, "--continuous")
    for paced in (["--batch-records", "5"], ["--tasks", "2"]):
        stepwise = command(*words, *table, *paced)
        assert (stepwise.exit_code, "leave them out" in stepwise.stderr) == (USAGE, True)
    assert without.exit_code == endless.exit_code == USAGE
    assert "name it with --table" in without.stderr
    assert "leave --continuous out" in endless.stderr
    done = command(*words, *table, "--accepted", str(tmp_path / "accepted"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "accepted" / "_delta_log").exists()
