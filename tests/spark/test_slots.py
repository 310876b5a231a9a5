"""Deciding partitions spread over tasks: one after the other, whatever the number of tasks."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from ringfence_pipeline.backfill.slots import SPREAD_MAX, Slots
from ringfence_state.model import PartitionId

pytestmark = pytest.mark.spark


def test_the_hash_of_a_slot_is_the_index_of_its_partition(spark: SparkSession) -> None:
    slot = Slots(["orders"]).slot(sf.col("id"))
    found = spark.range(SPREAD_MAX).where(sf.hash(slot) == sf.col("id"))
    assert found.count() == SPREAD_MAX


@pytest.mark.parametrize("tasks", [1, 2, 5, 12])
@pytest.mark.parametrize(
    "counts", [{"orders": 12}, {"g.by-address": 0, "orders": 12}, {"orders": 12, "returns": 1}]
)
def test_each_task_has_as_many_partitions_as_any_other(
    spark: SparkSession, counts: dict[str, int], tasks: int
) -> None:
    deciders = [(topic, number) for topic, count in counts.items() for number in range(count)]
    rows = spark.createDataFrame(deciders, "topic string, partition int")
    slots = Slots([*counts])
    slot = slots.slot(slots.index(sf.col("topic"), sf.col("partition")))
    task = sf.pmod(sf.hash(slot), sf.lit(tasks)).alias("task")
    loads = Counter(row["task"] for row in rows.select(task).collect())
    assert sum(loads.values()) == len(deciders)
    assert max(loads.values()) <= -(-12 // tasks) + 1 - (len(deciders) == 12)


def test_a_partition_is_found_by_its_slot_also_beyond_those_that_are_spread(
    spark: SparkSession,
) -> None:
    slots = Slots(["g.by-address", "orders", "returns"])
    deciders = [
        *(PartitionId("orders", 0), PartitionId("returns", 7)),
        *(PartitionId("g.by-address", -1), PartitionId("g.by-address", 11)),
        *(PartitionId("orders", 2_000_000), PartitionId("returns", 3_000)),
    ]
    rows = spark.createDataFrame(deciders, "topic string, partition int")
    slot = slots.slot(slots.index(sf.col("topic"), sf.col("partition"))).alias("slot")
    found = rows.select(slot).select("slot", *slots.columns(sf.col("slot"))).collect()
    assert [slots.partition(row["slot"]) for row in found] == deciders
    assert [(topic, partition) for _, topic, partition in found] == deciders
