"""Offsets of a commit, with the metadata by which a takeover checks the state of a partition."""

from collections.abc import Mapping

from confluent_kafka import TopicPartition

from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.plan import Plan
from ringfence_service.kafka.errors import DOUBTED
from ringfence_service.processor.transaction import TransactionAbortedError
from ringfence_state.model import PartitionId
from ringfence_state.offset_metadata import OffsetMetadata, encode
from ringfence_state.segment import FORMAT


def offset_to_commit(
    partition: OwnedPartition,
    offset: int,
    changelog_next: Mapping[PartitionId, int],
    plan: Plan,
    revision: int,
    applied: int,
) -> TopicPartition:
    """Return the offset to commit, with the metadata that a takeover checks.

    `revision` is that of the metadata by which the plan was decided, and `applied` that of the
    settings document that the partition has fully applied.

    A plan that clears only a part of the state gets no metadata, see `clear_plans`. Where the next
    offset of the changelog is not known yet, the records most likely follow those of the
    transaction before, and its marker.
    """
    facts, source = partition.known_facts, partition.source
    log, log_next = partition.changelog, partition.changelog_next
    if log is not None and log in changelog_next:
        log_next = changelog_next[log]
        _check_changelog(partition, log_next - len(plan.edits[log]))
    elif log is not None and plan.edits.get(log):
        log_next += 1 + len(plan.edits[log])
    if plan.is_partial:
        return TopicPartition(source.topic, source.partition, offset)
    metadata = OffsetMetadata(
        last_offset=log_next - 1,
        format=FORMAT,
        input_topic_id=facts.identity.input_topic_id,
        changelog_topic_id=facts.identity.changelog_topic_id,
        time_ms=plan.times_ms.get(source, partition.time_ms),
        revision=revision,
        changelog_start=facts.changelog.start,
        applied=applied,
    )
    return TopicPartition(source.topic, source.partition, offset, encode(metadata))


def _check_changelog(partition: OwnedPartition, first: int) -> None:
    """Check that new changelog records follow the earlier ones, else abort and note the offset.

    If they do not, the changelog is another topic by now, which its id shows, or was truncated.
    """
    if first < partition.changelog_next:
        partition.written_at = first
        raise TransactionAbortedError(DOUBTED)
