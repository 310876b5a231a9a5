"""Marks: what is committed beside an input offset, and the plan that forgets all of a partition."""

from collections.abc import Iterator, Mapping

from confluent_kafka import TopicPartition

from service.commit import TransactionAbortedError
from service.faults import DOUBTED
from service.following import Following
from service.partition import Partition
from service.plan import Plan
from state import parked
from state.changelog import OffsetMetadata, encode
from state.edit import Edit, Source
from state.run import FORMAT
from state.strategies.table import STRATEGIES


def mark(
    partition: Partition,
    offset: int,
    changelog_next: Mapping[Source, int],
    plan: Plan,
    following: Following,
) -> TopicPartition:
    """The offset to commit, and beside it what a takeover will check; see `clearing` too."""
    facts, source = partition.facts, partition.source
    assert facts is not None  # it runs
    log, log_next = partition.changelog, partition.changelog_next
    if log is not None and log in changelog_next:
        log_next = changelog_next[log]
        _check_changelog(partition, log_next - len(plan.edits[log]))
    if plan.is_partial:
        return TopicPartition(source.topic, source.partition, offset)
    metadata = OffsetMetadata(
        last_offset=log_next - 1,
        format=FORMAT,
        input_topic_id=facts.identity.input_topic_id,
        changelog_topic_id=facts.identity.changelog_topic_id,
        time_ms=plan.times_ms.get(source, partition.time_ms),
        revision=following.revision,
        changelog_start=facts.changelog.start,
        applied=following.applied_by(partition),
    )
    return TopicPartition(source.topic, source.partition, offset, encode(metadata))


def clearing(partition: Partition, edits_max: int) -> Iterator[Plan]:
    """Plans that delete all that a partition remembers, a tombstone for each key, in pieces.

    Until the last of them is committed the offset has no metadata, as it had none before: a
    takeover in between finds what was left, and clears it.
    """
    assert partition.store is not None  # it runs
    assert partition.changelog is not None
    kinds = {strategy.kind for strategy in STRATEGIES.values()} | {parked.KIND}
    keys = [key for kind in kinds for key, _ in partition.store.scan(kind)]
    while True:
        piece, keys = keys[:edits_max], keys[edits_max:]
        plan = Plan(is_partial=bool(keys))
        plan.edits[partition.changelog] = [Edit(key, None) for key in piece]
        plan.next_offsets[partition.source] = partition.next_offset
        yield plan
        if not keys:
            return


def _check_changelog(partition: Partition, first: int) -> None:
    """What was written follows what stood in the changelog, or that has lost something.

    Then it is another topic by now, which its id shows, or it was truncated.
    """
    if first < partition.changelog_next:
        partition.written_at = first
        raise TransactionAbortedError(DOUBTED)
