"""Fetcher: which of the running partitions are read, and from which offset.

Partitions of a paused route are not read, but stay owned and restored. Nor are blocked ones: a
record of each cannot be decided yet, and what it waits for is not there. Nothing is fetched from
either, so the consumer does not know their end offsets, and the cluster is asked from time to time.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.errors import Awaits
from ringfence_service.kafka.model import ClusterAdmin
from ringfence_state.model import PartitionId

_EVERY_S: Final = 2.0
"""How often the end offsets of partitions that are not read are refreshed.

The loop waits for the answer, and only the lag in the status needs it.
"""


class Block(NamedTuple):
    """Why a partition is not read although its route is not paused."""

    sentence: str
    """What it waits for."""
    awaits: Awaits
    since_ms: int


class Fetcher:
    """Hands partitions to the consumer's fetcher, and takes them back."""

    def __init__(self, consumer: Consumer, cluster: ClusterAdmin, clock: Clock) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._clock = clock
        self._fetched: set[PartitionId] = set()
        self._asked_s = float("-inf")
        self._paused_routes: frozenset[str] = frozenset()
        self.blocks: dict[PartitionId, Block] = {}
        """By partition that is blocked."""
        self.ends: Mapping[PartitionId, int] = {}
        """The last known end offsets of running partitions that are not read."""

    def pause(self, routes: frozenset[str], running: Iterable[OwnedPartition]) -> None:
        """Set the paused routes; stop and start fetching accordingly.

        Blocked partitions are tried again, since by new settings they may need something else.
        """
        self._paused_routes = routes
        self.blocks.clear()
        self.update(running)

    def block(self, source: PartitionId, sentence: str, awaits: Awaits) -> None:
        """Do not read a partition as long as it awaits something."""
        self.blocks[source] = Block(sentence, awaits, self._clock.wall_ms())
        self.stop([source])

    def unblock(self, running: Mapping[PartitionId, OwnedPartition]) -> None:
        """Read the partitions again whose wait is over, each from its next offset on."""
        is_over = False
        for source, block in list(self.blocks.items()):
            sentence = block.awaits()
            if sentence is None:
                del self.blocks[source]
                is_over = True
            elif sentence != block.sentence:
                self.blocks[source] = block._replace(sentence=sentence)
        if is_over:
            self.update(running.values())

    def forget(self, source: PartitionId) -> None:
        """Stop fetching a partition, which is not running any more."""
        self.blocks.pop(source, None)
        self.stop([source])

    def update(self, running: Iterable[OwnedPartition]) -> None:
        """Fetch all running partitions except the paused and the blocked ones."""
        partitions = list(running)
        self.stop(each.source for each in partitions if not self.is_read(each))
        for partition in partitions:
            if not self.is_fetching(partition.source):
                self.start(partition)
        self._asked_s = float("-inf")

    def start(self, partition: OwnedPartition) -> None:
        """Fetch a partition from its next offset on, unless it is paused or blocked."""
        if self.is_read(partition):
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
        """Fetch all partitions that are fetched again, from their committed offsets."""
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

    def is_read(self, partition: OwnedPartition) -> bool:
        """Whether a running partition is to be read: it is neither paused nor blocked."""
        return partition.source not in self.blocks and not self.is_paused(partition)

    def standstill(self, running: Mapping[PartitionId, OwnedPartition]) -> str | None:
        """Return what partitions wait for if no other partition can be read; else None."""
        if not self.blocks or any(self.is_read(each) for each in running.values()):
            return None
        return next(iter(self.blocks.values())).sentence

    def refresh_ends(self, running: Mapping[PartitionId, OwnedPartition]) -> None:
        """Refresh the end offsets of partitions that are not read, if it is time."""
        if self._clock.monotonic_s() - self._asked_s < _EVERY_S:
            return
        unread = [source for source, each in running.items() if not self.is_read(each)]
        self._asked_s = self._clock.monotonic_s()
        with contextlib.suppress(KafkaException):  # the next call asks again
            self.ends = self._cluster.ends(unread) if unread else {}

    def clear(self) -> None:
        """Forget all fetched partitions, since the consumer was closed."""
        self._fetched.clear()


def topic_partition_of(partition: OwnedPartition, offset: int = -1001) -> TopicPartition:
    """Return the client's value for a partition; -1001 means no offset."""
    return TopicPartition(partition.source.topic, partition.source.partition, offset)
