"""Kafka clients: every client property of the service is set here.

`Clients` creates the clients that the loop uses; the simulation implements the same protocol.
Invariant: properties that exactly-once depends on are set last, so that no configuration overrides
them.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ringfence_service.config.kafka_properties import RECEIVE, SERVERS, Property
from ringfence_service.config.model import Config
from ringfence_service.config.tasks import ONLY, Task, consumer_group
from ringfence_service.errors import ConfigIssue
from ringfence_service.kafka.admin import KafkaClusterAdmin
from ringfence_service.kafka.client_log import ConsumerLog, ProducerLog, SettingsLog
from ringfence_service.kafka.compression import Codec
from ringfence_service.kafka.connection_probe import Explainer
from ringfence_service.kafka.coordinator_topics import OFFSETS, TRANSACTIONS
from ringfence_service.kafka.model import ClusterAdmin
from ringfence_service.kafka.property_files import file_problems
from ringfence_service.kafka.topics import config_topic

LIBRDKAFKA: Final = logging.getLogger("librdkafka")
"""Logger of the clients' log lines, which a client delivers when it is polled."""
MESSAGE_BYTES_MAX: Final = 1_000_000_000
"""The client's own limit: it is higher than any topic's, so that the broker decides."""

READING: Final[Mapping[str, object]] = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
    "check.crcs": True,
    "allow.auto.create.topics": False,
}
"""Properties that no configuration overrides, of every consumer."""

FETCHING: Final[Mapping[str, object]] = {
    # The client decompresses a whole fetch response at once, and a malicious one grows 20,000
    # times. Its queue limits count records, and bytes without headers.
    "fetch.max.bytes": 32_768,
    "fetch.message.max.bytes": 32_768,
    "queued.min.messages": 256,
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 2,
    # A zstd batch that unpacks to a third of it always passes, since the client triples its buffer
    # until the batch fits. Beyond the limit the partition of the batch stands still. A worker has
    # the buffer beside its caches, and both fit into a gibibyte.
    RECEIVE: 300_000_000,
}
"""Defaults of all consumers: any topic may hold records that others made, as they made them."""

PRODUCING: Final[Mapping[str, object]] = {
    # One part of a batch is sent while the next is decided; otherwise a flush would wait for all.
    # Measured: 3 to 10 ms save up to a tenth of the CPU time, but the rate does not rise.
    "linger.ms": 1,
    "batch.num.messages": 10_000,
    "retry.backoff.ms": 10,
    # Offsets for a group without a coordinator wait until any connection opens or closes. Without
    # this setting that takes ten minutes, until the broker closes an idle one (librdkafka #5511).
    "connections.max.idle.ms": 5_000,
}
"""Defaults of the transactional producer."""


class Clients(Protocol):
    """Factory of consumers and producers."""

    part: Task
    """Task of the process that uses the clients."""

    @property
    def group_id(self) -> str:
        """Return the consumer group of the task's hop."""
        ...

    @property
    def member_id(self) -> str:
        """Return the `group.instance.id` of the task's consumer."""
        ...

    @property
    def cluster(self) -> ClusterAdmin:
        """Return the admin of the cluster that the clients connect to."""
        ...

    def consumer(self, on_doubt: Callable[[], None]) -> Consumer:
        """Create the group member that reads the topics of its hop.

        It calls `on_doubt` when a topic that it reads may have been deleted and created again,
        before it delivers any record of the new topic.
        """
        ...

    def restorer(self) -> Consumer:
        """Create a consumer outside the group that reads changelogs and the metadata topic."""
        ...

    def observer(self) -> Consumer:
        """Create a consumer outside the group that reads inputs, outputs and dead letters."""
        ...

    def producer(
        self,
        batch_bytes_max: int,
        on_error: Callable[[KafkaError], None],
        *,
        waits_for_flush: bool = False,
        codec: Codec | None = None,
    ) -> Producer:
        """Create the transactional producer; its transactions are not initialised yet.

        It compresses with `codec` unless the configuration sets another. While it is polled it
        calls `on_error` for each error and for each lost connection. With `waits_for_flush` it
        sends only batches that are full, until it is flushed.
        """
        ...

    def settings_producer(self) -> Producer:
        """Create the producer of the metadata topic; a new one fences that of any instance."""
        ...


class Makers(NamedTuple):
    """How the loop's own consumer and producer are made, from their properties and a logger."""

    consumer: Callable[..., Consumer]
    producer: Callable[..., Producer]


class KafkaClients:
    """Clients of a real cluster."""

    def __init__(
        self,
        config: Config,
        part: Task = ONLY,
        makers: Makers | None = None,
        on_throttle: Callable[[float], None] | None = None,
    ) -> None:
        """`on_throttle` receives the seconds for which a quota of the broker delays a client.

        It is called while the loop's consumer or producer is polled, and must not raise.
        """
        self._config = config
        self._throttled: dict[str, object] = {}
        if on_throttle is not None:
            self._throttled = {"throttle_cb": lambda event: on_throttle(event.throttle_time)}
        self.part = part
        self._makers = makers or Makers(Consumer, Producer)

    @property
    def group_id(self) -> str:
        """Return the consumer group of the task's hop."""
        return consumer_group(self._config.service.group_id, self.part.hop)

    @property
    def member_id(self) -> str:
        """Return the `group.instance.id` of the task's consumer."""
        service = self._config.service
        return self.part.member_id(service.group_id, service.instance)

    @cached_property
    def cluster(self) -> KafkaClusterAdmin:
        """Return the admin of the cluster that the clients connect to."""
        explainer = Explainer(self.connecting, (OFFSETS, TRANSACTIONS))
        return KafkaClusterAdmin(self.admin, explainer.explain)

    def connecting(self) -> dict[str, Any]:
        """Return the properties by which an admin client connects."""
        return _properties(self._config, self._config.kafka.admin, {})

    def admin(self) -> AdminClient:
        """Create an admin client; it reports errors in its answers, not in the log."""
        return AdminClient({**self.connecting(), "log_level": 0})

    def consumer(self, on_doubt: Callable[[], None]) -> Consumer:
        """Create the group member that reads the inputs."""
        service = self._config.service
        owned = {
            **READING,
            "group.id": self.group_id,
            "group.instance.id": self.member_id,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": service.session_timeout_ms,
            "heartbeat.interval.ms": max(1, service.session_timeout_ms // 4),
            **self._throttled,
        }
        properties = self._reading_properties(owned)
        log = ConsumerLog(properties, on_doubt, LIBRDKAFKA)
        return self._makers.consumer({**properties, **log.properties}, logger=log)

    def restorer(self) -> Consumer:
        """Create a consumer outside the group that reads changelogs and the metadata topic."""
        return self._outside_the_group()

    def observer(self) -> Consumer:
        """Create a consumer outside the group that reads inputs, outputs and dead letters."""
        return self._outside_the_group()

    def _outside_the_group(self) -> Consumer:
        service = self._config.service
        owned = {
            **READING,
            "group.id": self.group_id,
            # It joins no group, but the client checks it against max.poll.interval.ms all the same.
            "session.timeout.ms": service.session_timeout_ms,
            "log_level": 0,
        }
        return Consumer(self._reading_properties(owned))

    def _reading_properties(self, owned: Mapping[str, object]) -> dict[str, Any]:
        kafka = self._config.kafka
        return reading(_client_id(self._config), kafka.common, kafka.consumer, owned)

    def producer(
        self,
        batch_bytes_max: int,
        on_error: Callable[[KafkaError], None],
        *,
        waits_for_flush: bool = False,
        codec: Codec | None = None,
    ) -> Producer:
        """Create the transactional producer; its transactions are not initialised yet."""
        service = self._config.service
        owned: dict[str, object] = {
            "transactional.id": self.part.transactional_id(service.group_id, service.instance),
            "transaction.timeout.ms": service.transaction_timeout_ms,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            # A batch of several records must not be refused if each of them would be accepted.
            "batch.size": batch_bytes_max,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "queue.buffering.max.messages": 4 * service.batch_records_max + 10_000,
            "queue.buffering.max.kbytes": 2_097_151,
            "allow.auto.create.topics": False,
            "error_cb": on_error,
            "log.connection.close": True,
            **self._throttled,
        }
        if waits_for_flush:
            # Below `message.timeout.ms`, which librdkafka limits to that of the transaction.
            owned["linger.ms"] = service.transaction_timeout_ms // 2
        packing: dict[str, object] = {}
        if codec is not None:
            packing = {"compression.type": codec.name, "compression.level": codec.level}
        settings = {**PRODUCING, **packing, **self._config.kafka.producer}
        properties = _properties(self._config, settings, owned)
        log = ProducerLog(properties, on_error, LIBRDKAFKA)
        return self._makers.producer(properties | log.properties, logger=log)

    def settings_producer(self) -> Producer:
        """Create the producer of the metadata topic; a new one fences that of any instance."""
        service = self._config.service
        owned = {
            "transactional.id": config_topic(service.group_id),
            "transaction.timeout.ms": service.transaction_timeout_ms,
            "enable.idempotence": True,
            "allow.auto.create.topics": False,
        }
        properties = _properties(self._config, self._config.kafka.producer, owned)
        return Producer(properties, logger=SettingsLog(properties, LIBRDKAFKA))

    def audit_producer(self) -> Producer:
        """Create the producer that writes audit records, each at once and without a transaction."""
        owned = {
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": 4_000,
            "allow.auto.create.topics": False,
        }
        return Producer(
            _properties(self._config, self._config.kafka.producer, owned), logger=LIBRDKAFKA
        )


def property_problems(config: Config) -> list[ConfigIssue]:
    """Return what librdkafka refuses of `[kafka]`: it checks when a client is created, offline."""
    kafka = config.kafka
    clients = KafkaClients(replace(config, kafka=replace(kafka, common=unaddressed(kafka.common))))
    makers = (clients.admin, clients.restorer, lambda: clients.producer(1_000_000, ignore))
    tables = {"kafka": kafka.common} | {
        f"kafka.{kind}": getattr(kafka, kind) for kind in ("consumer", "producer", "admin")
    }
    return file_problems(tables) or refusals("kafka", makers)


def unaddressed(properties: Mapping[str, Property]) -> Mapping[str, Property]:
    """Return the properties without any broker, so that a client connects to none."""
    return {name: value for name, value in properties.items() if name != SERVERS}


def refusals(table: str, makers: Iterable[Callable[[], object]]) -> list[ConfigIssue]:
    """Return a problem for each distinct error with which these factories fail."""
    found = []
    for make in makers:
        try:
            make()
        except (KafkaException, ValueError, TypeError) as error:
            fault = error.args[0]
            text = fault.str() if isinstance(fault, KafkaError) else str(fault)
            found.append(_CLIENT.sub("", text))
    return [
        ConfigIssue(f"[{table}] is refused by the Kafka client: {refusal}", "correct the property")
        for refusal in dict.fromkeys(found)
    ]


def ignore(_error: KafkaError) -> None:
    """Ignore an error: no broker is configured."""


_CLIENT: Final = re.compile(r"^Failed to create [a-z ]+: ")


def _properties(
    config: Config, settings: Mapping[str, object], owned: Mapping[str, object]
) -> dict[str, Any]:
    """Return common properties, overridden by the client's settings, then by owned properties."""
    return layered(_client_id(config), config.kafka.common, settings, owned)


def _client_id(config: Config) -> str:
    return f"ringfence-{config.service.group_id}-{config.service.instance}"


def reading(
    client_id: str,
    common: Mapping[str, object],
    consumer: Mapping[str, object],
    owned: Mapping[str, object],
) -> dict[str, Any]:
    """Return the properties of a consumer: given ones override `FETCHING`, owned ones all others.

    librdkafka refuses a `fetch.max.bytes` below the largest message that the client may send. A
    consumer sends none, so `message.max.bytes` is lowered to it.
    """
    properties = layered(client_id, FETCHING, common, consumer, owned)
    return {**properties, "message.max.bytes": properties["fetch.max.bytes"]}


def layered(client_id: str, *layers: Mapping[str, object]) -> dict[str, Any]:
    """Merge the properties of a client; each layer overrides the ones before it."""
    properties: dict[str, Any] = {"client.id": client_id, "log_level": 3}
    for layer in layers:
        properties.update(layer)
    return properties
