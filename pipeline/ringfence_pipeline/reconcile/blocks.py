"""Running counts over an order that is too long for one task, and frames that are kept.

The rows are cut into blocks: ranges of the order, about equally long, wherever a key begins or
ends. A row's count is that of the blocks of its key before its own, plus that of the rows before it
in its block. So the rows of one key are counted by as many tasks as there are blocks.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

_BLOCK: Final = "block"


def kept(frame: DataFrame) -> DataFrame:
    """Return the frame, computed once and kept, on disk if memory is short.

    Unlike a cached frame it drops its query plan. Nested plans grow so large that Spark spends more
    time on serialising them than on the records. With `spark.checkpoint.dir` it outlives the
    executors that computed it; without, a lost executor ends the job.
    """
    has_folder = frame.sparkSession.sparkContext.getCheckpointDir() is not None
    return frame.checkpoint() if has_folder else frame.localCheckpoint()


def with_running_counts(
    frame: DataFrame, keys: Sequence[str], order: Sequence[str], counts: Mapping[str, Column]
) -> DataFrame:
    """Add how many rows of the same keys, up to and including this one, satisfy each condition.

    No key is null. There are as many blocks as Spark's setting has shuffle partitions.
    """
    blocks = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    ranges = frame.repartitionByRange(blocks, *keys, *order)
    # Kept, since another sample of the rows would cut them at other places.
    cut = kept(ranges.withColumn(_BLOCK, sf.spark_partition_id()))
    before = Window.partitionBy(*keys).orderBy(_BLOCK).rowsBetween(Window.unboundedPreceding, -1)
    totals = cut.groupBy(*keys, _BLOCK).agg(
        *(sf.count_if(condition).alias(name) for name, condition in counts.items())
    )
    # Only the first key of a block has rows in earlier blocks, so these are few.
    earlier = totals.select(
        *keys, _BLOCK, *(sf.sum(name).over(before).alias(_before(name)) for name in counts)
    ).where(sf.coalesce(*map(_before, counts)).isNotNull())
    so_far = (
        Window.partitionBy(*keys, _BLOCK)
        .orderBy(*order)
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        cut.join(sf.broadcast(earlier), [*keys, _BLOCK], "left")
        .withColumns(
            {
                name: sf.count_if(condition).over(so_far) + sf.coalesce(_before(name), sf.lit(0))
                for name, condition in counts.items()
            }
        )
        .drop(_BLOCK, *map(_before, counts))
    )


def _before(name: str) -> str:
    return f"{name}_before"
