"""Groups: which records of transaction groups wait for the rest, and which were passed over.

A group is decided as a whole when its last position is there. A position that comes again replaces
its earlier copy, and what comes after the decision begins the group anew. So nothing waits that
came before another record of its group was decided with it, nor where every position is there.
Pure: frames in, frames out.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from pipeline.reconcile.findings import ACCEPTED, MARKED, NONE
from ringfence.headers import Reason

_OF_WHOLE_GROUPS: Final = (Reason.DUPLICATE_IN_GROUP, Reason.OUT_OF_ORDER)
"""Other reasons may be those of one record, and the rest of its group waits on."""
_GROUP: Final = ("decider", "address", "tx_id")


def waiting(members: DataFrame, *, complete: bool) -> DataFrame:
    """Records of groups -> places of those without a fate that wait, or left no trace.

    `silenced` is whether the address may have known its id. Without `complete` some inputs are
    gone, and a group may lack a position for that.
    """
    lost, offset = sf.col("fate") == NONE, sf.col("place.offset")
    lane = Window.partitionBy(*_GROUP, "place.topic", "place.partition")
    copies = Window.partitionBy(*_GROUP, "place.topic", "place.partition", "tx_position")
    position = Window.partitionBy(*_GROUP, "tx_position")
    group = Window.partitionBy(*_GROUP)
    is_open = sf.col("open")
    replaced = lost & sf.col("silent") & (offset < sf.max("place.offset").over(copies))
    overtaken = lost & (offset <= sf.max(sf.when(_settled(), offset)).over(lane))
    passed_over = sf.col("nth") <= sf.max("decided").over(group) - sf.col("decided")
    positions = sf.size(sf.collect_set(sf.when(is_open, sf.col("tx_position"))).over(group))
    return (
        members.withColumn("replaced", replaced)
        .withColumn("overtaken", sf.coalesce(overtaken & ~sf.col("replaced"), sf.lit(col=False)))
        .withColumn("open", lost & ~sf.col("replaced") & ~sf.col("overtaken"))
        # Whatever was decided had every position.
        .withColumn("decided", sf.count_if(_decided() | sf.col("overtaken")).over(position))
        .withColumn("nth", sf.count_if(is_open).over(position.orderBy("place")))
        .withColumn("open", is_open & ~(passed_over & sf.lit(complete)))
        .withColumn("whole", positions >= sf.col("tx_size"))
        .withColumn("hushed", sf.max(is_open & sf.col("silenced")).over(group))
        .where(lost)
        .select(
            "place",
            (is_open & ~sf.col("whole")).alias("waits"),
            (sf.col("replaced") | (is_open & sf.col("hushed"))).alias("traceless"),
        )
    )


def _decided() -> Column:
    """Whether it is told that its group was whole."""
    refused = sf.col("letter.reason").isin(*(reason.value for reason in _OF_WHOLE_GROUPS))
    went_out = sf.col("fate").isin(ACCEPTED, MARKED)
    return went_out | sf.coalesce(refused, sf.lit(col=False))


def _settled() -> Column:
    """Whether it is told that its group, whole or not, had come to its end."""
    given_up = sf.col("letter.reason") == Reason.GROUP_INCOMPLETE.value
    return _decided() | sf.coalesce(given_up, sf.lit(col=False))
