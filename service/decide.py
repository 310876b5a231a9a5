"""Decide: a batch and the committed state give a plan, and nothing is changed by it.

The checks run in the contract's order: headers, address, claim, expiry, duplicate, target, size.
Invariants: every record of the batch has exactly one fate in the plan; only an accepted id is
remembered; dropping the plan is the abort.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

from confluent_kafka import Message

from ringfence.headers import DUPLICATE_ID, Reason
from service.addresses import AddressBook, AddressSettings
from service.cluster import TopicInfo
from service.consume import NO_CLAIM, Batch, Claim, read_claim, read_headers
from service.dead_letter import envelope
from service.partition import Partition
from service.plan import BY_KEY, Output, Plan, Sealed
from service.rejection import RejectedError
from service.route import ADDRESS_BYTES_MAX, Headers, Template, UnrenderableError, is_legal_topic
from service.topics import Targets
from state.cache import Cache
from state.edit import Source
from state.strategies.ring import Ring, RingDraft

# A record in a batch of its own: batch header, record header and lengths, rounded down:
# what may still fit is for the broker to refuse.
_RECORD_OVERHEAD_BYTES: Final = 68


class TargetMissingError(Exception):
    """A topic that the configuration names is absent: the broker's fault, not the record's."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


@dataclass(frozen=True, slots=True)
class Rules:
    """What decisions depend on, beside the records and the state."""

    cluster_id: str
    book: AddressBook
    cache: Cache
    targets: Targets
    fallback: str
    compressing: bool
    """Only the broker knows then whether a record fits its topic."""
    refused: Mapping[tuple[Source, int], RejectedError]
    """Records that the broker refused by themselves, found by halving a batch."""
    homeless: AbstractSet[tuple[Source, int]]
    """Those of them that their dead-letter topic refused as well."""


class _Place(NamedTuple):
    """An address within one slice: committed ring, and the draft over it."""

    name: str
    settings: AddressSettings
    ring: Ring
    draft: RingDraft


def decide(batch: Batch, rules: Rules) -> Plan:
    """The plan for a batch.

    Raises TargetMissingError, and LookupError for a target that `rules.targets` was never asked
    for: refresh it and decide again.
    """
    plan = Plan()
    for part in batch.slices:
        decider = _SliceDecider(part.partition, rules, plan, batch.now_ms)
        for message in part.messages:
            decider.decide(message)
        decider.seal(part.messages)
    return plan


class _SliceDecider:
    """The records of one partition, in order, on drafts over its committed rings."""

    def __init__(self, partition: Partition, rules: Rules, plan: Plan, now_ms: int) -> None:
        self._partition = partition
        self._source = partition.source
        self._route = partition.route
        self._rules = rules
        self._plan = plan
        self._now_ms = now_ms
        self._time_ms = partition.time_ms
        self._places: dict[str, _Place] = {}
        self._admitted: set[str] = set()
        self._fixed_address = partition.route.address.constant

    def decide(self, message: Message) -> None:
        """Give one record its fate."""
        headers: Headers = ()
        place: _Place | None = None
        claim = NO_CLAIM
        timestamp = message.timestamp()[1]
        self._time_ms = max(self._time_ms, min(timestamp, self._now_ms))
        try:
            headers = read_headers(message)
            place = self._place(message, headers)
            claim = read_claim(headers)
            outgoing = self._checked(message, headers, place, claim)
            output = self._output(message, outgoing, place, max(timestamp, 0))
        except RejectedError as rejection:
            self._reject(message, headers, place, claim, rejection)
            return
        self._plan.outputs.append(output)
        if claim.identifier is not None:
            offset = message.offset() or 0
            if place.settings.id_cache_size:
                self._admitted.add(place.name)
            place.draft.remember(claim.identifier, self._source, offset, self._time_ms)
        self._plan.tally.accepted[self._route.settings.name, place.name] += 1

    def seal(self, messages: list[Message]) -> None:
        """Close the slice: runs to remember, edits for the changelog, the offset to commit."""
        plan, partition = self._plan, self._partition
        for place in self._places.values():
            runs = place.draft.seal()
            if runs:
                plan.sealed.append(Sealed(partition, place.name, place.ring, runs))
                edits = plan.edits.setdefault(partition.changelog, [])
                edits += place.draft.edits(place.name, runs)
        plan.next_offsets[self._source] = (messages[-1].offset() or 0) + 1
        plan.times_ms[self._source] = self._time_ms
        plan.tally.consumed[self._route.settings.name] += len(messages)
        plan.tally.bytes_consumed[self._route.settings.name] += sum(map(len, messages))
        times = [message.timestamp()[1] for message in messages]
        known = [time_ms for time_ms in (plan.tally.oldest_ms, *times) if time_ms and time_ms > 0]
        plan.tally.oldest_ms = min(known, default=None)

    def _place(self, message: Message, headers: Headers) -> _Place:
        address = self._fixed_address
        if address is None:
            address = self._address(message, headers)
        return self._places.get(address) or self._open(address)

    def _address(self, message: Message, headers: Headers) -> str:
        try:
            address = self._route.address.render(message.key(), headers, "")
        except UnrenderableError as error:
            raise RejectedError(Reason.NO_ADDRESS, f"no address: {error}") from None
        if not address or len(address.encode()) > ADDRESS_BYTES_MAX:
            cause = f"the address is empty or longer than {ADDRESS_BYTES_MAX} bytes"
            raise RejectedError(Reason.NO_ADDRESS, cause)
        return address

    def _open(self, address: str) -> _Place:
        settings = self._rules.book.settings(address)
        store = self._partition.store
        assert store is not None  # only running partitions are read
        ring = self._rules.cache.ring(self._source, store, address)
        place = _Place(address, settings, ring, ring.draft(settings.id_cache_size))
        self._places[address] = place
        return place

    def _checked(self, message: Message, headers: Headers, place: _Place, claim: Claim) -> Headers:
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
            origin = place.draft.origin(number)
            cause = f"its id was accepted at {origin} already"
            raise RejectedError(Reason.DUPLICATE, cause, str(origin))
        if place.settings.id_cache_size:
            self._check_room(place)
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

    def _check_room(self, place: _Place) -> None:
        if place.name in self._partition.addresses or place.name in self._admitted:
            return
        if len(self._partition.addresses) + len(self._admitted) >= place.settings.addresses_max:
            cause = f"the partition holds {place.settings.addresses_max} addresses already"
            raise RejectedError(Reason.TOO_MANY_ADDRESSES, cause)

    def _output(self, message: Message, headers: Headers, place: _Place, timestamp: int) -> Output:
        refusal = self._rules.refused.get((self._source, message.offset() or 0))
        if refusal is not None:
            raise refusal
        name, target = self._target(self._route.output, message, headers, place.name)
        key, value = message.key(), message.value()
        if not self._rules.compressing:
            size = _size(key, value, headers)
            if size > target.record_bytes_max:
                cause = f"{size} bytes with its headers; {name} takes {target.record_bytes_max}"
                raise RejectedError(Reason.TOO_LARGE, cause)
        return (name, value, key, self._number(key, target), timestamp, headers)

    def _target(
        self, template: Template, message: Message, headers: Headers, address: str
    ) -> tuple[str, TopicInfo]:
        """The topic that a record goes to; RejectedError when the record itself names none."""
        name = template.constant
        if name is None:
            try:
                name = template.render(message.key(), headers, address)
            except UnrenderableError as error:
                raise RejectedError(Reason.NO_OUTPUT, str(error)) from None
            allowed = self._route.settings.allowed_outputs
            if not is_legal_topic(name) or name not in allowed:
                raise RejectedError(Reason.NO_OUTPUT, f"{name[:249]!r} is not an allowed output")
        return name, self._found(name)

    def _found(self, name: str) -> TopicInfo:
        target = self._rules.targets.find(name)
        if target is None:
            raise TargetMissingError(name)
        return target

    def _number(self, key: bytes | None, target: TopicInfo) -> int:
        """The input's partition where both topics have as many, else by key, else folded."""
        if target.partitions == self._partition.partitions:
            return self._source.partition
        return BY_KEY if key is not None else self._source.partition % target.partitions

    def _reject(
        self,
        message: Message,
        headers: Headers,
        place: _Place | None,
        claim: Claim,
        rejection: RejectedError,
    ) -> None:
        tally, route = self._plan.tally, self._route.settings.name
        if rejection.reason is Reason.DUPLICATE and place is not None:
            tally.duplicates[route, place.name] += 1
            if place.settings.on_duplicate == "drop":
                return
        address = None if place is None else place.name
        letter = envelope(message, headers, self._source, address, claim.identifier, rejection)
        tally.dead_letters[route, rejection.reason] += 1
        self._plan.outputs.append(self._dead_letter(message, headers, letter, place, rejection))

    def _dead_letter(
        self,
        message: Message,
        headers: Headers,
        letter: Headers,
        place: _Place | None,
        rejection: RejectedError,
    ) -> Output:
        """To the route's own topic where it takes the record whole, else to the fallback."""
        key, value = message.key(), message.value()
        try:
            if rejection.reason is Reason.NO_OUTPUT:
                raise rejection
            if (self._source, message.offset()) in self._rules.homeless:
                raise RejectedError(Reason.NO_OUTPUT, "its dead-letter topic refuses it")
            if place is None and self._route.dead_letter.constant is None:
                raise RejectedError(Reason.NO_OUTPUT, "no address, so no topic for it")
            address = place.name if place is not None else ""
            name, target = self._target(self._route.dead_letter, message, headers, address)
            if _size(key, value, letter) > target.record_bytes_max:
                raise RejectedError(Reason.TOO_LARGE, "too large with its envelope")
        except RejectedError:
            name = self._rules.fallback
            target = self._found(name)
        return (name, value, key, self._number(key, target), self._now_ms, letter)


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """What a record takes in a batch of its own, uncompressed; a little less than it really is."""
    size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, header in headers:
        size += 2 + len(name) + len(header or b"")
    return size
