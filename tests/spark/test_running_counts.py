"""Counts by blocks are those of one long order, wherever a block begins."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from ringfence_pipeline.reconcile.blocks import with_running_counts
from tests.spark.judging import Case, judged, named
from tests.spark.ledger import Ledger

pytestmark = pytest.mark.spark

BLOCKS = 7


@pytest.fixture(autouse=True)
def many_blocks(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.shuffle.partitions"
    former = str(spark.conf.get(name))
    spark.conf.set(name, BLOCKS)
    yield
    spark.conf.set(name, former)


def counted(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in frame.select("a", "b", "at", "n", "all", "odd").collect())


def test_a_key_of_many_blocks_and_keys_within_one_are_counted_alike(spark: SparkSession) -> None:
    random = Random(5)
    keys = [("x", "")] * 3_000 + [("a", "1"), ("x", "1"), ("z", "")] * 40 + [("w", "")]
    rows = [(*key, random.randrange(2_000), n) for n, key in enumerate(keys)]
    random.shuffle(rows)
    frame = spark.createDataFrame(rows, "a string, b string, at int, n int")
    conditions = {"all": sf.lit(col=True), "odd": sf.col("n") % 2 == 1}
    whole = (
        Window.partitionBy("a", "b")
        .orderBy("at", "n")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    plain = frame.withColumns(
        {name: sf.count_if(is_so).over(whole) for name, is_so in conditions.items()}
    )
    assert counted(with_running_counts(frame, ("a", "b"), ("at", "n"), conditions)) == counted(
        plain
    )
    # The long key is in most blocks, so its counts are put together from several.
    blocks = frame.repartitionByRange(BLOCKS, "a", "b", "at", "n").where("a = 'x' AND b = ''")
    assert blocks.select(sf.spark_partition_id()).distinct().count() >= BLOCKS - 2


def test_faults_of_a_ring_that_is_cut_into_blocks_are_found(spark: SparkSession) -> None:
    ledger = Ledger("blocks", records=1_000, ring=60, partitions=1, seed=2)
    expected = ledger.spoil(4)
    findings = judged(spark, Case(ledger, scope="address"))
    assert named(findings) == expected
    (found,) = findings.addresses
    (lane,) = ledger.lanes
    assert found.needed_all == max(lane.needed)
