"""Reconcile judges: what was planted is found and named, what is right or in doubt is no fault."""

from collections import Counter
from math import ceil
from random import Random
from typing import NamedTuple, Self

import pytest
from pyspark.sql import SparkSession

from ringfence_client.headers import DeadLetter
from ringfence_pipeline.admin import KafkaPartition
from ringfence_pipeline.reconcile.results import AddressFound, ReconcileResult
from ringfence_pipeline.reconcile.scope import UNKNOWN
from tests.spark.groups import (
    DROPPED,
    PASSED_OVER,
    WAITING,
    faults_of,
    grouped,
    without_fate,
)
from tests.spark.interleaved import as_read, decided, sent
from tests.spark.judging import Case, judged, named
from tests.spark.ledger import START_MS, Entry, Ledger, Row

pytestmark = pytest.mark.spark

RING = 60
DROP = {"on_duplicate": "drop"}
WINDOW = {"strategy": "window", "window_size": 1_000, "window_ms": 30_000}
LEFT_RECORDS, LEFT_GONE = 300, 60
REDRIVEN = 20
PARKED = "excused: in an open transaction group"
SILENT = "excused: duplicate without a trace"
LEFT = "excused: before what retention has left"
AFTER = "excused: after the cut"


class World:
    """Many ledgers, what is to be found of each, and what was found of all in one judgement."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}
        self.expected: dict[str, dict[str, set[str]]] = {}
        self.fates = Counter[str]()
        """Excuses that some of them have."""
        self.findings: ReconcileResult

    def add(self, case: Case, **expected: set[str]) -> None:
        self.cases[case.ledger.topic] = case
        self.expected[case.ledger.topic] = {
            kind.replace("_", "-"): found for kind, found in expected.items()
        }

    def judge(self, spark: SparkSession) -> Self:
        self.findings = judged(spark, *self.cases.values())
        return self

    def found(self, topic: str) -> dict[str, set[str]]:
        return named(self.findings, self.cases[topic].ledger)

    def address(self, topic: str) -> AddressFound:
        return next(each for each in self.findings.addresses if each.address == topic)


class Spoilt(NamedTuple):
    """A ledger with faults, and the places where they are to be named."""

    ledger: Ledger
    faults: dict[str, set[str]]


def changed() -> Spoilt:
    """What is changed, or made up."""
    ledger = Ledger("changed", records=600, ring=RING, partitions=1, seed=3)
    (lane,) = ledger.lanes
    last = len(lane.outputs)
    changed = lane.outputs[5]
    lane.outputs[5] = changed._replace(row=changed.row._replace(value=b"other"))
    # A dead letter of a copy whose record went out all the same, with its own time.
    times = [row.time_ms for row in lane.inputs]
    both = next(e for e in lane.letters if times.count(lane.inputs[e.input_offset].time_ms) == 1)
    lane.outputs.append(Entry(both.input_offset, lane.inputs[both.input_offset]))
    lane.letters.append(lane.letters[0])
    stray = lane.letters[1].row
    lane.letters.append(Entry(999, with_header(stray, DeadLetter.OFFSET, b"999")))
    wrong = lane.letters[2].row
    other = next(e for e in lane.outputs if e.row.key != wrong.key)
    original = f"changed-0@{other.input_offset}".encode()
    lane.letters[2] = lane.letters[2]._replace(
        row=with_header(wrong, DeadLetter.ORIGINAL, original)
    )
    letters = len(lane.letters)
    return Spoilt(
        ledger,
        {
            "no_fate": {f"changed-0@{changed.input_offset}"},
            "unknown_output": {"changed.unique-0@5"},
            "two_fates": {f"changed.unique-0@{last}", f"changed.dlq-0@{letters - 2}"},
            "unknown_letter": {f"changed.dlq-0@{letters - 1}"},
            "false_duplicate": {"changed.dlq-0@2"},
        },
    )


def with_header(row: Row, name: str, value: bytes) -> Row:
    return row._replace(headers=[(k, value if k == name else v) for k, v in row.headers])


def shortened(topic: str) -> Case:
    """Retention took outputs of one partition, letters of another; of a third all letters."""
    ledger = Ledger(topic, records=4 * LEFT_RECORDS, ring=RING, partitions=4, seed=6)
    begins = {
        KafkaPartition(ledger.output, 0): LEFT_GONE,
        KafkaPartition(ledger.dead_letter, 1): LEFT_GONE,
        KafkaPartition(ledger.dead_letter, 2): len(ledger.lanes[2].letters),
    }
    return Case(ledger, begins=begins)


def went_out(topic: str, *lanes: list[tuple[str, int]]) -> Ledger:
    """Ids that came at these seconds, by partition, and all went out."""
    ledger = Ledger(topic, records=0, ring=RING, partitions=len(lanes), seed=1)
    for number, (lane, records) in enumerate(zip(ledger.lanes, lanes, strict=True)):
        for offset, (name, second) in enumerate(records):
            headers: list[tuple[str, bytes | None]] = [("_DUPL_ID", name.encode())]
            value = b"%d-%d" % (number, offset)
            row = Row(START_MS + 1000 * second, name.encode(), value, headers)
            lane.inputs.append(row)
            lane.outputs.append(Entry(offset, row))
    return ledger


def apart(gap: int, since: int = 0) -> list[tuple[str, int]]:
    """An id, others, and the same again: so many ids behind."""
    between = [(f"other-{since}-{n}", since + n) for n in range(1, gap)]
    return [(f"same-{since}", since), *between, (f"same-{since}", since + gap)]


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> World:
    made = World()
    spoilt = changed()
    made.add(Case(spoilt.ledger), **spoilt.faults)
    _redriven(made)
    _dropped(made)
    _grouped(made)
    _interleaved(made)
    _left(made)
    made.add(Case(went_out("ring", apart(RING), apart(RING + 1))), let_through={f"ring-0@{RING}"})
    # In its earlier part the ring held ten.
    before, after = apart(20), apart(20, since=1_000)
    grown = went_out("grown", [*before, *after], apart(9))
    through = {f"grown-0@{len(before) + 20}", "grown-1@9"}
    made.add(Case(grown, earlier={START_MS + 500_000: {"id_cache_size": 10}}), let_through=through)
    # What was remembered by another strategy, nobody knows any more.
    earlier = {UNKNOWN.until_ms: {"strategy": "window"}}
    made.add(Case(went_out("nobody-knows", apart(20)), earlier=earlier))
    within, too_late, late = apart(20), apart(40), apart(20)
    behind_it = [("ahead", 3_600), *too_late]
    itself = [(too_late[0][0], 3_600), *too_late[1:]]
    late[5:5] = [("late", -5)]
    window = went_out("window", within, too_late, behind_it, itself, late)
    made.add(Case(window, WINDOW), let_through={"window-0@20", "window-4@21"})
    return made.judge(spark)


def _redriven(made: World) -> None:
    """A redrive let some out; of the letters behind it one went out without any."""
    ledger = Ledger("redriven", records=600, ring=RING, partitions=1, seed=7)
    (lane,) = ledger.lanes
    times = Counter(row.time_ms for row in lane.inputs)
    alone = [times[lane.inputs[each.input_offset].time_ms] == 1 for each in lane.letters]
    stray = alone.index(True, REDRIVEN)
    for letter in (*lane.letters[:REDRIVEN], lane.letters[stray]):
        lane.outputs.append(Entry(letter.input_offset, lane.inputs[letter.input_offset]))
    # As many spans as when letters are named one by one.
    spans = tuple((0, offset, offset + 1) for offset in range(REDRIVEN))
    spans += tuple((1, offset, offset + 1) for offset in range(0, 4_000, 2))
    spoilt = f"redriven.unique-0@{len(lane.outputs) - 1}"
    made.add(Case(ledger, redriven=spans), two_fates={spoilt})


def _dropped(made: World) -> None:
    """Duplicates leave no trace, and one record is lost."""
    ledger = Ledger("dropped", records=600, ring=RING, partitions=1, seed=4)
    (lane,) = ledger.lanes
    made.fates[SILENT] += len(lane.letters)
    lane.letters.clear()
    skipped = ledger.victims(lane)[0]
    lane.outputs[:] = [each for each in lane.outputs if each.input_offset != skipped]
    made.add(Case(ledger, DROP), no_fate={f"dropped-0@{skipped}"})


def _grouped(made: World) -> None:
    passed_over = [sent for sent, _ in PASSED_OVER.values()]
    made.add(Case(grouped("waiting", WAITING.values())))
    made.add(Case(grouped("passed-over", passed_over)))
    made.add(Case(grouped("group-dropped", DROPPED.values()), DROP))
    faults = sum(len(each) for _, each in PASSED_OVER.values())
    made.fates[PARKED] += without_fate(WAITING.values()) + without_fate(passed_over) - faults
    made.fates[SILENT] += 3 + 1


def _interleaved(made: World) -> None:
    for seed in range(2):
        chance = Random(seed)
        ledger = sent(f"interleaved-{seed}", 50, chance)
        decided(ledger, as_read(ledger, chance, at_once_max=100))
        made.add(Case(ledger, scope="address"))
    chance = Random(1)
    ledger = sent("interleaved-spoilt", 200, chance)
    let_out = decided(ledger, as_read(ledger, chance, at_once_max=3), faulty=5)
    assert len(let_out) == 5
    made.add(Case(ledger, scope="address"), let_through=let_out)


def _left(made: World) -> None:
    whole = shortened("left")
    made.add(whole)
    case = shortened("left-spoilt")
    lanes = case.ledger.lanes
    victims = [sorted(case.ledger.victims(lane)) for lane in lanes]
    lost = [victims[0][-1], victims[1][-1], victims[2][0], victims[3][0]]
    for lane, offset in zip(lanes, lost, strict=True):
        lane.outputs[:] = [each for each in lane.outputs if each.input_offset != offset]
    # Of the third nothing shows whether it was a letter.
    made.add(case, no_fate={f"left-spoilt-{n}@{lost[n]}" for n in (0, 1, 3)})
    made.fates[LEFT] += 2 * sum(whole.begins.values()) + 1


def test_what_is_right_has_no_fault_and_its_distances_are_those_of_the_model(
    spark: SparkSession,
) -> None:
    ledger = Ledger("in", records=3_000, ring=RING, partitions=2, seed=1)
    findings = judged(spark, Case(ledger))
    assert named(findings) == {}
    assert findings.is_faultless
    lanes = ledger.lanes
    accepted, letters = (
        sum(len(each) for each in kind)
        for kind in zip(*((lane.outputs, lane.letters) for lane in lanes), strict=True)
    )
    assert findings.fates == {"accepted": accepted, "duplicate": letters}
    (found,) = findings.addresses
    gaps = [gap for lane in lanes for gap in lane.gaps]
    needed = sorted(each for lane in lanes for each in lane.needed)
    assert (found.accepted, found.duplicates) == (accepted, letters)
    assert found.missed == sum(gap > ledger.ring for gap in gaps) > 0
    assert found.copies == len(needed)
    shares = [needed[ceil(share * len(needed)) - 1] for share in (0.99, 0.999, 1)]
    assert [found.needed_99, found.needed_999, found.needed_all] == shares
    assert sum(each.caught + each.missed for each in findings.distances) == len(needed)
    assert sum(each.missed for each in findings.distances) == found.missed
    assert sum(slot.accepted for slot in findings.slots) == accepted
    assert sum(slot.duplicates for slot in findings.slots) == letters


def test_what_came_after_the_cut_may_have_no_fate_yet(spark: SparkSession) -> None:
    ledger = Ledger("in", records=600, ring=RING, partitions=2, seed=5)
    # A record without a time goes out with that of its decision, and is still the same record.
    ledger.lanes[0].inputs[0] = ledger.lanes[0].inputs[0]._replace(time_ms=0)
    for lane in ledger.lanes:
        lane.outputs[:] = [each for each in lane.outputs if each.input_offset < 220]
        lane.letters[:] = [each for each in lane.letters if each.input_offset < 220]
    findings = judged(spark, Case(ledger, ends=80))
    assert named(findings) == {}
    assert findings.fates[AFTER] == 2 * 80
    assert sum(n for fate, n in findings.fates.items() if "excused" not in fate) == 2 * 220


@pytest.mark.parametrize(
    "topic",
    [
        *("changed", "redriven", "dropped", "interleaved-0", "interleaved-1", "interleaved-spoilt"),
        *("left", "left-spoilt", "ring", "grown", "nobody-knows", "window"),
    ],
)
def test_what_is_a_fault_is_named_and_nothing_else(world: World, topic: str) -> None:
    assert world.found(topic) == world.expected[topic]


def test_what_waits_for_the_rest_of_its_group_is_excused(world: World) -> None:
    assert faults_of(world.findings, world.cases["waiting"].ledger, WAITING) == {}


def test_what_was_passed_over_of_a_group_is_a_fault(world: World) -> None:
    expected = {name: faults for name, (_, faults) in PASSED_OVER.items()}
    assert faults_of(world.findings, world.cases["passed-over"].ledger, PASSED_OVER) == expected


def test_where_duplicates_are_dropped_only_what_may_be_one_has_no_trace(world: World) -> None:
    found = faults_of(world.findings, world.cases["group-dropped"].ledger, DROPPED)
    assert found == {"a whole group that came once": {0, 1, 2}}


def test_each_excuse_is_counted_and_each_input_has_one_fate(world: World) -> None:
    fates = world.findings.fates
    assert {name: n for name, n in fates.items() if name.startswith("excused")} == world.fates
    assert fates["redriven"] == REDRIVEN
    inputs = (lane.inputs for case in world.cases.values() for lane in case.ledger.lanes)
    assert sum(fates.values()) == sum(map(len, inputs))


def test_copies_that_a_ring_was_too_short_for_are_counted(world: World) -> None:
    assert all(world.address(f"interleaved-{seed}").missed > 20 for seed in range(2))
    grown = world.address("grown")
    assert (grown.missed, grown.needed_all) == (1, 20)
