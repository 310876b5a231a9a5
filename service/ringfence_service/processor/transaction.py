"""Kafka transaction: begins, sends, commits or aborts, and repeats a commit that timed out.

Outputs, dead letters, changelog and input offsets become visible together or not at all. `ACTIONS`
has what follows when a request fails: a commit that timed out may only be committed again, and past
the deadline only the broker knows the outcome. Invariants: local state may change iff `commit`
returned; no transaction begins on a producer with an earlier request that may still be in transit
to the broker.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.config.model import COMMIT_GRACE_MS
from ringfence_service.dedup.plan import Output, Plan
from ringfence_service.dedup.refusal_trace import UndecidedError
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.compression import Codec, Compression, UncompressedError
from ringfence_service.kafka.errors import (
    BYSTANDER,
    UNCOMPRESSED,
    KafkaFailure,
    KafkaFailureError,
    Recovery,
    fault_of,
    without_frames,
)
from ringfence_service.kafka.io import send
from ringfence_state.model import Edit, PartitionId

_log = structlog.stdlib.get_logger(__name__)


class TransactionRequest(Enum):
    """A request of a transaction to the broker."""

    SEND = "any before the commit"
    COMMIT = "the commit, while no earlier one may have been carried out"
    COMMIT_AGAIN = "the commit, after one without a definite answer"
    ABORT = "the abort"


class Action(Enum):
    """What follows when a request fails."""

    REPEAT = "send it again; before the next transaction the producer is replaced"
    ABORT = "abort the transaction"
    GIVE_UP = "only the broker knows the outcome: a new life asks it"


ACTIONS: Final[Mapping[tuple[TransactionRequest, Recovery], Action]] = {
    (TransactionRequest.SEND, Recovery.RETRY): Action.REPEAT,
    (TransactionRequest.SEND, Recovery.ABORT): Action.ABORT,
    (TransactionRequest.SEND, Recovery.REBUILD): Action.GIVE_UP,
    (TransactionRequest.COMMIT, Recovery.RETRY): Action.REPEAT,
    (TransactionRequest.COMMIT, Recovery.ABORT): Action.ABORT,
    (TransactionRequest.COMMIT, Recovery.REBUILD): Action.GIVE_UP,
    (TransactionRequest.COMMIT_AGAIN, Recovery.RETRY): Action.REPEAT,
    # An abort of what may be committed would read committed records again.
    (TransactionRequest.COMMIT_AGAIN, Recovery.ABORT): Action.GIVE_UP,
    (TransactionRequest.COMMIT_AGAIN, Recovery.REBUILD): Action.GIVE_UP,
    (TransactionRequest.ABORT, Recovery.RETRY): Action.REPEAT,
    (TransactionRequest.ABORT, Recovery.ABORT): Action.GIVE_UP,
    (TransactionRequest.ABORT, Recovery.REBUILD): Action.GIVE_UP,
}
"""By the request and what its error means for the transaction."""

PAST_DEADLINE: Final[Mapping[TransactionRequest, Action]] = {
    TransactionRequest.SEND: Action.ABORT,
    TransactionRequest.COMMIT: Action.GIVE_UP,
    TransactionRequest.COMMIT_AGAIN: Action.GIVE_UP,
    TransactionRequest.ABORT: Action.GIVE_UP,
}
"""What follows instead of a repetition once the time of the request is up."""


def action_after(request: TransactionRequest, fault: KafkaFailure, *, is_late: bool) -> Action:
    """Return what follows when a request fails, before or after its deadline."""
    action = ACTIONS[request, fault.remedy]
    return PAST_DEADLINE[request] if is_late and action is Action.REPEAT else action


_STEP_TIMEOUT_S: Final = 2.0
"""How long one call to the client may block: the loop's heartbeat is updated between calls.

Less than the four seconds after which `/readyz` fails. Also less than the three after which the
client may close a connection with a request on it and log nothing: the producer of a transaction
that took longer is replaced (ADR 17).
"""

_PAUSE_S: Final = 0.1
"""Pause before a step is repeated: an error that returns at once must not flood the broker."""

_WAIT_SLICE_S: Final = 0.25
"""How long one flush waits: the loop then sends a heartbeat and looks for a refused record."""

_REPORTS_S: Final = 1.0
"""How long to wait for reports on the other batches of a transaction that will be aborted."""


_NOT_DELIVERED: Final = KafkaFailure(
    Recovery.ABORT,
    of_record=False,
    fenced=False,
    cause="_MSG_TIMED_OUT: a changelog record was not delivered in time, or at an unknown offset",
)

_UNDECIDED: Final = _NOT_DELIVERED._replace(cause="its records could not be decided")

_TRIED: Final = _NOT_DELIVERED._replace(cause="it was only to be tried")

SLOW: Final = _NOT_DELIVERED._replace(
    cause="deciding took too much of transaction_timeout_ms; what was loaded stays in memory"
)

EXPIRED: Final = SLOW._replace(
    cause="the transaction took longer than transaction_timeout_ms, and the broker ended it",
    waits_for="the broker to take a transaction within transaction_timeout_ms; see its log",
)

OffsetsBuilder = Callable[[Mapping[PartitionId, int]], list[TopicPartition]]
"""Input offsets with their metadata, given the last changelog offset of each partition.

A partition that is not given counts as written where its records are expected.
"""


class TransactionAbortedError(KafkaFailureError):
    """The transaction was aborted: the batch has to be read again."""


class OutcomeUnknownError(KafkaFailureError):
    """Only the broker knows the outcome of the transaction: start a new life from its state."""


class TransactionManager:
    """The transactional producer, and the order of calls to it."""

    def __init__(
        self,
        clients: Clients,
        transaction_timeout_ms: int,
        clock: Clock,
        on_wait: Callable[[float], None] = lambda _waited_s: None,
        compression: Compression | None = None,
        on_codec: Callable[[str | None], None] = lambda _name: None,
    ) -> None:
        """`on_wait` is called repeatedly during a wait for the broker, with its duration in s.

        `on_codec` is called for each new producer, with the codec that was chosen for it.
        """
        self._compression = compression or Compression()
        self._codec: Codec | None = None
        self._clients = clients
        self._on_wait, self._on_codec = on_wait, on_codec
        self._timeout_s = transaction_timeout_ms / 1000
        self._clock = clock
        self._producer: Producer | None = None
        self._batch_bytes_max = self._largest_batch_bytes = 0
        self._suspect = self._waits_for_flush = False

    def prepare(self, batch_bytes_max: int) -> None:
        """Ensure a producer, which fences others with its transactional id; set the batch limit."""
        self._batch_bytes_max = batch_bytes_max
        if self._producer is None:
            self._producer = self._initialised()
        elif not self._suspect:
            self._serve(self._producer)

    def _trusted(self, *, waits_for_flush: bool = False) -> Producer:
        """Return a producer without a request that may still arrive, for the next transaction.

        `waits_for_flush` is as for `Clients.producer`.

        librdkafka sends a request again when its connection breaks, and lacks part 2 of KIP-890: a
        late first copy, above all of EndTxn, would take effect in a later transaction of the same
        producer epoch. A new producer has a new epoch, which makes the broker refuse the copy.
        """
        if self._producer is not None and not self._suspect:
            self._serve(self._producer)
        is_too_large = self._batch_bytes_max < self._largest_batch_bytes
        self._compression.begin(self._clock.monotonic_s())
        is_other = (
            waits_for_flush != self._waits_for_flush or self._codec != self._compression.codec
        )
        if self._producer is None or self._suspect or is_too_large or is_other:
            self._producer = self._initialised(waits_for_flush=waits_for_flush)
        return self._producer

    def _initialised(self, *, waits_for_flush: bool = False) -> Producer:
        """Return a new, initialised producer.

        A producer that reports an error before its first transaction is replaced after it: the
        client does not log the same loss twice within 30 seconds.
        """
        self.close()
        self._suspect, codec = False, self._compression.codec
        producer = self._clients.producer(
            self._batch_bytes_max, self.note_error, waits_for_flush=waits_for_flush, codec=codec
        )
        self._codec = codec
        self._on_codec(codec.name if codec else None)
        self._largest_batch_bytes, self._waits_for_flush = self._batch_bytes_max, waits_for_flush
        self._run(lambda: producer.init_transactions(_STEP_TIMEOUT_S))
        return producer

    def commit(
        self,
        plan: Plan,
        outputs: Iterable[Sequence[Output]],
        build_offsets: OffsetsBuilder,
        group: object,
    ) -> None:
        """Commit the plan; raise TransactionAbortedError or OutcomeUnknownError otherwise.

        Iterating `outputs` fills the plan: outputs are sent while the rest is still being decided.
        The first part is decided, and its state loaded, before the transaction begins. Other
        exceptions that `outputs` raises propagate, after an abort. `group` is the group metadata of
        the generation in which the batch was read.
        """
        parts = iter(outputs)
        try:
            first = next(parts, ())
        except UndecidedError as undecided:
            raise TransactionAbortedError(undecided.fault) from None
        except UncompressedError:
            raise TransactionAbortedError(UNCOMPRESSED) from None
        producer = self._trusted(waits_for_flush=plan.is_traced)
        began_s = self._clock.monotonic_s()
        failure = self._attempt(
            producer, plan, chain([first], parts), build_offsets, group, began_s
        )
        if failure is None:
            return
        # Outside the `except` blocks, for the reason in `without_frames`.
        try:
            if isinstance(failure, Exception):
                self._abort(producer, plan, _UNDECIDED, began_s)
                raise failure
            raise TransactionAbortedError(self._abort(producer, plan, failure, began_s))
        finally:
            del failure  # the traceback of an exception refers to this frame

    def _attempt(
        self,
        producer: Producer,
        plan: Plan,
        outputs: Iterable[Sequence[Output]],
        build_offsets: OffsetsBuilder,
        group: object,
        began_s: float,
    ) -> KafkaFailure | Exception | None:
        """Send all and commit it; return why it has to be aborted, None once it is committed.

        It is an exception if neither the broker nor a record is the reason. OutcomeUnknownError if
        only the broker knows whether it is committed.
        """
        try:
            self._run(producer.begin_transaction)
            changelog = self._write(producer, plan, outputs, began_s)
            expected = build_offsets({})
            self._send_offsets(producer, expected, group)  # while the records are on their way
            self._deliver(producer)
            if not changelog.is_written:
                raise _failed(producer) or TransactionAbortedError(_NOT_DELIVERED)
            offsets = build_offsets(changelog.written)
            # They differ after a takeover or an abort.
            if [each.metadata for each in offsets] != [each.metadata for each in expected]:
                self._send_offsets(producer, offsets, group)
            if self._waited_s(began_s) > self._timeout_s:
                raise TransactionAbortedError(EXPIRED)  # a commit could not be aborted any more
        except (UndecidedError, OutcomeUnknownError) as failed:
            return failed.fault
        except UncompressedError:
            return UNCOMPRESSED
        except (TransactionAbortedError, KafkaException) as failed:
            refused = without_frames(failed)
        except Exception as failed:  # noqa: BLE001 - raised again after the abort
            return failed
        else:
            return self._end(producer, began_s)
        # A call that finds the transaction failed reports only that, not because of which record.
        refused = _failed(producer) or refused
        if isinstance(refused, TransactionAbortedError):
            return refused.fault
        return fault_of(refused.args[0])

    def names_bad_records(self, compacted: str) -> bool | None:
        """Return whether the broker names the bad records of a batch (KIP-467); None if unknown.

        A transaction that is always aborted tries it with two records. A compacted topic takes none
        without a key; a broker that names records reports the other as a bystander.
        OutcomeUnknownError if the broker does not confirm the abort.
        """
        codes: list[int] = []

        def note(error: KafkaError | None, _message: Message) -> None:
            codes.extend([] if error is None else [error.code()])

        try:
            producer = self._trusted(waits_for_flush=True)
        except TransactionAbortedError:
            return None  # the next transaction asks for a producer again
        began_s = self._clock.monotonic_s()
        try:
            self._run(producer.begin_transaction)
            send(producer, [(compacted, b"", key, 0, note) for key in (None, b"-")])
            self._await_reports(producer)
        except (KafkaException, TransactionAbortedError):
            codes.clear()
        self._abort(producer, Plan(), _TRIED, began_s)
        return BYSTANDER in codes if codes else None

    def _serve(self, producer: Producer) -> None:
        """Have the producer report errors and lost connections."""
        try:
            producer.poll(0)
        except KafkaException as error:  # a fatal error; no transaction is open
            raise OutcomeUnknownError(fault_of(error.args[0])) from error

    def close(self) -> None:
        """Drop the producer; its successor or the broker's timeout aborts an open transaction."""
        self._producer = None

    def _write(
        self, producer: Producer, plan: Plan, outputs: Iterable[Sequence[Output]], began_s: float
    ) -> "_ChangelogWriter":
        """Send all records of the plan, of each part those of the changelog first."""
        changelog = _ChangelogWriter(plan.edits)
        for part in outputs:
            self._on_wait(0.0)
            if self._waited_s(began_s) > self._timeout_s / 2:
                raise TransactionAbortedError(SLOW)  # while there is still time to abort
            changelog.write(producer)
            send(producer, part)
        changelog.write(producer)
        return changelog

    def _send_offsets(
        self, producer: Producer, offsets: list[TopicPartition], group: object
    ) -> None:
        """Send the input offsets; of those sent twice the broker commits the second."""
        self._run(lambda: producer.send_offsets_to_transaction(offsets, group, _STEP_TIMEOUT_S))

    def _deliver(self, producer: Producer) -> None:
        """Wait until no record is left to be delivered, one is refused, or the time is up.

        Once a record is refused the client sends no further ones, and these would be waited for.
        """
        started_s = self._clock.monotonic_s()
        while producer.flush(_WAIT_SLICE_S) and self._waited_s(started_s) < self._timeout_s:
            self._on_wait(self._waited_s(started_s))
            if reason := _failed(producer):
                raise reason

    def _await_reports(self, producer: Producer) -> None:
        """Wait for the reports on batches that are on their way: they name the bad records."""
        started_s = self._clock.monotonic_s()
        with contextlib.suppress(KafkaException):  # a fatal error: the abort meets it as well
            while producer.flush(_WAIT_SLICE_S) and self._waited_s(started_s) < _REPORTS_S:
                self._on_wait(self._waited_s(started_s))

    def _end(self, producer: Producer, began_s: float) -> KafkaFailure | None:
        """Commit, repeatedly while there is no response; never abort what may be committed.

        Returns the failure for which the transaction has to be aborted, None once it is committed.
        OutcomeUnknownError if only the broker knows.
        """
        started_s = self._clock.monotonic_s()
        request = TransactionRequest.COMMIT
        while True:
            self._on_wait(self._waited_s(started_s))
            try:
                producer.commit_transaction(_STEP_TIMEOUT_S)
            except KafkaException as error:
                fault = fault_of(error.args[0])
            else:
                # The client closes a silent connection with a request on it, without a log line.
                self._suspect = self._suspect or self._waited_s(began_s) > _STEP_TIMEOUT_S
                return None
            is_late = self._waited_s(started_s) > self._timeout_s + COMMIT_GRACE_MS / 1000
            action = action_after(request, fault, is_late=is_late)
            if action is Action.ABORT:
                return fault
            if self._has_expired(fault, began_s):
                fault = EXPIRED._replace(cause=f"{EXPIRED.cause}; {fault.cause}")
                raise OutcomeUnknownError(fault)
            if action is Action.GIVE_UP:
                raise OutcomeUnknownError(fault)
            request, self._suspect = TransactionRequest.COMMIT_AGAIN, True

    def _abort(
        self, producer: Producer, plan: Plan, cause: KafkaFailure, began_s: float
    ) -> KafkaFailure:
        """Abort a transaction of which no commit was sent; return the cause.

        OutcomeUnknownError if the broker does not confirm the abort, or another producer took over
        the transactional id. The broker itself ends a transaction that is older than its timeout,
        and fences its producer: that is an abort too, and we keep the partitions and the memory.
        """
        self._suspect = True
        fault = cause
        if plan.is_traced and cause.of_record:
            self._await_reports(producer)
        if cause.remedy is not Recovery.REBUILD:
            try:
                self._run(
                    lambda: producer.abort_transaction(_STEP_TIMEOUT_S), TransactionRequest.ABORT
                )
            except OutcomeUnknownError as error:
                if error.fault.remedy is not Recovery.REBUILD:
                    raise OutcomeUnknownError(cause) from None
                # An abort may fail fatally (librdkafka #4849); its cause explains more.
                fault = (
                    error.fault if error.fault.fenced else cause._replace(remedy=Recovery.REBUILD)
                )
        if self._has_expired(fault, began_s):
            return EXPIRED
        if fault.remedy is Recovery.REBUILD:
            raise OutcomeUnknownError(fault)
        return cause

    def _has_expired(self, fault: KafkaFailure, began_s: float) -> bool:
        """Whether the broker fenced the producer for the age of its transaction, not a rival."""
        is_fenced = fault.fenced and not fault.of_group
        return is_fenced and self._waited_s(began_s) > self._timeout_s

    def _run(
        self, step: Callable[[], None], request: TransactionRequest = TransactionRequest.SEND
    ) -> None:
        """Repeat a step until it succeeds; raise what `ACTIONS` says of its failure."""
        started_s = self._clock.monotonic_s()
        while True:
            self._on_wait(self._waited_s(started_s))
            try:
                step()
            except KafkaException as error:
                fault = fault_of(error.args[0])
            else:
                return
            is_late = self._waited_s(started_s) > self._timeout_s
            action = action_after(request, fault, is_late=is_late)
            if action is Action.GIVE_UP:
                raise OutcomeUnknownError(fault)
            if action is Action.ABORT:
                raise TransactionAbortedError(fault)
            self._suspect = True
            self._clock.sleep(_PAUSE_S)

    def _waited_s(self, since_s: float) -> float:
        return self._clock.monotonic_s() - since_s

    def note_error(self, _error: KafkaError) -> None:
        """A connection was lost or a request timed out: a copy of it may still arrive."""
        self._suspect = True


def _failed(producer: Producer) -> KafkaException | None:
    """Return the error with which the open transaction has failed, or None."""
    try:
        # Refused within a transaction; with that transaction's own error if it has one.
        producer.begin_transaction()
    except KafkaException as error:
        if error.args[0].txn_requires_abort() or error.args[0].fatal():
            return without_frames(error)  # a caller that keeps it would keep its own frame
    return None


class _ChangelogWriter:
    """Writes the edits of a plan as it fills; asks for a delivery report of the last of each piece.

    It must not refer to the producer, which refers to the report callbacks: a report that is never
    served would keep a dropped producer alive, with its threads and connections.
    """

    def __init__(self, edits: Mapping[PartitionId, list[Edit]]) -> None:
        self._edits = edits
        self._sent: dict[PartitionId, int] = {}
        self.written: dict[PartitionId, int] = {}
        """The last changelog offset of each partition."""
        self._awaited = 0
        """Number of delivery reports that are still to come."""
        self._is_lost = False
        """Whether a piece was not delivered, or at an unknown offset."""

    @property
    def is_written(self) -> bool:
        """Whether every piece was delivered at a known offset."""
        return not (self._awaited or self._is_lost)

    def write(self, producer: Producer) -> None:
        """Send the edits that were added since the last call."""
        for log, edits in self._edits.items():
            sent = self._sent.get(log, 0)
            if sent < len(edits):
                self._sent[log] = len(edits)
                self._write(producer, log, edits[sent:])

    def _write(self, producer: Producer, log: PartitionId, edits: list[Edit]) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            # The message of a failed report must not be accessed: a fatal error may be pending.
            # Where a new leader refused a copy, the first was written, at an unknown offset.
            offset = None if error is not None else message.offset()
            self._awaited -= 1
            if offset is None:
                self._is_lost = True
            else:
                self.written[log] = offset

        self._awaited += 1
        topic, partition = log
        records = [(topic, value, key, partition) for key, value in edits[:-1]]
        key, value = edits[-1]
        send(producer, [*records, (topic, value, key, partition, note)])
