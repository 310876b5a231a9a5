"""Judging a ledger, whatever a test has made of it, without a broker."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession

from pipeline.admin import Partition, Span
from pipeline.reconcile.cut import Cut, Judged
from pipeline.reconcile.findings import Findings
from pipeline.reconcile.judge import Evidence, Look, judge
from pipeline.reconcile.plan import Plan, Rule
from pipeline.reconcile.settings import Earlier
from ringfence.spark_columns import RECORD
from service.addresses import AddressBook
from tests.spark.ledger import Entry, Ledger, Row


def frame(spark: SparkSession, topic: str, lanes: Iterable[list[Row]]) -> DataFrame:
    rows = [
        (topic, number, offset, None, row.key, row.value, row.headers)
        for number, lane in enumerate(lanes)
        for offset, row in enumerate(lane)
    ]
    times = [row.time_ms for lane in lanes for row in lane]
    timed = [(*row[:3], time_ms, *row[4:]) for row, time_ms in zip(rows, times, strict=True)]
    schema = "topic string, partition int, offset long, t long, key binary, value binary, headers "
    made = spark.createDataFrame(timed, schema + RECORD["headers"].dataType.simpleString())
    return made.selectExpr(
        "topic",
        "partition",
        "offset",
        "timestamp_millis(t) AS timestamp",
        "key",
        "value",
        "headers",
    )


def plan_of(ledger: Ledger, scope: str, earlier: tuple[Earlier, ...], **settings: object) -> Plan:
    rule = Rule((ledger.topic,), "{topic}", "", scope)
    book = AddressBook.of({"#": {"id_cache_size": ledger.ring, **settings}})
    outputs, letters = frozenset({ledger.output}), frozenset({ledger.dead_letter})
    return Plan(
        "g",
        (rule,),
        outputs,
        letters,
        book,
        stamps=False,
        from_the_first_fate=False,
        targets={ledger.topic: outputs | letters},
        earlier=earlier,
    )


def judged(
    spark: SparkSession,
    ledger: Ledger,
    settings: dict[str, object] | None = None,
    ends: int = 0,
    begins: Mapping[Partition, int] | None = None,
    earlier: tuple[Earlier, ...] = (),
    scope: str = "partition",
) -> Findings:
    """What is found in a ledger.

    `ends` records of each lane came after what was committed. Of the partitions in `begins`,
    retention has deleted so many records.
    """
    inputs = {
        Partition(ledger.topic, n): Judged(Span(0, len(lane.inputs)), len(lane.inputs) - ends)
        for n, lane in enumerate(ledger.lanes)
    }
    outputs = [rows(lane.outputs) for lane in ledger.lanes]
    letters = [rows(lane.letters) for lane in ledger.lanes]
    begins = begins or {}
    evidence = Evidence(
        plan_of(ledger, scope, earlier, **(settings or {})),
        Cut(
            "c",
            inputs,
            spans(ledger.output, outputs, begins),
            spans(ledger.dead_letter, letters, begins),
            keeps_time=True,
        ),
        frame(spark, ledger.topic, [lane.inputs for lane in ledger.lanes]),
        left(frame(spark, ledger.output, outputs), begins),
        left(frame(spark, ledger.dead_letter, letters), begins),
        spark.createDataFrame([], "origin struct<topic: string, partition: int, offset: long>"),
    )
    return judge(spark, evidence, Look())


def spans(
    topic: str, lanes: list[list[Row]], begins: Mapping[Partition, int]
) -> dict[Partition, Span]:
    named = {Partition(topic, n): len(lane) for n, lane in enumerate(lanes)}
    return {each: Span(begins.get(each, 0), end) for each, end in named.items()}


def left(records: DataFrame, begins: Mapping[Partition, int]) -> DataFrame:
    for (topic, number), begin in begins.items():
        gone = f"topic = '{topic}' AND partition = {number} AND offset < {begin}"
        records = records.where(f"NOT ({gone})")
    return records


def rows(entries: list[Entry]) -> list[Row]:
    return [entry.row for entry in entries]


def named(findings: Findings) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for fault in findings.faults:
        found[fault.kind].add(fault.place)
    return dict(found)
