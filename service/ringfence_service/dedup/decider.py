"""Decider: turns a batch and the committed state into a plan, and changes nothing else.

The checks run in this order: headers, address, claim, expiry, duplicate, target, and whether the
target takes the record.
`blame.py` decides which exceptions are due to a record.
Invariants: every record of the batch has exactly one fate in the plan; only accepted ids are
remembered; dropping the plan is the abort.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

from ringfence_client.headers import acknowledgements, bookmark
from ringfence_service.dedup.address import AddressContexts
from ringfence_service.dedup.apart import Bounds
from ringfence_service.dedup.batch import Batch, Slice
from ringfence_service.dedup.blame import WrongPartitionError, blaming_records, naming
from ringfence_service.dedup.checks import DecisionContext, DecisionProgress, GroupMember
from ringfence_service.dedup.dead_letter import Mode, RedrivenRecord
from ringfence_service.dedup.evaluator import Columns, Evaluator
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.pending_groups import PendingGroupsDraft
from ringfence_service.dedup.plan import NO_TIME_MS, AddressChange, Output, Plan
from ringfence_service.dedup.record import (
    NO_ORIGIN,
    KnownId,
    RejectedError,
    RepartitionedRecord,
    name_of,
    strip_origins,
)
from ringfence_service.dedup.redecision import Outcome, redecided
from ringfence_service.dedup.refusal_trace import OutputCounts, RefusalTrace, UndecidedError
from ringfence_service.dedup.repartition import Repartitioner
from ringfence_service.dedup.repartition_keys import RepartitionKeys
from ringfence_service.dedup.route import InputPartition, unrouted
from ringfence_service.dedup.transaction_group import TransactionGroups
from ringfence_service.dedup.waiting_order import GroupName
from ringfence_service.kafka.model import Present
from ringfence_service.native.records import Records
from ringfence_state.model import IMPORTED, Claim, Edit, Origin, PartitionId
from ringfence_state.pending_group import PendingRecord
from ringfence_state.segment import Digest

IDLE_LOOKS_MAX: Final = 256
"""How many addresses are looked at in one turn to see if they are idle: some 10 ms."""


def decide(
    batches: Iterable[Batch],
    rules: DecisionContext,
    plan: Plan,
    trace: RefusalTrace | None = None,
) -> Iterator[Sequence[Output]]:
    """Fill the plan for the batches of one transaction; `batches` is read lazily.

    Yields outputs as soon as they are decided. Those of traced partitions come last, all at once,
    so that few produce batches show all that is refused. From a record on whose schema is not known
    yet, the records of its partition are left out, and `plan.waiting` has the partition. Raises
    AwaitedError, which names the partition, for what shows only while a record is decided: its
    target topic is not known. UndecidedError for an unforeseen exception. With a trace it is raised
    at the end, so that one transaction finds all records whose checks fail.
    """
    deciders: dict[PartitionId, _Decider | Repartitioner] = {}
    traced = None if trace is None else _Traced(trace, rules, plan)
    for batch in batches:
        plan.tally.bytes_read += batch.memory_bytes
        for part in batch.slices:
            source, before = part.partition.source, plan.next_offsets.get(part.partition.source)
            if source in plan.waiting:
                continue
            decider = deciders.get(source)
            if decider is None:
                decider = deciders[source] = _decider(part.partition, rules, plan)
            # First, since these records count as read whatever the decision raises.
            plan.next_offsets[source] = part.offsets[-1] + 1
            plan.tally.records_read += len(part.offsets)
            count = 0
            for outputs, decided in _runs(decider, part, batch, rules, traced):
                count += decided
                if source in plan.waiting:
                    _leave_out(part, count, before, plan)
                if source not in plan.next_offsets:
                    del deciders[source]  # nothing of it is committed, so nothing may be written
                yield outputs
    if traced is not None:
        traced.trace.check()
        yield traced.outputs
    for decider in deciders.values():
        with blaming_records():
            outputs = list(decider.seal())
        yield outputs


def _leave_out(part: Slice, count: int, before: int | None, plan: Plan) -> None:
    """Have a plan end before a record of a slice that has to wait.

    `count` is how many of the slice were decided, `before` the offset to commit without it.
    """
    source = part.partition.source
    plan.tally.records_read -= len(part.offsets) - count
    if count:
        plan.next_offsets[source] = part.offsets[count - 1] + 1
    elif before is not None:
        plan.next_offsets[source] = before
    else:
        del plan.next_offsets[source]


def _runs(
    decider: "_Decider | Repartitioner",
    part: Slice,
    batch: Batch,
    rules: DecisionContext,
    traced: "_Traced | None",
) -> Iterator[tuple[Sequence[Output], int]]:
    """Decide the records of a slice, up to one that has to wait.

    Yields outputs, and how many more records were decided. The outputs of a traced partition are
    kept for later.
    """
    source = part.partition.source
    if traced is not None and source in traced.trace.sources:
        yield (), traced.decide(decider, part, batch)
        return
    if traced is not None:
        traced.trace.is_whole = False
    failed = rules.output_resolver.failed(source)
    for run in part.split(failed) if failed else (part,):
        with naming(source), blaming_records():
            outputs, count = decider.decide(run, batch)
        yield outputs, count
        if count < len(run.offsets):
            return


class _Traced:
    """What is decided of traced partitions in one transaction."""

    def __init__(self, trace: RefusalTrace, rules: DecisionContext, plan: Plan) -> None:
        self.trace, self._rules, self._plan = trace, rules, plan
        self.outputs: list[Output] = []

    def decide(self, decider: "_Decider | Repartitioner", part: Slice, batch: Batch) -> int:
        """Decide the records of a slice one at a time; the trace watches what becomes of each.

        Once the checks of a record have failed, the rest is decided only to find others that fail:
        the transaction will be aborted, so nothing more is sent, and only the first is logged.
        Drafts that may contain a part of a failed record are not used for the next: it could fail
        for that alone. Returns how many were decided, up to one that has to wait.
        """
        trace, source, decided = self.trace, part.partition.source, 0
        if trace.failures:
            decider = _decider(part.partition, self._rules, self._plan)
        for record in part.split(frozenset(part.offsets)):
            before, count = OutputCounts.of(self._plan.tally), 1
            is_first, outputs = not trace.failures, list[Output]()
            try:
                with naming(source), blaming_records(is_logged=is_first):
                    outputs, count = decider.decide(record, batch)
            except UndecidedError as undecided:
                trace.failures[source, record.offsets[0]] = undecided.fault
                decider = _decider(part.partition, self._rules, self._plan)
            except Exception:
                if is_first:
                    raise
                trace.check()
            else:
                if count and is_first:
                    counts = OutputCounts.of(self._plan.tally).since(before)
                    self.outputs += trace.watched((source, record.offsets[0]), outputs, counts)
            decided += count
            if not count:
                break
        return decided


def give_up(
    partition: OwnedPartition,
    groups: Sequence[GroupName],
    rules: DecisionContext,
    plan: Plan,
    now_ms: int,
) -> Iterator[Sequence[Output]]:
    """Fill the plan with the dead letters of groups that timed out; no record is read."""
    decider = _Decider(partition, rules, plan)
    with naming(partition.source):
        outputs = decider.give_up(groups, now_ms)
    yield outputs
    plan.next_offsets[partition.source] = partition.next_offset
    yield decider.seal()


def set_publisher_position(
    partition: OwnedPartition,
    address: str,
    claim: Claim,
    writes: PartitionId,
    rules: DecisionContext,
    plan: Plan,
    missing: Iterable[int] = (),
) -> Iterator[Sequence[Output]]:
    """Fill the plan with a publisher's position that an administrator sets; no record is read.

    `writes` is the input partition that the publisher writes; `Numbers.set_position` says what
    `missing` is.
    """
    decider = _Decider(partition, rules, plan)
    decider.set_position(address, claim, writes, missing)
    plan.next_offsets[partition.source] = partition.next_offset
    yield decider.seal()


def import_ids(
    partition: OwnedPartition,
    address: str,
    ids: Sequence[KnownId],
    rules: DecisionContext,
    plan: Plan,
    now_ms: int,
) -> Iterator[Sequence[Output]]:
    """Fill the plan with ids that an address is to remember; known ids stay as they are.

    Each id names the topic and the partition that its offset belongs to.
    """
    decider = _Decider(partition, rules, plan)
    plan.times_ms[partition.source] = decider.remember(address, ids, now_ms)
    plan.next_offsets[partition.source] = partition.next_offset
    yield decider.seal()


def identifier_of(known: KnownId) -> bytes:
    """Return an imported id in the form that a strategy takes."""
    return Digest(known.identifier) if known.hashed else known.identifier


def apply_settings(
    partition: OwnedPartition, caches: Iterable[str], rules: DecisionContext, plan: Plan
) -> Iterator[Sequence[Output]]:
    """Fill the plan with the edits that new settings require of caches; no record is read."""
    decider = _Decider(partition, rules, plan)
    for cache in caches:
        decider.apply_settings(cache)
    plan.next_offsets[partition.source] = partition.next_offset
    yield decider.seal()


def expire_addresses(
    partition: OwnedPartition, rules: DecisionContext, plan: Plan, edits_max: int
) -> list[Output]:
    """Fill the plan with the removal of idle addresses; no record is read. Returns no outputs.

    It ends after `IDLE_LOOKS_MAX` addresses, or once there are `edits_max` edits; `plan.expired` is
    empty if none is idle.
    """
    decider = _Decider(partition, rules, plan)
    decider.expire(edits_max)
    plan.next_offsets[partition.source] = partition.next_offset
    return decider.seal()


def redrive(
    partition: OwnedPartition,
    letters: Iterable[RedrivenRecord],
    mode: Mode,
    rules: DecisionContext,
    plan: Plan,
    now_ms: int,
    outcomes: list[Outcome],
) -> Iterator[Sequence[Output]]:
    """Fill the plan with the decisions on dead letters; no record of the input is read.

    Appends the outcome of each to `outcomes`. WrongPartitionError for a dead letter that another
    partition decides.
    """
    decider = _Decider(partition, rules, plan)
    with blaming_records():
        outputs = decider.redrive(letters, mode, now_ms, outcomes)
    yield outputs
    plan.next_offsets[partition.source] = partition.next_offset
    with blaming_records():
        acknowledgements = decider.seal()
    yield acknowledgements


def _decider(
    partition: OwnedPartition, rules: DecisionContext, plan: Plan
) -> "_Decider | Repartitioner":
    if partition.changelog is None:
        return Repartitioner(partition, rules, plan)
    return _Decider(partition, rules, plan)


class _Decider:
    """Decides the records of one partition, in order, on drafts over its committed state."""

    def __init__(self, partition: OwnedPartition, rules: DecisionContext, plan: Plan) -> None:
        self._partition = partition
        self._source = partition.source
        self._rules = rules
        self._plan = plan
        self._groups = PendingGroupsDraft(
            partition.groups,
            partition.kept_store,
            lambda size_bytes: plan.release(size_bytes, rules.batch_bytes_max),
        )
        self._contexts = AddressContexts(partition, rules.book, rules.cache, self._groups.waiting)
        self._progress = DecisionProgress(partition.source, partition.time_ms)
        self._evaluators: dict[bytes, Evaluator] = {}
        """By the input partition's name in the origin header; one for records without it."""
        self._unrouted: list[bytes] = []
        """Names of input partitions that belong to no route."""
        self._routes: dict[PartitionId, str] = {}
        """The route name of each input partition."""

    def decide(self, part: Slice, batch: Batch) -> tuple[list[Output], int]:
        """Decide the records of a part of the batch in order, up to one that has to wait.

        Returns the outputs, and how many records were decided.
        """
        progress, bounds = self._progress, batch.bounds(part.times_ms)
        progress.begin(bounds.present)
        self._forget_unrouted()
        column = part.headers
        if self._plan.on_headers is not None:
            self._plan.on_headers(column)
        offsets, times_ms, sizes_bytes = part.offsets, part.times_ms, part.sizes_bytes
        columns = Columns(part.messages, offsets, offsets, times_ms, column, sizes_bytes, bounds)
        tally, grouping, count = self._plan.tally, self._grouping(), 0
        failure = self._rules.output_resolver.failure(self._source, offsets)
        for evaluator, every in self._by_input(columns):
            rows = evaluator.readable(every, self._source, self._plan)
            count += len(rows.messages)
            if not len(rows.messages):
                break
            if failure is None:
                evaluator.decide(rows, grouping)
            else:
                evaluator.fail(rows, grouping, failure.why)
            tally.consumed[evaluator.route] += len(rows.messages)
            tally.bytes_consumed[evaluator.route] += sum(rows.sizes_bytes)
            if self._source in self._plan.waiting:
                break
        if count:
            self._delete_expired()
            times_ms = times_ms[:count]
            is_whole = count == len(offsets)
            self._count(times_ms, bounds if is_whole else batch.bounds(times_ms))
        return progress.end(tally), count

    def give_up(self, groups: Sequence[GroupName], now_ms: int) -> list[Output]:
        """Dead-letter the pending records of these groups; return the outputs."""
        progress = self._progress
        progress.begin(Present.at(now_ms))
        grouping = self._grouping()
        for name in groups:
            records = grouping.time_out(name)
            self._plan.given_up |= {(self._source, record.own_offset) for record in records}
        return progress.end(self._plan.tally)

    def redrive(
        self, letters: Iterable[RedrivenRecord], mode: Mode, now_ms: int, outcomes: list[Outcome]
    ) -> list[Output]:
        """Decide dead letters again; return the outputs. No replies are sent."""
        progress, partition = self._progress, self._partition
        progress.begin(Present.at(now_ms))
        grouping, outputs, tally = self._grouping(), progress.outputs, self._plan.tally
        for letter in letters:
            # A repartitioned record has no offset here any more: the last one stands in for it.
            offset = (
                letter.own_offset
                if partition.input_partition
                else max(0, partition.next_offset - 1)
            )
            evaluator = self._evaluator(
                NO_ORIGIN if partition.input_partition else name_of(letter.source)
            )
            self._check_home(letter, evaluator)
            outcome = redecided(letter, mode, offset, evaluator, grouping, outputs, tally)
            outcomes.append(outcome)
        return progress.outputs

    def _check_home(self, letter: RedrivenRecord, evaluator: Evaluator) -> None:
        by_address = self._rules.by_address
        home, input_partition = letter.source, evaluator.input_partition
        if self._partition.input_partition is None:
            with suppress(RejectedError):  # the decision itself will raise it
                home = self._source
                keys = RepartitionKeys(input_partition, self._rules.book)
                home = by_address.decider_of(keys.of(letter, letter.headers))
        if home != self._source and input_partition.fault is None:
            raise WrongPartitionError(
                f"{home.topic}-{home.partition} decides a dead letter that was sent to another "
                "partition."
            )

    def set_position(
        self, address: str, claim: Claim, writes: PartitionId, missing: Iterable[int]
    ) -> None:
        """Set the position of a publisher on an address."""
        context = self._contexts.at(address)
        numbers, at = context.strategy.numbers, Origin(*writes, 0, self._progress.time_ms)
        assert numbers is not None  # the settings were checked
        numbers.set_position(context.draft, claim, at, missing)

    def remember(self, address: str, ids: Sequence[KnownId], now_ms: int) -> int:
        """Remember imported ids; return the partition's time afterwards, as if read as records."""
        context = self._contexts.at(address)
        self._contexts.check_room(context, self._progress.time_ms)
        accepted_ms = [min(known.time_ms, now_ms) for known in ids if known.time_ms]
        time_ms = max([self._progress.time_ms, *accepted_ms]) or now_ms
        for known in ids:
            claim = Claim(identifier=identifier_of(known))
            offset = IMPORTED if known.offset is None else known.offset
            at = Origin(known.topic or "", known.partition or 0, offset, time_ms)
            if context.draft.verdict(claim, at) is None:
                at_ms = time_ms if known.time_ms is None else min(known.time_ms, time_ms)
                context.draft.remember(claim, at._replace(time_ms=at_ms))
        return time_ms

    def apply_settings(self, cache: str) -> None:
        """Delete what a cache stored under its earlier strategy or persistence."""
        context = self._contexts.of_cache(cache)
        foreign = self._partition.foreign(context.settings, context.strategy.kind, cache)
        self._write(foreign.kept)
        self._contexts.volatile += foreign.volatile

    def expire(self, edits_max: int) -> None:
        """Delete the state of idle addresses, as `expire_addresses` describes."""
        contexts, edits = self._contexts, 0
        for _ in range(IDLE_LOOKS_MAX):
            idle = contexts.idle(self._progress.time_ms, 1)
            if idle is not None:
                edits += contexts.expire(idle)
            if edits >= edits_max:
                break

    def seal(self) -> list[Output]:
        """Close the drafts into the plan; return the acknowledgement records."""
        plan, partition = self._plan, self._partition
        accepted, edits = plan.tally.accepted, self._contexts.deletions()
        plan.expired += ((self._source, caches) for caches in self._contexts.expired.values())
        for context in self._contexts:
            if not context.is_audit:
                for source, count in context.draft.accepted().items():
                    route = self._routes.get(source)
                    if route is not None:  # else its ids were imported
                        accepted[route, context.cache] += count
            change = context.draft.change(context.cache)
            if change is not None:
                plan.sealed.append(
                    AddressChange(partition, context.cache, context.memory, change.content)
                )
                self._contexts.write(context, change.edits, edits)
            renewals = self._contexts.renewals(context)
            self._contexts.write(context, renewals, edits)
            if renewals:
                plan.rewritten.append((partition.source, context.cache))
        if self._groups.change:
            edits += self._groups.edits()
            plan.groups[self._source] = self._groups.change
        self._write(edits)
        if self._contexts.volatile:
            plan.volatile[self._source] = self._contexts.volatile
        for evaluator in self._evaluators.values():
            evaluator.fast_paths.count(plan.tally)
        return self._acknowledgements()

    def _acknowledgements(self) -> list[Output]:
        """Build a record for each publisher whose numbers the transaction covers further."""
        topic, found = acknowledgements(self._rules.group_id), list[Output]()
        for context in self._contexts:
            for publisher, number in context.draft.covered().items():
                payload = {"sequence": number, "bookmark": bookmark(publisher, number).decode()}
                key, value = _json([context.name, publisher]), _json(payload)
                found.append((topic, value, key, 0, None, None, self._progress.now_ms, []))
        return found

    def _grouping(self) -> TransactionGroups:
        """Build the decider of groups, for one call only.

        It refers to this decider. Keeping it in an attribute would make a reference cycle: each
        transaction and its last outputs would stay in memory until the next garbage collection.
        """
        return TransactionGroups(self._groups, self._contexts, self._opened)

    def _opened(self, pending_record: PendingRecord) -> GroupMember:
        """Restore a pending record as its input has it."""
        if self._partition.input_partition is not None:
            return GroupMember(
                self._evaluator(NO_ORIGIN).checks, pending_record, pending_record.headers
            )
        (input_partition,), (own_offset,), (headers,) = strip_origins([pending_record.headers])
        record = RepartitionedRecord(pending_record, own_offset)
        return GroupMember(self._evaluator(input_partition).checks, record, headers or ())

    def _by_input(self, columns: Columns) -> Iterator[tuple[Evaluator, Columns]]:
        """Yield runs of consecutive records from one input partition, with its evaluator."""
        if self._partition.input_partition is not None:
            yield self._evaluator(NO_ORIGIN), columns
            return
        start = 0
        if isinstance(columns.messages, Records):
            for input_partition, records, own_offsets in columns.messages.by_input():
                rows = slice(start, start + len(records))
                start = rows.stop
                offsets = columns.offsets[rows]
                yield (
                    self._evaluator(input_partition),
                    Columns(
                        messages=records,
                        offsets=offsets,
                        own_offsets=offsets if input_partition == NO_ORIGIN else own_offsets,
                        times_ms=columns.times_ms[rows],
                        headers=records.headers,
                        sizes_bytes=columns.sizes_bytes[rows],
                        bounds=columns.bounds,
                    ),
                )
            return
        input_partitions, own_offsets, headers = strip_origins(columns.headers)
        for input_partition, same in groupby(input_partitions):
            rows = slice(start, start + len(list(same)))
            start = rows.stop
            offsets = columns.offsets[rows]
            yield (
                self._evaluator(input_partition),
                Columns(
                    messages=columns.messages[rows],
                    offsets=offsets,
                    own_offsets=offsets if input_partition == NO_ORIGIN else own_offsets[rows],
                    times_ms=columns.times_ms[rows],
                    headers=headers[rows],
                    sizes_bytes=columns.sizes_bytes[rows],
                    bounds=columns.bounds,
                ),
            )

    def _evaluator(self, input_name: bytes) -> Evaluator:
        evaluator = self._evaluators.get(input_name)
        if evaluator is None:
            input_partition = self._input_partition(input_name)
            parts = (self._rules, self._plan.tally, self._contexts, self._progress)
            evaluator = self._evaluators[input_name] = Evaluator(input_partition, *parts)
            self._routes[input_partition.source] = evaluator.route
            if input_partition.fault is not None:
                self._unrouted.append(input_name)
        return evaluator

    def _forget_unrouted(self) -> None:
        """Look unrouted inputs up again: by the next slice they may belong to a new route."""
        for input_name in self._unrouted:
            del self._evaluators[input_name]
        self._unrouted.clear()

    def _input_partition(self, input_name: bytes) -> InputPartition:
        if self._partition.input_partition is not None:
            return self._partition.input_partition
        if input_name == NO_ORIGIN:
            return unrouted(self._source, "it does not say which input it came from")
        return self._rules.input_partitions(input_name)

    def _count(self, times_ms: list[int], bounds: Bounds) -> None:
        """Advance the partition's time and the batch's time range."""
        plan, tally = self._plan, self._plan.tally
        plan.times_ms[self._source] = self._progress.time_ms
        oldest_ms = bounds.oldest_ms
        if oldest_ms <= 0:
            oldest_ms = min((time for time in times_ms if time > 0), default=NO_TIME_MS)
        tally.oldest_ms = min(tally.oldest_ms, oldest_ms)
        tally.newest_ms = max(tally.newest_ms, bounds.newest_ms)

    def _delete_expired(self) -> None:
        """Write tombstones with the first records.

        So the changelog's partition joins the transaction while records are still being decided,
        and the commit need not wait for that.
        """
        self._write(self._contexts.deletions())

    def _write(self, edits: list[Edit]) -> None:
        if edits:
            self._plan.edits.setdefault(self._partition.kept_log, []).extend(edits)


def _json(payload: object) -> bytes:
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
