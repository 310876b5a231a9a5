"""Deciding partitions spread over tasks: one after the other, whatever the number of tasks."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from pipeline.backfill.slots import SPREAD_MAX, Slots
from state.model import PartitionId

pytestmark = pytest.mark.spark


def test_the_hash_of_a_slot_is_the_index_of_its_partition(spark: SparkSession) -> None:
    slot = Slots(["orders"]).slot(sf.col("id"))
    found = spark.range(SPREAD_MAX).where(sf.hash(slot) == sf.col("id"))
    assert found.count() == SPREAD_MAX


@pytest.mark.parametrize("tasks", [1, 2, 5, 12])
def test_each_task_has_as_many_partitions_as_any_other(spark: SparkSession, tasks: int) -> None:
    slots = Slots(["orders"])
    slot = slots.slot(slots.index(sf.lit("orders"), sf.col("id")))
    task = sf.pmod(sf.hash(slot), sf.lit(tasks)).alias("task")
    loads = Counter(row["task"] for row in spark.range(12).select(task).collect())
    assert sum(loads.values()) == 12
    assert max(loads.values()) == -(-12 // tasks)


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
