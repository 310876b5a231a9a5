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
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from service.config.kafka_properties import FILES, SERVERS, Property
from service.config.load import Config
from service.config.tasks import ONLY, Task, consumer_group
from service.errors import ConfigIssue
from service.kafka.admin import ClusterAdmin, KafkaClusterAdmin
from service.kafka.client_log import ConsumerLog, ProducerLog, SettingsLog
from service.kafka.topics import config_topic

LIBRDKAFKA: Final = logging.getLogger("librdkafka")
"""What a client has to say takes the way of our own log; it hands it over when it is polled."""
MESSAGE_BYTES_MAX: Final = 1_000_000_000
"""For the client: a record beyond its topic's own limit is the broker's to refuse."""

READING: Final[Mapping[str, object]] = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
    "check.crcs": True,
    "allow.auto.create.topics": False,
}
"""What every consumer of ours insists on."""

RESTORING: Final[Mapping[str, object]] = {
    # With the default of a second the fetcher sleeps while the loop is hungry.
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 65_536,
}
"""Where no configuration says otherwise, of readers of our own records."""

FETCHING: Final[Mapping[str, object]] = {
    # The client unpacks a whole answer at once, and what is compressed for the purpose grows 7,000
    # times. It counts records in its queue, and of their bytes none of the headers.
    "fetch.max.bytes": 32_768,
    "fetch.message.max.bytes": 32_768,
    "queued.min.messages": 256,
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 2,
}
"""The same of readers of what anybody may have written."""

PRODUCING: Final[Mapping[str, object]] = {
    # A piece of a batch is on its way while the next is decided; a flush would wait for all of it.
    "linger.ms": 1,
    "batch.num.messages": 10_000,
    "retry.backoff.ms": 10,
    # Offsets for a group without a coordinator wait until any connection opens or closes; without
    # this that would be in ten minutes, when the broker closes what is idle (librdkafka #5511).
    "connections.max.idle.ms": 5_000,
}
"""The same of the transactional producer."""


class Clients(Protocol):
    """Makes consumers and producers."""

    part: Task
    """Of the process that works with them."""

    @property
    def group_id(self) -> str:
        """The consumer group: each hop has its own."""
        ...

    @property
    def cluster(self) -> ClusterAdmin:
        """The cluster that they talk to."""
        ...

    def consumer(self, on_doubt: Callable[[], None]) -> Consumer:
        """The member of the group that reads the inputs.

        `on_doubt` is called where a topic that is read may have been deleted and created again,
        before any record of the new one is handed over.
        """
        ...

    def restorer(self) -> Consumer:
        """A consumer outside the group that reads changelogs and the config topic."""
        ...

    def observer(self) -> Consumer:
        """A consumer outside the group that reads inputs, outputs and dead letters."""
        ...

    def producer(self, batch_bytes_max: int, on_error: Callable[[KafkaError], None]) -> Producer:
        """The transactional producer; not yet initialised.

        While it is polled it calls `on_error` for each error and for each connection that it lost.
        """
        ...

    def settings_producer(self) -> Producer:
        """The one that writes the config topic, of which there is one over all instances."""
        ...


class KafkaClients:
    """Clients on a real cluster."""

    def __init__(self, config: Config, part: Task = ONLY) -> None:
        self._config = config
        self.part = part

    @property
    def group_id(self) -> str:
        """See `Clients.group_id`."""
        return consumer_group(self._config.service.group_id, self.part.hop)

    @cached_property
    def cluster(self) -> KafkaClusterAdmin:
        """See `Clients.cluster`."""
        return KafkaClusterAdmin(self.admin)

    def admin(self) -> AdminClient:
        """The client for questions; it says what is wrong in its answers, not in the log."""
        return AdminClient(_properties(self._config, self._config.kafka.admin, {"log_level": 0}))

    def consumer(self, on_doubt: Callable[[], None]) -> Consumer:
        """See `Clients.consumer`."""
        service = self._config.service
        owned = {
            **READING,
            "group.id": self.group_id,
            "group.instance.id": self.part.member_id(service.group_id, service.instance),
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": service.session_timeout_ms,
            "heartbeat.interval.ms": max(1, service.session_timeout_ms // 4),
        }
        properties = self._reading_properties(FETCHING, owned)
        log = ConsumerLog(properties, on_doubt, LIBRDKAFKA)
        return Consumer({**properties, **log.properties}, logger=log)

    def restorer(self) -> Consumer:
        """See `Clients.restorer`."""
        return self._outside_the_group(RESTORING)

    def observer(self) -> Consumer:
        """See `Clients.observer`."""
        return self._outside_the_group(FETCHING)

    def _outside_the_group(self, fetching: Mapping[str, object]) -> Consumer:
        service = self._config.service
        owned = {
            **READING,
            "group.id": self.group_id,
            # It joins no group, but the client holds max.poll.interval.ms against it all the same.
            "session.timeout.ms": service.session_timeout_ms,
            "log_level": 0,
        }
        return Consumer(self._reading_properties(fetching, owned))

    def _reading_properties(
        self, fetching: Mapping[str, object], owned: Mapping[str, object]
    ) -> dict[str, Any]:
        settings = {**fetching, **self._config.kafka.consumer}
        return fetchable(_properties(self._config, settings, owned))

    def producer(self, batch_bytes_max: int, on_error: Callable[[KafkaError], None]) -> Producer:
        """See `Clients.producer`."""
        service = self._config.service
        owned = {
            "transactional.id": self.part.transactional_id(service.group_id, service.instance),
            "transaction.timeout.ms": service.transaction_timeout_ms,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            # A batch of several records must not be refused where each of them would pass.
            "batch.size": batch_bytes_max,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "queue.buffering.max.messages": 4 * service.batch_records_max + 10_000,
            "queue.buffering.max.kbytes": 2_097_151,
            "allow.auto.create.topics": False,
            "error_cb": on_error,
            "log.connection.close": True,
        }
        settings = {**PRODUCING, **self._config.kafka.producer}
        properties = _properties(self._config, settings, owned)
        log = ProducerLog(properties, on_error, LIBRDKAFKA)
        return Producer(properties | log.properties, logger=log)

    def settings_producer(self) -> Producer:
        """See `Clients.settings_producer`."""
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
        """The one that writes records of the audit, each by itself and at once."""
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
    """What the Kafka client refuses of `[kafka]`: it says so when it is made, without a broker."""
    kafka = config.kafka
    clients = KafkaClients(replace(config, kafka=replace(kafka, common=unaddressed(kafka.common))))
    makers = (clients.admin, clients.restorer, lambda: clients.producer(1_000_000, ignore))
    tables = {"kafka": kafka.common} | {
        f"kafka.{kind}": getattr(kafka, kind) for kind in ("consumer", "producer", "admin")
    }
    return missing_files(tables) or refusals("kafka", makers)


def missing_files(tables: Mapping[str, Mapping[str, Property]]) -> list[ConfigIssue]:
    """Files that properties name and that do not exist; `tables` are properties by their table."""
    return [
        ConfigIssue(
            f'{table}."{name}" names the file {path}, which does not exist', "correct the path"
        )
        for table, properties in tables.items()
        for name in FILES
        for path in [properties.get(name)]
        if path not in {None, "", "probe"} and not Path(str(path)).exists()
    ]


def unaddressed(properties: Mapping[str, Property]) -> Mapping[str, Property]:
    """Properties without any broker, so that nothing is asked."""
    return {name: value for name, value in properties.items() if name != SERVERS}


def refusals(table: str, makers: Iterable[Callable[[], object]]) -> list[ConfigIssue]:
    """What the client has against the properties that these makers give it."""
    found = []
    for make in makers:
        try:
            make()
        except (KafkaException, ValueError, TypeError) as error:
            fault = error.args[0]
            text = fault.str() if isinstance(fault, KafkaError) else str(fault)
            found.append(_CLIENT.sub("", text))
    return [
        ConfigIssue(f"[{table}] is refused by the Kafka client: {refusal}", "mend the property")
        for refusal in dict.fromkeys(found)
    ]


def ignore(_error: KafkaError) -> None:
    """Nobody is asked anything."""


_CLIENT: Final = re.compile(r"^Failed to create [a-z ]+: ")


def _properties(
    config: Config, settings: Mapping[str, object], owned: Mapping[str, object]
) -> dict[str, Any]:
    """Common properties, refined by the client's own, and last what we do not leave open."""
    service = config.service
    name = f"ringfence-{service.group_id}-{service.instance}"
    return layered(name, config.kafka.common, settings, owned)


def fetchable(properties: dict[str, Any]) -> dict[str, Any]:
    """Let a consumer fetch no more at once than its properties say.

    The client refuses less than the largest message that it may send; a consumer sends none.
    """
    at_once = properties.get("fetch.max.bytes")
    return properties if at_once is None else {**properties, "message.max.bytes": at_once}


def layered(client_id: str, *layers: Mapping[str, object]) -> dict[str, Any]:
    """The properties of a client, each layer going before those that stand ahead of it."""
    properties: dict[str, Any] = {"client.id": client_id, "log_level": 3}
    for layer in layers:
        properties.update(layer)
    return properties
