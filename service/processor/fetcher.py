"""Fetcher: which of the running partitions are read, and from which offset.

Partitions of a paused route are not read, but stay owned and restored. Because nothing is fetched
from them, the consumer does not know their end offsets, and the cluster is asked from time to
time.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from service.clock import Clock
from service.dedup.partition import OwnedPartition
from service.kafka.model import ClusterAdmin
from state.model import PartitionId

_EVERY_S: Final = 2.0


class Fetcher:
    """Hands partitions to the consumer's fetcher, and takes them back."""

    def __init__(self, consumer: Consumer, cluster: ClusterAdmin, clock: Clock) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._clock = clock
        self._fetched: set[PartitionId] = set()
        self._asked_s = float("-inf")
        self._paused_routes: frozenset[str] = frozenset()
        self.ends: Mapping[PartitionId, int] = {}
        """The last known end offsets of paused partitions."""

    def pause(self, routes: frozenset[str], running: Iterable[OwnedPartition]) -> None:
        """Set the paused routes; stop and start fetching accordingly."""
        self._paused_routes = routes
        self.update(running)

    def update(self, running: Iterable[OwnedPartition]) -> None:
        """Fetch all running partitions except the paused ones."""
        partitions = list(running)
        idle = [
            each for each in partitions if self.is_paused(each) and self.is_fetching(each.source)
        ]
        self.stop(each.source for each in idle)
        for partition in partitions:
            if not self.is_paused(partition) and not self.is_fetching(partition.source):
                self.start(partition)
        self._asked_s = float("-inf")

    def start(self, partition: OwnedPartition) -> None:
        """Fetch a partition from its next offset on, unless its route is paused."""
        if not self.is_paused(partition):
            self._consumer.incremental_assign(
                [topic_partition_of(partition, partition.next_offset)]
            )
            self._fetched.add(partition.source)

    def stop(self, sources: Iterable[PartitionId]) -> None:
        """Stop fetching these partitions."""
        gone = [source for source in sources if source in self._fetched]
        self._fetched.difference_update(gone)
        if gone:
            self._consumer.incremental_unassign([TopicPartition(*source, -1001) for source in gone])

    def rewind(self, running: Mapping[PartitionId, OwnedPartition]) -> None:
        """Fetch all partitions again from their committed offsets."""
        fetched = [each for each in running.values() if self.is_fetching(each.source)]
        positions = [topic_partition_of(each, each.next_offset) for each in fetched]
        self._consumer.incremental_unassign(positions)
        self._consumer.incremental_assign(positions)

    def is_fetching(self, source: PartitionId) -> bool:
        """Whether a partition is being fetched."""
        return source in self._fetched

    def is_paused(self, partition: OwnedPartition) -> bool:
        """Whether its route is paused."""
        input_partition = partition.input_partition
        return (
            input_partition is not None
            and input_partition.route.settings.name in self._paused_routes
        )

    def refresh_ends(self, running: Mapping[PartitionId, OwnedPartition]) -> None:
        """Refresh the end offsets of paused partitions, if it is time."""
        paused = [source for source, each in running.items() if self.is_paused(each)]
        if self._clock.monotonic_s() - self._asked_s < _EVERY_S:
            return
        self._asked_s = self._clock.monotonic_s()
        with contextlib.suppress(KafkaException):  # the next call asks again
            self.ends = self._cluster.ends(paused) if paused else {}

    def clear(self) -> None:
        """Forget all fetched partitions, since the consumer was closed."""
        self._fetched.clear()


def topic_partition_of(partition: OwnedPartition, offset: int = -1001) -> TopicPartition:
    """Return the client's value for a partition; -1001 means no offset."""
    return TopicPartition(partition.source.topic, partition.source.partition, offset)
