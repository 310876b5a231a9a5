"""Clients of brokers that answer every request, and do not do what they say.

Each kind is one that a broker under Kafka's protocol can have; Tansu 0.6 had the first two.
"""

from collections.abc import Mapping
from typing import cast

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka import TopicPartition as Place

from ringfence_state.model import PartitionId
from tests.fakes.clients import FakeClients
from tests.fakes.consumer import FakeConsumer
from tests.fakes.group import Committed, GroupMetadata
from tests.fakes.log import FakeCluster
from tests.fakes.producer import FakeProducer


class AbortedGiver(FakeConsumer):
    """It gives records of aborted transactions to a consumer with read_committed."""

    filters = False


class MetadataDropper(FakeConsumer):
    """It keeps committed offsets without their metadata."""

    def _committed(self, source: PartitionId) -> TopicPartition:
        found = super()._committed(source)
        return TopicPartition(*source, found.offset)


class RecordLoser(FakeConsumer):
    """It gives consumers every second record."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        return super().consume(num_messages, timeout)[1::2]


class OffsetDropper(FakeProducer):
    """It answers that it has taken the offsets of a transaction, and takes none."""

    def send_offsets_to_transaction(
        self, positions: list[Place], group_metadata: GroupMetadata, timeout: float = -1
    ) -> None:
        del positions, group_metadata, timeout


class EarlyCommitter(FakeProducer):
    """It commits the offsets of a transaction at once, whatever becomes of it."""

    def send_offsets_to_transaction(
        self, positions: list[Place], group_metadata: GroupMetadata, timeout: float = -1
    ) -> None:
        del timeout
        group = self._log.group(group_metadata.group)
        for place in positions:
            source = PartitionId(place.topic, place.partition)
            group.store(source, Committed(place.offset, place.metadata or ""))


KINDS: Mapping[type[FakeConsumer | FakeProducer], str] = {
    AbortedGiver: "gives records of aborted transactions to consumers with read_committed",
    MetadataDropper: "drops the metadata of a committed offset",
    RecordLoser: "loses a record of a committed transaction",
    OffsetDropper: "does not keep an offset that a transaction has committed",
    EarlyCommitter: "keeps an offset that an aborted transaction has committed",
}
"""Each kind with what the test of the broker says of it."""


class MisbehavingClients(FakeClients):
    """The clients of one process, connected to a broker of one of these kinds."""

    def __init__(
        self,
        log: FakeCluster,
        group_id: str,
        kind: type[FakeConsumer | FakeProducer],
        instance: str = "0",
    ) -> None:
        super().__init__(log, group_id, instance)
        self._kind = kind

    def restorer(self) -> Consumer:
        if not issubclass(self._kind, FakeConsumer):
            return super().restorer()
        self._consumers.append(self._kind(self._log, self.group_id))
        return cast("Consumer", self._consumers[-1])

    def settings_producer(self) -> Producer:
        if not issubclass(self._kind, FakeProducer):
            return super().settings_producer()
        self._producers.append(self._kind(self._log, self._config_id, by=self._by))
        return cast("Producer", self._producers[-1])
