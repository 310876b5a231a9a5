"""Judge: the records of one deciding partition, in order, each given the verdict of the service.

The checks are the service's own (`service/dedup/evaluator.py`), in its own order, on the same
strategies; here is only who asks them without a broker. So what a broker alone knows is not
judged: whether the target exists and takes a record of that size, which sessions are open, and how
long a group has waited. Expiry is judged at the time that is told as now.

A record that waits for its group has no verdict before the group has one.
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
    """A record as the service reads it; see `Record`."""

    source: PartitionId
    own_offset: int
    timestamp_ms: int
    own_key: bytes | None
    own_value: bytes | None
    """None too where no check looks at it."""
    headers: Headers
    """Those that some check looks at."""

    def key(self) -> bytes | None:
        """See `Record.key`."""
        return self.own_key

    def value(self) -> bytes | None:
        """See `Record.value`."""
        return self.own_value

    def offset(self) -> int:
        """See `Record.offset`."""
        return self.own_offset

    def timestamp(self) -> tuple[int, int]:
        """See `Record.timestamp`."""
        return 1, self.timestamp_ms


class RecordVerdict(NamedTuple):
    """What became of one record."""

    source: PartitionId
    offset: int
    timestamp_ms: int
    position: int
    """Its number among the records that this partition decides, or that of the one that decided
    its group."""
    address: str | None
    strategy: str | None
    identifier: bytes | None
    verdict: str
    """`accepted`, or the reason of its dead letter."""
    cause: str | None
    original: str | None


class BatchDecider:
    """See the module. Made anew for each batch: what it remembers is on the shelves."""

    def __init__(
        self, decider: PartitionId, inputs: BackfillInputs, shelves: PagedStore, now_ms: int
    ) -> None:
        self._inputs = inputs
        self._shelves = shelves
        self._position = shelves.standing.position
        own = inputs.input_partition(decider)
        self._partition = OwnedPartition(
            source=decider,
            input_partition=own,
            changelog=_NO_LOG,
            phase=PartitionPhase.RUNNING,
            store=shelves,
            time_ms=shelves.standing.time_ms,
            addresses=shelves.addresses,
            groups=PendingGroups.of(shelves),
        )
        self._rules = inputs.rules(Cache(inputs.cache_memory_bytes))
        self._groups = PendingGroupsDraft(self._partition.groups, shelves)
        waiting = self._groups.waiting
        self._places = AddressContexts(
            self._partition, self._rules.book, self._rules.cache, waiting
        )
        self._progress = DecisionProgress(decider, shelves.standing.time_ms, now_ms)
        self._findings = _BatchVerdicts()
        self._desks: dict[PartitionId, _BatchEvaluator] = {}

    def judge(self, rows: Sequence[SparkRecord]) -> list[RecordVerdict]:
        """The verdicts on these records, which come in the order in which they are decided."""
        findings = self._findings
        findings.verdicts = []
        # Not kept: it refers to this judge, and would keep all of a batch alive with it.
        grouping = TransactionGroups(self._groups, self._places, self._opened)
        for source, start, end in _runs(rows):
            self._evaluator(source).judge(rows[start:end], self._position + start, grouping)
        self._position += len(rows)
        return findings.verdicts

    def close(self) -> None:
        """Put what is remembered on the shelves."""
        edits = self._places.deletions()
        for place in self._places:
            change = place.draft.change(place.cache)
            edits += [] if change is None else change.edits
        edits += self._groups.edits()
        self._shelves.keep(edits)
        self._shelves.save(PartitionProgress(self._position, self._progress.time_ms))

    def _evaluator(self, source: PartitionId) -> "_BatchEvaluator":
        evaluator = self._desks.get(source)
        if evaluator is None:
            input_partition = self._inputs.inlet_of(source)
            checks = _BatchChecks(
                input_partition, self._rules, self._places, self._progress, self._findings
            )
            evaluator = self._desks[source] = _BatchEvaluator(
                input_partition, checks, self._rules, self._places, self._progress
            )
        return evaluator

    def _opened(self, pending_record: PendingRecord) -> GroupMember:
        """A record that waited, as its inlet has it."""
        if self._partition.input_partition is not None:
            evaluator = self._evaluator(self._partition.source)
            return GroupMember(evaluator.checks, pending_record, pending_record.headers)
        (input_partition,), (own_offset,), (headers,) = strip_origins([pending_record.headers])
        source = source_of(input_partition)
        assert source is not None  # it was parked by us, with its trace
        return GroupMember(
            self._evaluator(source).checks,
            RepartitionedRecord(pending_record, own_offset),
            headers or (),
        )


def _runs(rows: Sequence[SparkRecord]) -> Iterator[tuple[PartitionId, int, int]]:
    """Records that follow each other and come from one inlet."""
    start = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or rows[at].source != rows[start].source:
            yield rows[start].source, start, at
            start = at


class _BatchVerdicts:
    """What was found of the records of one batch; all inlets share it."""

    def __init__(self) -> None:
        self.verdicts: list[RecordVerdict] = []
        self.position = 0
        """Of the record at hand."""


class _BatchChecks(Checks):
    """The service's checks, which tell of a verdict what the service writes to topics."""

    def __init__(
        self,
        input_partition: InputPartition,
        rules: DecisionContext,
        places: AddressContexts,
        progress: DecisionProgress,
        findings: _BatchVerdicts,
    ) -> None:
        super().__init__(input_partition, rules, BatchCounts(), places, progress)
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
    ) -> None:
        """See `Checks.pass_on`."""
        super().pass_on(place, record, headers, target, claim, repetition)
        self._at.outputs.clear()
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
        """See `Checks.reject`: no letter is written."""
        del headers, blamed
        self._note(place, record, claim, why)

    def _note(
        self, place: AddressContext | None, record: Record, claim: Claim, why: Rejection | None
    ) -> None:
        self.findings.verdicts.append(
            RecordVerdict(
                source=self._of,
                offset=record.offset() or 0,
                timestamp_ms=record.timestamp()[1],
                position=self.findings.position,
                address=None if place is None else place.name,
                strategy=None if place is None else place.settings.strategy,
                identifier=claim.identifier,
                verdict=ACCEPTED if why is None else why.reason.value,
                cause=None if why is None else why.cause,
                original=None if why is None else why.original,
            )
        )


class _BatchEvaluator:
    """The records of one inlet: plain ones by their lane, as the service has it, or by fates."""

    def __init__(
        self,
        input_partition: InputPartition,
        checks: _BatchChecks,
        rules: DecisionContext,
        places: AddressContexts,
        progress: DecisionProgress,
    ) -> None:
        self.checks = checks
        self._is_own = input_partition.source == progress.source
        self._base = places.packed_positions.base(input_partition.source)
        self._fast_paths = FastPaths(input_partition, places, rules.output_resolver)
        self._full_path = FullPath(places, checks)
        self._identifier = identifier_of(input_partition.route.settings.id)
        self._progress = progress

    def judge(
        self, rows: Sequence[SparkRecord], position: int, grouping: TransactionGroups
    ) -> None:
        """Every record that follows, the first of which is to be decided at this position."""
        progress, fast_paths, base = self._progress, self._fast_paths, self._base
        findings = self.checks.findings
        now_ms, time_ms, note = progress.now_ms, progress.time_ms, findings.verdicts.append
        fast_paths.make_room(1)
        ids = _plain_ids(rows, self._identifier)
        for at, (row, identifier) in enumerate(zip(rows, ids, strict=True), position):
            source, offset, timestamp_ms, key, _, headers = row
            if timestamp_ms > time_ms:
                time_ms = timestamp_ms if timestamp_ms <= now_ms else max(time_ms, now_ms)
            fast_path = None
            if identifier is not None and timestamp_ms > 0:
                named = None if fast_paths.field is None else fast_paths.field.of(key, headers)
                fast_path = fast_paths.by_value.get(named) or fast_paths.open(named, key, headers)
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
