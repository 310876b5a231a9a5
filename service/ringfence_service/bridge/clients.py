"""Bridge clients: every client property of a bridge is set here.

Invariant: properties that at-least-once delivery or the order depends on are set last, so that no
configuration overrides them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, Literal, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ringfence_service.bridge.config import BridgeConfig
from ringfence_service.config.kafka_properties import SERVERS, KafkaSettings
from ringfence_service.errors import ConfigIssue
from ringfence_service.kafka.admin import KafkaClusterAdmin
from ringfence_service.kafka.clients import (
    LIBRDKAFKA,
    MESSAGE_BYTES_MAX,
    READING,
    ignore,
    layered,
    reading,
    refusals,
    unaddressed,
)
from ringfence_service.kafka.connection_probe import Explainer
from ringfence_service.kafka.coordinator_topics import OFFSETS
from ringfence_service.kafka.errors import KafkaFailure, fault_of
from ringfence_service.kafka.model import ClusterAdmin
from ringfence_service.kafka.property_files import file_problems

BATCH_RECORDS_MAX: Final = 10_000
"""Maximum number of records in flight before offsets are committed."""

Side = Literal["source", "target"]

COORDINATORS: Final[Mapping[Side, Sequence[str]]] = {"source": (OFFSETS,), "target": ()}
"""Topics of coordinators that a bridge needs in each cluster; it begins no transactions."""

OnError = Callable[[KafkaError], None]

OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]


class BridgeClients(Protocol):
    """Factory of the consumer of the source and the producer of the target."""

    @property
    def source(self) -> ClusterAdmin:
        """Return the admin of the cluster that is read."""
        ...

    @property
    def target(self) -> ClusterAdmin:
        """Return the admin of the cluster that is written."""
        ...

    def consumer(self, on_error: OnError, on_commit: OnCommit) -> Consumer:
        """Create the group member that reads the topics; `consume` runs the callbacks."""
        ...

    def producer(self, batch_bytes_max: int, batch_records_max: int, on_error: OnError) -> Producer:
        """Create the producer; `batch_…` limits what a request may contain for one partition."""
        ...


class KafkaBridgeClients:
    """Clients of two real clusters."""

    def __init__(self, config: BridgeConfig) -> None:
        self._config = config
        self._name = f"ringfence-{config.bridge.group_id}"

    @cached_property
    def source(self) -> KafkaClusterAdmin:
        """Return the admin of the cluster that is read."""
        return self._cluster("source", self._config.source)

    @cached_property
    def target(self) -> KafkaClusterAdmin:
        """Return the admin of the cluster that is written."""
        return self._cluster("target", self._config.target)

    def _cluster(self, side: Side, cluster: KafkaSettings) -> KafkaClusterAdmin:
        explainer = Explainer(lambda: self.connecting(cluster), COORDINATORS[side], called(side))
        return KafkaClusterAdmin(lambda: self.admin(cluster), explainer.explain)

    def connecting(self, cluster: KafkaSettings) -> dict[str, Any]:
        """Return the properties by which an admin client of a cluster connects."""
        return layered(self._name, cluster.common)

    def admin(self, cluster: KafkaSettings) -> AdminClient:
        """Create an admin client; it reports errors in its answers, not in the log."""
        return AdminClient({**self.connecting(cluster), "log_level": 0})

    def consumer(self, on_error: OnError, on_commit: OnCommit) -> Consumer:
        """Create the group member that reads the topics."""
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
        properties = reading(self._name, source.common, source.consumer, owned)
        return Consumer(properties, logger=LIBRDKAFKA)

    def producer(self, batch_bytes_max: int, batch_records_max: int, on_error: OnError) -> Producer:
        """Create the producer of the target."""
        target = self._config.target
        owned = {
            "enable.idempotence": True,
            "acks": "all",
            # No record overtakes one that is not delivered, so that resent records keep their
            # order; and no record ever times out.
            "enable.gapless.guarantee": True,
            "message.timeout.ms": 0,
            "delivery.report.only.error": True,
            # A batch of several records must not be refused if each of them would be accepted.
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
    """Return what librdkafka refuses of either cluster's properties, which it checks offline."""
    source, target = (
        replace(cluster, common=unaddressed(cluster.common))
        for cluster in (config.source, config.target)
    )
    clients = KafkaBridgeClients(replace(config, source=source, target=target))
    tables = {"bridge.source": source.common, "bridge.target": target.common}
    return file_problems(tables) or [
        *refusals(
            "bridge.source",
            (lambda: clients.admin(source), lambda: clients.consumer(ignore, _ignore)),
        ),
        *refusals(
            "bridge.target",
            (lambda: clients.admin(target), lambda: clients.producer(1_000_000, 1, ignore)),
        ),
    ]


def _ignore(_error: KafkaError | None, _partitions: list[TopicPartition]) -> None:
    """Ignore the answer to a commit: nothing is committed."""


class ClusterRefusedError(Exception):
    """A cluster that did not answer, or refused a request; `fault` has the reason."""

    def __init__(self, side: Side, fault: KafkaFailure) -> None:
        super().__init__(f"{side}: {fault.cause}")
        self.side = side
        self.fault = fault


@contextmanager
def asking(side: Side) -> Iterator[None]:
    """Convert KafkaException to ClusterRefusedError of this side."""
    try:
        yield
    except KafkaException as error:
        raise ClusterRefusedError(side, fault_of(error.args[0])) from error


def called(side: Side) -> str:
    """Return how a sentence calls a broker of a cluster."""
    return f"the {side}'s broker"


def named(side: Side, cluster: KafkaSettings) -> str:
    """Return a broker of a cluster with its address, for a sentence."""
    return f"{called(side)} at {cluster.common.get(SERVERS)}"
