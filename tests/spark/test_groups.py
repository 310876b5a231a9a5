"""Of a transaction group what waits has an excuse, and what was passed over has none."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from pipeline.reconcile.findings import Findings
from ringfence.headers import GROUP, GROUP_POSITION, GROUP_SIZE, DeadLetter, Reason
from tests.spark.judging import judged, named
from tests.spark.ledger import START_MS, Entry, Ledger, Row

pytestmark = pytest.mark.spark

SIZE = 3
PARKED = "excused: in an open transaction group"
SILENT = "excused: duplicate without a trace"


class Sent(NamedTuple):
    """A position of a group, and what became of it: went out, a reason, or nothing."""

    position: int
    fate: Reason | str = ""


OUT = "accepted"
AGAIN, IN_GROUP = Reason.DUPLICATE, Reason.DUPLICATE_IN_GROUP


def found(
    spark: SparkSession,
    cases: Iterable[Sequence[Sent]],
    settings: dict[str, object] | None = None,
) -> Findings:
    """What is found where these came in this order, each case in a partition of its own."""
    cases = list(cases)
    ledger = Ledger("in", records=0, ring=60, partitions=len(cases), seed=1)
    for number, sent in enumerate(cases):
        lane = ledger.lanes[number]
        for offset, each in enumerate(sent):
            row = row_of(number, offset, each)
            lane.inputs.append(row)
            if each.fate == OUT:
                lane.outputs.append(Entry(offset, row))
            elif each.fate:
                lane.letters.append(Entry(offset, letter(row, number, offset, str(each.fate))))
    return judged(spark, ledger, settings)


def row_of(number: int, offset: int, sent: Sent) -> Row:
    headers = [
        ("_DUPL_ID", b"%d" % sent.position),
        (GROUP, b"t"),
        (GROUP_SIZE, b"%d" % SIZE),
        (GROUP_POSITION, b"%d" % sent.position),
    ]
    return Row(START_MS + offset, b"%d" % number, b"v", [*headers])


def letter(row: Row, number: int, offset: int, reason: str) -> Row:
    told = {
        DeadLetter.REASON: reason,
        DeadLetter.TOPIC: "in",
        DeadLetter.PARTITION: str(number),
        DeadLetter.OFFSET: str(offset),
        DeadLetter.TIMESTAMP: str(row.time_ms),
        DeadLetter.ADDRESS: "in",
    }
    return row._replace(headers=[*row.headers, *((str(k), v.encode()) for k, v in told.items())])


def faults_of(findings: Findings, cases: Iterable[str]) -> Mapping[str, set[int]]:
    """By case, the offsets without a fate."""
    found_at = named(findings)
    assert not found_at.keys() - {"no-fate"}
    names, by_case = list(cases), dict[str, set[int]]()
    for place in found_at.get("no-fate", ()):
        number, offset = place.removeprefix("in-").split("@")
        by_case.setdefault(names[int(number)], set()).add(int(offset))
    return by_case


WAIT = {
    "a group that has begun": [Sent(1), Sent(2)],
    "a position that came again": [Sent(1, AGAIN), Sent(2), Sent(1)],
    "one that was refused alone": [Sent(1), Sent(2, Reason.EXPIRED), Sent(3)],
    "half of an accepted group that came again": [
        *(Sent(1, OUT), Sent(2, OUT), Sent(3, OUT)),
        *(Sent(1), Sent(2)),
    ],
    "a third of a group that was refused and came again": [
        *(Sent(3, OUT), Sent(1, OUT), Sent(2, OUT)),
        *(Sent(1, IN_GROUP), Sent(2, IN_GROUP), Sent(3, IN_GROUP)),
        Sent(2),
    ],
    "a position behind a group given up": [Sent(1, Reason.GROUP_INCOMPLETE), Sent(2)],
}


def test_what_waits_for_the_rest_of_its_group_is_excused(spark: SparkSession) -> None:
    findings = found(spark, WAIT.values())
    assert faults_of(findings, WAIT) == {}
    waiting = [each for sent in WAIT.values() for each in sent if not each.fate]
    assert findings.fates[PARKED] == len(waiting)


PASSED_OVER = {
    "a whole group": ([Sent(1), Sent(2), Sent(3)], {0, 1, 2}),
    "the first of an accepted one": ([Sent(1), Sent(2, OUT), Sent(3, OUT)], {0}),
    "the last of an accepted one": ([Sent(1, OUT), Sent(2, OUT), Sent(3)], {2}),
    "one of a refused one": ([Sent(1), Sent(2, IN_GROUP), Sent(3, IN_GROUP)], {0}),
    "one of a group given up": ([Sent(1), Sent(2, Reason.GROUP_INCOMPLETE), Sent(1)], {0}),
    "one before a new beginning": ([Sent(1, OUT), Sent(2), Sent(3, OUT), Sent(2)], {1}),
}


def test_what_was_passed_over_of_a_group_is_a_fault(spark: SparkSession) -> None:
    findings = found(spark, (sent for sent, _ in PASSED_OVER.values()))
    expected = {name: faults for name, (_, faults) in PASSED_OVER.items()}
    assert faults_of(findings, PASSED_OVER) == expected


DROPPED = {
    "a whole group again": [*(Sent(n, OUT) for n in (1, 2, 3)), *map(Sent, (1, 2, 3))],
    "a copy that was replaced": [Sent(1), *(Sent(n, OUT) for n in (1, 2, 3))],
    "a whole group that came once": [Sent(1), Sent(2), Sent(3)],
}


def test_where_duplicates_are_dropped_only_what_may_be_one_has_no_trace(
    spark: SparkSession,
) -> None:
    findings = found(spark, DROPPED.values(), {"on_duplicate": "drop"})
    assert faults_of(findings, DROPPED) == {"a whole group that came once": {0, 1, 2}}
    assert findings.fates[SILENT] == 3 + 1
