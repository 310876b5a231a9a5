"""Failure handling: what the loop does about aborts, failing services, and damaged stores.

Whatever fails, the records that were consumed and not committed are read again.
"""

from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from ringfence_service.dedup.plan import Plan
from ringfence_service.dedup.poison_records import PoisonRecords
from ringfence_service.errors import AwaitedError
from ringfence_service.kafka.admin import SILENT
from ringfence_service.kafka.compression import Compression
from ringfence_service.kafka.errors import (
    CROWDED,
    DOUBTED,
    OUTDATED,
    REBALANCED,
    REFUSALS,
    UNCOMPRESSED,
    UNREADABLE_BATCH,
    KafkaFailure,
    Recovery,
    fault_of,
    waited_for,
)
from ringfence_service.processor.active_settings import ActiveSettings
from ringfence_service.processor.assignment import Assignment
from ringfence_service.processor.poll import Poller
from ringfence_service.processor.reporter import Reporter
from ringfence_service.processor.retry import RetryPolicy
from ringfence_service.processor.transaction import EXPIRED, SLOW, OutcomeUnknownError
from ringfence_state.cache import Cache
from ringfence_state.model import PartitionId
from ringfence_state.store import StoreCorruptError

_GONE: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - its name
        KafkaError._TRANSPORT,  # noqa: SLF001 - its name
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors after which the inputs are refreshed: the broker, a topic or a right may be gone."""


class FailureHandler:
    """Handles the failures of one life of the loop; the retry policy decides how long to wait."""

    def __init__(
        self,
        active_settings: ActiveSettings,
        assignment: Assignment,
        poller: Poller,
        poison_records: PoisonRecords,
        cache: Cache,
        reporter: Reporter,
        retry_policy: RetryPolicy,
        names_bad_records: Callable[[], bool | None],
        explain: Callable[[str], str | None],
        compression: Compression,
    ) -> None:
        """`names_bad_records` asks the broker whether it names the bad records of a batch.

        `explain` is as in `ClusterAdmin`.
        """
        self._active_settings = active_settings
        self._assignment = assignment
        self._poller = poller
        self._poison_records = poison_records
        self._names_bad_records = names_bad_records
        self._explain = explain
        self._cache, self._compression = cache, compression
        self._reporter, self._retry_policy = reporter, retry_policy

    def aborted(self, fault: KafkaFailure, plan: Plan) -> None:
        """Handle an abort: read the batch again, in another way if records of it are to blame."""
        self._reporter.aborted(fault)
        self.rewind()
        if fault in {REBALANCED, OUTDATED, UNCOMPRESSED}:
            return
        if fault in {SLOW, CROWDED}:
            if plan.tally.records_read:
                self._poller.narrow(plan.tally.records_read)
            return
        if fault == EXPIRED:
            self._poison_records.halve(plan)
        self._doubt_topics(fault)
        if fault == DOUBTED:
            return
        if self._retry_policy.is_passing(fault, self._assignment.rebalances):
            return
        if fault.too_large and self._compression.strengthen():
            return
        if fault.of_record and self._poison_records.is_ambiguous:
            self._poison_records.learn(names=self._names_bad_records())
        if not (fault.of_record and self._poison_records.narrow(plan, fault)):
            self._back_off(fault, plan)

    def _back_off(self, fault: KafkaFailure, plan: Plan) -> None:
        """Wait before the batch is read again, and say what for."""
        is_throttled = self._reporter.is_throttled
        if is_throttled and plan.tally.records_read:
            self._poller.narrow(plan.tally.records_read)  # else the quota ends it again
        sentence = f"the broker, which answered {fault.cause}; see its log"
        cause = fault.waits_for
        if cause is None and not is_throttled:
            cause = self._explain(fault.cause)
        cause = cause or self._retry_policy.cause_of(sentence)
        self._retry_policy.back_off(cause, until_commit=True)

    def unchanged(self, fault: KafkaFailure) -> None:
        """Handle the abort of an administrator's change without waiting: its client retries."""
        self._reporter.aborted(fault)
        self.rewind()
        self._doubt_topics(fault)

    def _doubt_topics(self, fault: KafkaFailure) -> None:
        """Refresh the topics if the broker caused the abort.

        Where it refused a record, the settings of a target may have changed.
        """
        if fault.of_group or fault.raised is not None:
            return
        self._active_settings.doubt_targets()
        if not fault.of_record:
            self._active_settings.inputs.suspect()

    def damaged(self, error: StoreCorruptError) -> None:
        """Handle a damaged store: wipe it and take its partition over again."""
        self._reporter.damaged(str(error))
        self._assignment.retake(error.source, wipe=True)
        self.rewind()

    def rewind(self) -> None:
        """Read again what was consumed and not committed; else the next commit would skip it."""
        self._cache.begin()  # the transaction is over, and with it its limits on loading
        try:
            self._poller.discard()
            self._assignment.rewind()
        except KafkaException as error:
            raise OutcomeUnknownError(fault_of(error.args[0])) from error

    def on_client_error(self, error: KafkaError, source: PartitionId | None) -> None:
        """Handle an error that the consumer returned among the messages."""
        self._reporter.client_error(error.name(), error.str())
        fault = fault_of(error)
        if fault.remedy is Recovery.REBUILD:
            raise OutcomeUnknownError(fault)
        if error.code() in _GONE:
            self._active_settings.inputs.suspect()
        if error.code() == UNREADABLE_BATCH and source in self._assignment.running:
            self._assignment.unreadable.meet(self._assignment.running[source], error)
        if error.code() == KafkaError._AUTO_OFFSET_RESET and source:  # noqa: SLF001 - its name
            self._assignment.retake(source, wipe=False)
        elif error.code() in REFUSALS:
            raise KafkaException(error)

    def refused(self, error: KafkaError) -> None:
        """Handle an error or a missing response of the broker outside a transaction."""
        self.rewind()
        fault = fault_of(error)
        is_cut_off = self._retry_policy.is_cut_off(finds_broker=error.code() not in SILENT)
        if fault.remedy is Recovery.REBUILD or is_cut_off:
            raise OutcomeUnknownError(fault)
        self._retry_policy.back_off(waited_for(fault.cause, self._explain))

    def awaited(self, awaited: AwaitedError) -> None:
        """Handle a record that cannot be decided yet: its partition waits, the others are read."""
        assert awaited.source is not None  # the decider names it
        source = PartitionId(*awaited.source)
        self.block({source: awaited})
        self.rewind()
        self._active_settings.doubt_targets()

    def block(self, waiting: Mapping[PartitionId, AwaitedError]) -> None:
        """Leave partitions alone until what a record of each awaits is there."""
        try:
            for source, awaited in waiting.items():
                self._assignment.fetching.block(source, awaited.sentence, awaited.awaits)
        except KafkaException as error:
            raise OutcomeUnknownError(fault_of(error.args[0])) from error
        self._poller.skip(waiting)
