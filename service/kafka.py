"""The clients: every Kafka property of ours is written here.

`Clients` makes what the loop works with; the simulation puts its own behind the same protocol.
Invariant: a property that exactly-once depends on is set last, so that no configuration overrides
it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from service.cluster import Cluster, KafkaCluster
from service.config import Config

_MESSAGE_BYTES_MAX: Final = 1_000_000_000


class Clients(Protocol):
    """Makes consumers and producers."""

    @property
    def cluster(self) -> Cluster:
        """The cluster that they talk to."""
        ...

    def consumer(self) -> Consumer:
        """The member of the group that reads the inputs."""
        ...

    def restorer(self) -> Consumer:
        """A consumer outside the group that reads changelogs."""
        ...

    def producer(self, batch_bytes_max: int, on_error: Callable[[KafkaError], None]) -> Producer:
        """The transactional producer; not yet initialised."""
        ...


class KafkaClients:
    """Clients on a real cluster."""

    def __init__(self, config: Config, worker: int = 0) -> None:
        self._config = config
        self._identity = f"{config.service.group_id}-{config.service.instance}-{worker}"
        self._admin = AdminClient(_properties(config, config.kafka.admin, {}))
        self.cluster = KafkaCluster(self._admin)

    def consumer(self) -> Consumer:
        """See `Clients.consumer`."""
        service = self._config.service
        owned = {
            **_READING,
            "group.id": service.group_id,
            "group.instance.id": self._identity,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": service.session_timeout_ms,
            "heartbeat.interval.ms": max(1, service.session_timeout_ms // 4),
        }
        return Consumer(self._reading_properties(owned))

    def restorer(self) -> Consumer:
        """See `Clients.restorer`."""
        owned = {**_READING, "group.id": self._config.service.group_id}
        return Consumer(self._reading_properties(owned))

    def _reading_properties(self, owned: Mapping[str, object]) -> dict[str, Any]:
        settings = {**_FETCHING, **self._config.kafka.consumer}
        return _properties(self._config, settings, owned)

    def producer(self, batch_bytes_max: int, on_error: Callable[[KafkaError], None]) -> Producer:
        """See `Clients.producer`."""
        service = self._config.service
        owned = {
            "transactional.id": self._identity,
            "transaction.timeout.ms": service.transaction_timeout_ms,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            # A batch of several records must not be refused where each of them would pass; a
            # record beyond its topic's own limit is the broker's to refuse, not the client's.
            "batch.size": batch_bytes_max,
            "message.max.bytes": _MESSAGE_BYTES_MAX,
            "queue.buffering.max.messages": 4 * service.batch_records_max + 10_000,
            "queue.buffering.max.kbytes": 2_097_151,
            "allow.auto.create.topics": False,
            "error_cb": on_error,
        }
        defaults = {"linger.ms": 5, "batch.num.messages": 10_000, "retry.backoff.ms": 10}
        settings = self._config.kafka.producer
        return Producer(_properties(self._config, {**defaults, **settings}, owned))


_READING: Final[Mapping[str, object]] = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
    "check.crcs": True,
    "allow.auto.create.topics": False,
}
_FETCHING: Final[Mapping[str, object]] = {
    # With the default of a second the fetcher sleeps while the loop is hungry.
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 65_536,
}


def _properties(
    config: Config, settings: Mapping[str, object], owned: Mapping[str, object]
) -> dict[str, Any]:
    """Common properties, refined by the client's own, and last what we do not leave open."""
    return {
        "client.id": f"ringfence-{config.service.group_id}-{config.service.instance}",
        "log_level": 3,
        **config.kafka.common,
        **settings,
        **owned,
    }
