"""Clients of confluent_kafka that consume into pieces and produce spans.

Rebalances, errors and logs stay with the Python client: its queue is served before records are
returned, so that whatever the client reported ahead of a record is known when it is decided.
"""

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from service.native.extension import loaded
from service.native.records import Records

_CONSUMER, _PRODUCER = 1, 0
_SERVED_MAX = 1_000


class LayoutError(RuntimeError):
    """The handle of a client does not have the layout that was verified."""


def address_of(client: object, kind: int, name: str, value: str) -> int:
    """Return the address of a client, checked by its kind and one of its properties."""
    native = loaded().module
    assert native is not None
    address, found_kind, found = native.client_of(client, name)
    if (found_kind, found) != (kind, value):
        raise LayoutError(f"a client of kind {found_kind} with {name}={found!r}, not {value!r}")
    return int(address)


class NativeConsumer(Consumer):
    """A consumer whose partitions are forwarded to a queue of our own."""

    def __init__(self, properties: dict[str, Any], **rest: Any) -> None:
        super().__init__(properties, **rest)
        native = loaded().module
        assert native is not None
        group = str(properties["group.id"])
        self._reader = native.Reader(address_of(self, _CONSUMER, "group.id", group))
        self._unsettled: set[tuple[str, int]] = set()
        """Partitions of which no record has come since they were assigned."""
        self._stray: list[Message] = []

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Fetch more partitions."""
        for each in partitions:
            self._unsettled.add((each.topic, each.partition))
            self._reader.forward(each.topic, each.partition)
        super().incremental_assign(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching partitions."""
        super().incremental_unassign(partitions)
        self._unsettled -= {(each.topic, each.partition) for each in partitions}

    def consume(  # type: ignore[override]
        self, num_messages: int = 1, timeout: float = -1
    ) -> "Records | list[Message]":
        """Return records; or, if there are any, what the consumer's own queue has.

        Those are errors, and records that came before their partition was forwarded.
        """
        messages, self._stray = self._stray or self._served(), []
        if messages:
            return messages
        for topic, partition in self._unsettled:
            # A client that stops fetching drops the forwarding later, in the background.
            self._reader.forward(topic, partition)
        piece = self._reader.consume(num_messages, max(0, int(timeout * 1000)))
        records = Records(piece, 0, len(piece))
        if records:
            self._stray = self._served()
            if self._unsettled:
                self._unsettled.difference_update(source for source, _ in records.by_source())
        return records

    def _served(self) -> list[Message]:
        return super().consume(_SERVED_MAX, 0)

    def close(self) -> None:
        """Leave the group and end the client."""
        self._reader.close()
        super().close()


class NativeProducer(Producer):
    """A producer that takes spans too."""

    def __init__(self, properties: dict[str, Any], **rest: Any) -> None:
        super().__init__(properties, **rest)
        identity = str(properties["transactional.id"])
        self._address = address_of(self, _PRODUCER, "transactional.id", identity)

    def produce(self, first: Any, *rest: Any, **named: Any) -> None:  # type: ignore[override]
        """Produce a span, or a record as the arguments of `Producer.produce`."""
        if rest or named:
            super().produce(first, *rest, **named)
        elif code := first.send(self._address):
            if code == KafkaError._QUEUE_FULL:  # noqa: SLF001 - its name
                raise BufferError
            reason = f"Unable to produce message: {KafkaError(code).str()}"
            raise KafkaException(KafkaError(code, reason))
