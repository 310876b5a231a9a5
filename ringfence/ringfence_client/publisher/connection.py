"""Publisher connection: an idempotent producer to one partition, and its acknowledgements.

Invariant: the log has the messages in the order in which they were sent, without a gap. So a
delivery failure ends the connection (`enable.gapless.guarantee`), and the next one begins with a
new session. Tests implement `Connection` with a log in memory.
"""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
    murmur2,
)
from confluent_kafka import Message as KafkaMessage

from ringfence_client.headers import acknowledgements
from ringfence_client.publisher.errors import AwayError, PublisherError, RefusedError
from ringfence_client.publisher.message import Headers, Message

_LIBRDKAFKA: Final = logging.getLogger("ringfence.publisher.librdkafka")
_REQUEST_TIMEOUT_S: Final = 10.0
"""How long a request for partitions or end offsets may block the thread of the publisher.

Messages stay in the store meanwhile, and the connection is tried again. `close` does not wait
for it longer than `_JOIN_S` of the publisher.
"""
_REPORT_S: Final = 0.5
"""How long to wait, after a fatal error, for the delivery reports that name its cause."""
_ACKS_MAX: Final = 1000
"""Acknowledgements that one `poll` takes; the topic has those of all publishers of the group.

They are in memory at once, and nothing is sent while they are parsed. A small number would let
a publisher fall behind the others' acknowledgements.
"""
_FIXES: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise the topic's max.message.bytes, or lower the producer's"
    " batch.size below it",
    KafkaError.INVALID_RECORD: "a compacted topic takes no message without a key",
}
_Client = TypeVar("_Client", Consumer, Producer)


class Connection(Protocol):
    """Sends to the input topic and receives acknowledgements.

    `send` and `poll` raise AwayError or StoppedError; then the connection must be closed.
    """

    @property
    def partition(self) -> int:
        """The partition that it writes."""
        ...

    def send(self, message: Message, claim: Headers) -> bool:
        """Send a message with these headers appended; return False when the queue is full."""
        ...

    def poll(self, wait_s: float) -> int:
        """Wait up to `wait_s`; return the highest number acknowledged since the last call, or 0."""
        ...

    def close(self) -> None:
        """Close the connection; messages that are still queued are not sent."""
        ...


class ConnectionSettings(NamedTuple):
    """The settings of a connection; `common` and `producer` are Kafka properties."""

    publisher: str
    topic: str
    address: str
    group_id: str
    common: Mapping[str, object]
    producer: Mapping[str, object]


class KafkaConnection:
    """A connection to a Kafka cluster; it reads acknowledgements from their current end on."""

    def __init__(
        self,
        settings: ConnectionSettings,
        partition: int | None,
        on_trouble: Callable[[PublisherError], None],
    ) -> None:
        """Connect, which may take some seconds.

        Without a partition, it is murmur2 of the publisher's name, as Java clients partition by
        key. `on_trouble` receives transient errors.

        Raises AwayError or StoppedError.
        """
        self._settings = settings
        self._on_trouble = on_trouble
        self._failure: PublisherError | None = None
        self._consumer = _create(Consumer, self._consumer_properties())
        try:
            self.partition = self._choose_partition(partition)
            self._consumer.assign(self._end_positions(acknowledgements(settings.group_id)))
            self._producer = _create(Producer, self._producer_properties())
        except KafkaException as error:
            self._consumer.close()
            raise _error(error.args[0]) from error
        except PublisherError:
            self._consumer.close()
            raise

    def _producer_properties(self) -> dict[str, Any]:
        return {
            "client.id": f"ringfence-publisher-{self._settings.publisher}",
            "log_level": 3,
            "linger.ms": 5,
            **self._settings.common,
            **self._settings.producer,
            "enable.idempotence": True,
            "enable.gapless.guarantee": True,
            # A broker that does not know the producer yet accepts its second batch even if the
            # first one failed (KAFKA-15591); only one batch at a time always keeps the order.
            "max.in.flight.requests.per.connection": 1,
            # 0 is infinite: giving up on one record would mean resending all of them.
            "delivery.timeout.ms": 0,
            # The broker decides whether a record is too large.
            "message.max.bytes": 1_000_000_000,
            "allow.auto.create.topics": False,
            "delivery.report.only.error": True,
            "on_delivery": self._on_delivery,
            "error_cb": self._on_error,
        }

    def _consumer_properties(self) -> dict[str, Any]:
        return {
            "client.id": f"ringfence-publisher-{self._settings.publisher}",
            "log_level": 3,
            # Partitions are assigned, so it joins no group; librdkafka still requires the id.
            "group.id": "ringfence-publisher",
            **self._settings.common,
            "isolation.level": "read_committed",
            # An older acknowledgement covers less, but is still true.
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": False,
            "allow.auto.create.topics": False,
            "queued.max.messages.kbytes": 4096,
            "error_cb": self._on_error,
        }

    def _choose_partition(self, partition: int | None) -> int:
        partitions = self._partitions(self._settings.topic)
        if partition is None:
            return murmur2(self._settings.publisher.encode(), len(partitions))
        if partition not in partitions:
            raise AwayError(f"Topic {self._settings.topic} has no partition {partition}.")
        return partition

    def _end_positions(self, topic: str) -> list[TopicPartition]:
        found = []
        hint = " The service creates it once an address has the strategy sequence."
        for number in self._partitions(topic, hint):
            partition = TopicPartition(topic, number)
            _, end = self._consumer.get_watermark_offsets(partition, timeout=_REQUEST_TIMEOUT_S)
            found.append(TopicPartition(topic, number, end))
        return found

    def _partitions(self, topic: str, hint: str = "") -> set[int]:
        known = self._consumer.list_topics(topic, timeout=_REQUEST_TIMEOUT_S).topics[topic]
        if known.error is not None:
            raise AwayError(f"Topic {topic} cannot be used: {known.error.str()}.{hint}")
        return set(known.partitions)

    def send(self, message: Message, claim: Headers) -> bool:
        """Send a message with these headers appended; return False when the queue is full."""
        try:
            self._producer.produce(
                self._settings.topic,
                value=message.value,
                key=message.key,
                headers=[*message.headers, *claim],
                partition=self.partition,
                timestamp=message.timestamp_ms,
            )
        except BufferError:
            return False
        except KafkaException as error:
            failed = error.args[0]
        else:
            return True
        raise self._cause(failed)

    def poll(self, wait_s: float) -> int:
        """Wait up to `wait_s`; return the highest number acknowledged since the last call, or 0."""
        failed: KafkaError | None = None
        try:
            self._producer.poll(0)
            first = self._consumer.poll(wait_s)
            acks = [] if first is None else [first, *self._consumer.consume(_ACKS_MAX, 0)]
            self._producer.poll(0)
        except KafkaException as error:
            failed = error.args[0]
        if failed is not None:
            raise self._cause(failed)
        if self._failure is not None:
            raise self._failure
        return max(map(self._acknowledged, acks), default=0)

    def close(self) -> None:
        """Close the connection; messages that are still queued are not sent."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._consumer.close()

    def _acknowledged(self, ack: KafkaMessage) -> int:
        trouble = ack.error()
        if trouble is not None:
            self._on_trouble(AwayError(f"Acknowledgements cannot be read: {trouble.str()}."))
            return 0
        try:
            if json.loads(ack.key() or b"") != [self._settings.address, self._settings.publisher]:
                return 0
            return int(json.loads(ack.value() or b"")["sequence"])
        except (ValueError, KeyError, TypeError):
            return 0  # a tombstone, or a record of another program

    def _cause(self, error: KafkaError) -> PublisherError:
        """Return the first failure: a fatal error says only that a gap would follow.

        Not to be called in an `except` block: where a call of the client fails (2.16), it never
        frees an exception that is handled meanwhile, nor its frames, which hold this connection.
        """
        with suppress(KafkaException):
            self._producer.poll(_REPORT_S)
        return self._failure or _error(error)

    def _on_delivery(self, error: KafkaError | None, _message: KafkaMessage) -> None:
        # The first failure is the cause; later ones are its consequences.
        if error is not None and self._failure is None:
            self._failure = _error(error)

    def _on_error(self, error: KafkaError) -> None:
        self._on_trouble(_error(error))


def _create(kind: type[_Client], properties: dict[str, Any]) -> _Client:
    try:
        return kind({**properties, "logger": _LIBRDKAFKA})
    except (KafkaException, ValueError, TypeError) as error:
        raise RefusedError(f"The Kafka client refuses its properties: {error}.") from error


def _error(error: KafkaError) -> PublisherError:
    """Return the publisher error for a Kafka error."""
    fix = _FIXES.get(error.code())
    if fix is not None:
        return RefusedError(f"Kafka refuses a message: {error.str()}; {fix}.")
    return AwayError(f"Kafka: {error.str()}.")
