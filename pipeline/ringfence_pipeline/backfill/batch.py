"""Batch form of a backfill: a table of records that is there already, decided in one job.

The records are shuffled once, by the slot of their deciding partition, and sorted within each task
in the order of decision. A Python worker decides them slot by slot with the same decider as the
streaming form, so the verdicts are those of a stream that has the whole table in its first batch.
The partitions with most records have the first tasks, so that no long task begins last.

The job writes verdicts and state to a draft. When that is whole, both become tables, and then the
folder notes that all is decided. A run after a killed one begins with the first step that is not
complete, so nobody finds half a result.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from ringfence_pipeline.backfill.columns import JUDGED, PLACE_INDEX, slots_of, to_judge, verdicts
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.run import (
    BackfillSource,
    BackfillTarget,
    TableFormat,
    VerdictCount,
    bound_to,
    counted,
    inputs_of,
    read_table,
    read_verdicts,
    session_settings,
    spark_failures,
    topics_of,
)
from ringfence_pipeline.backfill.slot_decider import PAGE, SlotDecider
from ringfence_pipeline.backfill.slots import SLOT
from ringfence_pipeline.storage import StorageFolder
from ringfence_service.config.model import Config
from ringfence_state.model import PartitionId

_PAGE: Final = [StructField(name, BinaryType()) for name in PAGE]
DECIDED: Final = StructType([*JUDGED.fields, *_PAGE])
"""The output of the job: verdicts, and pages of state."""
STATE_PAGES: Final = StructType([StructField(SLOT, LongType()), *_PAGE])
"""The state at the end, in the pages of `PagedStore`."""

_SETTINGS: Final = {
    # The records that a Python worker has at once: enough that a batch's own cost does not count,
    # and bounded in bytes, since records of transaction groups have their values.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
    # The files of the draft are large enough; another shuffle would only cost time.
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
}
_TASKS_MAX: Final = 1_000
"""Tasks cost Spark time for scheduling, and the shuffle a block for each pair of tasks.

With more deciding partitions than this, a task decides several, one after the other.
"""
_WRITTEN: Final = "_SUCCESS"
"""Written by Spark's output committers when all files of a folder are whole."""


def backfill_at_once(
    spark: SparkSession,
    config: Config,
    source: BackfillSource,
    folder: str | Path,
    *,
    table_format: TableFormat = "delta",
    say: Callable[[str], None] = lambda _: None,
) -> tuple[VerdictCount, ...]:
    """Decide the records of a table in one job, and return the counts of all verdicts.

    Decided by the settings of the file. Does nothing in a folder that is decided already. Raises
    PipelineError.
    """
    assert source.table is not None  # topics have no end that a batch could reach
    target = BackfillTarget(StorageFolder.of(spark, folder))
    table = StorageFolder.of(spark, source.table)
    rows = read_table(spark, table, source.table_format)
    source = source._replace(topics=source.topics or topics_of(rows), table=str(table))
    inputs = inputs_of(config, source)
    target.settle(inputs, bound_to(source), table_format, "batch")
    if target.is_decided:
        say(f"{table} is decided already")
        target.draft.delete()
    else:
        with session_settings(spark, _SETTINGS), spark_failures(f"{table} could not be decided"):
            _decide(spark, rows, inputs, target, say)
    return counted(read_verdicts(spark, folder))


class Spread(NamedTuple):
    """How the deciding partitions are spread over tasks."""

    tasks: int
    ranks: Mapping[int, int] = {}
    """Of partitions by their index: those with most records first."""


def judged_at_once(records: DataFrame, inputs: BackfillInputs, spread: Spread) -> DataFrame:
    """Return verdicts and state, with the columns of `DECIDED`, for all records of a table."""
    slots = slots_of(inputs)
    ranked = slots.ranked(sf.col(SLOT), spread.ranks)
    found = to_judge(records, inputs).withColumn(SLOT, ranked).repartition(spread.tasks, SLOT)
    order = [sf.col("offset")]
    if _meets(inputs):
        # A slot stands whole in one task, so this window needs no shuffle of its own.
        of_source = Window.partitionBy(SLOT, PLACE_INDEX).orderBy("offset")
        so_far = of_source.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        found = found.withColumn("reached", sf.max("timestamp_ms").over(so_far))
        order = [sf.col("reached"), *slots.columns(sf.col(PLACE_INDEX)), *order]
    ordered = found.sortWithinPartitions(sf.col(SLOT), *order)
    return ordered.mapInArrow(SlotDecider(inputs, to_arrow_schema(DECIDED)), DECIDED)


def _decide(
    spark: SparkSession,
    rows: DataFrame,
    inputs: BackfillInputs,
    target: BackfillTarget,
    say: Callable[[str], None],
) -> None:
    draft = target.draft
    if not (draft / _WRITTEN).exists():
        spread = spread_of(rows, inputs)
        say(f"deciding: {spread.tasks:,} tasks")
        judged_at_once(rows, inputs, spread).write.mode("overwrite").parquet(str(draft))
    say("decided; writing the tables")
    decided = spark.read.schema(DECIDED).parquet(str(draft))
    slot = slots_of(inputs).unranked(sf.col(SLOT)).alias(SLOT)
    pages = decided.where(sf.isnotnull("page")).select(slot, *PAGE)
    pages.write.mode("overwrite").parquet(str(target.state))
    table = verdicts(decided.where(sf.isnull("page")), inputs)
    table.write.format(target.format()).mode("overwrite").save(str(target.verdicts))
    target.end()
    draft.delete()


def spread_of(rows: DataFrame, inputs: BackfillInputs) -> Spread:
    """Return a task for each deciding partition that the records can have, within bounds.

    With a task for each, a task sorts and decides as little as it can. Records of scope `address`
    are taken to be spread evenly, since only deciding would count them by partition.
    """
    own = [topic for topic, route in inputs.by_topic.items() if not route.settings.is_repartitioned]
    topic, met = inputs.by_address if _meets(inputs) else ("", 0)
    sizes = dict.fromkeys((PartitionId(topic, number) for number in range(met)), 0)
    if own:
        counts = rows.groupBy("topic", "partition").count().collect()
        by_place = {PartitionId(row["topic"], row["partition"]): row["count"] for row in counts}
        others = sum(count for place, count in by_place.items() if place.topic not in own)
        sizes = dict.fromkeys(sizes, others // met if met else 0)
        sizes |= {place: count for place, count in by_place.items() if place.topic in own}
    slots = slots_of(inputs)
    order = sorted(sizes, key=lambda each: (-sizes[each], each))
    ranks = {slots.index_of(each): rank for rank, each in enumerate(order)}
    return Spread(max(1, min(len(ranks), _TASKS_MAX)), ranks)


def _meets(inputs: BackfillInputs) -> bool:
    """Whether records of several partitions may meet in one deciding partition."""
    return any(route.settings.is_repartitioned for route in inputs.by_topic.values())
