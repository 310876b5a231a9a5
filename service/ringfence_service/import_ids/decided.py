"""Import barrier: waits until the second hop has decided everything that the first hop passed on.

With scope `address` the committed offset of an input shows how far it was repartitioned, not how
far it was decided. An id that is imported while its record waits between the hops would make that
record a duplicate of itself.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.io import assign_anew
from ringfence_state.model import PartitionId

_REQUEST_S: Final = 30.0
"""How long the broker may take to return committed offsets; only the command's user waits.

More than the default timeout of a transaction: an open one may hold them back.
"""
_PATIENCE_S: Final = 60.0
"""How long no committed offset may move before the import fails.

Its user waits. A rebalance of the service must not end the import.
"""
_PAUSE_S: Final = 0.5
"""Time between two looks: each asks for offsets, and assigns the partitions again."""
_AT_ONCE: Final = 100
"""Records of one read: the first one is the answer, and others are read in vain."""
_POLL_S: Final = 0.2
"""How long one read waits: then positions show which partitions have only markers left."""
_READ_S: Final = 5.0
"""How long a look may read: without a result, records count as undecided until the next look.

Less than `_PATIENCE_S`, so that many looks precede a failure.
"""


def wait_until_decided(clients: Clients, topic: str, clock: Clock) -> None:
    """Wait until the group has decided every record that the topic contains now.

    `clients` are those of the second hop. Raises ExitError if the group makes no progress for a
    minute.
    """
    cluster = clients.cluster
    info = cluster.topics([topic]).get(topic)
    if info is None:
        return  # nothing was ever repartitioned
    ends = cluster.ends([PartitionId(topic, number) for number in range(info.partitions)])
    seen: dict[PartitionId, int] = {}
    moved_s = clock.monotonic_s()
    with closing(clients.restorer()) as consumer:
        while True:
            reached = _committed(consumer, ends)
            starts = cluster.starts(ends)
            next_offsets = {each: max(starts[each], offset) for each, offset in reached.items()}
            if not _has_records(consumer, next_offsets, ends, clock):
                return
            if reached != seen:
                seen, moved_s = reached, clock.monotonic_s()
            elif clock.monotonic_s() - moved_s > _PATIENCE_S:
                raise _stalled(next_offsets, ends)
            clock.sleep(_PAUSE_S)


def _committed(consumer: Consumer, ends: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
    partitions = [TopicPartition(*source) for source in ends]
    committed = consumer.committed(partitions, timeout=_REQUEST_S)
    return {PartitionId(each.topic, each.partition): each.offset for each in committed}


def _has_records(
    consumer: Consumer,
    next_offsets: Mapping[PartitionId, int],
    ends: Mapping[PartitionId, int],
    clock: Clock,
) -> bool:
    """Whether a record is undecided, or may be: transaction markers take offsets too."""
    left = {source: end for source, end in ends.items() if next_offsets[source] < end}
    assign_anew(consumer, [TopicPartition(*source, next_offsets[source]) for source in left])
    deadline_s = clock.monotonic_s() + _READ_S
    while left and clock.monotonic_s() < deadline_s:
        for message in consumer.consume(_AT_ONCE, _POLL_S):
            error = message.error()
            if error is not None and error.code() != KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                raise KafkaException(error)
            source = PartitionId(message.topic() or "", message.partition() or 0)
            # If the offset is gone, its record was decided and deleted in the meantime.
            if error is not None or (message.offset() or 0) < ends[source]:
                return True
        for position in consumer.position([TopicPartition(*source) for source in left]):
            source = PartitionId(position.topic, position.partition)
            if position.offset >= ends[source]:
                del left[source]
    return bool(left)


def _stalled(next_offsets: Mapping[PartitionId, int], ends: Mapping[PartitionId, int]) -> ExitError:
    names = [
        f"{topic}-{partition} at {next_offsets[PartitionId(topic, partition)]} of {end}"
        for (topic, partition), end in ends.items()
        if next_offsets[PartitionId(topic, partition)] < end
    ]
    sentence = (
        f"The service has not decided any of its repartitioned records for {_PATIENCE_S:g} s "
        f"({', '.join(names[:5])}); see its /readyz, then adopt again."
    )
    return ExitError(ExitCode.BROKER, sentence)
