"""Batch decider: gives the records of one deciding partition the verdicts of the service, in order.

The checks are those of the service (`service/dedup/evaluator.py`), in the same order and on the
same strategies; this module only calls them without a broker. So it does not check what only a
broker knows: whether the output topic exists and accepts a record of that size, which sessions are
open, and how long a group has waited. Expiry is checked at the time passed as `now_ms`.

A record that waits for its group has no verdict until the group has one.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pipeline.backfill.inputs import BackfillInputs
from pipeline.backfill.paged_store import PagedStore, PartitionProgress
from ringfence.headers import Headers
from service.dedup.address import AddressContext, AddressContexts
from service.dedup.checks import Checks, DecisionContext, DecisionProgress, GroupMember
from service.dedup.claim import ClaimReader, identifier_of, plain_ids
from service.dedup.evaluator import FastPaths, FullPath
from service.dedup.output import OutputTopic
from service.dedup.partition import OwnedPartition, PartitionPhase
from service.dedup.pending_groups import PendingGroups, PendingGroupsDraft
from service.dedup.plan import BatchCounts
from service.dedup.record import Record, RepartitionedRecord, source_of, strip_origins
from service.dedup.route import InputPartition
from service.dedup.transaction_group import TransactionGroups
from state.cache import Cache
from state.model import Claim, PartitionId, Rejection, repetition_of
from state.pending_group import PendingRecord

ACCEPTED: Final = "accepted"

_NO_LOG: Final = PartitionId("", 0)


class SparkRecord(NamedTuple):
    """A record with the interface of `service.dedup.record.Record`."""

    source: PartitionId
    own_offset: int
    timestamp_ms: int
    own_key: bytes | None
    own_value: bytes | None
    """None also if no check reads values."""
    headers: Headers
    """The headers that some check reads."""

    def key(self) -> bytes | None:
        """Return the key."""
        return self.own_key

    def value(self) -> bytes | None:
        """Return the value."""
        return self.own_value

    def offset(self) -> int:
        """Return the offset."""
        return self.own_offset

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp type, which no caller reads, and the time in milliseconds."""
        return 1, self.timestamp_ms


class RecordVerdict(NamedTuple):
    """The verdict on one record."""

    source: PartitionId
    offset: int
    timestamp_ms: int
    position: int
    """The record's number among those of the deciding partition; in a group, the number of the
    record that completed it."""
    address: str | None
    strategy: str | None
    identifier: bytes | None
    verdict: str
    """`accepted`, or the reason of its dead letter."""
    cause: str | None
    original: str | None


class BatchDecider:
    """Decides one batch of a deciding partition; all state is in the store."""

    def __init__(
        self, decider: PartitionId, inputs: BackfillInputs, store: PagedStore, now_ms: int
    ) -> None:
        self._inputs = inputs
        self._store = store
        self._position = store.progress.position
        own = inputs.input_partition(decider)
        self._partition = OwnedPartition(
            source=decider,
            input_partition=own,
            changelog=_NO_LOG,
            phase=PartitionPhase.RUNNING,
            store=store,
            time_ms=store.progress.time_ms,
            addresses=store.addresses,
            groups=PendingGroups.of(store),
        )
        self._rules = inputs.rules(Cache(inputs.cache_memory_bytes))
        self._groups = PendingGroupsDraft(self._partition.groups, store)
        waiting = self._groups.waiting
        self._contexts = AddressContexts(
            self._partition, self._rules.book, self._rules.cache, waiting
        )
        self._progress = DecisionProgress(decider, store.progress.time_ms, now_ms)
        self._findings = _BatchVerdicts()
        self._evaluators: dict[PartitionId, _BatchEvaluator] = {}

    def judge(self, rows: Sequence[SparkRecord]) -> list[RecordVerdict]:
        """Return the verdicts on these records, which must be in the order of decision."""
        findings = self._findings
        findings.verdicts = []
        # Not an attribute: a reference cycle with this object would keep the batch alive.
        grouping = TransactionGroups(self._groups, self._contexts, self._group_member)
        for source, start, end in _runs(rows):
            self._evaluator(source).judge(rows[start:end], self._position + start, grouping)
        self._position += len(rows)
        return findings.verdicts

    def close(self) -> None:
        """Write the changed state to the store."""
        edits = self._contexts.deletions()
        for context in self._contexts:
            change = context.draft.change(context.cache)
            edits += [] if change is None else change.edits
        edits += self._groups.edits()
        self._store.keep(edits)
        self._store.save(PartitionProgress(self._position, self._progress.time_ms))

    def _evaluator(self, source: PartitionId) -> "_BatchEvaluator":
        evaluator = self._evaluators.get(source)
        if evaluator is None:
            input_partition = self._inputs.input_partition_of(source)
            checks = _BatchChecks(
                input_partition, self._rules, self._contexts, self._progress, self._findings
            )
            evaluator = self._evaluators[source] = _BatchEvaluator(
                input_partition, checks, self._rules, self._contexts, self._progress
            )
        return evaluator

    def _group_member(self, pending_record: PendingRecord) -> GroupMember:
        """Return a pending record with the checks of its input partition."""
        if self._partition.input_partition is not None:
            evaluator = self._evaluator(self._partition.source)
            return GroupMember(evaluator.checks, pending_record, pending_record.headers)
        (input_partition,), (own_offset,), (headers,) = strip_origins([pending_record.headers])
        source = source_of(input_partition)
        assert source is not None  # it was stored with its origin header
        return GroupMember(
            self._evaluator(source).checks,
            RepartitionedRecord(pending_record, own_offset),
            headers or (),
        )


def _runs(rows: Sequence[SparkRecord]) -> Iterator[tuple[PartitionId, int, int]]:
    """Yield source, start and end of each run of records from one input partition."""
    start = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or rows[at].source != rows[start].source:
            yield rows[start].source, start, at
            start = at


class _BatchVerdicts:
    """The verdicts of one batch, shared by all input partitions."""

    def __init__(self) -> None:
        self.verdicts: list[RecordVerdict] = []
        self.position = 0
        """Position of the current record."""


class _BatchChecks(Checks):
    """The service's checks; they record a verdict where the service writes to a topic."""

    def __init__(
        self,
        input_partition: InputPartition,
        rules: DecisionContext,
        contexts: AddressContexts,
        progress: DecisionProgress,
        findings: _BatchVerdicts,
    ) -> None:
        super().__init__(input_partition, rules, BatchCounts(), contexts, progress)
        self.findings = findings
        self._of = input_partition.source
        self._at = progress

    def pass_on(
        self,
        place: AddressContext,
        record: Record,
        headers: Headers,
        target: OutputTopic,
        claim: Claim,
        repetition: Rejection | None,
        blamed: int,
    ) -> None:
        """Record that the record is accepted."""
        super().pass_on(place, record, headers, target, claim, repetition, blamed)
        self._at.outputs.clear()
        self._at.replies.clear()
        self._note(place, record, claim, repetition)

    def reject(
        self,
        record: Record,
        headers: Headers,
        place: AddressContext | None,
        claim: Claim,
        why: Rejection,
        blamed: int,
    ) -> None:
        """Record why the record is rejected; no dead letter is written."""
        del headers, blamed
        self._note(place, record, claim, why)

    def _note(
        self, context: AddressContext | None, record: Record, claim: Claim, why: Rejection | None
    ) -> None:
        self.findings.verdicts.append(
            RecordVerdict(
                source=self._of,
                offset=record.offset() or 0,
                timestamp_ms=record.timestamp()[1],
                position=self.findings.position,
                address=None if context is None else context.name,
                strategy=None if context is None else context.settings.strategy,
                identifier=claim.identifier,
                verdict=ACCEPTED if why is None else why.reason.value,
                cause=None if why is None else why.cause,
                original=None if why is None else why.original,
            )
        )


class _BatchEvaluator:
    """Decides the records of one input partition, by fast path or full path as the service does."""

    def __init__(
        self,
        input_partition: InputPartition,
        checks: _BatchChecks,
        rules: DecisionContext,
        contexts: AddressContexts,
        progress: DecisionProgress,
    ) -> None:
        self.checks = checks
        self._is_own = input_partition.source == progress.source
        self._base = contexts.packed_positions.base(input_partition.source)
        self._fast_paths = FastPaths(input_partition, contexts, rules.output_resolver)
        self._full_path = FullPath(contexts, checks)
        self._identifier = identifier_of(input_partition.route.settings.id)
        self._progress = progress

    def judge(
        self, rows: Sequence[SparkRecord], position: int, grouping: TransactionGroups
    ) -> None:
        """Decide these records; the first one has this position."""
        progress, fast_paths, base = self._progress, self._fast_paths, self._base
        findings = self.checks.findings
        now_ms, time_ms, note = progress.now_ms, progress.time_ms, findings.verdicts.append
        fast_paths.make_room(1)
        ids = _plain_ids(rows, self._identifier)
        for at, (row, identifier) in enumerate(zip(rows, ids, strict=True), position):
            source, offset, timestamp_ms, _, _, headers = row
            if timestamp_ms > time_ms:
                time_ms = timestamp_ms if timestamp_ms <= now_ms else max(time_ms, now_ms)
            fast_path = None
            if identifier is not None and timestamp_ms > 0:
                named = None if fast_paths.field is None else fast_paths.field.of(row, headers)
                fast_path = fast_paths.by_value.get(named) or fast_paths.open(named, row, headers)
            if fast_path is None or identifier is None:
                progress.time_ms, findings.position = time_ms, at
                at_decider = offset if self._is_own else at
                self._full_path.decide(row, headers, at_decider, grouping)
                continue
            number = fast_path.admit(identifier, base + offset, time_ms)
            verdict, cause, original = ACCEPTED, None, None
            if number is not None:
                why = repetition_of(fast_path.draft.origin(number))
                verdict, cause, original = why.reason.value, why.cause, why.original
            strategy, name = fast_path.context.settings.strategy, fast_path.context.name
            note(
                RecordVerdict(
                    source,
                    offset,
                    timestamp_ms,
                    at,
                    name,
                    strategy,
                    identifier,
                    verdict,
                    cause,
                    original,
                )
            )
        progress.time_ms = time_ms


def _plain_ids(rows: Sequence[SparkRecord], template: ClaimReader | None) -> Sequence[bytes | None]:
    headers = [row.headers for row in rows]
    return plain_ids(headers) if template is None else template.plain(rows, headers)
