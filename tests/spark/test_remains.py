"""What retention has deleted is no fault of the service; what it has left shows every fault."""

import pytest
from pyspark.sql import SparkSession

from pipeline.admin import Partition
from tests.spark.judging import judged, named
from tests.spark.ledger import Lane, Ledger

pytestmark = pytest.mark.spark

RECORDS, GONE = 300, 60
LEFT = "excused: before what retention has left"


def ledger() -> Ledger:
    return Ledger("in", records=4 * RECORDS, ring=60, partitions=4, seed=6)


def shortened(lanes: list[Lane]) -> dict[Partition, int]:
    """Outputs of one partition, letters of another; of a third no letter is left."""
    return {
        Partition("in.unique", 0): GONE,
        Partition("in.dlq", 1): GONE,
        Partition("in.dlq", 2): len(lanes[2].letters),
    }


def test_what_came_before_the_first_that_is_left_has_an_excuse(spark: SparkSession) -> None:
    whole = ledger()
    begins = shortened(whole.lanes)
    findings = judged(spark, whole, begins=begins)
    assert named(findings) == {}
    assert findings.fates[LEFT] == sum(begins.values())
    assert sum(findings.fates.values()) == 4 * RECORDS


def test_what_is_lost_behind_it_or_in_another_partition_is_a_fault(spark: SparkSession) -> None:
    spoilt = ledger()
    begins, lanes = shortened(spoilt.lanes), spoilt.lanes
    victims = [sorted(spoilt.victims(lane)) for lane in lanes]
    lost = [victims[0][-1], victims[1][-1], victims[2][0], victims[3][0]]
    for lane, offset in zip(lanes, lost, strict=True):
        lane.outputs[:] = [each for each in lane.outputs if each.input_offset != offset]
    findings = judged(spark, spoilt, begins=begins)
    # Of the third nothing tells whether it was a letter.
    assert named(findings) == {"no-fate": {f"in-{n}@{lost[n]}" for n in (0, 1, 3)}}
    assert findings.fates[LEFT] == sum(begins.values()) + 1
