"""Random histories of every strategy: both forms of a backfill say what the service says.

`RINGFENCE_HISTORY_RECORDS` says how many records are decided, `RINGFENCE_SEED` which round is
played again.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from ringfence_pipeline.backfill.batch import backfill_at_once
from ringfence_pipeline.backfill.decider import SparkRecord
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.run import (
    BackfillSource,
    BackfillTarget,
    BatchLimits,
    backfill,
    inputs_of,
    read_verdicts,
)
from ringfence_pipeline.storage import StorageFolder
from ringfence_state.model import PartitionId
from tests.spark.test_backfill import configured, found, frame
from tests.unit.pipeline.backfill.histories import NOW_MS, SETTINGS, STRATEGIES, history
from tests.unit.pipeline.backfill.the_service import Said, TheService

pytestmark = pytest.mark.spark

RECORDS: Final = int(os.environ.get("RINGFENCE_HISTORY_RECORDS") or 5_000)
SEED: Final = os.environ.get("RINGFENCE_SEED")
FIRST: Final = int(os.environ.get("RINGFENCE_FIRST_SEED") or 0)
OF_A_ROUND: Final = min(RECORDS, 50_000)
SEEDS: Final = [int(SEED)] if SEED else range(FIRST, FIRST + RECORDS // OF_A_ROUND)
STEPS: Final = 3
SCOPES: Final = {"partition": 2, "address": 3, "id": 3}
"""The scopes, and how many partitions an input with each has."""
BY_ADDRESS: Final = 4
TENANTS: Final = (b"a", b"b", b"c", None)

Place = tuple[PartitionId, int]


def configuration() -> str:
    """An input for each strategy and scope; of a scope `address`, tenants have addresses."""
    text = f"""
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
[service]
by_address_partitions = {BY_ADDRESS}
"""
    for strategy in STRATEGIES:
        for scope in SCOPES:
            address = {"address": f"{strategy}.{{header:_TENANT}}", "id": f"id.{strategy}"}
            text += f"""
[[routes]]
inputs = ["{strategy}-{scope}"]
scope = "{scope}"
address = "{address.get(scope, strategy)}"
"""
        for pattern in (strategy, f"{strategy}.#", f"id.{strategy}"):
            text += f'\n[addresses."{pattern}"]\n'
            for name, value in SETTINGS[strategy].items():
                text += f"{name} = {value if isinstance(value, int) else repr(value)}\n"
    return text


def records(random: Random) -> Iterator[SparkRecord]:
    """A history of each input."""
    count = OF_A_ROUND // len(STRATEGIES) // len(SCOPES)
    for strategy in STRATEGIES:
        for scope, partitions in SCOPES.items():
            topic = f"{strategy}-{scope}"
            sources = [PartitionId(topic, number) for number in range(partitions)]
            for row in history(random, strategy, sources, count):
                if scope == "address":
                    tenant = ("_TENANT", random.choice(TENANTS))
                    yield row._replace(headers=[*row.headers, tenant])
                else:
                    yield row


def in_order(
    rows: Sequence[SparkRecord], step_of: Mapping[Place, int]
) -> Iterator[tuple[SparkRecord, int]]:
    """Records of one deciding partition in the order of decision, and the step of each."""
    reached: dict[tuple[int, PartitionId], int] = {}
    keys = []
    for row in sorted(rows, key=lambda row: (row.source, row.own_offset)):
        step = step_of.get((row.source, row.own_offset), 0)
        until = max(row.timestamp_ms, reached.get((step, row.source), 0))
        reached[step, row.source] = until
        keys.append((step, until, row.source, row.own_offset, row))
    for step, _, _, _, row in sorted(keys, key=lambda key: key[:4]):
        yield row, step


def expected(
    rows: Sequence[SparkRecord],
    inputs: BackfillInputs,
    random: Random,
    step_of: Mapping[Place, int] = {},
) -> Mapping[Place, Said]:
    """What the service says of these records, by the place of the record."""
    deciders = defaultdict[PartitionId, list[SparkRecord]](list)
    for row in rows:
        if inputs.by_topic[row.source.topic].settings.scope == "partition":
            deciders[row.source].append(row)
        else:
            number = inputs.number(row.source, row, row.headers)
            deciders[PartitionId(inputs.by_address.topic, number)].append(row)
    said: dict[Place, Said] = {}
    for decider, decided in deciders.items():
        if decider.partition < 0:  # the first hop rejects them
            said |= {(row.source, row.own_offset): Said("no-address", None) for row in decided}
        else:
            ordered = [row for row, _ in in_order(decided, step_of)]
            said |= TheService(decider, inputs, random, NOW_MS).say(ordered)
    return said


def steps_of(spark: SparkSession, target: Path) -> Mapping[Place, int]:
    """The step in which each record was decided: the steps have the order of their files."""
    steps = spark.read.parquet(str(BackfillTarget(StorageFolder.of(spark, target)).steps))
    rows = steps.select("topic", "partition", "offset", sf.col("_metadata.file_name")).collect()
    numbers = {name: at for at, name in enumerate(sorted({row[3] for row in rows}))}
    return {(PartitionId(row[0], row[1]), row[2]): numbers[row[3]] for row in rows}


@pytest.mark.parametrize("seed", SEEDS)
def test_both_forms_of_a_backfill_say_what_the_service_says(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    rows = list(records(random))
    config = configured(tmp_path, configuration())
    table = str(tmp_path / "table")
    frame(spark, random.sample(rows, len(rows))).write.parquet(table)
    source = BackfillSource("", {}, (), table, "parquet")
    limits = BatchLimits(batch_records=-(-len(rows) // STEPS))
    backfill(spark, config, source, tmp_path / "stream", limits=limits)
    counts = backfill_at_once(spark, config, source, tmp_path / "batch")
    inputs = inputs_of(config, source._replace(topics=sorted({row.source.topic for row in rows})))

    in_one_job = expected(rows, inputs, random)
    assert found(read_verdicts(spark, tmp_path / "batch").collect()) == in_one_job
    step_of = steps_of(spark, tmp_path / "stream")
    assert len(set(step_of.values())) == STEPS
    in_steps = found(read_verdicts(spark, tmp_path / "stream").collect())
    assert in_steps == expected(rows, inputs, random, step_of)
    assert sum(each.records for each in counts) == len(in_one_job) > 0.9 * len(rows)
    kinds = {each.verdict for each in in_one_job.values()}
    assert kinds >= {"accepted", "duplicate", "expired", "no-address", "invalid-claim"}
