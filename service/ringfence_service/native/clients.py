"""Clients of confluent_kafka that consume into pieces and produce records of pieces.

Rebalances, errors and logs stay with the Python client: its queue is served before records are
returned, so that whatever the client reported ahead of a record is known when it is decided.
Invariant: records come from our own queue alone. A partition that is forwarded once is never read
into the consumer's queue again; when it stops being fetched, in the background, its records wait on
a queue of its own until it is forwarded once more.
"""

import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ringfence_service.kafka.io import errors_of
from ringfence_service.native.extension import loaded
from ringfence_service.native.records import Records
from ringfence_state.model import PartitionId

ClientError = tuple[KafkaError, PartitionId | None]
"""An error that a client reports, with its partition, if it has one."""

_CONSUMER, _PRODUCER = 1, 0
_SERVED_MAX = 1_000
"""Most errors of one call, which come alone on the consumer's queue; the next call has the rest."""
_UNSETTLED_MS: Final = 5
"""The longest wait soon after a partition was assigned again: it may have to be forwarded again."""
_UNSETTLED_S: Final = 1.0
"""For how long waits are that short. A client usually stops a partition within milliseconds; one
that takes longer is forwarded with the next call, so that its records wait for one batch more.
"""


class LayoutError(RuntimeError):
    """The handle of a client does not have the layout that was verified."""


class StrayRecordError(RuntimeError):
    """A record came on the consumer's own queue, where its order is lost."""


def address_of(client: object, kind: int, name: str, value: str) -> int:
    """Return the address of a client, checked by its kind and one of its properties."""
    native = loaded().module
    assert native is not None
    try:
        address, found_kind, found = native.client_of(client, name)
    except (ValueError, UnicodeDecodeError) as error:
        raise LayoutError(str(error)) from error
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
        self._stopped: set[tuple[str, int]] = set()
        """Partitions that were unassigned: the client may still be stopping them."""
        self._unsettled: dict[tuple[str, int], Any] = {}
        """The queues of those that were assigned again since, until their first record."""
        self._unsettled_until_s = 0.0

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Fetch more partitions."""
        for each in partitions:
            name = each.topic, each.partition
            queue = self._reader.partition(*name)
            self._reader.forward(queue)
            if name in self._stopped:
                self._unsettled[name] = queue
                self._unsettled_until_s = time.monotonic() + _UNSETTLED_S
        super().incremental_assign(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching partitions."""
        super().incremental_unassign(partitions)
        for each in partitions:
            name = each.topic, each.partition
            self._stopped.add(name)
            self._unsettled.pop(name, None)

    def consume(  # type: ignore[override]
        self, num_messages: int = 1, timeout: float = -1
    ) -> Records:
        """Return records with the errors that were reported before them, or errors alone."""
        for queue in self._unsettled.values():
            self._reader.forward(queue)
        errors = self._reported()
        wait_ms = 0 if errors else max(0, int(timeout * 1000))
        if self._unsettled and time.monotonic() < self._unsettled_until_s:
            wait_ms = min(wait_ms, _UNSETTLED_MS)
        piece = self._reader.consume(num_messages, wait_ms)
        if len(piece):
            errors += self._reported()
        errors += (
            (KafkaError(code, text), None if topic is None else PartitionId(topic, number))
            for code, text, topic, number in piece.errors
        )
        records = Records.of(piece, errors)
        if self._unsettled:
            for name, _ in records.by_source():
                self._unsettled.pop(name, None)
        return records

    def _reported(self) -> list[ClientError]:
        """Serve the consumer's queue; return the errors on it."""
        messages = super().consume(_SERVED_MAX, 0)
        errors = errors_of(messages) if messages else []
        if len(errors) < len(messages):
            stray = next(each for each in messages if each.error() is None)
            raise StrayRecordError(f"{stray.topic()}-{stray.partition()}@{stray.offset()}")
        return errors

    def close(self) -> None:
        """Leave the group and end the client."""
        self._unsettled.clear()
        self._reader.close()
        super().close()


class NativeProducer(Producer):
    """A producer that takes records of a piece too."""

    def __init__(self, properties: dict[str, Any], **rest: Any) -> None:
        super().__init__(properties, **rest)
        identity = str(properties["transactional.id"])
        self._address = address_of(self, _PRODUCER, "transactional.id", identity)

    def produce(self, first: Any, *rest: Any, **named: Any) -> None:  # type: ignore[override]
        """Produce `Records`, or a record as the arguments of `Producer.produce`."""
        if rest or named:
            super().produce(first, *rest, **named)
        elif code := first.send(self._address):
            if code == KafkaError._QUEUE_FULL:  # noqa: SLF001 - its name
                raise BufferError
            cause = KafkaError(code).str()
            raise KafkaException(KafkaError(code, f"Unable to produce message: {cause}"))


def layout_fault() -> str | None:
    """Return why the handles of clients are not as expected here; None if they are."""
    quiet = {"client.id": "ringfence-layout", "log_level": 0}
    consumer = Consumer({**quiet, "group.id": "ringfence-layout"})
    try:
        address_of(consumer, _CONSUMER, "group.id", "ringfence-layout")
        address_of(Producer(quiet), _PRODUCER, "client.id", "ringfence-layout")
    except LayoutError as error:
        return f"the clients have an unknown layout: {error}"
    finally:
        consumer.close()
    return None
