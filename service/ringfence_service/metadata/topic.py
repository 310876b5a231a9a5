"""Metadata topic: the settings, sessions and jobs that all instances share, read and written.

One partition, compacted. A writer fences every other writer, reads to the end, validates, and
writes: compare-and-set with Kafka alone. Until another writer fences it, it may write again, since
no other process has written. A revision is the offset after a record, so revisions only grow.
"""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.kafka.admin import finds_a_broker
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.errors import REFUSALS, fault_of, without_frames
from ringfence_service.kafka.io import assign_anew, send
from ringfence_service.kafka.model import ClusterAdmin
from ringfence_service.metadata.audit import is_audit
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_state.model import PartitionId

_RECORDS_MAX: Final = 1_000
"""Most records of one read, all of which are applied before a loop goes on."""
_SLICE_S: Final = 0.005
"""A poll lasts this long even at the end of the topic, because it waits for a full batch."""
_PATIENCE_S: Final = 10.0
"""How long one request may take, and the reading up to the end.

A loop that writes makes four such steps without a heartbeat (`write_once`): less than
`HANG_LIMIT_S`, 60 s.
"""
_HELD_UP_S: Final = 1.0
"""After this time without the end, a writer that died is assumed to have left a transaction open.

A writer that is alive usually commits sooner. If it is fenced all the same, it writes once more.
"""
_SILENT_S: Final = 30.0
"""How long a reader may get nothing before it asks whether its client still reads.

The topic is silent most of the time, and its reader may be a loop: without a broker the question
takes two seconds.
"""
_PAUSES_S: Final = (0.05, 0.15, 0.4, 1.0)
"""Backoff after another process fenced us, each half as long or half as much again by chance:
processes that began at once would fence each other at every attempt."""
_PROCESS_LOCK: Final = threading.Lock()
"""Held while this process writes, so that its REST services do not fence each other."""

Change = Callable[[MetadataImage], MetadataRecord | Sequence[MetadataRecord]]
"""Returns what to write, given the newest state."""

OnRecord = Callable[[bytes | None, bytes | None], None]
"""Receives the key and the value of a record."""


def _ignore(*_: object) -> None:
    pass


class MetadataReader:
    """Reads the topic from its beginning and follows it."""

    def __init__(
        self,
        clients: Clients,
        topic: str,
        clock: Clock,
        audit: OnRecord = _ignore,
        on_offset: Callable[[int], None] = _ignore,
    ) -> None:
        """`audit` receives the audit entries, which are no part of the image.

        `on_offset` receives the offset of every record.
        """
        self._clients = clients
        self._cluster: ClusterAdmin = clients.cluster
        self._clock = clock
        self._audit = audit
        self._on_offset = on_offset
        self._partition = PartitionId(topic, 0)
        self.settings = MetadataImage()
        # Before the consumer is created, which would stay open if the topic is missing.
        self._start = self._first_offset()
        self._consumer: Consumer = clients.restorer()
        self._last_message_s = clock.monotonic_s()
        self._assign()

    def poll(self, timeout_s: float = 0.0) -> None:
        """Apply the records that have arrived; KafkaException if the broker refuses."""
        messages = self._consumer.consume(_RECORDS_MAX, timeout_s)
        for message in messages:
            if message.error() is None:
                offset, key, value = message.offset() or 0, message.key(), message.value()
                self._on_offset(offset)
                if is_audit(key):
                    self._audit(key, value)
                else:
                    self.settings.take(offset, key, value)
        # After the records: the client's position is past them, whatever errors came with them.
        for error in filter(None, map(Message.error, messages)):
            self._handle(error)
        self._replace_dead_client(is_silent=not messages)

    def catch_up(self, *, may_fence: bool = True) -> None:
        """Read to the current end; KafkaException if it is not reached in time.

        A writer that died may have left a transaction open, which hides later records. With
        `may_fence`, a producer is initialised under the writers' transactional id: this aborts that
        transaction, and fences any current writer. A writer has already done so, and would fence
        itself.
        """
        end = self._cluster.ends([self._partition])[self._partition]
        started_s, has_fenced = self._clock.monotonic_s(), not may_fence
        while self._reached() < end:
            waited_s = self._clock.monotonic_s() - started_s
            if waited_s > _PATIENCE_S:
                reason = f"{self._partition.topic} cannot be read to its end"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, reason))  # noqa: SLF001
            if waited_s > _HELD_UP_S and not has_fenced:
                self._clients.settings_producer().init_transactions(_PATIENCE_S)
                has_fenced = True
            self.poll(_SLICE_S)

    def has_caught_up(self) -> bool:
        """Return whether the current end was reached; KafkaException if the broker refuses."""
        return self._reached() >= self._cluster.ends([self._partition])[self._partition]

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _replace_dead_client(self, *, is_silent: bool) -> None:
        """Replace a client that returns neither records nor errors, though it should."""
        now_s = self._clock.monotonic_s()
        if is_silent and now_s - self._last_message_s < _SILENT_S:
            return
        self._last_message_s = now_s
        if is_silent and self._is_dead():
            self._start = self._reached()
            self._consumer.close()
            self._consumer = self._clients.restorer()
            self._assign()

    def _is_dead(self) -> bool:
        """Whether the client has lost all brokers, or no longer fetches, as after a new leader."""
        if not finds_a_broker(self._consumer, self._partition.topic):
            return True
        with contextlib.suppress(KafkaException):
            return not self.has_caught_up()
        return False

    def _first_offset(self) -> int:
        return self._cluster.starts([self._partition])[self._partition]

    def _assign(self) -> None:
        assign_anew(self._consumer, [TopicPartition(*self._partition, self._start)])

    def _reached(self) -> int:
        (position,) = self._consumer.position([TopicPartition(*self._partition)])
        return max(int(position.offset), self._start)

    def _handle(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its name
            self._start = self._first_offset()  # the topic was deleted and created again
            self._assign()
        elif error.code() in REFUSALS:
            raise KafkaException(error)


class MetadataWriter:
    """Changes the topic, one change at a time across all instances.

    Threads that wait for each other share a lease: the topic is read once for all of them.
    """

    def __init__(self, clients: Callable[[], Clients], topic: str, clock: Clock) -> None:
        self._lease = _WriterLease(clients, topic, clock)
        self._clock = clock
        self._chance = random.Random(clock.monotonic_s())  # noqa: S311 - no secret
        self._waiting: set[int] = set()
        """Threads that write, or wait for their turn."""

    def write(self, change: Change) -> int:
        """Write the records that `change` returns for the newest state; return their revision.

        An exception of `change` propagates, and nothing is written. If another writer interferes,
        `change` is called again, unless the records turn out to be committed after all. Raise
        KafkaException if the broker refuses, or other writers interfere every time.
        """
        sent: list[int] = []
        with self._turn() as lease:
            for pause_s in _PAUSES_S:
                try:
                    return lease.write(change, sent)
                except KafkaException as error:
                    is_known = not isinstance(error, _CommitUnknownError)
                    if is_known and not fault_of(error.args[0]).fenced:
                        raise
                self._clock.sleep(pause_s * self._chance.uniform(0.5, 1.5))
            return lease.write(change, sent)

    def write_once(self, change: Change) -> int:
        """Like `write`, in one attempt, for a loop that sends its heartbeat between attempts.

        Raise KafkaException also if another writer interferes. No other thread of the process may
        write.
        """
        failed: Exception | None = None
        revision = 0
        try:
            revision = self._lease.write(change, [])
        except Exception as error:  # noqa: BLE001 - raised again once the clients are released
            failed = without_frames(error)
        self._lease.end()  # not while an exception is handled: it calls the client
        if failed is not None:
            raise failed
        return revision

    @contextlib.contextmanager
    def _turn(self) -> Iterator["_WriterLease"]:
        thread = threading.get_ident()
        self._waiting.add(thread)
        with _PROCESS_LOCK:
            try:
                yield self._lease
            finally:
                self._waiting.discard(thread)
                if not self._waiting:
                    self._lease.end()


def not_written(error: KafkaException, again: str) -> Unavailable | NotPossible:
    """Return what a client is answered whose change was not written; `again` says what to do then.

    A change that is too large for a record of the topic would be so each time.
    """
    if fault_of(error.args[0]).too_large:
        return NotPossible(
            "This takes more bytes than a record of the metadata topic may have, a million by "
            "default: make it smaller, or raise message.max.bytes in [kafka.producer] and "
            "max.message.bytes of the topic."
        )
    return Unavailable(f"The broker answered {error.args[0].name()}; {again}")


class _CommitUnknownError(KafkaException):
    """A commit was not acknowledged: either its records are in the log, or they never will be."""


class _WriterLease:
    """The right to write: a producer that has fenced all others, and a reader of the topic.

    It lasts until another producer fences this one, which every other writer does before it reads.
    So a writer that has read to the end and commits has decided on the newest state.
    """

    def __init__(self, clients: Callable[[], Clients], topic: str, clock: Clock) -> None:
        self._clients = clients
        self._topic = topic
        self._clock = clock
        self._producer: Producer | None = None
        """None from the beginning of a transaction until it is committed."""
        self._reader: MetadataReader | None = None
        self._sought: int | None
        self._is_found: bool

    def write(self, change: Change, sent: list[int]) -> int:
        """Write as `MetadataWriter.write` does; KafkaException also if another writer interferes.

        `sent` receives the offsets of the records. When it is passed again after a failure, they
        show whether that transaction was committed after all: then nothing is written again.
        """
        producer = self._producer
        if producer is None:
            producer = self._clients().settings_producer()
            producer.init_transactions(_PATIENCE_S)
            self._producer = producer
        settings = self._read(max(sent, default=None))
        if not self._is_found:
            result = change(settings)
            records = [result] if isinstance(result, MetadataRecord) else result
            sent.clear()
            self._producer = None
            self._commit(producer, records, sent)
            self._producer = producer
        return max(sent) + 1

    def end(self) -> None:
        """Release the clients."""
        self._producer = None
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _read(self, sought: int | None) -> MetadataImage:
        """Return the newest state; note whether the records read include the offset `sought`."""
        reader, self._reader = self._reader, None
        self._sought, self._is_found = sought, False
        if reader is None:
            reader = MetadataReader(
                self._clients(), self._topic, self._clock, on_offset=self._compare
            )
        failed: Exception | None = None
        try:
            reader.catch_up(may_fence=False)
        except Exception as error:  # noqa: BLE001 - raised again once the client is closed
            failed = without_frames(error)
        if failed is not None:
            reader.close()  # not while an exception is handled: it calls the client
            raise failed
        self._reader = reader
        return reader.settings

    def _compare(self, offset: int) -> None:
        self._is_found |= offset == self._sought

    def _commit(
        self, producer: Producer, records: Sequence[MetadataRecord], sent: list[int]
    ) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sent.append(message.offset() or 0)

        producer.begin_transaction()
        send(producer, [(self._topic, each.value, each.key, 0, note) for each in records])
        if producer.flush(_PATIENCE_S):  # without its offset, a committed record cannot be found
            reason = f"{self._topic} accepts no records"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, reason))  # noqa: SLF001
        try:
            producer.commit_transaction(_PATIENCE_S)
        except KafkaException as error:
            raise _CommitUnknownError(*error.args) from error
