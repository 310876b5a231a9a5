"""Bridge clients: every client property of a bridge is set here.

Invariant: properties that at-least-once or the order depend on are set last, so that no
configuration overrides them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Final, Literal, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from service.bridge.config import BridgeConfig
from service.config.kafka_properties import KafkaSettings
from service.errors import ConfigIssue
from service.kafka.admin import ClusterAdmin, KafkaClusterAdmin
from service.kafka.clients import (
    FETCHING,
    LIBRDKAFKA,
    MESSAGE_BYTES_MAX,
    READING,
    fetchable,
    ignore,
    layered,
    refusals,
    unaddressed,
)
from service.kafka.errors import KafkaFailure, fault_of

BATCH_RECORDS_MAX: Final = 10_000
"""The most that is on its way before offsets are committed."""

OnError = Callable[[KafkaError], None]

OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]


class BridgeClients(Protocol):
    """Makes the consumer of the source and the producer of the target."""

    @property
    def source(self) -> ClusterAdmin:
        """The cluster that is read."""
        ...

    @property
    def target(self) -> ClusterAdmin:
        """The cluster that is written."""
        ...

    def consumer(self, on_error: OnError, on_commit: OnCommit) -> Consumer:
        """The member of the group that reads the topics; `consume` calls back."""
        ...

    def producer(self, batch_bytes_max: int, batch_records_max: int, on_error: OnError) -> Producer:
        """The producer; `batch_…` is what one of its requests may hold for a partition."""
        ...


class KafkaBridgeClients:
    """Clients on two real clusters."""

    def __init__(self, config: BridgeConfig) -> None:
        self._config = config
        self._name = f"ringfence-{config.bridge.group_id}"

    @cached_property
    def source(self) -> KafkaClusterAdmin:
        """See `BridgeClients.source`."""
        return KafkaClusterAdmin(lambda: self.admin(self._config.source))

    @cached_property
    def target(self) -> KafkaClusterAdmin:
        """See `BridgeClients.target`."""
        return KafkaClusterAdmin(lambda: self.admin(self._config.target))

    def admin(self, cluster: KafkaSettings) -> AdminClient:
        """The client for questions; it says what is wrong in its answers, not in the log."""
        return AdminClient(layered(self._name, cluster.common, {"log_level": 0}))

    def consumer(self, on_error: OnError, on_commit: OnCommit) -> Consumer:
        """See `BridgeClients.consumer`."""
        source, bridge = self._config.source, self._config.bridge
        owned = {
            **READING,
            "group.id": bridge.group_id,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": bridge.session_timeout_ms,
            "heartbeat.interval.ms": max(1, bridge.session_timeout_ms // 4),
            "error_cb": on_error,
            "on_commit": on_commit,
        }
        properties = layered(self._name, source.common, FETCHING, source.consumer, owned)
        return Consumer(fetchable(properties), logger=LIBRDKAFKA)

    def producer(self, batch_bytes_max: int, batch_records_max: int, on_error: OnError) -> Producer:
        """See `BridgeClients.producer`."""
        target = self._config.target
        owned = {
            "enable.idempotence": True,
            "acks": "all",
            # Nothing follows a record that is not delivered, so that what is sent again does not
            # come behind it; and none is ever given up for taking long.
            "enable.gapless.guarantee": True,
            "message.timeout.ms": 0,
            "delivery.report.only.error": True,
            # A batch of several records must not be refused where each of them would pass.
            "batch.size": batch_bytes_max,
            "batch.num.messages": batch_records_max,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "queue.buffering.max.messages": 4 * BATCH_RECORDS_MAX,
            "queue.buffering.max.kbytes": 2_097_151,
            "allow.auto.create.topics": False,
            "error_cb": on_error,
        }
        defaults = {"linger.ms": 5}
        properties = layered(self._name, target.common, defaults, target.producer, owned)
        return Producer(properties, logger=LIBRDKAFKA)


def property_problems(config: BridgeConfig) -> list[ConfigIssue]:
    """What the Kafka client refuses of either cluster: it says so without a broker."""
    source, target = (
        replace(cluster, common=unaddressed(cluster.common))
        for cluster in (config.source, config.target)
    )
    clients = KafkaBridgeClients(replace(config, source=source, target=target))
    return [
        *refusals(
            "bridge.source",
            (lambda: clients.admin(source), lambda: clients.consumer(ignore, _ignore)),
        ),
        *refusals(
            "bridge.target",
            (lambda: clients.admin(target), lambda: clients.producer(1_000_000, 1, ignore)),
        ),
    ]


def _ignore(_error: KafkaError | None, _places: list[TopicPartition]) -> None:
    """Nothing is committed."""


Side = Literal["source", "target"]


class ClusterRefusedError(Exception):
    """A cluster did not answer, or said no; `fault` has its reason."""

    def __init__(self, side: Side, fault: KafkaFailure) -> None:
        super().__init__(f"{side}: {fault.cause}")
        self.side = side
        self.fault = fault


@contextmanager
def asking(side: Side) -> Iterator[None]:
    """Name the side that a KafkaException came from."""
    try:
        yield
    except KafkaException as error:
        raise ClusterRefusedError(side, fault_of(error.args[0])) from error


def named(side: Side, cluster: KafkaSettings) -> str:
    """Where a cluster is, for a sentence."""
    return f"the {side}'s broker at {cluster.common.get('bootstrap.servers')}"
