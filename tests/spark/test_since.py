"""Runs that each read what came since the last one find together what one run of all finds."""

from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from ringfence_pipeline.admin import KafkaPartition, OffsetSpan
from ringfence_pipeline.errors import CONTRADICTION, PipelineError
from ringfence_pipeline.reconcile.analyze import AnalyzeOptions, ComparedRecords, Evidence, judge
from ringfence_pipeline.reconcile.since import Since, load_since, next_since, save_since
from ringfence_pipeline.reconcile.snapshot import DecidedRange, Snapshot
from tests.spark.interleaved import Place, as_read, decided, sent
from tests.spark.judging import Case, evidence, named
from tests.spark.ledger import Entry, Ledger

pytestmark = pytest.mark.spark

RING = 30
SHARES = (0.4, 0.55, 1.0)
AHEAD = 7
"""So many inputs lie behind the committed offset, of which some have been decided."""


def end_of(entries: list[Entry], committed: int) -> int:
    """Where an output ends when all inputs before this one have their fates."""
    return max(
        (n + 1 for n, each in enumerate(entries) if each.input_offset < committed), default=0
    )


Orders = dict[str, list[Place]]
"""By topic of several partitions and one address: the order of decisions."""


def cut_at(cases: list[Case], share: float, whole: Snapshot, orders: Orders) -> Snapshot:
    """The snapshot when the service had decided this share of everything."""
    inputs = {}
    written: dict[KafkaPartition, OffsetSpan] = {}
    for case in cases:
        ledger = case.ledger
        order = orders.get(ledger.topic, [])
        decided_of = Counter(place.partition for place in order[: int(len(order) * share)])
        for number, lane in enumerate(ledger.lanes):
            committed = decided_of[number] if order else int(len(lane.inputs) * share)
            end = min(len(lane.inputs), committed + AHEAD)
            inputs[KafkaPartition(ledger.topic, number)] = DecidedRange(
                OffsetSpan(0, end), committed
            )
            for topic, entries in (
                (ledger.output, lane.outputs),
                (ledger.dead_letter, lane.letters),
            ):
                last = len(entries) if share == 1 else end_of(entries, committed)
                written[KafkaPartition(topic, number)] = OffsetSpan(0, last)
    return whole._replace(
        inputs=inputs,
        outputs={each: written[each] for each in whole.outputs},
        letters={each: written[each] for each in whole.letters},
    )


def read(frame: DataFrame, spans: dict[KafkaPartition, OffsetSpan]) -> DataFrame:
    spark = frame.sparkSession
    rows = [(*each, *span) for each, span in spans.items()]
    limits = spark.createDataFrame(rows, "topic string, partition int, low long, high long")
    found = frame.join(sf.broadcast(limits), ["topic", "partition"])
    return found.where("offset >= low AND offset < high").select(*frame.columns)


def test_steps_find_what_one_run_finds_and_read_only_what_they_need(
    spark: SparkSession, tmp_path: Path
) -> None:
    cases, expected = [], defaultdict[str, set[str]](set)
    ledger = Ledger("steps", records=1_800, ring=RING, partitions=2, seed=4)
    for kind, places in ledger.spoil(12).items():
        expected[kind] |= places
    cases.append(Case(ledger))
    for name, earlier in {"dropped": RING, "dropped-from-more": 500}.items():
        dropped = Ledger(name, records=600, ring=RING, partitions=1, seed=4)
        (lane,) = dropped.lanes
        lane.letters.clear()
        skipped = max(dropped.victims(lane))
        lane.outputs[:] = [each for each in lane.outputs if each.input_offset != skipped]
        settings = {"on_duplicate": "drop"}
        former = {**settings, "id_cache_size": earlier}
        cases.append(Case(dropped, settings, earlier={lane.inputs[-1].time_ms: former}))
        # A ring that was so large may know it from a record before those that are read again.
        if earlier == RING:
            expected["no-fate"].add(f"{name}-0@{skipped}")
    chance = Random(3)
    interleaved = sent("interleaved", RING, chance)
    orders = {interleaved.topic: list(as_read(interleaved, chance, at_once_max=3))}
    decided(interleaved, iter(orders[interleaved.topic]))
    cases.append(Case(interleaved, scope="address"))
    every = evidence(spark, *cases)
    inputs, outputs, letters = (
        frame.cache() for frame in (every.inputs, every.outputs, every.letters)
    )
    found = defaultdict[str, set[str]](set)
    records, since, windows = [], None, []
    for share in SHARES:
        cut = cut_at(cases, share, every.cut, orders)
        if since is not None:
            cut = since.window(cut)
        windows.append(sum(ranged.span.end - ranged.span.begin for ranged in cut.inputs.values()))
        given = Evidence(
            every.plan,
            cut,
            read(inputs, {each: ranged.span for each, ranged in cut.inputs.items()}),
            read(outputs, dict(cut.outputs)),
            read(letters, dict(cut.letters)),
            every.carried,
            since,
        )
        left: list[Since] = []

        def keep(compared: ComparedRecords) -> int:
            left.append(next_since(compared.known, compared.lost, cut, since))  # noqa: B023
            return 0

        result = judge(spark, given, AnalyzeOptions(), keep)
        save_since(spark, tmp_path, "g", left[0])
        since = load_since(spark, tmp_path, "g")
        step = named(result)
        for kind, places in step.items():
            assert not found[kind] & places, "each fault is one of one run"
            found[kind] |= places
        records.append(sum(n for fate, n in result.fates.items() if "after the cut" not in fate))
    assert {kind: places for kind, places in found.items() if places} == dict(expected)
    total = sum(len(lane.inputs) for case in cases for lane in case.ledger.lanes)
    assert sum(records) == total
    # What is new, what was ahead, and twice the ring of each partition.
    lanes = sum(len(case.ledger.lanes) for case in cases)
    for window, new, old in zip(windows[1:], SHARES[1:], SHARES[:-1], strict=True):
        assert window <= total * (new - old) + lanes * (2 * RING + AHEAD + 2)
    assert since is not None
    behind = cut_at(cases, 0.5, every.cut, orders)
    with pytest.raises(PipelineError, match="committed less") as raised:
        since.window(behind)
    assert raised.value.exit_code == CONTRADICTION
