"""Checks: what a record has to satisfy, one method each; `evaluator.py` has their order.

A check that fails raises RejectedError, and the record is dead-lettered with that reason.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from ringfence_client.headers import (
    BOOKMARK,
    DUPLICATE_ID,
    MARK,
    REPEATED,
    Headers,
    Reason,
    bookmark,
)
from ringfence_service.config.addresses import AddressBook
from ringfence_service.dedup.address import AddressContext, AddressContexts
from ringfence_service.dedup.claim import (
    claim_of,
    identifier_of,
    is_stamp,
    missing_headers,
    read_epoch,
    reply_topic,
    stamp_prefix,
)
from ringfence_service.dedup.dead_letter import DeadLetterEnvelope
from ringfence_service.dedup.duplicate_samples import DuplicateSample
from ringfence_service.dedup.output import OutputResolver, OutputTopic
from ringfence_service.dedup.plan import BatchCounts, Output, Unchecked
from ringfence_service.dedup.record import Record, RejectedError, name_of, origin_header
from ringfence_service.dedup.repartition_keys import RepartitionKeys
from ringfence_service.dedup.reply import Decision, Replies
from ringfence_service.dedup.route import InputPartition
from ringfence_service.kafka.model import Present
from ringfence_service.kafka.topics import RepartitionTopic
from ringfence_service.native.records import Records
from ringfence_state.cache import Cache
from ringfence_state.model import NO_CLAIM, Claim, Origin, PartitionId, Rejection
from ringfence_state.pending_group import PendingRecord


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """What decisions depend on besides the records and the state."""

    cluster_id: str
    group_id: str
    epochs: Mapping[str, int]
    """The session epoch of each publisher that has one."""
    book: AddressBook
    cache: Cache
    output_resolver: OutputResolver
    input_partitions: Callable[[bytes], InputPartition]
    """Resolves the input partition named in the origin header of a repartitioned record."""
    by_address: RepartitionTopic
    """The topic that the first hop of scope `address` writes."""
    batch_bytes_max: int = sys.maxsize
    """Limit on the size of the groups that end in one transaction."""


@dataclass(slots=True)
class DecisionProgress:
    """How far a partition is decided in one transaction, shared by all input partitions in it."""

    source: PartitionId
    """The partition that decides."""
    time_ms: int
    """The partition's own time, as in `OwnedPartition`."""
    now_ms: int = 0
    present: Present = field(default_factory=lambda: Present.at(0))
    outputs: list[Output] = field(default_factory=list)
    """The outputs of the current slice."""
    replies: list[tuple[str, Output | None]] = field(default_factory=list)
    """The replies that its records ask for, each with the route; None if none can be sent."""

    def begin(self, present: Present) -> None:
        """Begin a slice, which is decided at this time."""
        self.outputs, self.replies, self.now_ms = [], [], present.now_ms
        self.present = present

    def send(self, records: Records, start: int, end: int) -> None:
        """Add some of the records to the outputs, which compiled code has accepted."""
        if start < end:
            self.outputs.append(cast("Output", (records.part(start, end),)))

    def end(self, tally: BatchCounts) -> list[Output]:
        """Count the replies; return outputs and replies."""
        for route, reply in self.replies:
            tally.replies[route, "no-topic" if reply is None else "sent"] += 1
        replies = [reply for _, reply in self.replies if reply is not None]
        return self.outputs + replies if replies else self.outputs


class Checks:
    """The checks for records of one input partition in one transaction."""

    def __init__(
        self,
        input_partition: InputPartition,
        rules: DecisionContext,
        tally: BatchCounts,
        contexts: AddressContexts,
        progress: DecisionProgress,
    ) -> None:
        self._input_partition = input_partition
        self._source = input_partition.source
        self._settings = input_partition.route.settings
        self._rules = rules
        self._tally = tally
        self._contexts = contexts
        self._progress = progress
        self._identifier = identifier_of(input_partition.route.settings.id)
        self._keys = RepartitionKeys(input_partition, rules.book)
        route = input_partition.route
        self.has_late_ids = route.settings.scope == "id" and route.reads_schemas
        """Whether the id of a record may be readable now that was not when it was passed on."""
        self._replies = Replies(input_partition, self._identifier, rules.output_resolver)
        self._envelope_without_address = DeadLetterEnvelope(input_partition.source, None)
        self._envelopes: dict[str, DeadLetterEnvelope] = {}

    @property
    def time_ms(self) -> int:
        """The time of the deciding partition."""
        return self._progress.time_ms

    def check_route(self) -> None:
        """Raise RejectedError if the record's input belongs to no route."""
        self._input_partition.check()

    def address(self, record: Record, headers: Headers) -> str:
        """Return the address of a record; RejectedError if it has none."""
        return self._input_partition.address(record, headers)

    def context(self, record: Record, headers: Headers) -> AddressContext:
        """Return the context of the record's address; RejectedError if it has no address."""
        return self._contexts.at(self.address(record, headers))

    def claim(self, record: Record, headers: Headers, context: AddressContext) -> Claim:
        """Read the claim of a record, as far as the strategy of its address uses it."""
        claim = claim_of(self._identifier, record, headers, context.strategy.publisher_headers)
        if claim.identifier is None or self.is_decided_here(record, headers):
            return claim
        return claim._replace(identifier=None, is_unreadable=True)

    def is_decided_here(self, record: Record, headers: Headers) -> bool:
        """Whether records with the id of a record are decided by this partition.

        False for one with scope `id` whose schema was registered after it had been passed on: its
        id was not known then.
        """
        if not self.has_late_ids:
            return True
        try:
            key = self._keys.of(record, headers)
        except RejectedError:
            return True  # it will be dead-lettered for that
        return self._rules.by_address.decider_of(key) == self._progress.source

    def is_bridged(self, context: AddressContext, claim: Claim) -> bool:
        """Whether all that the record claims is an id that a bridge stamped."""
        if self._identifier is not None or not is_stamp(claim.identifier):
            return False
        return context.strategy.holds_ids or not context.strategy.claims(claim)

    def with_id(
        self, record: Record, headers: Headers, context: AddressContext, claim: Claim
    ) -> Headers:
        """Return the headers to forward, with a stamped id if it has none and the route stamps.

        RejectedError if the route requires an id and the record has none.
        """
        if context.strategy.claims(claim) or has_bookmarks(context):
            return headers
        match self._settings.missing_id:
            case "dead_letter":
                why, name = self._why_no_id(record, headers, context, claim)
                raise RejectedError(Reason.MISSING_ID, f"{why}, and the route requires {name}")
            case "stamp" if claim.identifier is None:
                # Equal on every attempt. The instance that stamps an id does not remember it.
                stamp = stamp_prefix(self._rules.cluster_id, self._source)
                return [*headers, (DUPLICATE_ID, b"%b%d" % (stamp, record.offset() or 0))]
            case _:
                return headers

    def _why_no_id(
        self, record: Record, headers: Headers, context: AddressContext, claim: Claim
    ) -> tuple[str, str]:
        """Return what a record lacks, and a word for that."""
        missing = missing_headers(claim, context.strategy.required_headers)
        if missing:
            return f"it has no {missing}, which {context.settings.strategy} reads", "it"
        if self._identifier is None or claim.identifier is not None:
            return f"it has no {DUPLICATE_ID}", "one"
        if self.has_late_ids and isinstance(self._identifier.read(record, headers), bytes):
            return "its schema was registered after it had been passed on without an id", "an id"
        return self._identifier.why_missing(record, headers), "an id"

    def count_unchecked(
        self, record: Record, headers: Headers, context: AddressContext, claim: Claim
    ) -> None:
        """Count a record that was accepted though its address could check nothing of it."""
        route, tally = self._settings.name, self._tally
        if (
            context.remembers
            and self._settings.missing_id == "stamp"
            and claim.identifier is None
            and not has_bookmarks(context)
        ):
            tally.stamped[route] += 1
            return
        label = route, self._unchecked(context, claim)
        tally.unchecked[label] += 1
        if context.remembers and label not in tally.unchecked_causes:
            tally.unchecked_causes[label], _ = self._why_no_id(record, headers, context, claim)

    def why_unchecked(
        self, record: Record, headers: Headers, context: AddressContext
    ) -> tuple[Unchecked, str | None] | None:
        """Return why a record that claims nothing passes as it is, unchecked; None if it does not.

        That is the same for all such records of the address. The text is as in `BatchCounts`.
        """
        strategy = context.strategy
        is_checked = strategy.publisher_headers or strategy.claims(NO_CLAIM)
        if is_checked or has_bookmarks(context) or self._settings.missing_id != "pass":
            return None
        reason, cause = self._unchecked(context, NO_CLAIM), None
        if reason is Unchecked.NO_ID:
            cause, _ = self._why_no_id(record, headers, context, NO_CLAIM)
        return reason, cause

    def _unchecked(self, context: AddressContext, claim: Claim) -> Unchecked:
        """Return why an address that passes a record on could check nothing of it."""
        if not context.remembers:
            return Unchecked.OFF
        is_unreadable = claim.is_unreadable and not context.strategy.required_headers
        return Unchecked.UNREADABLE if is_unreadable else Unchecked.NO_ID

    def bookmarked(
        self, record: Record, headers: Headers, context: AddressContext, claim: Claim
    ) -> Headers:
        """Return the headers to forward; with a bookmark if the strategy has them.

        The bookmark is the publisher's number, or the input position of a record without one. A
        position never repeats, so it is neither checked nor remembered.
        """
        if not has_bookmarks(context):
            return headers
        publisher, number = claim.publisher or "", claim.number or 0
        if not context.strategy.claims(claim):
            topic, partition = self._source
            publisher = f"{publisher}@{self._rules.group_id}/{topic}/{partition}"
            number = (record.offset() or 0) + 1
        return [*headers, (BOOKMARK, bookmark(publisher, number))]

    def check_epoch(self, headers: Headers) -> None:
        """Raise RejectedError if the publisher has opened a session with a later epoch."""
        epochs = self._rules.epochs
        session = read_epoch(headers) if epochs else None
        if session is None:
            return
        publisher, epoch = session
        newest = epochs.get(publisher, 0)
        if epoch < newest:
            what = f"of epoch {epoch}" if epoch else "of no session"
            cause = f"{publisher} has opened a session of epoch {newest}, and this record is {what}"
            raise RejectedError(Reason.NAME_IN_USE, cause)

    def check_time(self, context: AddressContext, claim: Claim) -> None:
        """Raise RejectedError if the record has expired."""
        if claim.expires_at_ms is not None and context.settings.process_expired:
            late_ms = self._progress.now_ms - claim.expires_at_ms
            if late_ms > 0:
                cause = f"expired {late_ms} ms before it was read"
                raise RejectedError(Reason.EXPIRED, cause)

    def judged(self, record: Record, context: AddressContext, claim: Claim) -> Rejection | None:
        """Return the rejection of a duplicate, else None.

        RejectedError if the strategy refuses it for another reason, or its address finds no room.
        """
        if not counts(context, claim):
            return None
        origin = self.origin_of(record)
        why = context.draft.verdict(claim, origin)
        if why is None:
            self._contexts.check_room(context, origin.time_ms)
        elif why.reason is Reason.DUPLICATE:
            context.draft.repeated(claim, origin)
        else:
            raise RejectedError(*why)
        return why

    def with_mark(
        self, headers: Headers, context: AddressContext, repetition: Rejection | None
    ) -> Headers:
        """Return the headers to forward, with the mark of a duplicate.

        RejectedError for a duplicate unless `on_duplicate` is `mark`.
        """
        if repetition is not None and context.settings.on_duplicate != "mark":
            raise RejectedError(*repetition)
        if repetition is None:
            return headers
        return [*headers, (MARK, (repetition.original or "").encode())]

    def check_refusal(self, offset: int) -> None:
        """Raise RejectedError if the broker refused the record at this offset before."""
        self._rules.output_resolver.check_refusal((self._progress.source, offset))

    def target(self, record: Record, headers: Headers, context: AddressContext) -> OutputTopic:
        """Return the output topic; RejectedError if the record names none that takes it."""
        output_resolver = self._rules.output_resolver
        target = output_resolver.output(self._input_partition, record, headers, context.name)
        self.check_fits(target, record, headers)
        return target

    def check_fits(self, target: OutputTopic, record: Record, headers: Headers) -> None:
        """Raise RejectedError if the topic is known to refuse the record."""
        key, value, timestamp_ms = record.key(), record.value(), record.timestamp()[1]
        present, output_resolver = self._progress.present, self._rules.output_resolver
        taken_bytes = self._input_partition.record_bytes_max
        output_resolver.check_fits(target, key, value, headers, timestamp_ms, present, taken_bytes)

    def origin_of(self, record: Record) -> Origin:
        """Return the record's input position, and the time of the decision."""
        return Origin(*self._source, record.offset() or 0, self._progress.time_ms)

    def with_origin(self, record: Record, headers: Headers) -> Headers:
        """Return the headers to store a pending record with.

        They name its input position if another partition decides it.
        """
        if self._source == self._progress.source:
            return headers
        return [*headers, origin_header(name_of(self._source), record.offset() or 0)]

    def envelope(self, context: AddressContext) -> DeadLetterEnvelope:
        """Return the cached envelope of an address, made at its first dead letter."""
        found = self._envelopes.get(context.cache)
        if found is None:
            settings = context.settings
            found = DeadLetterEnvelope(self._source, context.name, settings.strategy)
            self._envelopes[context.cache] = found
        return found

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
        """Forward the record, and remember its claim unless it is a duplicate.

        Return whether its address could check it. If the broker refuses the reply, the record at
        the offset `blamed` is at fault.
        """
        outputs = self._progress.outputs
        outputs.append(output_of(record, target, headers, max(record.timestamp()[1], 0)))
        self._reply(record, headers, context, claim, repetition, blamed)
        label = (self._settings.name, context.cache)
        if repetition is not None:
            self._count(record, context, repetition)
        elif counts(context, claim):
            self._contexts.admit(context)
            context.draft.remember(claim, self.origin_of(record))
        else:
            self._tally.accepted[label] += 1
            return False
        return True

    def reject(
        self,
        record: Record,
        headers: Headers,
        context: AddressContext | None,
        claim: Claim,
        why: Rejection,
        blamed: int,
    ) -> None:
        """Dead-letter the record.

        If the broker refuses the dead letter, the record at the offset `blamed` is at fault.
        """
        tally, route = self._tally, self._settings.name
        self._reply(record, headers, context, claim, why, blamed)
        if why.reason in REPEATED and context is not None:
            self._count(record, context, why)
            if context.settings.on_duplicate == "drop" or not self._is_first(
                record, context, claim, why
            ):
                return
        address = None if context is None else context.name
        envelope = self._envelope_without_address if context is None else self.envelope(context)
        letter = envelope.letter(record, headers, claim.identifier, why)
        blame, now_ms = (self._progress.source, blamed), self._progress.now_ms
        target = self._rules.output_resolver.dead_letter(
            self._input_partition, record, letter, address, why.reason, blame, now_ms
        )
        tally.dead_letters[route, why.reason] += 1
        self._progress.outputs.append(output_of(record, target, letter, now_ms))

    def _reply(
        self,
        record: Record,
        headers: Headers,
        context: AddressContext | None,
        claim: Claim,
        why: Rejection | None,
        blamed: int,
    ) -> None:
        """Tell the publisher how its record was decided, if the record asks for that."""
        topic = reply_topic(headers) if self._settings.reply_topics else None
        if topic is None:
            return
        address, at = None if context is None else context.name, self.origin_of(record)
        decision = Decision(record, headers, claim, address, at, why)
        blame = (self._progress.source, blamed)
        reply = self._replies.reply(topic, decision, self._progress.now_ms, blame)
        self._progress.replies.append((self._settings.name, reply))

    def _count(self, record: Record, context: AddressContext, why: Rejection) -> None:
        """Count a duplicate, keep its distance, and have it compared with its original."""
        self._tally.duplicates[self._settings.name, context.cache] += 1
        if why.origin is not None:
            self._tally.distances_ms.append(self._progress.time_ms - why.origin.time_ms)
            if self.wants_samples:
                self.sample(record.offset() or 0, record.value(), why.origin)

    @property
    def wants_samples(self) -> bool:
        """Whether another duplicate of the transaction is to be compared with its original."""
        samples = self._tally.samples
        return samples is not None and samples.wants(self._settings.name)

    def sample(self, offset: int, value: bytes | None, original: Origin) -> None:
        """Have a duplicate at this offset of the input compared with its original."""
        assert self._tally.samples is not None  # it wants more
        without = () if self._identifier is None else self._identifier.left_out
        self._tally.samples.add(
            DuplicateSample.of(self._settings.name, self._source, offset, value, original, without)
        )

    def _is_first(
        self, record: Record, context: AddressContext, claim: Claim, why: Rejection
    ) -> bool:
        """Whether to dead-letter a duplicate: with `dead_letter_audit` only the first of its id.

        The audit entry names the accepted record too, so a forgotten id starts over. A record
        without the headers that its strategy reads has no id: each such record of a rejected group
        is dead-lettered.
        """
        value = claim.identifier if claim.number is None else b"%d" % claim.number
        if not context.settings.dead_letter_audit or value is None or not counts(context, claim):
            return True
        audit = self._contexts.audit(context)
        self._contexts.admit(audit)
        name = f"{why.original} {claim.publisher} ".encode() + value
        seen, origin = Claim(identifier=name), self.origin_of(record)
        if audit.draft.verdict(seen, origin) is not None:
            audit.draft.repeated(seen, origin)
            return False
        audit.draft.remember(seen, origin)
        return True


def counts(context: AddressContext, claim: Claim) -> bool:
    """Whether the address checks and remembers this claim."""
    return context.remembers and context.strategy.claims(claim)


def has_bookmarks(context: AddressContext) -> bool:
    """Whether the address gives each record that it forwards a bookmark."""
    numbers = context.strategy.numbers
    return numbers is not None and numbers.has_bookmarks


class GroupMember(NamedTuple):
    """A record of a group as its input has it, and the checks of that input."""

    checks: Checks
    record: Record
    headers: Headers


Open = Callable[[PendingRecord], GroupMember]
"""Restores a pending record from the state; it may come from another input partition."""


def output_of(record: Record, target: OutputTopic, headers: Headers, timestamp_ms: int) -> Output:
    """Build the output that forwards a record to a topic."""
    key = record.key()
    partition = target.partition(key)
    return (target.topic, record.value(), key, partition, None, None, timestamp_ms, headers)
