"""Model: what had to become of each record, by the slowest obvious rule.

The model knows the input, the transactions' batches (who committed which offsets, in order) and
the ring sizes of each life. It resizes the ring of an address when a batch first touches it.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import murmur2

from ringfence_client.headers import BOOKMARK, DUPLICATE_ID, MARK, Headers, Reason, bookmark
from ringfence_service.config.addresses import AUDIT, BRIDGE
from ringfence_service.dedup.claim import is_stamp
from ringfence_service.queries.ids import ClearAddress, ForgetId, ImportIds
from ringfence_state.model import NO_CLAIM, Claim, PartitionId
from ringfence_state.segment import FORGOTTEN
from tests.oracle.model import DequeRing
from tests.simulation.registry import CAUSES, REGISTERED_LATE, UNKNOWN_CAUSE
from tests.simulation.rules import (
    GROUP_SIZE_MAX,
    GROUPS_MAX,
    PRODUCERS,
    RULES,
    WINDOW_SIZE,
    Answer,
    Rule,
    Window,
)
from tests.simulation.scenario import (
    DEFAULT_SIZE,
    GROUP,
    HEADERS_MAX,
    OUTPUT_LIMIT_BYTES,
    Scenario,
    Sent,
)

Place = tuple[str, int, int]
Change = ImportIds | ForgetId | ClearAddress


class Expected(NamedTuple):
    """Let through when there is no reason, marked when it repeats; dropped: it leaves no trace."""

    reason: Reason | None = None
    original: str | None = None
    dropped: bool = False
    added: Headers = ()
    """What it carries besides, where it is let through."""
    cause: str = ""
    """What its dead letter says, where one can tell."""


def named(place: Place) -> str:
    """Return a place as it is reported."""
    return "{}-{}@{}".format(*place)


@dataclass
class Held:
    """One ring with the place that each id was accepted at."""

    ring: DequeRing
    origins: dict[bytes, str | None]
    forgets = True

    def judge(self, claim: Claim, _time_ms: int, _place: str) -> Answer:
        identifier = claim.identifier or b""
        if not self.ring.judge(identifier):
            return Answer()
        return Answer(Reason.DUPLICATE, self.origins[identifier])

    def accept(self, claim: Claim, _time_ms: int, place: str) -> None:
        self._remember(claim.identifier or b"", place)

    def know(self, identifier: bytes, place: str | None) -> None:
        """It was imported, with the place of its record or without."""
        if not self.ring.judge(identifier):
            self._remember(identifier, place)

    def _remember(self, identifier: bytes, place: str | None) -> None:
        self.ring.remember(identifier)
        self.origins[identifier] = place


@dataclass
class Waiting:
    """A transaction group that lacks something: the places of what is there, by position."""

    size: int
    begun: int
    places: dict[int, Place] = field(default_factory=dict)


class Model:
    """Replays the batches of one partition after another."""

    def __init__(
        self, case: Scenario, sent: dict[Place, Sent], carried: Mapping[Place, Place]
    ) -> None:
        """`carried` tells of what was passed on where it came from."""
        self._case = case
        self._sent = sent
        self._carried = carried
        self._source = PartitionId("", 0)
        """The partition that decides."""
        self.expected: dict[Place, Expected] = {}
        self.rings: dict[tuple[PartitionId, str], Held] = {}
        self._rules: dict[tuple[PartitionId, str], Rule] = {}
        self._strategies: dict[tuple[PartitionId, str], str] = {}
        """Where it is not the one of the file."""
        self._told: dict[tuple[PartitionId, str], DequeRing] = {}
        self._told_in_time: dict[tuple[PartitionId, str], Window] = {}
        self._times_ms: dict[PartitionId, int] = {}
        self.sizes: dict[str, int] = {}
        """Of rings, by which is decided."""
        self.is_routed: Callable[[Place], bool] = lambda _place: True
        """Whether a record's input has a route."""
        self.has_found_no_schema: Callable[[Place], bool] = lambda _place: False
        """Whether a record was decided before its schema was registered, or had been known."""
        self._touched: set[str] = set()
        self._epochs: Mapping[str, int] = {}
        self.waiting: dict[tuple[PartitionId, str, bytes], Waiting] = {}
        self.effects: dict[Place, tuple[int, int]] = {}
        self.deciders: dict[Place, PartitionId] = {}
        """When a record took effect: at which offset, and those of a group in which order."""

    def resize(
        self,
        source: PartitionId,
        before: Mapping[str, int],
        after: Mapping[str, int],
        written: Container[str] | None = None,
    ) -> None:
        """What new settings imply for a deciding partition was committed.

        For all that it holds, or for the caches that were written alone: newer settings may come
        before the others are.
        """

        def is_meant(place: tuple[PartitionId, str], cache: str) -> bool:
            if written is not None:
                return place[0] == source and cache in written
            sizes = (self._size(place[1], each) for each in (before, after))
            return place[0] == source and len({*sizes}) > 1

        for held, ring in self.rings.items():
            if is_meant(held, held[1]):
                ring.ring.resize(self._size(held[1], after))
        for told, audit in self._told.items():
            if is_meant(told, AUDIT + told[1]):
                self.sizes = dict(after)
                audit.resize(self._audited(told[1]))

    def use(self, source: PartitionId, strategies: Mapping[str, str]) -> None:
        """A deciding partition goes by these strategies: a new one begins from nothing."""
        for address, strategy in strategies.items():
            place = (source, address)
            if self._strategies.get(place, self._case.strategy) != strategy:
                self._strategies[place] = strategy
                self._rules.pop(place, None)
                self.rings.pop(place, None)

    def change(self, source: PartitionId, query: Change) -> None:
        """An administrator's change was committed for a deciding partition."""
        held = self._held(source, query.address)
        if isinstance(query, ClearAddress):
            held.ring.clear()
        elif isinstance(query, ForgetId):
            held.ring.forget(query.identifier, FORGOTTEN)  # its place is not free
        else:
            held.ring.resize(self._size(query.address, self.sizes))
            for known in query.ids:
                if not self._is_here(source, query.address, known.identifier):
                    continue
                place = (query.topic or "", query.partition or 0, known.offset or 0)
                held.know(known.identifier, None if known.offset is None else named(place))

    def _is_here(self, source: PartitionId, address: str, identifier: bytes) -> bool:
        """Whether a deciding partition of an address gets the records with an id."""
        key = b"%b\0i%b" % (address.encode(), identifier)
        return self._case.shares == 1 or murmur2(key, self._case.shares) == source.partition

    def batch(self, source: PartitionId, start: int, end: int, epochs: Mapping[str, int]) -> None:
        """Decide the offsets from `start` up to `end` in one batch.

        `epochs` are those of the sessions that were open for it; `sizes` and `is_routed` as set.
        """
        self._source, self._epochs = source, epochs
        self._touched = set()
        for at, place, sent in self._records(source, start, end):
            self.effects[place], self.deciders[place] = (at, 0), self._source
            if not self.is_routed(place):
                self._pass_time(source, sent)
                self.expected[place] = Expected(Reason.NO_OUTPUT)
                continue
            if sent.address is not None:
                self._touch(source, sent.address)
            time_ms = self._pass_time(source, sent)
            if sent.member is not None and self._joins(sent):
                self._join(place, sent, sent.member, at, time_ms)
            else:
                self.expected[place] = self._judge(place, sent, time_ms)

    def _pass_time(self, source: PartitionId, sent: Sent) -> int:
        time_ms = max(self._times_ms.get(source, 0), sent.record.timestamp_ms)
        self._times_ms[source] = time_ms
        return time_ms

    def _touch(self, source: PartitionId, address: str) -> None:
        if address not in self._touched:
            self._touched.add(address)
            self._held(source, address).ring.resize(self._size(address, self.sizes))

    def _joins(self, sent: Sent) -> bool:
        fenced = self._is_fenced(sent)
        return sent.address is not None and sent.valid and not sent.expired and not fenced

    def _is_fenced(self, sent: Sent) -> bool:
        return sent.epoch < self._epochs.get(sent.said.publisher or "", 0)

    def _join(
        self, place: Place, sent: Sent, member: tuple[bytes, int, int], at: int, time_ms: int
    ) -> None:
        group, size, position = member
        source, address = self._source, sent.address or ""
        known = self.waiting.get((source, address, group))
        if size > GROUP_SIZE_MAX or len(sent.record.headers or []) > HEADERS_MAX:
            self.expected[place] = Expected(Reason.GROUP_TOO_LARGE)
            return
        if known is not None and known.size != size:
            self.expected[place] = Expected(Reason.INVALID_CLAIM)
            return
        name = (source, address, group)
        waiting = self.waiting.setdefault(name, Waiting(size, at))
        if position in waiting.places:
            dropped = self._case.on_duplicate == "drop"
            repeats = Expected(Reason.DUPLICATE, named(place), dropped)
            self.expected[waiting.places[position]] = repeats
        waiting.places[position] = place
        mine = [name for name in self.waiting if name[:2] == (source, address)]
        if len(waiting.places) == size:
            del self.waiting[name]
            self._judge_group([waiting.places[n] for n in range(1, size + 1)], at, time_ms)
        elif len(mine) > GROUPS_MAX:
            eldest = min(mine, key=lambda name: self.waiting[name].begun)
            for given_up in self.waiting.pop(eldest).places.values():
                self.expected[given_up] = Expected(Reason.GROUP_INCOMPLETE)

    def _judge_group(self, places: list[Place], closed_by: int, time_ms: int) -> None:
        """All of them, as if they came one after the other now."""
        for position, place in enumerate(places):
            self.effects[place], self.deciders[place] = (closed_by, position), self._source
        everything = [self._sent[place] for place in places]
        if any(map(self._is_fenced, everything)):
            self.expected |= dict.fromkeys(places, Expected(Reason.NAME_IN_USE))
            return
        rule = self._rule(everything[0].address or "")
        claims = [self._claim(None, sent) for sent in everything]
        answers = self._answers(rule, claims, places, time_ms)
        for place, claim in zip(places, claims, strict=True):
            if claim is not None:
                rule.judge(claim, time_ms, named(place))  # a known one counts as seen again
        fate = self._fate_of_group(everything, claims, answers)
        if fate is not None:
            for place, sent, claim in zip(places, everything, claims, strict=True):
                is_repeated = fate.reason is Reason.DUPLICATE_IN_GROUP
                dropped = is_repeated and self._is_silent(sent, claim, fate.original)
                self.expected[place] = fate._replace(dropped=dropped)
            return
        anonymous = not any(claims)
        for place, sent, claim, answer in zip(places, everything, claims, answers, strict=True):
            told = self._claim(place, sent)
            said = told if anonymous else told or NO_CLAIM
            self.expected[place] = Expected(added=self._added(place, sent, said, answer))
            if claim is not None and answer.reason is None:
                rule.accept(claim, time_ms, named(place))

    def _answers(
        self, rule: Rule, claims: list[Claim | None], places: list[Place], time_ms: int
    ) -> list[Answer]:
        """The answer to each, if those before it were let through."""
        trial = deepcopy(rule)
        trial.forgets = False
        if isinstance(trial, Held) and trial.ring.capacity:
            trial.ring.resize(10**6)
        before = deepcopy(rule)
        own = {named(place) for place in places}
        answers = []
        for place, claim in zip(places, claims, strict=True):
            answer = Answer() if claim is None else trial.judge(claim, time_ms, named(place))
            if claim is not None and answer.reason is None:
                trial.accept(claim, time_ms, named(place))
            # An import may have named the very place that a record of the group has.
            is_known = claim is not None and before.judge(claim, time_ms, named(place)) == answer
            is_within = answer.original in own and not is_known
            answers.append(Answer(answer.reason, None) if is_within else answer)
        return answers

    def _fate_of_group(
        self, everything: list[Sent], claims: list[Claim | None], answers: list[Answer]
    ) -> Expected | None:
        """Why none of them goes out, if so."""
        marks = self._case.on_duplicate == "mark"
        for answer in answers:
            if answer.reason is Reason.DUPLICATE and not marks:
                return Expected(Reason.DUPLICATE_IN_GROUP, answer.original)
            if answer.reason not in {None, Reason.DUPLICATE}:
                return Expected(*answer)
        counts = self._case.strategy == "sequence"
        if not any(claims) and self._case.missing_id == "dead_letter" and not counts:
            return Expected(Reason.MISSING_ID)
        if any(len(sent.record.value or b"") >= OUTPUT_LIMIT_BYTES for sent in everything):
            return Expected(Reason.TOO_LARGE)
        return None

    def _records(
        self, source: PartitionId, start: int, end: int
    ) -> Iterator[tuple[int, Place, Sent]]:
        for offset in range(start, end):
            at = (*source, offset)
            place = at if self._case.scope == "partition" else self._carried.get(at)
            if place is not None:  # else a marker stands there
                yield offset, place, self._sent[place]

    def _held(self, source: PartitionId, address: str) -> Held:
        return self.rings.setdefault((source, address), Held(DequeRing(0), {}))

    def _judge(self, place: Place, sent: Sent, time_ms: int) -> Expected:
        fault = self._fault(place, sent)
        if fault is not None:
            return fault
        self._touch(self._source, _cache(sent))
        rule = self._rule(_cache(sent))
        claim = self._claim(place, sent)
        is_alone = sent.member is None
        if claim is None and is_alone and self._case.missing_id == "dead_letter":
            return Expected(Reason.MISSING_ID)
        if sent.expired:
            return Expected(Reason.EXPIRED)
        answer = Answer() if claim is None else rule.judge(claim, time_ms, named(place))
        marked = answer.reason is Reason.DUPLICATE and self._case.on_duplicate == "mark"
        if answer.reason is not None and not marked:
            is_repeated = answer.reason is Reason.DUPLICATE
            dropped = is_repeated and self._is_silent(sent, claim, answer.original)
            return Expected(*answer, dropped)
        added = self._added(place, sent, claim, answer)
        if len(sent.record.value or b"") >= OUTPUT_LIMIT_BYTES:
            return Expected(Reason.TOO_LARGE)
        if sent.refused:
            return Expected(Reason.REFUSED)
        if claim is not None and not marked:
            rule.accept(claim, time_ms, named(place))
        return Expected(added=added)

    def _fault(self, place: Place, sent: Sent) -> Expected | None:
        """Why a record is no matter for a rule, if so."""
        if sent.address is None:
            return Expected(Reason.NO_ADDRESS)
        if not sent.valid:
            return Expected(Reason.INVALID_CLAIM)
        if self._is_fenced(sent):
            return Expected(Reason.NAME_IN_USE)
        if sent.schema in CAUSES:
            return Expected(Reason.MISSING_ID, cause=CAUSES[sent.schema])
        if sent.schema == REGISTERED_LATE and self.has_found_no_schema(place):
            # With scope `id` it may have been registered when the second hop read it.
            return Expected(Reason.MISSING_ID, cause=UNKNOWN_CAUSE * (self._case.scope != "id"))
        return None

    def _is_silent(self, sent: Sent, claim: Claim | None, original: str | None) -> bool:
        """Whether a duplicate leaves no trace: it is dropped, or was dead-lettered before."""
        if self._case.on_duplicate == "drop" or not self._case.audited or claim is None:
            return self._case.on_duplicate == "drop"
        publisher = None if self._case.strategy == "ring" else claim.publisher
        name = repr((original, publisher, claim.number or claim.identifier)).encode()
        if self._case.strategy == "window":
            return self._is_in_window(sent, Claim(identifier=name))
        told = self._told.setdefault((self._source, _cache(sent)), DequeRing(0))
        told.resize(self._audited(_cache(sent)))
        if told.judge(name):
            return True
        told.remember(name)
        return False

    def _is_in_window(self, sent: Sent, name: Claim) -> bool:
        """The same for a window, where a hit renews the entry of what was reported."""
        place, time_ms = (self._source, sent.address or ""), self._times_ms[self._source]
        told = self._told_in_time.setdefault(place, Window(2 * WINDOW_SIZE))
        is_known = told.judge(name, time_ms, "").reason is not None
        if not is_known:
            told.accept(name, time_ms, "")
        return is_known

    def _audited(self, address: str) -> int:
        """The size of the ring of what was reported."""
        rooms = {"audit": PRODUCERS, "ring": _whole_size(address, self.sizes)}
        is_divided = self._case.strategy == "ring"
        room = 2 * rooms.get(self._case.strategy, 10**6)
        return self._share(room) if is_divided else room

    def _size(self, cache: str, sizes: Mapping[str, int]) -> int:
        return self._share(_whole_size(cache, sizes))

    def _share(self, size: int) -> int:
        """The size of one partition's ring."""
        return -(-size // self._case.shares)

    def _rule(self, address: str) -> Rule:
        place = (self._source, address)
        strategy = self._strategies.get(place, self._case.strategy)
        if strategy == "ring":
            return self._held(*place)
        return self._rules.setdefault(place, RULES[strategy]())

    def _claim(self, place: Place | None, sent: Sent) -> Claim | None:
        """The claim that the strategy is given, if any. A place may stand for a number."""
        said, strategy = sent.said, self._case.strategy
        if strategy in {"ring", "window"}:
            claim = Claim(identifier=sent.identifier, publisher=said.publisher)
            return None if sent.identifier is None else claim
        is_told = bool(said.number) and said.publisher is not None
        if strategy == "sequence" and not is_told and place is not None:
            name = f"{said.publisher or ''}@{GROUP}/{place[0]}/{place[1]}"
            return Claim(publisher=name, number=place[2] + 1)
        return said if is_told else None

    def _added(self, place: Place, sent: Sent, claim: Claim | None, answer: Answer) -> Headers:
        added: list[tuple[str, bytes | None]] = []
        if claim is None and sent.identifier is None and self._case.missing_id == "stamp":
            added.append((DUPLICATE_ID, "fake-cluster/{}/{}/{}".format(*place).encode()))
        told = claim or NO_CLAIM
        if self._case.strategy == "sequence" and told.number:
            added.append((BOOKMARK, bookmark(told.publisher or "", told.number or 0)))
        if answer.reason is not None:
            added.append((MARK, (answer.original or "").encode()))
        return added


def _cache(sent: Sent) -> str:
    """What remembers a record: its address, or beside it what was stamped on its way.

    An id that the route has from somewhere else than the headers was not stamped.
    """
    is_bridged = is_stamp(sent.identifier) and sent.member is None and not sent.schema
    return (BRIDGE if is_bridged else "") + (sent.address or "")


def _whole_size(cache: str, sizes: Mapping[str, int]) -> int:
    """The ring size of a cache: what was stamped has a name of its own, which no setting names."""
    return DEFAULT_SIZE if cache.startswith(BRIDGE) else sizes[cache]
