"""The fake's transactional producer: method names, arguments and errors of confluent_kafka's.

Invariant: like librdkafka it learns of its fencing only from a request, and once it has an error
that is fatal or needs an abort, every later call but abort answers with that error.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, cast

from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    KafkaError,
    KafkaException,
    Message,
    murmur2,
)
from confluent_kafka import TopicPartition as Place

from ringfence_service.kafka.compression import Codec
from ringfence_state.model import PartitionId
from tests.fakes.errors import abortable, check_nothing_is_handled, error_of, fenced, plain
from tests.fakes.group import Committed, GroupMetadata
from tests.fakes.log import FakeCluster
from tests.fakes.partition import Fate, Headers, Partition, Record
from tests.fakes.transactions import Producing

OnDelivery = Callable[[KafkaError | None, Message], None]
METADATA_BYTES_MAX = 4096


class State(Enum):
    """Where the producer stands, by librdkafka's names."""

    INIT = "Init"
    READY = "Ready"
    IN_TRANSACTION = "InTransaction"
    COMMITTING = "BeginCommit"


class Untouchable:
    """The message of a report that comes while the binding has an exception pending."""

    def __getattr__(self, name: str) -> Callable[[], object]:
        """Answer every question as the interpreter does."""

        def ask() -> object:
            raise SystemError(f"{name} returned a result with an exception set")

        return ask


class Queued(NamedTuple):
    """A produced record that has not left the client."""

    place: PartitionId
    record: Record
    on_delivery: OnDelivery | None


class FakeProducer:
    """One producer of one process; `kill` is what kill -9 leaves of it."""

    def __init__(
        self,
        log: FakeCluster,
        transactional_id: str,
        timeout_ms: int = 10_000,
        by: str = "",
        on_error: Callable[[KafkaError], None] | None = None,
        codec: Codec | None = None,
    ) -> None:
        """`on_error` hears of a connection that was lost with a request on it, from `poll`."""
        self.codec = codec
        self._on_error = on_error
        self._has_lost = False
        self._log = log
        self._timeout_ms = timeout_ms
        self._by = by
        self._producing = log.transactional(transactional_id, timeout_ms)
        self._epoch = -1
        self._state = State.INIT
        self._error: KafkaError | None = None
        self._fatal_shown = False
        self._queue: list[Queued] = []
        self._reports: list[Callable[[], None]] = []
        self._known_to_broker = False
        self._gaps: set[PartitionId] = set()

    def __len__(self) -> int:
        return len(self._queue) + len(self._reports)

    def kill(self) -> None:
        """Lose what had not been sent."""
        self._queue.clear()
        self._error = error_of(fenced("killed"))

    def init_transactions(self, timeout: float = -1) -> None:
        """Take over the transactional id."""
        del timeout
        self._expect(State.INIT)
        self._step("init_transactions")
        self._epoch = self._producing.initialise(self._timeout_ms, self._by)
        self._step("init_transactions.done")
        self._state = State.READY

    def begin_transaction(self) -> None:
        """Begin; a local affair, so that a zombie may do it too."""
        self._expect(State.READY)
        self._step("begin_transaction")
        self._state = State.IN_TRANSACTION
        self._known_to_broker = False

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        partitioner: None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Queue a record."""
        del partitioner  # the client takes it and does nothing with it
        if self._error is not None and self._error.fatal():
            raise plain(KafkaError._FATAL, "Unable to produce message: Local: Fatal error")
        if self._state is not State.IN_TRANSACTION or self._error is not None:
            raise plain(KafkaError._STATE, "Unable to produce message: Local: Erroneous state")
        self._step("produce")
        record = Record(key, value, headers, timestamp or self._log.now_ms)
        place = PartitionId(topic, partition if partition >= 0 else self._partition(topic, key))
        self._queue.append(Queued(place, record, on_delivery))
        if self._log.chance.sends_now():
            self._send()

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports."""
        del timeout
        self._step("poll")
        if self._has_lost and self._on_error is not None:
            self._has_lost = False
            self._on_error(KafkaError(KafkaError._TRANSPORT, "TxnCoordinator: Disconnected"))
        self._send()
        served = self._serve()
        self._show_fatal()
        return served

    def flush(self, timeout: float = -1) -> int:
        """Send what is queued and serve its reports; returns the number left."""
        del timeout
        self._step("flush")
        self._send()
        self._serve()
        self._show_fatal()
        self._step("flush.done")
        return 0

    def send_offsets_to_transaction(
        self, positions: list[Place], group_metadata: GroupMetadata, timeout: float = -1
    ) -> None:
        """Make offsets part of the transaction; without any valid one nothing is asked."""
        del timeout
        self._expect(State.IN_TRANSACTION)
        offsets = {
            PartitionId(p.topic, p.partition): Committed(
                p.offset, p.metadata or "", note=self._log.note
            )
            for p in positions
            if p.offset >= 0
        }
        step = "send_offsets_to_transaction"
        if offsets:
            who, epoch = group_metadata, self._epoch
            self._request("TxnOffsetCommit", step, lambda: self._late_offsets(epoch, offsets, who))
            self._try(lambda: self._add_offsets(offsets, who))
        else:
            self._step(step)
        self._step("send_offsets_to_transaction.done")

    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit; after a timeout only this may be called again."""
        del timeout
        if self._state is not State.COMMITTING:
            self._expect(State.IN_TRANSACTION)
        self._refuse_if_failed()
        self._send()
        self._serve()
        self._refuse_if_failed()
        self._end("commit_transaction", Fate.COMMITTED)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort; what was queued is purged, and its reports say so."""
        del timeout
        if self._error is not None and self._error.fatal():
            raise KafkaException(self._error)
        if self._state is State.COMMITTING and self._error is None:
            raise plain(KafkaError._CONFLICT, "a commit_transaction() call is in progress")
        if self._state not in (State.IN_TRANSACTION, State.COMMITTING):
            raise plain(KafkaError._STATE, f"Operation not valid in state {self._state.value}")
        for queued in self._queue:
            self._report(queued, None, KafkaError(KafkaError._PURGE_QUEUE, "Local: Purged"))
        self._queue.clear()
        self._error = None
        self._end("abort_transaction", Fate.ABORTED)

    def close(self) -> bool:
        """Close; an open transaction is aborted, as 2.16 does."""
        if self._state is State.IN_TRANSACTION and not (self._error and self._error.fatal()):
            self.abort_transaction(0)
        return True

    def _end(self, name: str, fate: Fate) -> None:
        self._state = State.COMMITTING if fate is Fate.COMMITTED else self._state
        epoch, producing = self._epoch, self._producing
        if self._known_to_broker:  # Else there is nothing that a broker knows of.
            self._request(f"EndTxn of {name}", name, lambda: self._end_late(producing, epoch, fate))
            self._try(lambda: producing.end(epoch, fate))
            self._log.end_transaction(producing)
            self._known_to_broker = False
        else:
            self._step(name)
        self._step(f"{name}.done")
        self._state = State.READY

    def _end_late(self, producing: Producing, epoch: int, fate: Fate) -> None:
        producing.end_late(epoch, fate)
        self._log.end_transaction(producing)

    def _request(self, name: str, step: str, request: Callable[[], None]) -> None:
        """Come to a step that sends a request, of which a copy may stay behind on the way."""
        try:
            self._step(step)
        except KafkaException as exception:
            if error_of(exception).retriable():  # else it was answered
                self._may_linger(name, request)
            raise
        self._may_linger(name, request)

    def _may_linger(self, name: str, request: Callable[[], None]) -> None:
        if self._log.chance.ghost():
            self._has_lost = True
            self._log.on_its_way.append((name, request))

    def _partition(self, topic: str, key: bytes | None) -> int:
        known = self._log.logs.get(topic)
        return murmur2(key, len(known.partitions)) if known and key is not None else 0

    def _send(self) -> None:
        queue, self._queue = self._validated(self._queue), []
        for queued in queue:
            if self._error is not None:
                code = KafkaError._PURGE_QUEUE
                self._report(queued, None, KafkaError(code, "Local: Purged in queue"))
            else:
                self._send_one(queued)

    def _validated(self, queue: list[Queued]) -> list[Queued]:
        """Refuse the batch of each partition in which a record is invalid; return the others.

        All that is queued for a partition is one batch, as it is with librdkafka after a linger.
        """
        codes = [] if self._error is not None else list(map(self._invalidity, queue))
        if not any(codes):
            return queue
        # The broker says INVALID_TIMESTAMP of a batch, and INVALID_RECORD of its records.
        refused: dict[PartitionId, int] = {}
        for queued, code in zip(queue, codes, strict=True):
            if code and refused.get(queued.place) != KafkaError.INVALID_TIMESTAMP:
                refused[queued.place] = code
        for queued, code in zip(queue, codes, strict=True):
            of_batch = refused.get(queued.place)
            if of_batch is not None:
                names = self._log.names_records
                other = KafkaError._INVALID_DIFFERENT_RECORD if names else of_batch
                own = KafkaError.INVALID_RECORD if names else of_batch
                self._refuse(queued, own if code else other, of_batch)
        self._gaps |= refused.keys()
        return [queued for queued in queue if queued.place not in refused]

    def _invalidity(self, queued: Queued) -> int | None:
        """Return the code for a record that the broker finds invalid, whatever its size."""
        topic = self._log.logs.get(queued.place.topic)
        code = None if topic is None else topic.refusal(queued.record, self._log.now_ms, self.codec)
        return None if code == KafkaError.MSG_SIZE_TOO_LARGE else code

    def _send_one(self, queued: Queued) -> None:
        topic, number = queued.place
        log = self._log.log(topic, number)
        if log is None:
            self._refuse(queued, KafkaError._UNKNOWN_PARTITION, KafkaError._INCONSISTENT)
        elif self._log.denies(topic, "WRITE"):
            denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
            self._refuse(queued, denied, denied)
        elif (
            code := self._log.logs[topic].refusal(queued.record, self._log.now_ms, self.codec)
        ) is not None:
            self._gaps.add(queued.place)
            self._refuse(queued, code, code)
        elif queued.place in self._gaps:  # The refused record took a sequence number with it.
            self._gaps.clear()
            code = KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
            self._refuse(queued, code, code)
        else:
            try:
                self._log.step("send")
                offset = self._append(log, queued.record)
            except KafkaException as exception:
                self._fail(queued, error_of(exception))
            else:
                self._known_to_broker = True
                self._report(queued, offset, None)

    def _append(self, log: Partition, record: Record) -> int:
        """Write a record; a partition that is new to the transaction is added to it first."""
        producing, epoch, cluster = self._producing, self._epoch, self._log
        if log not in producing.partitions:
            self._may_linger(
                "AddPartitionsToTxn", lambda: producing.add_partition(epoch, log, cluster.now_ms)
            )
        sequence = producing.sequences[log]
        offset = producing.append(epoch, log, record, cluster.now_ms)
        self._may_linger(
            "Produce",
            lambda: producing.append_late(epoch, log, record, sequence, cluster.now_ms),
        )
        return offset

    def _refuse(self, queued: Queued, code: int, transaction_code: int) -> None:
        self._error = error_of(abortable(transaction_code, "a message failed delivery"))
        self._report(queued, None, KafkaError(code, "Broker: refused"))

    def _report(self, queued: Queued, offset: int | None, error: KafkaError | None) -> None:
        on_delivery = queued.on_delivery
        if on_delivery is None:
            return
        (topic, number), record = queued.place, queued.record
        message = Message(
            topic=topic,
            partition=number,
            offset=OFFSET_INVALID if offset is None else offset,
            key=record.key,
            value=record.value,
            timestamp=(TIMESTAMP_CREATE_TIME, record.timestamp_ms),
            error=error,
        )
        self._reports.append(lambda: on_delivery(error, message))

    def _fail(self, queued: Queued, error: KafkaError) -> None:
        """Note that a record was not delivered: fenced, or its time was up."""
        self._error = error
        on_delivery = queued.on_delivery
        if not error.fatal():
            self._report(queued, None, error)
        elif on_delivery is not None:
            old = KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "Broker: old epoch")
            message = cast("Message", Untouchable())
            self._reports.append(lambda: on_delivery(old, message))

    def _serve(self) -> int:
        reports, self._reports = self._reports, []
        for report in reports:
            report()
        return len(reports)

    def _show_fatal(self) -> None:
        """Raise a fatal error once, as the binding does from poll and flush."""
        if self._error is not None and self._error.fatal() and not self._fatal_shown:
            self._fatal_shown = True
            raise KafkaException(self._error)

    def _add_offsets(self, offsets: dict[PartitionId, Committed], who: GroupMetadata) -> None:
        self._producing.check(self._epoch)
        group = self._log.group(who.group)
        producing, epoch = self._producing, self._epoch
        self._may_linger(
            "AddOffsetsToTxn", lambda: producing.add_offsets(epoch, group, {}, self._log.now_ms)
        )
        self._known_to_broker = True  # AddOffsetsToTxn comes first, and its transaction stays open.
        self._producing.add_offsets(self._epoch, group, {}, self._log.now_ms)
        group.check(who)
        if any(len(c.metadata.encode()) > METADATA_BYTES_MAX for c in offsets.values()):
            raise abortable(KafkaError.OFFSET_METADATA_TOO_LARGE, "Broker: metadata too large")
        self._producing.add_offsets(self._epoch, group, offsets, self._log.now_ms)

    def _late_offsets(
        self, epoch: int, offsets: dict[PartitionId, Committed], who: GroupMetadata
    ) -> None:
        group = self._log.group(who.group)
        group.check(who)
        self._producing.add_offsets_late(epoch, group, offsets, self._log.now_ms)

    def _expect(self, state: State) -> None:
        self._refuse_if_failed()
        if self._state is not state:
            raise plain(KafkaError._STATE, f"Operation not valid in state {self._state.value}")

    def _refuse_if_failed(self) -> None:
        if self._error is not None:
            check_nothing_is_handled()
            raise KafkaException(self._error)

    def _step(self, name: str) -> None:
        self._try(lambda: self._log.step(name))

    def _try(self, call: Callable[[], None]) -> None:
        """Run `call`; remember an error that outlives it."""
        try:
            call()
        except KafkaException as exception:
            error = error_of(exception)
            if error.fatal() or error.txn_requires_abort():
                self._error = error
            raise
