"""Judging ledgers, whatever a test has made of them, without a broker.

A judgement costs the same for one record and for thousands. So all ledgers are judged in one, each
as a topic with settings of its own, and a test asks for what was found of its own. An output and
its input are matched by what they hold alone, so each value begins with the name of its ledger.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from ringfence_client.spark.columns import RECORD
from ringfence_pipeline.admin import KafkaPartition, OffsetSpan
from ringfence_pipeline.reconcile.analyze import AnalyzeOptions, Evidence, judge
from ringfence_pipeline.reconcile.results import ReconcileResult
from ringfence_pipeline.reconcile.scope import PastSettings, ReconcileScope, RouteScope
from ringfence_pipeline.reconcile.snapshot import DecidedRange, Snapshot
from ringfence_service.config.addresses import AddressBook
from ringfence_service.metadata import redrive_job as job
from tests.spark.ledger import Entry, Ledger, Row

Lanes = list[list[Row]]


class Case(NamedTuple):
    """A ledger, and how its address remembers."""

    ledger: Ledger
    settings: Mapping[str, object] = {}
    scope: str = "partition"
    ends: int = 0
    """So many records of each lane came after what was committed."""
    begins: Mapping[KafkaPartition, int] = {}
    """Of these partitions retention has deleted so many records."""
    earlier: Mapping[int, Mapping[str, object]] = {}
    """How its address remembered until a time."""
    redriven: tuple[tuple[int, int, int], ...] = ()
    """Dead letters that redrives went over: their partition, the first, and one after the last."""

    @property
    def outputs(self) -> Lanes:
        return [rows(lane.outputs) for lane in self.ledger.lanes]

    @property
    def letters(self) -> Lanes:
        return [rows(lane.letters) for lane in self.ledger.lanes]


def judged(spark: SparkSession, *cases: Case) -> ReconcileResult:
    """What is found in these ledgers."""
    return judge(spark, evidence(spark, *cases), AnalyzeOptions())


def evidence(spark: SparkSession, *cases: Case) -> Evidence:
    """What the topics of these ledgers have."""
    inputs, outputs, letters, spans = [], [], [], dict[KafkaPartition, OffsetSpan]()
    for case in cases:
        ledger = case.ledger
        inputs += [(ledger.topic, [lane.inputs for lane in ledger.lanes])]
        outputs += [(ledger.output, case.outputs)]
        letters += [(ledger.dead_letter, case.letters)]
        for topic, lanes in (outputs[-1], letters[-1]):
            named = (
                (KafkaPartition(topic, number), len(lane)) for number, lane in enumerate(lanes)
            )
            spans |= {each: OffsetSpan(case.begins.get(each, 0), end) for each, end in named}
    decided = {
        KafkaPartition(case.ledger.topic, number): DecidedRange(
            OffsetSpan(0, len(lane.inputs)), committed
        )
        for case in cases
        for number, lane in enumerate(case.ledger.lanes)
        for committed in [len(lane.inputs) - case.ends]
    }
    plan = _plan(cases)
    return Evidence(
        plan,
        Snapshot(
            "c",
            decided,
            {each: span for each, span in spans.items() if each.topic in plan.outputs},
            {each: span for each, span in spans.items() if each.topic in plan.letters},
            keeps_time=True,
        ),
        _frame(spark, inputs, spans),
        _frame(spark, outputs, spans),
        _frame(spark, letters, spans),
        spark.createDataFrame([], "origin struct<topic: string, partition: int, offset: long>"),
    )


def named(findings: ReconcileResult, ledger: Ledger | None = None) -> dict[str, set[str]]:
    """The places that are named, by the kind of their faults; those of one ledger, or all."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for fault in findings.faults:
        if ledger is None or fault.topic in {ledger.topic, ledger.output, ledger.dead_letter}:
            found[fault.kind].add(fault.place)
    return dict(found)


def rows(entries: list[Entry]) -> list[Row]:
    return [entry.row for entry in entries]


def _plan(cases: Iterable[Case]) -> ReconcileScope:
    ledgers = [case.ledger for case in cases]
    rules = [RouteScope((case.ledger.topic,), "{topic}", "", case.scope) for case in cases]
    now = {
        case.ledger.topic: {"id_cache_size": case.ledger.ring, **case.settings} for case in cases
    }
    former = [
        PastSettings(until_ms, AddressBook.of({**now, case.ledger.topic: settings}))
        for case in cases
        for until_ms, settings in case.earlier.items()
    ]
    return ReconcileScope(
        "g",
        tuple(rules),
        frozenset(each.output for each in ledgers),
        frozenset(each.dead_letter for each in ledgers),
        AddressBook.of(now),
        stamps=False,
        from_the_first_fate=False,
        targets={each.topic: frozenset({each.output, each.dead_letter}) for each in ledgers},
        by_address_partitions=12,
        earlier=tuple(former),
        redriven=tuple(
            job.DeadLetterRange(case.ledger.dead_letter, *span)
            for case in cases
            for span in case.redriven
        ),
    )


def _frame(
    spark: SparkSession,
    topics: Iterable[tuple[str, Iterable[list[Row]]]],
    spans: Mapping[KafkaPartition, OffsetSpan],
) -> DataFrame:
    schema = "topic string, partition int, offset long, t long, key binary, value binary, headers "
    made = spark.createDataFrame(
        list(_records(topics, spans)), schema + RECORD["headers"].dataType.simpleString()
    )
    time = "timestamp_millis(t) AS timestamp"
    return made.selectExpr("topic", "partition", "offset", time, "key", "value", "headers")


def _records(
    topics: Iterable[tuple[str, Iterable[list[Row]]]], spans: Mapping[KafkaPartition, OffsetSpan]
) -> Iterator[tuple[object, ...]]:
    for topic, lanes in topics:
        for number, lane in enumerate(lanes):
            span = spans.get(KafkaPartition(topic, number), OffsetSpan(0, len(lane)))
            for offset in range(span.begin, len(lane)):
                time_ms, key, value, headers = lane[offset]
                value = topic.partition(".")[0].encode() + value
                yield topic, number, offset, time_ms, key, value, headers
