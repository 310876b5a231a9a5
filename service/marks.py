"""Marks: what is committed beside an input offset, and the plan that forgets all of a partition."""

from collections.abc import Mapping

from confluent_kafka import TopicPartition

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
    """The offset to commit, and beside it what a takeover will check."""
    facts, source = partition.facts, partition.source
    assert facts is not None  # it runs
    metadata = OffsetMetadata(
        last_offset=_next_offset(partition, changelog_next) - 1,
        format=FORMAT,
        input_topic_id=facts.identity.input_topic_id,
        changelog_topic_id=facts.identity.changelog_topic_id,
        time_ms=max(partition.time_ms, plan.times_ms.get(source, 0)),
        revision=following.revision,
        changelog_start=facts.changelog.start,
        applied=following.applied_by(partition),
    )
    return TopicPartition(source.topic, source.partition, offset, encode(metadata))


def clearing(partition: Partition) -> Plan:
    """Forget everything that a partition remembers: a tombstone for each key."""
    plan = Plan()
    assert partition.store is not None  # it runs
    kinds = {strategy.kind for strategy in STRATEGIES.values()} | {parked.KIND}
    keys = [key for kind in kinds for key, _ in partition.store.scan(kind)]
    assert partition.changelog is not None
    plan.edits[partition.changelog] = [Edit(key, None) for key in keys]
    plan.next_offsets[partition.source] = partition.next_offset
    return plan


def _next_offset(partition: Partition, changelog_next: Mapping[Source, int]) -> int:
    """The changelog's next offset after this transaction."""
    if partition.changelog is None:
        return 0
    return changelog_next.get(partition.changelog, partition.changelog_next)
