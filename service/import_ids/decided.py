"""Import barrier: waits until the second hop has decided everything that the first hop passed on.

With scope `address` the committed offset of an input says how far it was passed on. An id that is
imported while its record is in transit would make that record a duplicate of itself.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from service.clock import Clock
from service.errors import ExitCode, ExitError
from service.kafka.clients import Clients
from service.kafka.io import assign_anew
from state.model import PartitionId

_QUESTION_S: Final = 30.0
_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.5
_AT_ONCE: Final = 100
_POLL_S: Final = 0.2
_LOOK_S: Final = 5.0


def wait_until_decided(clients: Clients, topic: str, clock: Clock) -> None:
    """Until the group has passed every record that the topic holds now.

    `clients` are those of the second hop. ExitError when the group stands still for a minute.
    """
    cluster = clients.cluster
    info = cluster.topics([topic]).get(topic)
    if info is None:
        return  # nothing was ever passed on
    ends = cluster.ends([PartitionId(topic, number) for number in range(info.partitions)])
    seen: dict[PartitionId, int] = {}
    moved_s = clock.monotonic_s()
    with closing(clients.restorer()) as consumer:
        while True:
            reached = _committed(consumer, ends)
            starts = cluster.starts(ends)
            following = {source: max(starts[source], offset) for source, offset in reached.items()}
            if not _has_records(consumer, following, ends, clock):
                return
            if reached != seen:
                seen, moved_s = reached, clock.monotonic_s()
            elif clock.monotonic_s() - moved_s > _PATIENCE_S:
                raise _stalled(following, ends)
            clock.sleep(_PAUSE_S)


def _committed(consumer: Consumer, ends: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
    places = [TopicPartition(*source) for source in ends]
    committed = consumer.committed(places, timeout=_QUESTION_S)
    return {PartitionId(place.topic, place.partition): place.offset for place in committed}


def _has_records(
    consumer: Consumer,
    following: Mapping[PartitionId, int],
    ends: Mapping[PartitionId, int],
    clock: Clock,
) -> bool:
    """Whether a record is to be decided, or may be: ends of transactions have offsets too."""
    left = {source: end for source, end in ends.items() if following[source] < end}
    assign_anew(consumer, [TopicPartition(*source, following[source]) for source in left])
    deadline_s = clock.monotonic_s() + _LOOK_S
    while left and clock.monotonic_s() < deadline_s:
        for message in consumer.consume(_AT_ONCE, _POLL_S):
            error = message.error()
            if error is not None and error.code() != KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
                raise KafkaException(error)
            source = PartitionId(message.topic() or "", message.partition() or 0)
            # An offset that is gone was decided, and deleted, since it was asked for.
            if error is not None or (message.offset() or 0) < ends[source]:
                return True
        for place in consumer.position([TopicPartition(*source) for source in left]):
            source = PartitionId(place.topic, place.partition)
            if place.offset >= ends[source]:
                del left[source]
    return bool(left)


def _stalled(following: Mapping[PartitionId, int], ends: Mapping[PartitionId, int]) -> ExitError:
    names = [
        f"{topic}-{partition} at {following[PartitionId(topic, partition)]} of {end}"
        for (topic, partition), end in ends.items()
        if following[PartitionId(topic, partition)] < end
    ]
    sentence = (
        f"The service has passed records on and decided none of them for {_PATIENCE_S:g} s "
        f"({', '.join(names[:5])}); see its /readyz, and adopt again."
    )
    return ExitError(ExitCode.BROKER, sentence)
