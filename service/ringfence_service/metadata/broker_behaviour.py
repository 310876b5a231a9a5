"""Test of the broker's behaviour: whether its transactions do what exactly-once needs.

A broker may accept every request of a transaction, and still give the records of aborted
transactions to consumers with `read_committed`, or drop the metadata of committed offsets. Outputs
of such a broker have duplicates, and nobody sees an error. So a group tests each cluster once,
before anything is decided there: it writes to its metadata topic in a committed and in an aborted
transaction, and reads back what they left. The result is a record of the same topic.

Readers of the topic ignore the records of the test. It uses the transactional id of the topic's
writers, so it needs no further rights, and fences a writer that is at work, which tries again.
"""

import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.errors import REFUSALS
from ringfence_service.kafka.io import assign_anew
from ringfence_service.metadata.record import MetadataRecord, read

_PROBE: Final = ["probe"]
_RESULT: Final = ["broker"]
_PATIENCE_S: Final = 10.0
"""How long one request may take, after which the test has no result and is repeated.

The loop sends no heartbeat during the three of a transaction: half of `HANG_LIMIT_S`.
"""
_SLICE_S: Final = 0.005
"""A read lasts this long even if the record is there, because it waits for a full batch."""
_PAUSE_S: Final = 0.1
"""Pause before the committed offset is read again, which may follow the commit a moment later."""
_RECORDS_MAX: Final = 100
"""Most records of one read: the three of the test, and those that others write meanwhile."""


class BrokerBehaviourTest(NamedTuple):
    """The test, and the cluster whose result counts."""

    cluster_id: str
    run: Callable[[], None]
    """Raises ExitError 3 if the broker must not be used, KafkaException if it does not answer."""

    @property
    def passed(self) -> MetadataRecord:
        """The record that the cluster has passed the test."""
        return MetadataRecord.of(_RESULT, {"cluster": self.cluster_id})


def tested_cluster(key: bytes | None, value: bytes | None) -> str | None:
    """Return the id of the cluster in a result of the test; None for all other records."""
    document = read(value) if read(key) == _RESULT else None
    return str(document.get("cluster")) if isinstance(document, dict) else None


def behaviour_test(
    clients: Clients, topic: str, clock: Clock, beat: Callable[[], None]
) -> BrokerBehaviourTest:
    """Return the test of the cluster that the clients connect to; `topic` is the metadata topic."""
    run = partial(verify_behaviour, clients, topic, clock, beat)
    return BrokerBehaviourTest(clients.cluster.cluster_id(), run)


def verify_behaviour(
    clients: Clients, topic: str, clock: Clock, beat: Callable[[], None] = lambda: None
) -> None:
    """Test the broker on an existing topic with one partition, in less than a second.

    Raise ExitError 3 with the reason if its transactions are not what exactly-once needs, and
    KafkaException if it refuses a request, does not answer, or another writer interferes.
    """
    with closing(clients.restorer()) as reader:
        probe = _BehaviourProbe(clients.settings_producer(), reader, topic, clock, beat)
        fault = probe.fault()
    if fault is not None:
        raise ExitError(
            ExitCode.BROKER,
            f"The broker cannot be used: {fault}. Without that, outputs would have duplicates or "
            "gaps. Use Apache Kafka, or another broker that supports transactions in full.",
        )


class _BehaviourProbe:
    """The transactions of one test, and what was read of them."""

    def __init__(
        self,
        producer: Producer,
        reader: Consumer,
        topic: str,
        clock: Clock,
        beat: Callable[[], None],
    ) -> None:
        self._producer, self._reader = producer, reader
        self._topic, self._clock, self._beat = topic, clock, beat
        name = uuid.uuid4().hex
        self._records = [MetadataRecord.of(_PROBE, f"{name}-{number}") for number in range(3)]
        self._aborted = f"{name} aborted"
        """Metadata of the offset that must not be kept; those of other tests differ."""

    def fault(self) -> str | None:
        """Return what is wrong with the broker, as a sentence without its stop; None if nothing."""
        self._producer.init_transactions(_PATIENCE_S)
        kept, aborted, last = self._records
        metadata = kept.value.decode() if kept.value else ""
        start = self._transaction(kept, metadata, commits=True)
        self._transaction(aborted, self._aborted, commits=False)
        # Read to a record that is committed: before it, everything that will come has come.
        self._transaction(last, None, commits=True)
        return self._record_fault(start) or self._offset_fault(start, metadata)

    def _transaction(self, record: MetadataRecord, metadata: str | None, *, commits: bool) -> int:
        """Write a record, with its own offset as that of the group; return that offset."""
        self._beat()
        self._producer.begin_transaction()
        offset = self._written(record)
        if metadata is not None:
            partition = TopicPartition(self._topic, 0, offset, metadata)
            who = self._reader.consumer_group_metadata()
            self._producer.send_offsets_to_transaction([partition], who, _PATIENCE_S)
        if commits:
            self._producer.commit_transaction(_PATIENCE_S)
        else:
            self._producer.abort_transaction(_PATIENCE_S)
        return offset

    def _written(self, record: MetadataRecord) -> int:
        """Write a record, and return its offset once the broker has it."""
        reports: list[tuple[KafkaError | None, int]] = []

        def note(error: KafkaError | None, message: Message) -> None:
            reports.append((error, message.offset() or 0))

        self._producer.produce(self._topic, record.value, record.key, 0, note)
        self._producer.flush(_PATIENCE_S)
        if not reports:
            raise _unanswered(f"{self._topic} accepts no records")
        ((error, offset),) = reports
        if error is not None:
            raise KafkaException(error)
        return offset

    def _record_fault(self, start: int) -> str | None:
        kept, aborted, last = (record.value for record in self._records)
        assign_anew(self._reader, [TopicPartition(self._topic, 0, start)])
        found: list[bytes | None] = []
        deadline_s = self._clock.monotonic_s() + _PATIENCE_S
        while last not in found:
            if self._clock.monotonic_s() > deadline_s:
                raise _unanswered(f"{self._topic} cannot be read to its end")
            messages = self._reader.consume(_RECORDS_MAX, _SLICE_S)
            found += _values(messages)
            self._beat()
        if aborted in found:
            return "it gives records of aborted transactions to consumers with read_committed"
        return None if kept in found else "it loses a record of a committed transaction"

    def _offset_fault(self, offset: int, metadata: str) -> str | None:
        deadline_s = self._clock.monotonic_s() + _PATIENCE_S
        while True:
            self._beat()
            partition = TopicPartition(self._topic, 0)
            (found,) = self._reader.committed([partition], timeout=_PATIENCE_S)
            if found.error is not None:
                raise KafkaException(found.error)
            if found.offset >= offset:
                break
            if self._clock.monotonic_s() > deadline_s:
                return "it does not keep an offset that a transaction has committed"
            self._clock.sleep(_PAUSE_S)
        if found.metadata == self._aborted:
            return "it keeps an offset that an aborted transaction has committed"
        # Another process of the group may test the broker too, and commit a later offset.
        is_kept = bool(found.metadata) if found.offset > offset else found.metadata == metadata
        return None if is_kept else "it drops the metadata of a committed offset"


def _values(messages: Sequence[Message]) -> list[bytes | None]:
    """Return the values of the records; KafkaException if the broker refuses the reader."""
    for error in filter(None, map(Message.error, messages)):
        if error.code() in REFUSALS:
            raise KafkaException(error)
    return [message.value() for message in messages if message.error() is None]


def _unanswered(reason: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, reason))  # noqa: SLF001 - its name
