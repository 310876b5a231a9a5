"""Decide: a batch and the committed state fill a plan, and nothing else is changed by it.

The checks run in the contract's order: headers, address, claim, expiry, duplicate, target, size.
Invariants: every record of the batch has exactly one fate in the plan; only an accepted id is
remembered; dropping the plan is the abort.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Message

from ringfence.headers import DUPLICATE_ID, Reason
from service.addresses import AddressBook
from service.claim import NO_CLAIM, Claim, plain_ids, read_claim
from service.consume import UNREADABLE, Batch, Slice, read_headers
from service.dead_letter import Envelope
from service.lane import Lane, Lanes
from service.place import Place, Places
from service.plan import NO_TIME_MS, Output, Plan, Sealed
from service.rejection import RejectedError, Rejection, repetition_of
from service.route import Headers
from service.target import Placing, Target
from state.cache import Cache

# The client begins to send while the rest is decided; smaller pieces only cost calls.
_AT_ONCE: Final = 512


@dataclass(frozen=True, slots=True)
class Rules:
    """What decisions depend on, beside the records and the state."""

    cluster_id: str
    book: AddressBook
    cache: Cache
    placing: Placing


def decide(batch: Batch, rules: Rules, plan: Plan) -> Iterator[Sequence[Output]]:
    """Fill the plan for a batch; gives the outputs as soon as they are decided, some at a time.

    Raises TargetMissingError, and LookupError for a target that `rules.placing` was never asked
    for: refresh it and decide again.
    """
    for part in batch.slices:
        decider = _SliceDecider(part, rules, plan, batch.now_ms)
        for start in range(0, len(part.messages), _AT_ONCE):
            piece = slice(start, start + _AT_ONCE)
            yield decider.decide(part.messages[piece], part.offsets[piece])
        decider.seal(part)
        yield ()


class _SliceDecider:
    """The records of one partition, in order, on drafts over its committed rings."""

    def __init__(self, part: Slice, rules: Rules, plan: Plan, now_ms: int) -> None:
        self._partition = partition = part.partition
        self._source = partition.source
        self._route = partition.route
        self._rules = rules
        self._plan = plan
        self._outputs: list[Output] = []
        self._now_ms = now_ms
        self._time_ms = partition.time_ms
        self._places = Places(partition, rules.book, rules.cache)
        self._lanes = Lanes(partition, self._places, rules.placing, max(part.sizes_bytes))
        self._nowhere = Envelope(partition.source, None)

    def decide(self, messages: list[Message], offsets: list[int]) -> list[Output]:
        """Give every record its fate, in order; what goes out for it.

        This is the one loop that runs for each record. Nearly all are plain: an id and nothing
        else to look at, an address that this slice has seen. Their lane answers with the ring
        alone. Every other record, and every duplicate to be told of, goes through `_decide`.
        What all records have is read in columns, by callers written in C; a record's parts are
        not kept once it is sent, so they stay in the processor's cache.
        """
        lanes, now_ms = self._lanes, self._now_ms
        field, lane_of = lanes.field, lanes.by_value.get
        outputs: list[Output] = []
        self._outputs = outputs
        output = outputs.append
        time_ms = self._time_ms
        column = read_headers(messages)
        times_ms = [timestamp for _, timestamp in map(Message.timestamp, messages)]
        records = zip(messages, offsets, times_ms, column, plain_ids(column), strict=True)
        for message, offset, timestamp, headers, identifier in records:
            if timestamp > time_ms:
                time_ms = timestamp if timestamp <= now_ms else max(time_ms, now_ms)
            key = message.key()
            if identifier is None or timestamp <= 0:
                lane = None
            else:
                named = None if field is None else field.of(key, headers)
                lane = lane_of(named) or lanes.open(named, key, headers or ())
            if lane is not None and identifier is not None:
                number = lane.admit(identifier, offset, time_ms)
                if number is None:
                    place = lane.unkeyed if key is None else lane.keyed
                    value = message.value()
                    output((lane.topic, value, key, place, None, None, timestamp, headers or []))
                    continue
                if lane.drops:
                    lane.repeats += 1
                    continue
                if lane.dead_letter is not None:
                    lane.repeats += 1
                    self._repeat(message, headers or [], identifier, number, lane)
                    continue
            self._time_ms = time_ms
            self._decide(message, headers or [])
        self._time_ms = time_ms
        self._delete_outlived()
        tally = self._plan.tally
        known_ms = times_ms if min(times_ms) > 0 else [time for time in times_ms if time > 0]
        tally.oldest_ms = min(tally.oldest_ms, min(known_ms, default=NO_TIME_MS))
        return outputs

    def seal(self, part: Slice) -> None:
        """Close the slice: runs to remember, edits for the changelog, the offset to commit."""
        plan, partition, route = self._plan, self._partition, self._route.settings.name
        accepted = plan.tally.accepted
        for place in self._places:
            if place.draft:
                label = (route, place.name)
                accepted[label] = accepted.get(label, 0) + len(place.draft)
            runs, deleted = place.draft.seal(), len(place.draft.outlived)
            if runs or deleted:
                plan.sealed.append(Sealed(partition, place.name, place.ring, runs, deleted))
                edits = plan.edits.setdefault(partition.changelog, [])
                edits += place.draft.edits(place.name, runs)
        self._lanes.count(plan.tally)
        plan.next_offsets[self._source] = part.offsets[-1] + 1
        plan.times_ms[self._source] = self._time_ms
        plan.tally.consumed[route] += len(part.messages)
        plan.tally.bytes_consumed[route] += sum(part.sizes_bytes)

    def _delete_outlived(self) -> None:
        """Write tombstones with the first records.

        So the changelog's partition joins the transaction while there is still something to
        decide, and the end need not wait for it.
        """
        deletions = self._places.deletions()
        if deletions:
            self._plan.edits.setdefault(self._partition.changelog, []).extend(deletions)

    def _repeat(
        self, message: Message, headers: Headers, identifier: bytes, number: int, lane: Lane
    ) -> None:
        """A plain duplicate to its dead-letter topic."""
        place, target = lane.place, lane.dead_letter
        assert target is not None  # the caller looked
        origin = place.draft.origin(number)
        letter = self._places.envelope(place).repetition(message, headers, identifier, origin)
        self._outputs.append(_output(message, target, letter, self._now_ms))

    def _decide(self, message: Message, headers: Headers) -> None:
        """One record, by all the checks."""
        place: Place | None = None
        claim = NO_CLAIM
        try:
            if headers is UNREADABLE:
                headers = []
                cause = (
                    "a header name is not UTF-8 text; the record is kept here without its headers"
                )
                raise RejectedError(Reason.UNREADABLE_HEADERS, cause)
            place = self._places.find(message.key(), headers)
            claim = read_claim(headers)
            outgoing = self._checked(message, headers, place, claim)
            target = self._target(message, outgoing, place)
        except RejectedError as rejected:
            self._reject(message, headers, place, claim, rejected.why)
        else:
            self._accept(message, outgoing, place, claim, target)

    def _accept(
        self, message: Message, headers: Headers, place: Place, claim: Claim, target: Target
    ) -> None:
        timestamp = max(message.timestamp()[1], 0)
        self._outputs.append(_output(message, target, headers, timestamp))
        if claim.identifier is None or not place.settings.id_cache_size:
            self._plan.tally.accepted[self._route.settings.name, place.name] += 1
            return
        self._places.admit(place)
        place.draft.admit(claim.identifier, message.offset() or 0, self._time_ms)

    def _checked(self, message: Message, headers: Headers, place: Place, claim: Claim) -> Headers:
        """The headers to send on; RejectedError when the claim does not pass."""
        identifier = claim.identifier
        if identifier is None:
            headers = self._without_id(message, headers)
        if claim.expires_at_ms is not None and place.settings.process_expired:
            late_ms = self._now_ms - claim.expires_at_ms
            if late_ms > 0:
                cause = f"expired {late_ms} ms before it was read"
                raise RejectedError(Reason.EXPIRED, cause)
        if identifier is None:
            return headers
        number = place.draft.judge(identifier)
        if number is not None:
            raise RejectedError(*repetition_of(place.draft.origin(number)))
        if place.settings.id_cache_size:
            self._places.check_room(place)
        return headers

    def _without_id(self, message: Message, headers: Headers) -> Headers:
        match self._route.settings.missing_id:
            case "dead_letter":
                cause = f"it has no {DUPLICATE_ID}, and the route asks for one"
                raise RejectedError(Reason.MISSING_ID, cause)
            case "stamp":
                # The same on every attempt. The one that stamps does not remember it.
                topic, number = self._source
                stamp = f"{self._rules.cluster_id}/{topic}/{number}/{message.offset()}"
                return [*headers, (DUPLICATE_ID, stamp.encode())]
            case _:
                return headers

    def _target(self, message: Message, headers: Headers, place: Place) -> Target:
        placing, key = self._rules.placing, message.key()
        placing.check_refusal(self._source, message.offset() or 0)
        target = placing.output(self._partition, key, headers, place.name)
        placing.check_size(target, key, message.value(), headers)
        return target

    def _reject(
        self,
        message: Message,
        headers: Headers,
        place: Place | None,
        claim: Claim,
        why: Rejection,
    ) -> None:
        tally, route = self._plan.tally, self._route.settings.name
        if why.reason is Reason.DUPLICATE and place is not None:
            tally.duplicates[route, place.name] += 1
            if place.settings.on_duplicate == "drop":
                return
        address = None if place is None else place.name
        envelope = self._nowhere if place is None else self._places.envelope(place)
        letter = envelope.letter(message, headers, claim.identifier, why)
        target = self._rules.placing.dead_letter(
            self._partition, message, headers, letter, address, why.reason
        )
        tally.dead_letters[route, why.reason] += 1
        self._outputs.append(_output(message, target, letter, self._now_ms))


def _output(message: Message, target: Target, headers: Headers, timestamp: int) -> Output:
    key = message.key()
    place = target.partition(key)
    return (target.topic, message.value(), key, place, None, None, timestamp, headers)
