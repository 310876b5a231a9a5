"""Committer: the steps of a batch: decide it, commit the plan, apply it to store and memory.

The records of a batch are decided in pieces, and the outputs of each are sent before the next is
read. Invariant: store and memory change only after the commit has succeeded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from confluent_kafka import TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.config.model import ServiceSettings
from ringfence_service.dedup.batch import Batch
from ringfence_service.dedup.checks import DecisionContext
from ringfence_service.dedup.decider import decide
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.plan import Output, Plan
from ringfence_service.dedup.poison_records import PoisonRecords
from ringfence_service.dedup.refusal_trace import RefusalTrace
from ringfence_service.kafka.errors import (
    CROWDED,
    DOUBTED,
    NOT_A_MEMBER,
    REBALANCED,
    without_frames,
)
from ringfence_service.processor.apply import apply
from ringfence_service.processor.assignment import Assignment
from ringfence_service.processor.commit_offsets import offset_to_commit
from ringfence_service.processor.poll import Poller
from ringfence_service.processor.reporter import Reporter
from ringfence_service.processor.retry import RetryPolicy
from ringfence_service.processor.transaction import (
    SLOW,
    TransactionAbortedError,
    TransactionManager,
)
from ringfence_service.schemas.documents import begin_transaction
from ringfence_state.cache import BatchTooLargeError, Cache
from ringfence_state.model import PartitionId
from ringfence_state.store import StoreCorruptError, StoreFailedError


class NotAppliedError(Exception):
    """A committed transaction could not be applied to store and memory: the process must end."""


class NothingDecidedError(Exception):
    """Every record that was read has to wait: there is nothing to commit."""


class DecisionBasis(Protocol):
    """What a transaction is decided by, as `ActiveSettings` has it: here nothing is parsed."""

    rules: DecisionContext

    @property
    def revision(self) -> int:
        """The revision of the metadata topic."""
        ...

    @property
    def is_in_doubt(self) -> bool:
        """Whether an input topic may be another one by now."""
        ...

    def applied_by(self, partition: OwnedPartition) -> int:
        """Return the revision of the settings document that a partition has fully applied."""
        ...


class Committer:
    """Decides, commits and applies, one transaction after the other."""

    def __init__(
        self,
        transaction_manager: TransactionManager,
        basis: DecisionBasis,
        assignment: Assignment,
        poller: Poller,
        poison_records: PoisonRecords,
        cache: Cache,
        service: ServiceSettings,
        clock: Clock,
        reporter: Reporter,
        retry_policy: RetryPolicy,
    ) -> None:
        self._transaction_manager = transaction_manager
        self._basis = basis
        self._assignment = assignment
        self._poller = poller
        self._poison_records = poison_records
        self._cache = cache
        self._service = service
        self._clock, self._reporter, self._retry_policy = clock, reporter, retry_policy
        self.plan = Plan()
        """The plan of the last transaction, whether or not it was committed."""
        self._load_s_max = service.transaction_timeout_ms / 4000
        """How long a transaction may load state; the rest of its timeout is for its commit."""
        self._began_s = 0.0
        """When deciding began for the current transaction."""

    def commit_batch(self, batch: Batch) -> None:
        """Decide and commit a batch, and what follows it as far as the transaction has room."""
        is_bounded = not self._poller.is_narrowest
        trace = self._poison_records.begin()
        plan = Plan(
            on_headers=self._reporter.begun(),
            is_bounded=is_bounded,
            is_traced=trace is not None,
            tally=self._reporter.new_tally(),
        )
        try:
            self.commit(plan, self._decided(batch, plan, trace))
        except NothingDecidedError:
            self._cache.begin()  # the transaction has not begun, and its limits on loading are over
        else:
            self._poller.committed()

    def _decided(
        self, batch: Batch, plan: Plan, trace: RefusalTrace | None
    ) -> Iterator[Sequence[Output]]:
        """Yield the outputs as they are decided, and time each step.

        Afterwards tidy the cache, while the broker processes the records.
        """
        parts = decide(self._read(batch, plan), self._basis.rules, plan, trace)
        lookup_s, produce_s, poller, tally = 0.0, 0.0, self._poller, plan.tally
        is_empty = True
        while True:
            started_s, read_s, read = self._clock.monotonic_s(), poller.spent_s, tally.records_read
            try:
                part = next(parts, None)
            except BatchTooLargeError:
                raise TransactionAbortedError(SLOW if self._is_late() else CROWDED) from None
            decided_s = self._clock.monotonic_s()
            took_s = decided_s - started_s - (poller.spent_s - read_s)
            lookup_s += took_s
            if part is None:
                break
            poller.decided(tally.records_read - read, took_s)
            is_empty = is_empty and not plan.next_offsets
            if is_empty:
                continue
            yield part
            produce_s += self._clock.monotonic_s() - decided_s
        if is_empty:
            raise NothingDecidedError
        self._reporter.stage("lookup", lookup_s)
        self._reporter.stage("produce", produce_s)

    def _read(self, batch: Batch, plan: Plan) -> Iterator[Batch]:
        """Yield a batch and the further pieces of the same transaction.

        If the group rebalances meanwhile, the transaction is aborted: it may contain records of a
        partition that we no longer own. It ends early if it uses most of the memory, or if another
        piece might be late: a piece that has to load state would cost the others.
        """
        rebalances = self._assignment.rebalances
        while batch.slices:
            yield batch
            if self._cache.is_full or self._decided_for_s > self._load_s_max / 2:
                return
            batch = self._poller.poll_more(plan, self._poison_records.records_max)
            if self._assignment.rebalances != rebalances:
                raise TransactionAbortedError(REBALANCED)

    @property
    def _decided_for_s(self) -> float:
        return self._clock.monotonic_s() - self._began_s

    def _is_late(self) -> bool:
        """Whether deciding the current transaction has taken too long to load more state."""
        return self._decided_for_s > self._load_s_max

    def commit(self, plan: Plan, outputs: Iterable[Sequence[Output]]) -> None:
        """Commit the plan in one transaction; then, and only then, change store and memory.

        1. Take the membership in which the records were read: offsets are committed for it alone.
        2. Open the cache and the schemas for what is loaded while `outputs` are decided.
        3. Send the outputs and the changelog, and then the offsets with their metadata.
        4. Commit. What fails up to here changes nothing; an unknown outcome ends the life.
        5. Count, and apply the plan to the stores, to memory and to the partitions.
        6. Note which settings the committed offsets name, and which records are past their faults.
        """
        started_s = self._clock.monotonic_s()
        self.plan = plan
        partitions = self._assignment.running
        changelog_next: dict[PartitionId, int] = {}

        def build_offsets(written: Mapping[PartitionId, int]) -> list[TopicPartition]:
            changelog_next.update({log: offset + 1 for log, offset in written.items()})
            if any(source not in partitions for source in plan.next_offsets):
                raise TransactionAbortedError(REBALANCED)
            if self._basis.is_in_doubt:
                raise TransactionAbortedError(DOUBTED)
            return [
                offset_to_commit(
                    partition,
                    offset,
                    changelog_next,
                    plan,
                    self._basis.revision,
                    self._basis.applied_by(partition),
                )
                for source, offset in plan.next_offsets.items()
                for partition in (partitions[source],)
            ]

        member = self._assignment.membership()
        if member is None:
            # The broker accepts offsets without a check from a consumer that never joined.
            raise TransactionAbortedError(NOT_A_MEMBER)
        self._began_s = started_s
        begin_transaction(started_s)
        self._cache.begin(is_bounded=plan.is_bounded, is_late=self._is_late)
        self._transaction_manager.commit(plan, outputs, build_offsets, member)
        try:
            self._apply(plan, changelog_next, self._clock.monotonic_s() - started_s)
        except (StoreCorruptError, StoreFailedError):
            raise
        except Exception as error:
            raise NotAppliedError(repr(error)) from error

    def _apply(self, plan: Plan, changelog_next: Mapping[PartitionId, int], took_s: float) -> None:
        """Apply a committed plan to store, memory, and the counts."""
        partitions = self._assignment.running
        self._retry_policy.committed()
        self._reporter.committed(plan, took_s)
        applied_s, damaged = self._clock.monotonic_s(), None
        try:
            apply(plan, changelog_next, partitions, self._cache, self._clock.wall_ms())
        except StoreCorruptError as error:
            damaged = without_frames(error)
        if damaged is not None:
            # Kafka has committed all of it, and only a part was applied: no local state is valid.
            for source in plan.next_offsets:
                self._assignment.retake(source, wipe=False)
            raise damaged
        self._reporter.stage("apply", self._clock.monotonic_s() - applied_s)
        if plan.expired:
            self._reporter.expired(plan.expired, [each.addresses for each in partitions.values()])
        held = [partitions[source].addresses for source in plan.next_offsets]
        self._reporter.address_counters.add(plan.tally, held)
        for source in plan.next_offsets:
            partition = partitions[source]
            partition.applied = self._basis.applied_by(partition)
            partition.revision = self._basis.revision
        self._poison_records.passed(partitions, self._service.batch_records_max)
