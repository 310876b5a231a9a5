"""Transaction: a plan becomes one Kafka transaction; only then do store and memory change.

Outputs, dead letters, changelog and input offsets become visible together or not at all. A commit
that timed out may only be committed again; past the deadline the broker alone knows the outcome.
Invariants: local state may change iff `commit` returned; no transaction begins on a producer of
which an earlier request may still be in transit to the broker.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from service.clock import Clock
from service.dedup.decider import UndecidedError
from service.dedup.partition import OwnedPartition
from service.dedup.plan import Output, Plan
from service.kafka.clients import Clients
from service.kafka.errors import KafkaFailure, KafkaFailureError, Recovery, fault_of
from service.kafka.io import send
from state import pending_group as pending_record
from state.cache import Cache
from state.model import Edit, PartitionId
from state.store import StorePosition
from state.strategies.registry import STRATEGIES

_STEP_TIMEOUT_S: Final = 2.0

_PAUSE_S: Final = 0.1

_FLUSH_SLICE_S: Final = 0.25


# The broker looks for transactions past their timeout every ten seconds by default.
_SCAN_S: Final = 10.0

_NOT_DELIVERED: Final = KafkaFailure(
    Recovery.ABORT,
    of_record=False,
    fenced=False,
    cause="_MSG_TIMED_OUT: a changelog record was not delivered in time, or nobody knows where",
)

_UNDECIDED: Final = _NOT_DELIVERED._replace(cause="its records could not be decided")

SLOW: Final = _NOT_DELIVERED._replace(
    cause="deciding took too much of transaction_timeout_ms; what was loaded stays in memory"
)

EXPIRED: Final = SLOW._replace(
    cause="the transaction took longer than transaction_timeout_ms, and the broker ended it",
    waits_for="the broker to take a transaction within transaction_timeout_ms; see its log",
)

OffsetsBuilder = Callable[[Mapping[PartitionId, int]], list[TopicPartition]]
"""Input offsets with their metadata, given the last changelog offset of each partition."""


class TransactionAbortedError(KafkaFailureError):
    """The transaction left nothing behind: the batch has to be read again."""


class OutcomeUnknownError(KafkaFailureError):
    """Only the broker knows what became of the transaction: begin again from what it says."""


class TransactionManager:
    """The transactional producer, and the order in which it is used."""

    def __init__(
        self,
        clients: Clients,
        transaction_timeout_ms: int,
        clock: Clock,
        on_wait: Callable[[float], None] = lambda _waited_s: None,
    ) -> None:
        """`awaits` is told, wherever a wait for the broker goes on, how long it has taken."""
        self._clients = clients
        self._on_wait = on_wait
        self._timeout_s = transaction_timeout_ms / 1000
        self._clock = clock
        self._producer: Producer | None = None
        self._batch_bytes_max = self._largest_batch_bytes = 0
        self._suspect = False

    def prepare(self, batch_bytes_max: int) -> None:
        """Have a producer, which fences those of its name; its batches are to be no larger."""
        self._batch_bytes_max = batch_bytes_max
        if self._producer is None:
            self._producer = self._initialised()
        elif not self._suspect:
            self._serve(self._producer)

    def _trusted(self) -> Producer:
        """The producer for the next transaction: not one of which a request may still arrive.

        librdkafka sends a request again when its connection breaks, and lacks part 2 of KIP-890:
        the late first copy, an EndTxn above all, would take effect in a later transaction of the
        same producer epoch. The epoch of the next producer makes the broker refuse it.
        """
        if self._producer is not None and not self._suspect:
            self._serve(self._producer)
        is_too_large = self._batch_bytes_max < self._largest_batch_bytes
        if self._producer is None or self._suspect or is_too_large:
            self._producer = self._initialised()
        return self._producer

    def _initialised(self) -> Producer:
        """A new producer.

        One that reports something before its first transaction serves for that one alone: the
        client does not log the same loss twice within 30 seconds.
        """
        self.close()
        self._suspect = False
        producer = self._clients.producer(self._batch_bytes_max, self._note_error)
        self._largest_batch_bytes = self._batch_bytes_max
        self._run(lambda: producer.init_transactions(_STEP_TIMEOUT_S))
        return producer

    def commit(
        self,
        plan: Plan,
        outputs: Iterable[Sequence[Output]],
        build_offsets: OffsetsBuilder,
        group: object,
    ) -> None:
        """All of the plan, or TransactionAbortedError, or OutcomeUnknownError.

        `outputs` fills the plan while it is read: what is decided is sent while the rest is still
        being decided. Its first part is decided, and loads what it needs, before the transaction
        begins. What it raises comes through, after an abort. `group` is the group metadata of the
        generation in which the batch was read.
        """
        parts = iter(outputs)
        try:
            first = next(parts, ())
        except UndecidedError as undecided:
            raise TransactionAbortedError(undecided.fault) from None
        producer = self._trusted()
        began_s = self._clock.monotonic_s()
        try:
            self._run(producer.begin_transaction)
            changelog = self._write(producer, plan, chain([first], parts), began_s)
            # If a piece was not delivered, no offset shows what the changelog has taken.
            offsets = build_offsets({} if changelog.awaited else changelog.written)
            # After a record that was not delivered this fails, and with that record's error.
            self._run(lambda: producer.send_offsets_to_transaction(offsets, group, _STEP_TIMEOUT_S))
            if changelog.awaited:
                raise TransactionAbortedError(_NOT_DELIVERED)
        except (TransactionAbortedError, UndecidedError, OutcomeUnknownError) as failed:
            fault = failed.fault
        except Exception:
            self._abort(producer, _UNDECIDED, began_s)
            raise
        else:
            aborted = self._end(producer, began_s)
            if aborted is None:
                return
            fault = aborted
        # When nothing is handled any more, see `without_frames`.
        raise TransactionAbortedError(self._abort(producer, fault, began_s))

    def _serve(self, producer: Producer) -> None:
        """Have the producer report errors and lost connections."""
        try:
            producer.poll(0)
        except KafkaException as error:  # a fatal one; no transaction is open
            raise OutcomeUnknownError(fault_of(error.args[0])) from error

    def close(self) -> None:
        """Drop the producer; what it left open, its successor or the broker's timeout aborts."""
        self._producer = None

    def _write(
        self, producer: Producer, plan: Plan, outputs: Iterable[Sequence[Output]], began_s: float
    ) -> "_ChangelogWriter":
        """Everything into the logs.

        A record that was not delivered makes the next step fail with its error, so delivery is
        asked for only where the offset is needed.
        """
        changelog = _ChangelogWriter(plan.edits)
        try:
            for part in outputs:
                self._on_wait(0.0)
                if self._waited_s(began_s) > self._timeout_s / 2:
                    raise TransactionAbortedError(SLOW)  # while there is time to abort it
                send(producer, part)
                changelog.write(producer)
            changelog.write(producer)
            self._flush(producer)
        except KafkaException as error:
            # `produce` says only that the transaction has failed, not for which record.
            reason = _failed(producer) or error
            raise TransactionAbortedError(fault_of(reason.args[0])) from reason
        return changelog

    def _flush(self, producer: Producer) -> None:
        """Until all is delivered, a record is refused, or the time is up.

        Once a record is refused the client sends no other, and `flush` alone would wait for them.
        """
        started_s = self._clock.monotonic_s()
        while producer.flush(_FLUSH_SLICE_S) and self._waited_s(started_s) < self._timeout_s:
            self._on_wait(self._waited_s(started_s))
            if reason := _failed(producer):
                raise reason

    def _end(self, producer: Producer, began_s: float) -> KafkaFailure | None:
        """Commit, and again while the answer is out; never abort what may be committed.

        Gives what it has to be aborted for. OutcomeUnknownError where only the broker knows.
        """
        started_s = self._clock.monotonic_s()
        maybe_committed = False
        while True:
            self._on_wait(self._waited_s(started_s))
            try:
                producer.commit_transaction(_STEP_TIMEOUT_S)
            except KafkaException as error:
                fault = fault_of(error.args[0])
            else:
                # The client closes a silent connection, with a request on it, and logs nothing.
                self._suspect = self._suspect or self._waited_s(began_s) > _STEP_TIMEOUT_S
                return None
            if fault.remedy is Recovery.ABORT and not maybe_committed:
                return fault
            if self._has_expired(fault, began_s):
                fault = EXPIRED._replace(cause=f"{EXPIRED.cause}; {fault.cause}")
                raise OutcomeUnknownError(fault)
            is_late = self._waited_s(started_s) > self._timeout_s + _SCAN_S
            if fault.remedy is not Recovery.RETRY or is_late:
                raise OutcomeUnknownError(fault)
            maybe_committed = self._suspect = True

    def _abort(self, producer: Producer, cause: KafkaFailure, began_s: float) -> KafkaFailure:
        """Abort what was never told to commit, and give the cause.

        OutcomeUnknownError where the broker does not confirm it, or a rival took the name over.
        The broker itself ends a transaction that is older than its timeout, and fences its
        producer: that is an abort too, and costs neither the partitions nor what is in memory.
        """
        self._suspect = True
        fault = cause
        if cause.remedy is not Recovery.REBUILD:
            try:
                self._run(lambda: producer.abort_transaction(_STEP_TIMEOUT_S))
            except TransactionAbortedError:
                raise OutcomeUnknownError(cause) from None
            except OutcomeUnknownError as error:
                # An abort may end fatally (librdkafka #4849); what led to it says more.
                fault = (
                    error.fault if error.fault.fenced else cause._replace(remedy=Recovery.REBUILD)
                )
        if self._has_expired(fault, began_s):
            return EXPIRED
        if fault.remedy is Recovery.REBUILD:
            raise OutcomeUnknownError(fault)
        return cause

    def _has_expired(self, fault: KafkaFailure, began_s: float) -> bool:
        """Whether the broker, and no rival, fenced the producer: for the age of its transaction."""
        is_fenced = fault.fenced and not fault.of_group
        return is_fenced and self._waited_s(began_s) > self._timeout_s

    def _run(self, step: Callable[[], None]) -> None:
        """A step that may be repeated, until it is done, is refused, or its time is up."""
        started_s = self._clock.monotonic_s()
        while True:
            self._on_wait(self._waited_s(started_s))
            try:
                step()
            except KafkaException as error:
                fault = fault_of(error.args[0])
            else:
                return
            if fault.remedy is Recovery.REBUILD:
                raise OutcomeUnknownError(fault)
            if fault.remedy is Recovery.ABORT or self._waited_s(started_s) > self._timeout_s:
                raise TransactionAbortedError(fault)
            self._suspect = True
            self._clock.sleep(_PAUSE_S)

    def _waited_s(self, since_s: float) -> float:
        return self._clock.monotonic_s() - since_s

    def _note_error(self, _error: KafkaError) -> None:
        """A connection was lost or a request timed out: a copy of it may still arrive."""
        self._suspect = True


def _failed(producer: Producer) -> KafkaException | None:
    """What the open transaction has failed for, if it has."""
    try:
        # Refused within a transaction, and with the transaction's own error if it has one.
        producer.begin_transaction()
    except KafkaException as error:
        if error.args[0].txn_requires_abort() or error.args[0].fatal():
            return error
    return None


class _ChangelogWriter:
    """The edits of a plan on their way: written as the plan fills, delivery asked of the last.

    It must not hold the producer, which holds its reports: one that is never served would keep a
    producer that was dropped, with its threads and connections, for good.
    """

    def __init__(self, edits: Mapping[PartitionId, list[Edit]]) -> None:
        self._edits = edits
        self._sent: dict[PartitionId, int] = {}
        self.written: dict[PartitionId, int] = {}
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

    def _write(self, producer: Producer, log: PartitionId, edits: list[Edit]) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            # The message of a failed report must not be touched: a fatal error may be pending.
            if error is not None:
                return
            offset = message.offset()
            if offset is None:
                return  # a new leader refused a copy: the first was written, at an unknown offset
            self.written[log] = offset
            self.awaited -= 1

        self.awaited += 1
        topic, partition = log
        records = [(topic, value, key, partition) for key, value in edits[:-1]]
        key, value = edits[-1]
        send(producer, [*records, (topic, value, key, partition, note)])


def apply(
    plan: Plan,
    changelog_next: Mapping[PartitionId, int],
    partitions: Mapping[PartitionId, OwnedPartition],
    cache: Cache,
    now_ms: int,
) -> None:
    """Bring a committed plan into stores and memory.

    `changelog_next` has the position of each changelog partition after the commit. A store's
    errors pass: Kafka has committed already, so the store is behind and has to be restored.
    """
    for source, next_offset in plan.next_offsets.items():
        partition = partitions[source]
        partition.committed_offset = partition.next_offset = next_offset
        partition.time_ms = plan.times_ms.get(source, partition.time_ms)
        edits = plan.edits.get(partition.changelog) if partition.changelog else None
        if edits and partition.changelog:
            partition.changelog_next = changelog_next[partition.changelog]
            store, facts = partition.store, partition.facts
            assert store is not None  # it was decided on
            assert facts is not None
            position = StorePosition(facts.identity, next_offset, partition.changelog_next, now_ms)
            store.apply(edits, position)
        partition.volatile.keep(plan.volatile.get(source, ()))
        partition.groups.apply(plan.groups.get(source, {}))
    for partition, address, memory, content in plan.sealed:
        cache.apply(partition.source, address, memory, content)
        partition.addresses.add(address)
        partition.survey.changed(address)
    for source, address in plan.rewritten:
        cache.reread(source, address)
    for source, address in plan.replaced:
        cache.dismiss(source, address)
        partitions[source].survey.changed(address)
    cache.shrink()


def clear_plans(partition: OwnedPartition, edits_max: int) -> Iterator[Plan]:
    """Plans that delete all that a partition remembers, a tombstone for each key, in pieces.

    Until the last of them is committed the offset has no metadata, as it had none before: a
    takeover in between finds what was left, and clears it.
    """
    assert partition.store is not None  # it runs
    assert partition.changelog is not None
    kinds = {strategy.kind for strategy in STRATEGIES.values()} | {pending_record.KIND}
    keys = [key for kind in kinds for key, _ in partition.store.scan(kind)]
    while True:
        piece, keys = keys[:edits_max], keys[edits_max:]
        plan = Plan(is_partial=bool(keys))
        plan.edits[partition.changelog] = [Edit(key, None) for key in piece]
        plan.next_offsets[partition.source] = partition.next_offset
        yield plan
        if not keys:
            return
