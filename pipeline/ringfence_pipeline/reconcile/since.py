"""Where a reconciliation ended, and from where the next one reads, so that a day costs a day.

The next run reads the inputs from a *context* before the first record that is not settled: twice as
many records of a partition as its largest ring, and every record that has waited for its fate.
Outputs and dead letters are read from the first that belongs to one of these inputs. Those that lie
behind it and belong to earlier inputs are listed by position, and left out. Records of the context
are compared like all others, but only faults at records that are new are faults of the run.

What a run reads is a part of the history, so an order that is estimated (scope `address`) may lack
records that were decided between two others. It lacks none between two that were decided since the
last run: all records before the context had been decided by then.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from ringfence_pipeline.admin import KafkaPartition, OffsetSpan
from ringfence_pipeline.errors import CONTRADICTION, PipelineError
from ringfence_pipeline.reconcile.blocks import kept
from ringfence_pipeline.reconcile.snapshot import DecidedRange, Snapshot
from ringfence_pipeline.reconcile.tolerated import CARRIED, PARKED
from ringfence_pipeline.storage import StorageFolder
from ringfence_service.metadata.redrive_job import DeadLetterRange

_FOLDER: Final = "reconciled"

_RINGS: Final = 2
"""Records of the context, in sizes of the largest ring: half of them may be duplicates."""

_UNLIMITED: Final = 2**62

_PLACE: Final = "topic string, partition int, offset bigint"


NO_FLOOR: Final = -_UNLIMITED


class InputMark(NamedTuple):
    """An input partition after a run."""

    begin: int
    """The first offset of the context."""
    done: int
    """The first offset that the run has not judged."""
    floor_ms: int
    """The greatest time before the context."""


class Since(NamedTuple):
    """What a run leaves to the next one."""

    inputs: Mapping[KafkaPartition, InputMark]
    written: Mapping[KafkaPartition, OffsetSpan]
    """By partition of outputs and dead letters: where to begin, and the first that is new."""
    pending: frozenset[tuple[str, int, int]]
    """Positions of judged inputs that were waiting for their fate."""
    ignored: DataFrame | None
    """Outputs behind the beginnings that belong to inputs before the context, as `place`."""
    redriven: tuple[DeadLetterRange, ...] = ()
    is_redriving: bool = False

    def window(self, cut: Snapshot) -> Snapshot:
        """Return the snapshot from the context on; raise PipelineError if it is of other topics."""
        gone_back = [
            each
            for each, mark in self.inputs.items()
            if each in cut.inputs and cut.inputs[each].committed < mark.done
        ]
        if gone_back:
            topic, number = gone_back[0]
            raise PipelineError(
                f"the group has committed less of {topic}-{number} than at the last run: its "
                "offsets were reset, or the topic is another one; reconcile without --since-last",
                exit_code=CONTRADICTION,
            )
        return cut._replace(
            inputs={
                each: DecidedRange(_from(ranged.span, self._begin(each)), ranged.committed)
                for each, ranged in cut.inputs.items()
            },
            outputs={each: _from(span, self.wanted(each)) for each, span in cut.outputs.items()},
            letters={each: _from(span, self.wanted(each)) for each, span in cut.letters.items()},
        )

    def _begin(self, each: KafkaPartition) -> int:
        return self.inputs[each].begin if each in self.inputs else 0

    def wanted(self, each: KafkaPartition) -> int:
        """Return where to begin to read a partition of outputs or dead letters."""
        return self.written[each].begin if each in self.written else 0

    def has_all_new(self, cut: Snapshot) -> bool:
        """Whether retention has left all inputs of new outputs; `cut` is a window."""
        waiting: dict[KafkaPartition, int] = {}
        for topic, number, offset in self.pending:
            each = KafkaPartition(topic, number)
            waiting[each] = min(offset, waiting.get(each, offset))
        return all(
            ranged.span.begin
            <= min(self.inputs[each].done, waiting.get(each, self.inputs[each].done))
            if each in self.inputs
            else ranged.span.begin == 0
            for each, ranged in cut.inputs.items()
        )

    def news(self, spark: SparkSession, named: DataFrame, of_inputs: Collection[str]) -> DataFrame:
        """Return the violations at new records; those of kinds `of_inputs` are at inputs."""
        marks = [(True, *each, mark.done) for each, mark in self.inputs.items()]
        marks += [(False, *each, span.end) for each, span in self.written.items()]
        begins = spark.createDataFrame(
            marks, "of_input boolean, topic string, partition int, new bigint"
        )
        waiting = spark.createDataFrame([(True, *each) for each in self.pending], _WAITING)
        keys = ["of_input", "topic", "partition"]
        return (
            named.withColumn("of_input", sf.col("kind").isin(*of_inputs))
            .join(sf.broadcast(begins), keys, "left")
            .join(
                sf.broadcast(waiting.withColumn("waits", sf.lit(col=True))),
                [*keys, "offset"],
                "left",
            )
            .where((sf.col("offset") >= sf.coalesce("new", sf.lit(0))) | sf.col("waits"))
            .select(*named.columns)
        )


_WAITING: Final = f"of_input boolean, {_PLACE}"


def _from(span: OffsetSpan, begin: int) -> OffsetSpan:
    return OffsetSpan(min(max(span.begin, begin), span.end), span.end)


def next_since(known: DataFrame, lost: DataFrame, cut: Snapshot, before: Since | None) -> Since:
    """Return what the next run needs, from the pairs of this one, which are of the window `cut`."""
    spark = known.sparkSession
    waits = lost.where(sf.col("excuse").isin(CARRIED, PARKED)).select("place.*").collect()
    pending = frozenset((row["topic"], row["partition"], row["offset"]) for row in waits)
    settled: dict[KafkaPartition, int] = {
        each: max(ranged.committed, ranged.span.begin) for each, ranged in cut.inputs.items()
    }
    for topic, number, offset in pending:
        each = KafkaPartition(topic, number)
        settled[each] = min(settled[each], offset)
    rows = kept(
        known.where(sf.col("place").isNotNull()).select(
            "place.*",
            "size",
            "time_ms",
            sf.col("output").alias("output"),
            sf.col("letter.place").alias("letter"),
        )
    )
    begins = _begins(spark, rows, settled)
    floors = _floors(rows, _frame(spark, begins, "begin"))
    inputs = {
        each: InputMark(
            begins[each],
            max(cut.inputs[each].committed, cut.inputs[each].span.begin),
            max(
                floors.get(each, NO_FLOOR),
                before.inputs[each].floor_ms if before and each in before.inputs else NO_FLOOR,
            ),
        )
        for each in cut.inputs
    }
    ends = {each: span.end for each, span in {**cut.outputs, **cut.letters}.items()}
    firsts = _firsts(rows, _frame(spark, begins, "begin"))
    written = {each: OffsetSpan(min(firsts.get(each, end), end), end) for each, end in ends.items()}
    ignored = _ignored(
        known, _frame(spark, begins, "begin"), before.ignored if before else None, written
    )
    return Since(inputs, written, pending, ignored)


def _begins(
    spark: SparkSession, rows: DataFrame, settled: Mapping[KafkaPartition, int]
) -> dict[KafkaPartition, int]:
    """Return the first offset of each partition's context."""
    lane = Window.partitionBy("topic", "partition")
    limited = sf.when(sf.col("size") < _UNLIMITED, sf.col("size"))
    found = (
        rows.join(sf.broadcast(_frame(spark, settled, "settled")), ["topic", "partition"])
        .where(sf.col("offset") < sf.col("settled"))
        .withColumn("most", sf.coalesce(sf.max(limited).over(lane), sf.lit(0)))
        .withColumn("back", sf.row_number().over(lane.orderBy(sf.desc("offset"))))
        .where(sf.col("back") <= _RINGS * sf.col("most"))
        .groupBy("topic", "partition")
        .agg(sf.min("offset").alias("begin"))
        .collect()
    )
    begins = {KafkaPartition(row["topic"], row["partition"]): row["begin"] for row in found}
    return {**settled, **begins}


def _floors(rows: DataFrame, begins: DataFrame) -> dict[KafkaPartition, int]:
    found = (
        rows.join(sf.broadcast(begins), ["topic", "partition"])
        .where(sf.col("offset") < sf.col("begin"))
        .groupBy("topic", "partition")
        .agg(sf.max("time_ms").alias("floor"))
        .collect()
    )
    return {KafkaPartition(row["topic"], row["partition"]): row["floor"] for row in found}


def _firsts(rows: DataFrame, begins: DataFrame) -> dict[KafkaPartition, int]:
    """Return the first output or dead letter, by partition, of the inputs of the context."""
    found = (
        rows.join(sf.broadcast(begins), ["topic", "partition"])
        .where(sf.col("offset") >= sf.col("begin"))
        .select(sf.explode(sf.array("output", "letter")).alias("into"))
        .where(sf.col("into").isNotNull())
        .groupBy("into.topic", "into.partition")
        .agg(sf.min("into.offset").alias("first"))
        .collect()
    )
    return {KafkaPartition(row["topic"], row["partition"]): row["first"] for row in found}


def _ignored(
    known: DataFrame,
    begins: DataFrame,
    before: DataFrame | None,
    written: Mapping[KafkaPartition, OffsetSpan],
) -> DataFrame:
    """Return the outputs behind the new beginnings that belong to no input of the context."""
    spark = known.sparkSession
    same = (sf.col("place.topic") == begins["topic"]) & (
        sf.col("place.partition") == begins["partition"]
    )
    other = (
        known.where(sf.col("output").isNotNull())
        .join(sf.broadcast(begins), same, "left")
        .where(sf.col("place").isNull() | (sf.col("place.offset") < sf.col("begin")))
        .select(sf.col("output").alias("place"))
    )
    every = other if before is None else other.unionByName(before)
    marks = _frame(spark, {each: span.begin for each, span in written.items()}, "first")
    behind = (
        (sf.col("place.topic") == marks["topic"])
        & (sf.col("place.partition") == marks["partition"])
        & (sf.col("place.offset") >= marks["first"])
    )
    return every.join(sf.broadcast(marks), behind, "left_semi")


def _frame(spark: SparkSession, offsets: Mapping[KafkaPartition, int], name: str) -> DataFrame:
    rows = [(*each, offset) for each, offset in offsets.items()]
    return spark.createDataFrame(rows, f"topic string, partition int, {name} bigint")


def load_since(spark: SparkSession, target: str | Path, group: str) -> Since | None:
    """Return what the last run of a group left in this folder; None before the first."""
    folder = StorageFolder.of(spark, target) / _FOLDER / group
    files = folder.files("*.json")
    if not files:
        return None
    document: dict[str, Any] = json.loads((folder / files[-1].name).read_text())
    ignored = spark.read.format("delta").load(str(folder / document["ignored"]))
    return Since(
        {KafkaPartition(*each[:2]): InputMark(*each[2:]) for each in document["inputs"]},
        {KafkaPartition(*each[:2]): OffsetSpan(*each[2:]) for each in document["written"]},
        frozenset((topic, number, offset) for topic, number, offset in document["pending"]),
        ignored,
        tuple(DeadLetterRange(*each) for each in document["redriven"]),
        document["redriving"],
    )


def save_since(spark: SparkSession, target: str | Path, group: str, since: Since) -> None:
    """Write what the next run needs; until the last step, that of the run before stays."""
    folder = StorageFolder.of(spark, target) / _FOLDER / group
    files = folder.files("*.json")
    number = int(files[-1].name.partition(".")[0]) + 1 if files else 1
    name = f"{number:08}"
    assert since.ignored is not None
    since.ignored.coalesce(1).write.format("delta").mode("overwrite").save(str(folder / name))
    document = {
        "inputs": _rows(since.inputs.items()),
        "written": _rows(since.written.items()),
        "pending": sorted(since.pending),
        "ignored": name,
        "redriven": since.redriven,
        "redriving": since.is_redriving,
    }
    (folder / f"{name}.json").write_text(json.dumps(document) + "\n")
    for file in files[:-1]:
        (folder / file.name).delete()
        (folder / file.name.partition(".")[0]).delete()


def _rows(marks: Iterable[tuple[KafkaPartition, Sequence[int]]]) -> list[list[object]]:
    return [[*each, *mark] for each, mark in marks]
