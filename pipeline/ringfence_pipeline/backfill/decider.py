"""Batch decider: gives the records of one deciding partition the verdicts of the service, in order.

The checks are those of the service (`service/ringfence_service/dedup/evaluator.py`), in the same
order and on the same strategies; this module only calls them without a broker. So it does not check
what only a broker knows: whether the output topic exists and accepts a record of that size, which
sessions are open, and how long a group has waited. Expiry is checked at the time passed as
`now_ms`.

A record that waits for its group has no verdict until the group has one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ringfence_client.headers import Headers
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.paged_store import PartitionProgress
from ringfence_service.dedup.address import AddressContext, AddressContexts
from ringfence_service.dedup.checks import Checks, DecisionContext, DecisionProgress, GroupMember
from ringfence_service.dedup.claim import NO_ID, ClaimReader, identifier_of, is_stamp, plain_ids
from ringfence_service.dedup.evaluator import FullPath
from ringfence_service.dedup.fast_paths import FastPath, FastPaths
from ringfence_service.dedup.field import HeaderField, KeyField
from ringfence_service.dedup.output import OutputTopic
from ringfence_service.dedup.partition import OwnedPartition, PartitionPhase
from ringfence_service.dedup.pending_groups import PendingGroups, PendingGroupsDraft
from ringfence_service.dedup.plan import BatchCounts
from ringfence_service.dedup.record import Record, RepartitionedRecord, source_of, strip_origins
from ringfence_service.dedup.route import InputPartition
from ringfence_service.dedup.transaction_group import TransactionGroups
from ringfence_state.cache import Cache
from ringfence_state.model import Claim, Edit, PartitionId, Rejection, repetition_of
from ringfence_state.pending_group import PendingRecord
from ringfence_state.store import Store

ACCEPTED: Final = "accepted"

_COLUMNS_MIN: Final = 32
"""Fewer records are decided one by one, since a run has a cost of its own."""

_NO_LOG: Final = PartitionId("", 0)


class SparkRecord(NamedTuple):
    """A record with the interface of `ringfence_service.dedup.record.Record`."""

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


class RecordColumns(NamedTuple):
    """The records of a batch in the order of decision, in columns of equal length."""

    runs: Sequence[tuple[PartitionId, int, int]]
    """The input partition, start and end of each run of records from one partition."""
    offsets: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    ids: Sequence[bytes | None]
    """The id, if it alone takes the record to a verdict; see
    `ringfence_service.dedup.claim.plain_ids`."""
    is_plain: NDArray[np.bool_]
    """Whether a record has such an id, and a time."""
    named: Sequence[bytes | None]
    """The key or header that alone decides the address, where there is one."""
    record: Callable[[int, str | None], SparkRecord]
    """Returns one record by its index, and the header of which `named` has the value."""


class JudgedColumns:
    """The verdicts on a batch: those that were found in columns, and the others one by one."""

    def __init__(self, count: int, position: int) -> None:
        """Begin with no verdict for this number of records, the first of which has `position`."""
        self._position = position
        self._contexts: list[AddressContext] = []
        self._context_of = np.full(count, -1, dtype=np.int32)
        self._rejections: dict[int, Rejection] = {}
        self.others: list[RecordVerdict] = []

    def accept(self, rows: "NDArray[np.int64] | slice", context: AddressContext) -> None:
        """Note that these records are accepted at an address."""
        self._context_of[rows] = len(self._contexts)
        self._contexts.append(context)

    def reject(self, row: int, why: Rejection) -> None:
        """Note that one of the accepted records is rejected instead."""
        self._rejections[row] = why

    @property
    def rows(self) -> NDArray[np.int64]:
        """The indexes of the records with a verdict in the columns."""
        return np.flatnonzero(self._context_of >= 0)

    @property
    def columns(self) -> Mapping[str, pa.Array]:
        """The columns, for `rows`, by the name in the table of verdicts."""
        rows = self.rows
        context = pa.array(self._context_of[rows])
        rejection = np.full(rows.size, -1)
        rejection[np.searchsorted(rows, list(self._rejections))] = range(len(self._rejections))
        why = pa.array(rejection, mask=rejection < 0)
        whys = self._rejections.values()

        def of(values: Iterable[str | None], indexes: pa.Array) -> pa.Array:
            return pa.array(list(values), pa.string()).take(indexes)

        return {
            "position": pa.array(self._position + rows),
            "address": of((each.name for each in self._contexts), context),
            "strategy": of((each.settings.strategy for each in self._contexts), context),
            "verdict": of((each.reason.value for each in whys), why).fill_null(ACCEPTED),
            "cause": of((each.cause for each in whys), why),
            "original": of((each.original for each in whys), why),
        }


class DeciderStore(Store, Protocol):
    """The state of a deciding partition between batches."""

    progress: PartitionProgress

    @property
    def addresses(self) -> set[str]:
        """The addresses with remembered state; pending records do not count."""
        ...

    def keep(self, edits: Iterable[Edit]) -> None:
        """Take over edits."""
        ...

    def save(self, progress: PartitionProgress) -> None:
        """End a batch with this progress."""
        ...


class BatchDecider:
    """Decides one batch of a deciding partition; all state is in the store.

    The store and the cache of a batch that was closed may serve the next one.
    """

    def __init__(
        self,
        decider: PartitionId,
        inputs: BackfillInputs,
        store: DeciderStore,
        now_ms: int,
        cache: Cache | None = None,
    ) -> None:
        self.inputs = inputs
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
        self._cache = inputs.cache() if cache is None else cache
        self._rules = inputs.rules(self._cache)
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
        for source, start, end in _runs([row.source for row in rows]):
            self._evaluator(source).judge(rows[start:end], self._position + start, grouping)
        self._position += len(rows)
        return findings.verdicts

    def judge_columns(self, columns: RecordColumns) -> JudgedColumns:
        """Return the verdicts on these records, which must be in the order of decision.

        They are those of `judge`. Runs of records that claim an id and nothing else are decided in
        columns, where the address judges by ids alone.
        """
        count, findings = len(columns.ids), self._findings
        judged = JudgedColumns(count, self._position)
        findings.verdicts = judged.others
        grouping = TransactionGroups(self._groups, self._contexts, self._group_member)
        for source, start, end in columns.runs:
            evaluator = self._evaluator(source)
            for begin, stop, is_plain in _stretches(columns, start, end):
                if is_plain and evaluator.judge_columns(columns, begin, stop, judged):
                    continue
                field = evaluator.named_header
                rows = [columns.record(at, field) for at in range(begin, stop)]
                evaluator.judge(rows, self._position + begin, grouping)
        self._position += count
        return judged

    def close(self) -> None:
        """Write the changed state to the store, and apply it to the cache."""
        edits, changes = self._contexts.deletions(), []
        for context in self._contexts:
            change = context.draft.change(context.cache)
            if change is not None:
                edits += change.edits
                changes.append((context, change.content))
        edits += self._groups.edits()
        self._store.keep(edits)
        self._store.save(PartitionProgress(self._position, self._progress.time_ms))
        for context, content in changes:
            self._cache.apply(self._partition.source, context.cache, context.memory, content)
        self._cache.shrink()

    def _evaluator(self, source: PartitionId) -> "_BatchEvaluator":
        evaluator = self._evaluators.get(source)
        if evaluator is None:
            input_partition = self.inputs.input_partition_of(source)
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


def _runs(sources: Sequence[PartitionId]) -> Iterator[tuple[PartitionId, int, int]]:
    """Yield source, start and end of each run of records from one input partition."""
    start = 0
    for source, run in groupby(sources):
        end = start + sum(1 for _ in run)
        yield source, start, end
        start = end


def _stretches(columns: RecordColumns, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Yield start, end, and whether all records between have nothing but an id; few are not."""
    is_plain = columns.is_plain[start:end]
    changes = start + 1 + np.flatnonzero(is_plain[1:] != is_plain[:-1])
    ends = [*changes.tolist(), end]
    for begin, stop in zip([start, *ends], ends, strict=False):
        yield begin, stop, bool(columns.is_plain[begin]) and stop - begin >= _COLUMNS_MIN


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
        context: AddressContext,
        record: Record,
        headers: Headers,
        target: OutputTopic,
        claim: Claim,
        repetition: Rejection | None,
        blamed: int,
    ) -> bool:
        """Record that the record is accepted."""
        is_checked = super().pass_on(context, record, headers, target, claim, repetition, blamed)
        self._at.outputs.clear()
        self._at.replies.clear()
        self._note(context, record, claim, repetition)
        return is_checked

    def reject(
        self,
        record: Record,
        headers: Headers,
        context: AddressContext | None,
        claim: Claim,
        why: Rejection,
        blamed: int,
    ) -> None:
        """Record why the record is rejected; no dead letter is written."""
        del headers, blamed
        self._note(context, record, claim, why)

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
        self._fast_paths = FastPaths(input_partition, contexts, rules.output_resolver, checks)
        self._full_path = FullPath(contexts, checks)
        self._identifier = identifier_of(input_partition.route.settings.id)
        self._progress = progress
        field = self._fast_paths.field
        self.named_header = field.header if isinstance(field, HeaderField) else None
        """The header of which a column has the values, if there is one."""
        is_named = isinstance(field, HeaderField | KeyField)
        self._takes_columns = self._identifier is None and (field is None or is_named)

    def judge_columns(
        self, columns: RecordColumns, start: int, end: int, judged: JudgedColumns
    ) -> bool:
        """Decide these records, which have nothing but an id, if their addresses allow that.

        Returns False, and has decided none, if they have to be decided one by one.
        """
        ids = cast("Sequence[bytes]", columns.ids[start:end])
        if not self._takes_columns or (b"/" in b"".join(ids) and any(map(is_stamp, ids))):
            return False
        paths = self._paths(columns, start, end)
        if paths is None:
            return False
        times_ms = self._pass_times(columns.times_ms[start:end])
        offsets: list[int] = columns.offsets[start:end].tolist()
        if self._base:
            offsets = [self._base + offset for offset in offsets]
        for fast_path, rows in paths:
            if rows is None:
                of_path: Sequence[Sequence[Any]] = (ids, offsets, times_ms)
                judged.accept(slice(start, end), fast_path.context)
            else:
                of_path = [[column[row] for row in rows] for column in (ids, offsets, times_ms)]
                judged.accept(start + np.array(rows), fast_path.context)
            draft = fast_path.draft
            for at, number in enumerate(map(draft.admit, *of_path)):
                if number is not None:
                    row = start + (at if rows is None else rows[at])
                    judged.reject(row, repetition_of(draft.origin(number)))
        return True

    def _paths(
        self, columns: RecordColumns, start: int, end: int
    ) -> list[tuple[FastPath, Sequence[int] | None]] | None:
        """Return the fast path of each address, and the indexes of its records; None for all.

        Returns None if an address has no fast path, or if most have few records.
        """
        fast_paths = self._fast_paths
        if fast_paths.field is None:
            record = columns.record(start, None)
            fast_path = fast_paths.by_value.get(None) or fast_paths.open(
                None, record, record.headers
            )
            return None if fast_path is None else [(fast_path, None)]
        rows: dict[bytes | None, list[int]] = {}
        for at, value in enumerate(columns.named[start:end]):
            rows.setdefault(value, []).append(at)
        if len(rows) * _COLUMNS_MIN > end - start:
            return None
        found: list[tuple[FastPath, Sequence[int] | None]] = []
        for value, of_value in rows.items():
            record = columns.record(start + of_value[0], self.named_header)
            fast_path = fast_paths.by_value.get(value) or fast_paths.open(
                value, record, record.headers
            )
            if fast_path is None:
                return None
            found.append((fast_path, of_value))
        return found

    def _pass_times(self, times_ms: NDArray[np.int64]) -> list[int]:
        """Return the partition's time at each record, and keep the last."""
        progress = self._progress
        known = np.minimum(times_ms, progress.now_ms)
        reached: list[int] = np.maximum.accumulate(np.maximum(known, progress.time_ms)).tolist()
        progress.time_ms = reached[-1]
        return reached

    def judge(
        self, rows: Sequence[SparkRecord], position: int, grouping: TransactionGroups
    ) -> None:
        """Decide these records; the first one has this position."""
        progress, fast_paths, base = self._progress, self._fast_paths, self._base
        findings = self.checks.findings
        now_ms, time_ms, note = progress.now_ms, progress.time_ms, findings.verdicts.append
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
            number = fast_path.draft.admit(identifier, base + offset, time_ms)
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
    found = plain_ids(headers) if template is None else template.plain(rows, headers)
    return [None if each is NO_ID else each for each in found]
