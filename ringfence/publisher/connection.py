"""Connection: one idempotent producer to one partition, and the acknowledgements it gets back.

Invariant: messages stand on the log in the order in which they were sent, without a gap. A record
that fails therefore ends the connection (`enable.gapless.guarantee`); the next one begins with a
session of its own. Tests replace `Connection` by a log of their own.
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

from ringfence.headers import acknowledgements
from ringfence.publisher.errors import AwayError, PublisherError, RefusedError
from ringfence.publisher.message import Headers, Message

_LIBRDKAFKA: Final = logging.getLogger("ringfence.publisher.librdkafka")
_ASK_TIMEOUT_S: Final = 10.0
_REPORT_S: Final = 0.5
"""Within which a fatal error is followed by the reports of the messages that it struck."""
_ACKS_MAX: Final = 1000
_REFUSALS: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise the topic's max.message.bytes, or lower the producer's"
    " batch.size below it",
    KafkaError.INVALID_RECORD: "a compacted topic takes no message without a key",
}
_Client = TypeVar("_Client", Consumer, Producer)


class Connection(Protocol):
    """A way to the input topic and back. AwayError or StoppedError: this wire is done."""

    @property
    def partition(self) -> int:
        """The one that it writes."""
        ...

    def send(self, message: Message, claim: Headers) -> bool:
        """Send with these headers after the message's own; False when there is no room now."""
        ...

    def poll(self, wait_s: float) -> int:
        """The highest number acknowledged since the last call, waited for if need be; or 0."""
        ...

    def close(self) -> None:
        """Let go of it; what was not sent yet is not sent."""
        ...


class ConnectionSettings(NamedTuple):
    """What a wire connects, and by which Kafka properties."""

    publisher: str
    topic: str
    address: str
    group_id: str
    common: Mapping[str, object]
    producer: Mapping[str, object]


class KafkaConnection:
    """A wire to a real cluster. Its acks begin at what is their end when it is made."""

    def __init__(
        self,
        route: ConnectionSettings,
        partition: int | None,
        on_trouble: Callable[[PublisherError], None],
    ) -> None:
        """Connect, which takes up to some seconds.

        Without a partition it is murmur2 of the publisher's name, as Java's clients place a key.
        `on_trouble` hears what passes by itself.
        """
        self._route = route
        self._on_trouble = on_trouble
        self._failure: PublisherError | None = None
        self._consumer = _made(Consumer, self._consumer_properties())
        try:
            self.partition = self._place(partition)
            self._consumer.assign(self._ends(acknowledgements(route.group_id)))
            self._producer = _made(Producer, self._producer_properties())
        except KafkaException as error:
            self._consumer.close()
            raise _problem(error.args[0]) from error
        except PublisherError:
            self._consumer.close()
            raise

    def _producer_properties(self) -> dict[str, Any]:
        return {
            "client.id": f"ringfence-publisher-{self._route.publisher}",
            "log_level": 3,
            "linger.ms": 5,
            **self._route.common,
            **self._route.producer,
            "enable.idempotence": True,
            "enable.gapless.guarantee": True,
            # A broker that has just met a producer takes its second batch where the first one
            # failed (KAFKA-15591); one batch at a time is the only order without an exception.
            "max.in.flight.requests.per.connection": 1,
            # For ever: to give up on one record would be to begin anew with all of them.
            "delivery.timeout.ms": 0,
            # Whether a record fits is the broker's word.
            "message.max.bytes": 1_000_000_000,
            "allow.auto.create.topics": False,
            "delivery.report.only.error": True,
            "on_delivery": self._failed,
            "error_cb": self._troubled,
        }

    def _consumer_properties(self) -> dict[str, Any]:
        return {
            "client.id": f"ringfence-publisher-{self._route.publisher}",
            "log_level": 3,
            # It is assigned its partitions, so it joins no group; the client asks for a name.
            "group.id": "ringfence-publisher",
            **self._route.common,
            "isolation.level": "read_committed",
            # An older ack says less, but nothing wrong.
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": False,
            "allow.auto.create.topics": False,
            "queued.max.messages.kbytes": 4096,
            "error_cb": self._troubled,
        }

    def _place(self, partition: int | None) -> int:
        partitions = self._partitions(self._route.topic)
        if partition is None:
            return murmur2(self._route.publisher.encode(), len(partitions))
        if partition not in partitions:
            raise AwayError(f"Topic {self._route.topic} has no partition {partition}.")
        return partition

    def _ends(self, topic: str) -> list[TopicPartition]:
        found = []
        makes = " The service makes it once an address has strategy sequence."
        for number in self._partitions(topic, makes):
            place = TopicPartition(topic, number)
            _, end = self._consumer.get_watermark_offsets(place, timeout=_ASK_TIMEOUT_S)
            found.append(TopicPartition(topic, number, end))
        return found

    def _partitions(self, topic: str, hint: str = "") -> set[int]:
        known = self._consumer.list_topics(topic, timeout=_ASK_TIMEOUT_S).topics[topic]
        if known.error is not None:
            raise AwayError(f"Topic {topic} cannot be used: {known.error.str()}.{hint}")
        return set(known.partitions)

    def send(self, message: Message, claim: Headers) -> bool:
        """See `Connection.send`."""
        try:
            self._producer.produce(
                self._route.topic,
                value=message.value,
                key=message.key,
                headers=[*message.headers, *claim],
                partition=self.partition,
                timestamp=message.timestamp_ms,
            )
        except BufferError:
            return False
        except KafkaException as error:
            raise self._cause(error) from error
        return True

    def poll(self, wait_s: float) -> int:
        """See `Connection.poll`."""
        try:
            self._producer.poll(0)
            first = self._consumer.poll(wait_s)
            acks = [] if first is None else [first, *self._consumer.consume(_ACKS_MAX, 0)]
            self._producer.poll(0)
        except KafkaException as error:
            raise self._cause(error) from error
        if self._failure is not None:
            raise self._failure
        return max(map(self._acknowledged, acks), default=0)

    def close(self) -> None:
        """See `Connection.close`."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._consumer.close()

    def _acknowledged(self, ack: KafkaMessage) -> int:
        trouble = ack.error()
        if trouble is not None:
            self._on_trouble(AwayError(f"Acknowledgements cannot be read: {trouble.str()}."))
            return 0
        try:
            if json.loads(ack.key() or b"") != [self._route.address, self._route.publisher]:
                return 0
            return int(json.loads(ack.value() or b"")["sequence"])
        except (ValueError, KeyError, TypeError):
            return 0  # a tombstone, or not ours to understand

    def _cause(self, error: KafkaException) -> PublisherError:
        """What began it: a fatal error says only that there would be a hole."""
        with suppress(KafkaException):
            self._producer.poll(_REPORT_S)
        return self._failure or _problem(error.args[0])

    def _failed(self, error: KafkaError | None, _message: KafkaMessage) -> None:
        # The first failure is the cause; those after it are its consequences.
        if error is not None and self._failure is None:
            self._failure = _problem(error)

    def _troubled(self, error: KafkaError) -> None:
        self._on_trouble(_problem(error))


def _made(kind: type[_Client], properties: dict[str, Any]) -> _Client:
    try:
        return kind({**properties, "logger": _LIBRDKAFKA})
    except (KafkaException, ValueError, TypeError) as error:
        raise RefusedError(f"The Kafka client refuses its properties: {error}.") from error


def _problem(error: KafkaError) -> PublisherError:
    """What a Kafka error means for a publisher."""
    mend = _REFUSALS.get(error.code())
    if mend is not None:
        return RefusedError(f"Kafka refuses a message: {error.str()}; {mend}.")
    return AwayError(f"Kafka: {error.str()}.")
