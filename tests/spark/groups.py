"""Transaction groups: what waits in one has an excuse, what was passed over has none."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ringfence_client.headers import GROUP, GROUP_POSITION, GROUP_SIZE, DeadLetter, Reason
from ringfence_pipeline.reconcile.results import ReconcileResult
from tests.spark.judging import named
from tests.spark.ledger import START_MS, Entry, Ledger, Row

SIZE: Final = 3
OUT: Final = "accepted"
AGAIN, IN_GROUP = Reason.DUPLICATE, Reason.DUPLICATE_IN_GROUP


class Sent(NamedTuple):
    """A position of a group, and what became of it: went out, a reason, or nothing."""

    position: int
    fate: Reason | str = ""


WAITING: Final = {
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
PASSED_OVER: Final = {
    "a whole group": ([Sent(1), Sent(2), Sent(3)], {0, 1, 2}),
    "the first of an accepted one": ([Sent(1), Sent(2, OUT), Sent(3, OUT)], {0}),
    "the last of an accepted one": ([Sent(1, OUT), Sent(2, OUT), Sent(3)], {2}),
    "one of a refused one": ([Sent(1), Sent(2, IN_GROUP), Sent(3, IN_GROUP)], {0}),
    "one of a group given up": ([Sent(1), Sent(2, Reason.GROUP_INCOMPLETE), Sent(1)], {0}),
    "one before a new beginning": ([Sent(1, OUT), Sent(2), Sent(3, OUT), Sent(2)], {1}),
}
DROPPED: Final = {
    "a whole group again": [*(Sent(n, OUT) for n in (1, 2, 3)), *map(Sent, (1, 2, 3))],
    "a copy that was replaced": [Sent(1), *(Sent(n, OUT) for n in (1, 2, 3))],
    "a whole group that came once": [Sent(1), Sent(2), Sent(3)],
}


def grouped(topic: str, cases: Iterable[Sequence[Sent]]) -> Ledger:
    """These in this order, each case in a partition of its own."""
    cases = list(cases)
    ledger = Ledger(topic, records=0, ring=60, partitions=len(cases), seed=1)
    for number, sent in enumerate(cases):
        lane = ledger.lanes[number]
        for offset, each in enumerate(sent):
            row = _row(number, offset, each)
            lane.inputs.append(row)
            if each.fate == OUT:
                lane.outputs.append(Entry(offset, row))
            elif each.fate:
                letter = _letter(row, topic, number, offset, str(each.fate))
                lane.letters.append(Entry(offset, letter))
    return ledger


def without_fate(cases: Iterable[Sequence[Sent]]) -> int:
    return sum(not each.fate for sent in cases for each in sent)


def faults_of(
    findings: ReconcileResult, ledger: Ledger, cases: Iterable[str]
) -> Mapping[str, set[int]]:
    """By case, the offsets without a fate."""
    found_at = named(findings, ledger)
    assert not found_at.keys() - {"no-fate"}
    names, by_case = list(cases), dict[str, set[int]]()
    for place in found_at.get("no-fate", ()):
        number, offset = place.removeprefix(f"{ledger.topic}-").split("@")
        by_case.setdefault(names[int(number)], set()).add(int(offset))
    return by_case


def _row(number: int, offset: int, sent: Sent) -> Row:
    headers = [
        ("_DUPL_ID", b"%d" % sent.position),
        (GROUP, b"t"),
        (GROUP_SIZE, b"%d" % SIZE),
        (GROUP_POSITION, b"%d" % sent.position),
    ]
    return Row(START_MS + offset, b"%d" % number, b"v", [*headers])


def _letter(row: Row, topic: str, number: int, offset: int, reason: str) -> Row:
    told = {
        DeadLetter.REASON: reason,
        DeadLetter.TOPIC: topic,
        DeadLetter.PARTITION: str(number),
        DeadLetter.OFFSET: str(offset),
        DeadLetter.TIMESTAMP: str(row.time_ms),
        DeadLetter.ADDRESS: topic,
    }
    return row._replace(headers=[*row.headers, *((str(k), v.encode()) for k, v in told.items())])
