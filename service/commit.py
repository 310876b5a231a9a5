"""Commit: a plan becomes one Kafka transaction; only then do store and memory learn of it.

Outputs, dead letters, changelog and input offsets become visible together or not at all. A commit
that timed out may only be committed again; past the deadline the broker alone knows its outcome.
Invariant: local state may change iff `commit` returned.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from service.clock import Clock
from service.faults import Fault, Remedy, fault_of
from service.kafka import Clients
from service.plan import Output, Plan
from service.send import send
from state.edit import Edit, Source

_STEP_TIMEOUT_S: Final = 2.0
_PAUSE_S: Final = 0.1
_FLUSH_SLICE_S: Final = 0.25
# The broker looks for transactions past their timeout every ten seconds by default.
_SCAN_S: Final = 10.0

_NOT_DELIVERED: Final = Fault(
    Remedy.ABORT,
    of_record=False,
    fenced=False,
    cause="_MSG_TIMED_OUT: a changelog record was not delivered in time",
)

_UNDECIDED: Final = Fault(
    Remedy.ABORT, of_record=True, fenced=False, cause="its records could not be decided"
)

Marks = Callable[[Mapping[Source, int]], list[TopicPartition]]
"""Input offsets with their metadata, given the last changelog offset of each partition."""


class TransactionAbortedError(Exception):
    """The transaction left nothing behind: the batch has to be read again."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.cause)
        self.fault = fault


class OutcomeUnknownError(Exception):
    """Only the broker knows what became of the transaction: begin again from what it says."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.cause)
        self.fault = fault


class Committer:
    """The transactional producer, and the order in which it is used."""

    def __init__(
        self,
        clients: Clients,
        transaction_timeout_ms: int,
        clock: Clock,
        awaits: Callable[[float], None] = lambda _waited_s: None,
    ) -> None:
        """`awaits` is told, wherever a wait for the broker goes on, how long it has taken."""
        self._clients = clients
        self._awaits = awaits
        self._timeout_s = transaction_timeout_ms / 1000
        self._clock = clock
        self._producer: Producer | None = None
        self._batch_bytes_max = 0
        self._suspect = False

    def prepare(self, batch_bytes_max: int) -> None:
        """Have a producer that no earlier transaction can reach; it fences those of its name.

        It is made anew after anything indefinite: librdkafka lets the late end of transaction k
        fall into transaction k + 1 (it has no KIP-890 part 2).
        """
        if self._producer is not None:
            self._producer.poll(0)  # what it has to tell of errors, before it is trusted
        fits = batch_bytes_max >= self._batch_bytes_max
        if self._producer is not None and fits and not self._suspect:
            return
        self.close()
        producer = self._clients.producer(batch_bytes_max, self._note_error)
        self._run(lambda: producer.init_transactions(_STEP_TIMEOUT_S))
        self._producer, self._batch_bytes_max, self._suspect = producer, batch_bytes_max, False

    def commit(
        self, plan: Plan, outputs: Iterable[Sequence[Output]], marks: Marks, group: object
    ) -> None:
        """All of the plan, or TransactionAbortedError, or OutcomeUnknownError.

        `outputs` fills the plan while it is read: what is decided is sent while the rest is still
        being decided. What it raises comes through, after an abort. `group` is the group metadata
        of the generation in which the batch was read.
        """
        producer = self._producer
        assert producer is not None  # prepare comes first
        started_s = self._clock.monotonic_s()
        try:
            self._run(producer.begin_transaction)
            changelog = self._write(producer, plan, outputs)
            offsets = marks(changelog.written)
            # After a record that was not delivered this fails, and with that record's error.
            self._run(lambda: producer.send_offsets_to_transaction(offsets, group, _STEP_TIMEOUT_S))
            if changelog.awaited:
                raise TransactionAbortedError(_NOT_DELIVERED)
            self._end(producer)
        except TransactionAbortedError as aborted:
            fault = aborted.fault
        except OutcomeUnknownError as unknown:
            if unknown.fault.fenced and self._clock.monotonic_s() - started_s > self._timeout_s:
                # Not by a rival: the broker ends a transaction, and its producer, that is too old.
                cause = f"it took longer than transaction_timeout_ms; {unknown.fault.cause}"
                raise OutcomeUnknownError(
                    unknown.fault._replace(fenced=False, cause=cause)
                ) from unknown
            raise
        except Exception:
            self._abort(producer, _UNDECIDED)
            raise
        else:
            if self._clock.monotonic_s() - started_s > self._timeout_s / 2:
                self._suspect = True
            return
        self._abort(producer, fault)  # when nothing is handled any more, see `without_frames`
        raise TransactionAbortedError(fault)

    def close(self) -> None:
        """Drop the producer; what it left open, its successor or the broker's timeout aborts."""
        self._producer = None

    def _write(
        self, producer: Producer, plan: Plan, outputs: Iterable[Sequence[Output]]
    ) -> "_Changelog":
        """Everything into the logs.

        A record that was not delivered makes the next step fail with its error, so delivery is
        asked for only where the offset is needed.
        """
        changelog = _Changelog(plan.edits)
        try:
            for part in outputs:
                self._awaits(0.0)
                send(producer, part)
                changelog.write(producer)
            changelog.write(producer)
            self._flush(producer)
        except KafkaException as error:
            raise TransactionAbortedError(fault_of(error.args[0])) from error
        return changelog

    def _flush(self, producer: Producer) -> None:
        """Until all is delivered, a record is refused, or the time is up.

        Once a record is refused the client sends no other, and `flush` alone would wait for them.
        """
        started_s = self._clock.monotonic_s()
        while producer.flush(_FLUSH_SLICE_S) and self._waited_s(started_s) < self._timeout_s:
            self._awaits(self._waited_s(started_s))
            try:
                # Refused within a transaction, and with the transaction's own error if it has one.
                producer.begin_transaction()
            except KafkaException as error:
                if error.args[0].txn_requires_abort() or error.args[0].fatal():
                    raise

    def _end(self, producer: Producer) -> None:
        """Commit, and again while the answer is out; never abort what may be committed."""
        started_s = self._clock.monotonic_s()
        maybe_committed = False
        while True:
            self._awaits(self._waited_s(started_s))
            try:
                producer.commit_transaction(_STEP_TIMEOUT_S)
            except KafkaException as error:
                fault = fault_of(error.args[0])
            else:
                return
            if fault.remedy is Remedy.ABORT and not maybe_committed:
                raise TransactionAbortedError(fault)
            is_late = self._waited_s(started_s) > self._timeout_s + _SCAN_S
            if fault.remedy is not Remedy.RETRY or is_late:
                raise OutcomeUnknownError(fault)
            maybe_committed = self._suspect = True

    def _abort(self, producer: Producer, cause: Fault) -> None:
        self._suspect = self._suspect or not (cause.of_record or cause.of_group)
        try:
            self._run(lambda: producer.abort_transaction(_STEP_TIMEOUT_S))
        except TransactionAbortedError as error:
            raise OutcomeUnknownError(cause) from error
        except OutcomeUnknownError as error:
            # An abort may end fatally (librdkafka #4849); what led to it says more.
            raise OutcomeUnknownError(error.fault if error.fault.fenced else cause) from error

    def _run(self, step: Callable[[], None]) -> None:
        """A step that may be repeated, until it is done, is refused, or its time is up."""
        started_s = self._clock.monotonic_s()
        while True:
            self._awaits(self._waited_s(started_s))
            try:
                step()
            except KafkaException as error:
                fault = fault_of(error.args[0])
            else:
                return
            if fault.remedy is Remedy.REBUILD:
                raise OutcomeUnknownError(fault)
            if fault.remedy is Remedy.ABORT or self._waited_s(started_s) > self._timeout_s:
                raise TransactionAbortedError(fault)
            self._suspect = True
            self._clock.sleep(_PAUSE_S)

    def _waited_s(self, since_s: float) -> float:
        return self._clock.monotonic_s() - since_s

    def _note_error(self, _error: KafkaError) -> None:
        """A broker lost or a request timed out: nothing that came with it is certain."""
        self._suspect = True


class _Changelog:
    """The edits of a plan on their way: written as the plan fills, delivery asked of the last.

    It must not hold the producer, which holds its reports: one that is never served would keep a
    producer that was dropped, with its threads and connections, for good.
    """

    def __init__(self, edits: Mapping[Source, list[Edit]]) -> None:
        self._edits = edits
        self._sent: dict[Source, int] = {}
        self.written: dict[Source, int] = {}
        """The last changelog offset of each partition."""
        self.awaited = 0
        """Deliveries that were asked for and have not succeeded."""

    def write(self, producer: Producer) -> None:
        """Hand over what was added since."""
        for log, edits in self._edits.items():
            sent = self._sent.get(log, 0)
            if sent < len(edits):
                self._sent[log] = len(edits)
                self._write(producer, log, edits[sent:])

    def _write(self, producer: Producer, log: Source, edits: list[Edit]) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            # The message of a failed report must not be touched: a fatal error may be pending.
            if error is None:
                self.written[log] = message.offset() or 0
                self.awaited -= 1

        self.awaited += 1
        topic, partition = log
        records = [(topic, value, key, partition) for key, value in edits[:-1]]
        key, value = edits[-1]
        send(producer, [*records, (topic, value, key, partition, note)])
