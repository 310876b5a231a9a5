"""By which sizes, and by which times, a copy must have been known: in doubt it is no fault."""

import pytest
from pyspark.sql import SparkSession

from pipeline.reconcile.findings import Findings
from pipeline.reconcile.settings import UNKNOWN, Earlier
from service.addresses import AddressBook
from tests.spark.judging import judged, named
from tests.spark.ledger import START_MS, Entry, Ledger, Row

pytestmark = pytest.mark.spark

RING = 60
WINDOW = {"strategy": "window", "window_size": 1_000, "window_ms": 30_000}


def smaller(until_ms: int) -> Earlier:
    return Earlier(until_ms, AddressBook.of({"#": {"id_cache_size": 10}}))


def accepted(
    spark: SparkSession,
    *lanes: list[tuple[str, int]],
    settings: dict[str, object] | None = None,
    earlier: tuple[Earlier, ...] = (),
) -> Findings:
    """What is found where ids came at these seconds, by partition, and all went out."""
    ledger = Ledger("in", records=0, ring=RING, partitions=len(lanes), seed=1)
    for number, (lane, records) in enumerate(zip(ledger.lanes, lanes, strict=True)):
        for offset, (name, second) in enumerate(records):
            headers: list[tuple[str, bytes | None]] = [("_DUPL_ID", name.encode())]
            value = b"%d-%d" % (number, offset)
            row = Row(START_MS + 1000 * second, name.encode(), value, headers)
            lane.inputs.append(row)
            lane.outputs.append(Entry(offset, row))
    return judged(spark, ledger, settings, earlier=earlier)


def apart(gap: int, since: int = 0) -> list[tuple[str, int]]:
    """An id, others, and the same again: so many ids behind."""
    between = [(f"other-{since}-{n}", since + n) for n in range(1, gap)]
    return [(f"same-{since}", since), *between, (f"same-{since}", since + gap)]


def let_through(findings: Findings) -> set[str]:
    found = named(findings)
    assert not found.keys() - {"let-through"}
    return found.get("let-through", set())


def test_a_copy_within_the_ring_that_went_out_is_a_fault(spark: SparkSession) -> None:
    findings = accepted(spark, apart(RING), apart(RING + 1))
    assert let_through(findings) == {f"in-0@{RING}"}


def test_what_a_smaller_ring_let_out_before_it_was_made_larger_is_none(
    spark: SparkSession,
) -> None:
    before, after = apart(20), apart(20, since=1_000)
    grown = smaller(START_MS + 500_000)
    findings = accepted(spark, [*before, *after], apart(9), earlier=(grown,))
    assert let_through(findings) == {f"in-0@{len(before) + 20}", "in-1@9"}
    (address,) = findings.addresses
    assert (address.missed, address.needed_all) == (1, 20)


def test_where_nobody_knows_the_size_nothing_is_let_through(spark: SparkSession) -> None:
    assert let_through(accepted(spark, apart(20), earlier=(UNKNOWN,))) == set()


def test_one_time_ahead_of_the_clock_does_not_make_a_window_hold_for_longer(
    spark: SparkSession,
) -> None:
    within, too_late, late = apart(20), apart(40), apart(20)
    behind_it = [("ahead", 3_600), *too_late]
    itself = [(too_late[0][0], 3_600), *too_late[1:]]
    late[5:5] = [("late", -5)]
    lanes = (within, too_late, behind_it, itself, late)
    assert let_through(accepted(spark, *lanes, settings=WINDOW)) == {"in-0@20", "in-4@21"}
