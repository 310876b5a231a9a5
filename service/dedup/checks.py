"""Checks: the contract's requirements of a record, one method each. `evaluator.py` has their order.

A check that fails raises RejectedError, and the record goes to the dead letters with that reason.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ringfence.headers import BOOKMARK, DUPLICATE_ID, MARK, REPEATED, Headers, Reason, bookmark
from service.config.addresses import COUNTING, AddressBook
from service.dedup.address import AddressContext, AddressContexts
from service.dedup.claim import (
    NAME_OF_PUBLISHER,
    identifier_of,
    is_stamp,
    named,
    published,
    read_claim,
    read_epoch,
    stamp_prefix,
)
from service.dedup.dead_letter import DeadLetterEnvelope
from service.dedup.output import OutputResolver, OutputTopic
from service.dedup.plan import BatchCounts, DuplicateExample, Output
from service.dedup.record import Record, RejectedError, name_of, origin_header
from service.dedup.route import InputPartition
from service.kafka.topics import RepartitionTopic
from state.cache import Cache
from state.model import Claim, Origin, PartitionId, Rejection
from state.pending_group import PendingRecord


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """What decisions depend on, beside the records and the state."""

    cluster_id: str
    group_id: str
    epochs: Mapping[str, int]
    """Of the publishers that have a session."""
    book: AddressBook
    cache: Cache
    output_resolver: OutputResolver
    input_partitions: Callable[[bytes], InputPartition]
    """By the names that carried records bear."""
    by_address: RepartitionTopic
    """Where records go whose address has many partitions."""
    batch_bytes_max: int = sys.maxsize
    """Of the groups that end in one transaction."""


@dataclass(slots=True)
class DecisionProgress:
    """How far a partition is decided in one transaction; all of its inlets share it."""

    source: PartitionId
    """The partition that decides."""
    time_ms: int
    """Its own time."""
    now_ms: int = 0
    outputs: list[Output] = field(default_factory=list)
    """Of the slice at hand."""


class Checks:
    """For the records of one inlet in one transaction."""

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
        self._envelope_without_address = DeadLetterEnvelope(input_partition.source, None)
        self._envelopes: dict[str, DeadLetterEnvelope] = {}

    def check_route(self) -> None:
        """RejectedError where the record's input belongs to no route."""
        self._input_partition.check()

    def address(self, record: Record, headers: Headers) -> str:
        """RejectedError when the record names none."""
        return self._input_partition.address(record.key(), headers)

    def context(self, record: Record, headers: Headers) -> AddressContext:
        """Where the record is judged; RejectedError when it names no address."""
        return self._contexts.at(self.address(record, headers))

    def claim(self, record: Record, headers: Headers, context: AddressContext) -> Claim:
        """What the record says of itself, as far as its address asks for it."""
        if self._identifier is None:
            claim = read_claim(headers)
        else:
            identifier = self._identifier.of(record, headers)
            claim = named(read_claim(headers, frozenset()), identifier)
        strategy = context.settings.strategy
        if strategy == "window":
            return published(claim, headers, NAME_OF_PUBLISHER)
        if strategy not in COUNTING:
            return claim
        return published(claim, headers)

    def is_bridged(self, context: AddressContext, claim: Claim) -> bool:
        """Whether all that the record claims was stamped on its way."""
        if self._identifier is not None or not is_stamp(claim.identifier):
            return False
        return context.settings.strategy not in COUNTING or not context.strategy.claims(claim)

    def with_id(
        self, record: Record, headers: Headers, context: AddressContext, claim: Claim
    ) -> Headers:
        """The headers to send on, an id among them where the route makes one for who has none."""
        if context.strategy.claims(claim) or context.settings.strategy == "sequence":
            return headers
        match self._settings.missing_id:
            case "dead_letter":
                cause = f"it has no {DUPLICATE_ID}, and the route asks for one"
                raise RejectedError(Reason.MISSING_ID, cause)
            case "stamp" if claim.identifier is None:
                # The same on every attempt. The one that stamps does not remember it.
                stamp = stamp_prefix(self._rules.cluster_id, self._source)
                return [*headers, (DUPLICATE_ID, b"%b%d" % (stamp, record.offset() or 0))]
            case _:
                return headers

    def bookmarked(
        self, record: Record, headers: Headers, context: AddressContext, claim: Claim
    ) -> Headers:
        """The headers of what goes out of a sequence: its number, or its place for want of one.

        Nothing ever repeats a place, so it is neither judged nor remembered.
        """
        if context.settings.strategy != "sequence":
            return headers
        publisher, number = claim.publisher or "", claim.number or 0
        if not context.strategy.claims(claim):
            topic, partition = self._source
            publisher = f"{publisher}@{self._rules.group_id}/{topic}/{partition}"
            number = (record.offset() or 0) + 1
        return [*headers, (BOOKMARK, bookmark(publisher, number))]

    def check_epoch(self, headers: Headers) -> None:
        """RejectedError when the publisher's name belongs to a later session."""
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
        """RejectedError when the record came too late."""
        if claim.expires_at_ms is not None and context.settings.process_expired:
            late_ms = self._progress.now_ms - claim.expires_at_ms
            if late_ms > 0:
                cause = f"expired {late_ms} ms before it was read"
                raise RejectedError(Reason.EXPIRED, cause)

    def judged(self, record: Record, context: AddressContext, claim: Claim) -> Rejection | None:
        """What the record repeats, if it does; RejectedError where it may not be remembered."""
        if not counts(context, claim):
            return None
        origin = self.origin_of(record)
        why = context.draft.verdict(claim, origin)
        if why is None:
            self._contexts.check_room(context)
        elif why.reason is Reason.DUPLICATE:
            context.draft.repeated(claim, origin)
        else:
            raise RejectedError(*why)
        return why

    def with_mark(
        self, headers: Headers, context: AddressContext, repetition: Rejection | None
    ) -> Headers:
        """The headers of what goes out; RejectedError for a duplicate that does not."""
        if repetition is not None and context.settings.on_duplicate != "mark":
            raise RejectedError(*repetition)
        if repetition is None:
            return headers
        return [*headers, (MARK, (repetition.original or "").encode())]

    def check_refusal(self, offset: int) -> None:
        """RejectedError where the broker has refused what was decided at this offset before."""
        self._rules.output_resolver.check_refusal((self._progress.source, offset))

    def target(self, record: Record, headers: Headers, context: AddressContext) -> OutputTopic:
        """Where the record goes; RejectedError when it names no such place, or does not fit."""
        output_resolver, key = self._rules.output_resolver, record.key()
        target = output_resolver.output(self._input_partition, key, headers, context.name)
        output_resolver.check_size(target, key, record.value(), headers)
        return target

    def origin_of(self, record: Record) -> Origin:
        """The record's place in its input, and the time of the decision."""
        return Origin(*self._source, record.offset() or 0, self._progress.time_ms)

    def with_origin(self, record: Record, headers: Headers) -> Headers:
        """The headers to keep a record with: they name its inlet, where that is another one."""
        if self._source == self._progress.source:
            return headers
        return [*headers, origin_header(name_of(self._source), record.offset() or 0)]

    def envelope(self, context: AddressContext) -> DeadLetterEnvelope:
        """What the dead letters of an address have in common; most addresses have none."""
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
    ) -> None:
        """Send the record on, and remember what it claims unless it repeats something."""
        outputs = self._progress.outputs
        outputs.append(output_of(record, target, headers, max(record.timestamp()[1], 0)))
        label = (self._settings.name, context.name)
        if repetition is not None:
            self._count(context, record, headers, claim, repetition)
        elif counts(context, claim):
            self._contexts.admit(context)
            context.draft.remember(claim, self.origin_of(record))
        else:
            self._tally.accepted[label] += 1

    def reject(
        self,
        record: Record,
        headers: Headers,
        context: AddressContext | None,
        claim: Claim,
        why: Rejection,
        blamed: int,
    ) -> None:
        """Send the record to the dead letters; the broker's refusal blames what is at an offset."""
        tally, route = self._tally, self._settings.name
        if why.reason in REPEATED and context is not None:
            self._count(context, record, headers, claim, why)
            if context.settings.on_duplicate == "drop" or not self._is_first(
                record, context, claim, why
            ):
                return
        address = None if context is None else context.name
        envelope = self._envelope_without_address if context is None else self.envelope(context)
        letter = envelope.letter(record, headers, claim.identifier, why)
        blame = (self._progress.source, blamed)
        target = self._rules.output_resolver.dead_letter(
            self._input_partition, record, letter, address, why.reason, blame
        )
        tally.dead_letters[route, why.reason] += 1
        self._progress.outputs.append(output_of(record, target, letter, self._progress.now_ms))

    def _count(
        self,
        context: AddressContext,
        record: Record,
        headers: Headers,
        claim: Claim,
        why: Rejection,
    ) -> None:
        """Count a duplicate, and tell what is known of it."""
        tally, label = self._tally, (self._settings.name, context.name)
        tally.duplicates[label] += 1
        if why.accepted_ms is not None:
            tally.distances_ms.append(self._progress.time_ms - why.accepted_ms)
        if tally.example is None:
            offset, identifier = record.offset() or 0, claim.identifier
            tally.example = DuplicateExample(
                *label, self._source, offset, identifier, why.original, headers
            )

    def _is_first(
        self, record: Record, context: AddressContext, claim: Claim, why: Rejection
    ) -> bool:
        """Whether a duplicate is to be dead-lettered: the first of its id, where that is asked.

        Counted from the record that was accepted, so an id that is forgotten starts over. A record
        without what its strategy reads has no id: of a rejected group it comes each time.
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
    """Whether the claim is one that its address judges and remembers."""
    return context.settings.remembers and context.strategy.claims(claim)


class GroupMember(NamedTuple):
    """A record of a group, as its inlet has it, and what checks it."""

    checks: Checks
    record: Record
    headers: Headers


Open = Callable[[PendingRecord], GroupMember]
"""Takes a record out of the state: it may have come by way of another inlet."""


def output_of(record: Record, target: OutputTopic, headers: Headers, timestamp_ms: int) -> Output:
    """A record on its way to a topic."""
    key = record.key()
    partition = target.partition(key)
    return (target.topic, record.value(), key, partition, None, None, timestamp_ms, headers)
