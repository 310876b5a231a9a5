"""The clients: every Kafka property of ours is written here.

`Clients` makes what the loop works with; the simulation puts its own behind the same protocol.
Invariant: a property that exactly-once depends on is set last, so that no configuration overrides
it.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from service.cluster import Cluster, KafkaCluster
from service.config import Config
from service.errors import Problem

_LIBRDKAFKA: Final = logging.getLogger("librdkafka")
"""What a client has to say takes the way of our own log; it hands it over when it is polled."""
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

    @cached_property
    def cluster(self) -> KafkaCluster:
        """See `Clients.cluster`."""
        return KafkaCluster(self.admin())

    def admin(self) -> AdminClient:
        """The client for questions; it says what is wrong in its answers, not in the log."""
        return AdminClient(_properties(self._config, self._config.kafka.admin, {"log_level": 0}))

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
        return Consumer(self._reading_properties(owned), logger=_LIBRDKAFKA)

    def restorer(self) -> Consumer:
        """See `Clients.restorer`."""
        owned = {**_READING, "group.id": self._config.service.group_id, "log_level": 0}
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
        properties = _properties(self._config, {**defaults, **settings}, owned)
        return Producer(properties, logger=_LIBRDKAFKA)


def property_problems(config: Config) -> list[Problem]:
    """What the Kafka client refuses of `[kafka]`: it says so when it is made, without a broker."""
    kafka = config.kafka
    common = {name: value for name, value in kafka.common.items() if name not in _SERVERS}
    clients = KafkaClients(replace(config, kafka=replace(kafka, common=common)))
    refusals = []
    for make in (clients.admin, clients.restorer, lambda: clients.producer(1_000_000, _ignore)):
        try:
            make()
        except (KafkaException, ValueError, TypeError) as error:
            fault = error.args[0]
            text = fault.str() if isinstance(fault, KafkaError) else str(fault)
            refusals.append(_CLIENT.sub("", text))
    return [
        Problem(f"[kafka] is refused by the Kafka client: {refusal}", "mend the property")
        for refusal in dict.fromkeys(refusals)
    ]


def _ignore(_error: KafkaError) -> None:
    """Nobody is asked anything."""


_CLIENT: Final = re.compile(r"^Failed to create [a-z ]+: ")
_SERVERS: Final = frozenset({"bootstrap.servers", "metadata.broker.list"})
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
