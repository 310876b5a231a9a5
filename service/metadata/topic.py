"""Metadata topic: everything that is set while the service runs, shared by all instances.

One partition, compacted. A writer fences every other writer, reads to the end, validates, and
writes: compare-and-set with Kafka alone. Until it is fenced itself it may do so again, since nobody
else has written. Readers follow. A revision is the offset after a record, so revisions only grow.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from service.clock import Clock
from service.kafka.admin import ClusterAdmin, finds_a_broker
from service.kafka.clients import Clients
from service.kafka.errors import REFUSALS, fault_of
from service.kafka.io import assign_anew, send
from service.metadata.audit import is_audit
from service.metadata.image import MetadataImage
from service.metadata.record import MetadataRecord
from state.model import PartitionId

_RECORDS_MAX: Final = 1_000
_SLICE_S: Final = 0.005
"""Each is waited for to its end, since no more records come than there are."""
_PATIENCE_S: Final = 10.0
_HELD_UP_S: Final = 1.0
_SILENT_S: Final = 30.0
_PAUSES_S: Final = (0.05, 0.15, 0.4, 1.0)
"""After being fenced by another process; soon longer than a write takes, so one gets through."""
_ONE_OF_THIS_PROCESS: Final = threading.Lock()
"""Several parts that serve REST write, and they need not fence each other."""

Change = Callable[[MetadataImage], MetadataRecord | Sequence[MetadataRecord]]
"""What to write, given the newest state."""

Hear = Callable[[bytes | None, bytes | None], None]
"""Told a key and its value."""


def _pass_over(*_: object) -> None:
    pass


class MetadataReader:
    """Reads the topic from its beginning, and goes on reading."""

    def __init__(
        self,
        clients: Clients,
        topic: str,
        clock: Clock,
        audit: Hear = _pass_over,
        passed: Callable[[int], None] = _pass_over,
    ) -> None:
        """`audit` is told the records of the audit, which are no part of the settings.

        `passed` is told the offset of every record.
        """
        self._clients = clients
        self._cluster: ClusterAdmin = clients.cluster
        self._clock = clock
        self._audit = audit
        self._passed = passed
        self._place = PartitionId(topic, 0)
        self.settings = MetadataImage()
        # Asked before there is a consumer, which nobody would close where the topic is missing.
        self._start = self._first()
        self._consumer: Consumer = clients.restorer()
        self._heard_s = clock.monotonic_s()
        self._begin()

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take what has come. Raises KafkaException for what the broker answers."""
        messages = self._consumer.consume(_RECORDS_MAX, timeout_s)
        for message in messages:
            if message.error() is None:
                offset, key, value = message.offset() or 0, message.key(), message.value()
                self._passed(offset)
                if is_audit(key):
                    self._audit(key, value)
                else:
                    self.settings.take(offset, key, value)
        # After the records: the client has passed them, whatever came with them.
        for error in filter(None, map(Message.error, messages)):
            self._heard(error)
        self._see_to_the_client(is_silent=not messages)

    def catch_up(self, *, may_fence: bool = True) -> None:
        """Read to what is the end now; KafkaException when it is not reached in time.

        A writer that died may have left a transaction open; who asks for its name ends it, and
        fences whoever writes now. A writer has done so already; it would fence itself.
        """
        end = self._cluster.ends([self._place])[self._place]
        started_s, has_asked = self._clock.monotonic_s(), not may_fence
        while self._reached() < end:
            waited_s = self._clock.monotonic_s() - started_s
            if waited_s > _PATIENCE_S:
                reason = f"{self._place.topic} is not readable to its end"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, reason))  # noqa: SLF001
            if waited_s > _HELD_UP_S and not has_asked:
                self._clients.settings_producer().init_transactions(_PATIENCE_S)
                has_asked = True
            self.poll(_SLICE_S)

    def is_level(self) -> bool:
        """Whether all that is written now was read. Raises KafkaException as the others do."""
        return self._reached() >= self._cluster.ends([self._place])[self._place]

    def close(self) -> None:
        """Let the consumer go."""
        self._consumer.close()

    def _see_to_the_client(self, *, is_silent: bool) -> None:
        """Nothing comes to one that has forgotten its brokers, nor any error: replace it."""
        now_s = self._clock.monotonic_s()
        if is_silent and now_s - self._heard_s < _SILENT_S:
            return
        self._heard_s = now_s
        if is_silent and not finds_a_broker(self._consumer, self._place.topic):
            self._start = self._reached()
            self._consumer.close()
            self._consumer = self._clients.restorer()
            self._begin()

    def _first(self) -> int:
        return self._cluster.starts([self._place])[self._place]

    def _begin(self) -> None:
        assign_anew(self._consumer, [TopicPartition(*self._place, self._start)])

    def _reached(self) -> int:
        (place,) = self._consumer.position([TopicPartition(*self._place)])
        return max(int(place.offset), self._start)

    def _heard(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its name
            self._start = self._first()  # the topic was made anew
            self._begin()
        elif error.code() in REFUSALS:
            raise KafkaException(error)


class MetadataWriter:
    """Changes the topic, one change at a time over all instances.

    Threads that wait for each other write under one lease: the topic is read once for all of them.
    """

    def __init__(self, clients: Callable[[], Clients], topic: str, clock: Clock) -> None:
        self._lease = _WriterLease(clients, topic, clock)
        self._clock = clock
        self._waiting: set[int] = set()
        """Threads that write, or wait until they may."""

    def write(self, change: Change) -> int:
        """Write what `change` makes of the newest state; gives the revision of the last record.

        What `change` raises comes through, and nothing is written then. Where another writer came
        between, it is asked again; not where the records are found to be committed all the same.
        KafkaException where the broker refuses, or others always come between.
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
                self._clock.sleep(pause_s)
            return lease.write(change, sent)

    def write_once(self, change: Change) -> int:
        """For who beats between attempts; KafkaException also where another came between.

        No other thread of the process may write.
        """
        try:
            return self._lease.write(change, [])
        finally:
            self._lease.end()

    @contextmanager
    def _turn(self) -> Iterator["_WriterLease"]:
        thread = threading.get_ident()
        self._waiting.add(thread)
        with _ONE_OF_THIS_PROCESS:
            try:
                yield self._lease
            finally:
                self._waiting.discard(thread)
                if not self._waiting:
                    self._lease.end()


class _CommitUnknownError(KafkaException):
    """The commit was asked for and not acknowledged: the records are in the log, or will not be."""


class _WriterLease:
    """The right to write: a producer that has fenced every other, and all that stands before it.

    It lasts until another producer fences this one, which every other writer does before it reads.
    So a writer that has read up to the end, and commits, has looked at the newest state.
    """

    def __init__(self, clients: Callable[[], Clients], topic: str, clock: Clock) -> None:
        self._clients = clients
        self._topic = topic
        self._clock = clock
        self._producer: Producer | None = None
        """None from the beginning of a transaction until it is committed."""
        self._follower: MetadataReader | None = None
        self._sought: int | None
        self._is_found: bool

    def write(self, change: Change, sent: list[int]) -> int:
        """See `MetadataWriter.write`; KafkaException also where another came between.

        `sent` takes the offsets of the records. Given again after a failure, they show whether that
        transaction was committed all the same: then nothing is written again.
        """
        producer = self._producer
        if producer is None:
            producer = self._clients().settings_producer()
            producer.init_transactions(_PATIENCE_S)
            self._producer = producer
        settings = self._read(max(sent, default=None))
        if not self._is_found:
            changed = change(settings)
            records = [changed] if isinstance(changed, MetadataRecord) else changed
            sent.clear()
            self._producer = None
            self._commit(producer, records, sent)
            self._producer = producer
        return max(sent) + 1

    def end(self) -> None:
        """Keep no client."""
        self._producer = None
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()

    def _read(self, sought: int | None) -> MetadataImage:
        """The newest state, and whether a record stands at an offset that was not read before."""
        follower, self._follower = self._follower, None
        self._sought, self._is_found = sought, False
        if follower is None:
            follower = MetadataReader(self._clients(), self._topic, self._clock, passed=self._pass)
        try:
            follower.catch_up(may_fence=False)
            self._follower = follower
        finally:
            if self._follower is None:
                follower.close()
        return follower.settings

    def _pass(self, offset: int) -> None:
        self._is_found |= offset == self._sought

    def _commit(
        self, producer: Producer, records: Sequence[MetadataRecord], sent: list[int]
    ) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sent.append(message.offset() or 0)

        producer.begin_transaction()
        send(producer, [(self._topic, each.value, each.key, 0, note) for each in records])
        if producer.flush(_PATIENCE_S):  # what is committed unseen could not be found again
            reason = f"{self._topic} takes no records"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, reason))  # noqa: SLF001
        try:
            producer.commit_transaction(_PATIENCE_S)
        except KafkaException as error:
            raise _CommitUnknownError(*error.args) from error
