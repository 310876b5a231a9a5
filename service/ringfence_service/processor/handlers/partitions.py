"""Partition changes: going on behind a batch that cannot be read."""

from ringfence_service.dedup.skipped_batch import skip_batch
from ringfence_service.errors import AwaitedError
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_service.queries.partitions import SkipBatch, SkippedBatch
from ringfence_state.model import PartitionId


def skip(change: SkipBatch, loop: Loop) -> SkippedBatch:
    """Move a partition behind the unreadable batch that blocks it, with a dead letter.

    NotPossible if this loop does not own it, or it is not blocked by such a batch at that offset;
    Unavailable while the end of the batch is not known.
    """
    source = PartitionId(change.topic, change.partition)
    name = f"{source.topic}-{source.partition}"
    partition = loop.assignment.running.get(source)
    if partition is None:
        raise NotPossible(f"This instance does not read {name}; check the name.")
    batch = loop.assignment.unreadable.blocking(source)
    if batch is None:
        raise NotPossible(
            f"{name} does not stand before a batch that cannot be read: it is at offset "
            f"{partition.next_offset}; see ringfence partition ls."
        )
    first, end = batch.first, batch.end
    if change.offset != first:
        raise NotPossible(
            f"{name} stands before the batch at offset {first}, and not at {change.offset}; check "
            "its records, and name that offset."
        )
    if end is None:
        raise Unavailable(f"The end of the batch at offset {first} is being searched; ask again.")
    if not change.dry_run:
        try:
            loop.change(
                lambda rules, plan, now_ms: skip_batch(partition, first, end, rules, plan, now_ms)
            )
        except AwaitedError as awaited:
            raise Unavailable(f"It needs {awaited.sentence}.") from awaited
        loop.assignment.unreadable.passed(source)
    return SkippedBatch(*source, first, end - 1, batch.refused.log_bytes, loop.assignment.has_all)
