"""Decider: turns a batch and the committed state into a plan, and changes nothing else.

The checks run in the contract's order: headers, address, claim, expiry, duplicate, target, size.
An exception that no check foresaw is blamed on the record, unless the store, the broker or the
machine raised it.
Invariants: every record of the batch has exactly one fate in the plan; only accepted ids are
remembered; dropping the plan is the abort.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Final, Literal

import structlog
from confluent_kafka import KafkaException, Message

from ringfence.headers import DeadLetter, Headers, Reason
from service.dedup.address import Places
from service.dedup.batch import Batch, Slice
from service.dedup.checks import Opened, Progress, Rules
from service.dedup.dead_letter import Letter, Mode
from service.dedup.evaluator import Columns, Desk
from service.dedup.output import TargetMissingError
from service.dedup.partition import Partition
from service.dedup.pending_groups import GroupName, GroupsDraft
from service.dedup.plan import NO_TIME_MS, Output, Plan, Sealed, Tally, acknowledged
from service.dedup.record import NOWHERE, Carried, Known, RejectedError, name_of, untraced
from service.dedup.repartition import Carrier
from service.dedup.route import Inlet, lost
from service.dedup.transaction_group import Grouping
from service.kafka.errors import Fault, FaultError, Remedy, without_frames
from state.cache import TooMuchAtOnceError
from state.keys import UnknownFormatError
from state.model import IMPORTED, NO_CLAIM, Claim, Edit, Origin, Rejection, Source
from state.pending_group import Parked
from state.segment import Digest
from state.store import StoreCorruptError, StoreFailedError
from state.strategies.per_publisher import PublishersDraft

Outcome = Literal["accepted", "refused", "waiting", "failed"]

_PLACE: Final = (DeadLetter.TOPIC.value, DeadLetter.PARTITION.value, DeadLetter.OFFSET.value)


class Misdirected(Exception):  # noqa: N818 - the letter is whole, and its way is not
    """A letter was sent to a partition that does not decide it."""


def redecided(
    letter: Letter,
    mode: Mode,
    offset: int,
    desk: Desk,
    grouping: Grouping,
    outputs: list[Output],
    tally: Tally,
) -> Outcome:
    """Give it its fate; what goes out for it is added to the outputs.

    `offset` stands for its place in the partition that decides.
    """
    if mode == "bypass":
        outcome = _bypassed(letter, desk)
    else:
        forgives = mode == "forget"
        outcome = _decided(letter, offset, desk, grouping, outputs, tally, forgives=forgives)
    tally.redriven[mode, outcome] += 1
    return outcome


def _bypassed(letter: Letter, desk: Desk) -> Outcome:
    checks, headers = desk.checks, list(letter.headers)
    try:
        checks.check_inlet()
        place = checks.place(letter, headers)
        target = checks.target(letter, headers, place)
    except RejectedError:
        return "failed"
    checks.pass_on(place, letter, headers, target, NO_CLAIM, None)
    return "accepted"


def _decided(
    letter: Letter,
    offset: int,
    desk: Desk,
    grouping: Grouping,
    outputs: list[Output],
    tally: Tally,
    *,
    forgives: bool,
) -> Outcome:
    letters, repeats, first = _letters(tally), tally.duplicates.total(), len(outputs)
    desk.fates.decide(letter, list(letter.headers), offset, grouping, forgives=forgives)
    if _letters(tally) > letters:
        _count_up(letter, outputs, first)
        return "refused"
    if len(outputs) > first:
        return "accepted"
    # Dropped, or told of before; else it waits for its group.
    return "refused" if tally.duplicates.total() > repeats else "waiting"


def _letters(tally: Tally) -> int:
    return tally.dead_letters.total()


def _count_up(letter: Letter, outputs: list[Output], first: int) -> None:
    """Tell in its new dead letter how often it was redriven; its group may have brought others."""
    place = (letter.topic.encode(), b"%d" % letter.partition, b"%d" % letter.own_offset)
    for row in range(first, len(outputs)):
        topic, value, key, partition, _, _, time_ms, headers = outputs[row]
        if _place_of(headers) == place:
            again = [*headers, (DeadLetter.REDRIVES.value, b"%d" % (letter.redrives + 1))]
            outputs[row] = (topic, value, key, partition, None, None, time_ms, again)


def _place_of(headers: Headers) -> tuple[bytes | None, ...]:
    """Where a dead letter says that it comes from: of several sets the last is ours."""
    told = dict(headers)
    return tuple(told.get(name) for name in _PLACE)


_CAUSE_CHARS_MAX: Final = 300

_OF_NO_RECORD: Final = (
    # The machine, the broker and the store.
    MemoryError,
    OSError,
    KafkaException,
    StoreCorruptError,
    StoreFailedError,
    UnknownFormatError,
    # A failed assert means that memory and store are not what they must be. A process that starts
    # again reads both from the changelog; this one would dead-letter record after record.
    AssertionError,
    # Raised on purpose: the loop knows what to do.
    FaultError,
    Misdirected,
    TargetMissingError,
    TooMuchAtOnceError,
)

_log = structlog.stdlib.get_logger(__name__)


class UndecidedError(FaultError):
    """A record could not be decided; which one is not known yet."""


@contextmanager
def blaming_records() -> Iterator[None]:
    """Raise UndecidedError for whatever nobody foresaw."""
    try:
        yield
    except _OF_NO_RECORD:
        raise
    except Exception as error:  # noqa: BLE001 - what a record holds may raise any
        raised = error
    else:
        return
    text = f"{type(raised).__name__}: {str(raised)[:_CAUSE_CHARS_MAX]}"
    cause = text.encode(errors="backslashreplace").decode()
    _log.error("record_not_decided", cause=cause, exc_info=raised)
    without_frames(raised)  # the client is called while it is kept
    fault = Fault(Remedy.ABORT, of_record=True, fenced=False, cause=cause, raised=raised)
    raise UndecidedError(fault)


def decide(batches: Iterable[Batch], rules: Rules, plan: Plan) -> Iterator[Sequence[Output]]:
    """Fill the plan for the batches of one transaction, read as it asks for them.

    Gives the outputs as soon as they are decided. Raises TargetMissingError for a target that is
    absent, and for one that nobody has asked for: refresh the targets and decide again.
    """
    deciders: dict[Source, _Decider | Carrier] = {}
    for batch in batches:
        plan.tally.bytes_read += batch.memory_bytes
        for part in batch.slices:
            source = part.partition.source
            decider = deciders.get(source)
            if decider is None:
                decider = deciders[source] = _decider(part.partition, rules, plan)
            # First: whatever comes of them, these were read.
            plan.next_offsets[source] = part.offsets[-1] + 1
            plan.tally.records_read += len(part.offsets)
            with blaming_records():
                outputs = decider.decide(part, batch.now_ms)
            yield outputs
    for decider in deciders.values():
        with blaming_records():
            outputs = list(decider.seal())
        yield outputs


def give_up(
    partition: Partition, groups: Sequence[GroupName], rules: Rules, plan: Plan, now_ms: int
) -> Iterator[Sequence[Output]]:
    """Fill the plan with what becomes of groups that have waited for too long; nothing is read."""
    decider = _Decider(partition, rules, plan)
    yield decider.give_up(groups, now_ms)
    plan.next_offsets[partition.source] = partition.next_offset
    yield decider.seal()


def place_publisher(
    partition: Partition,
    address: str,
    claim: Claim,
    writes: Source,
    rules: Rules,
    plan: Plan,
    missing: Iterable[int] = (),
) -> Iterator[Sequence[Output]]:
    """Fill the plan with a publisher standing where an administrator says; nothing is read.

    `writes` is the partition of an input that the publisher writes; see `PublishersDraft.place`.
    """
    decider = _Decider(partition, rules, plan)
    decider.place(address, claim, writes, missing)
    plan.next_offsets[partition.source] = partition.next_offset
    yield decider.seal()


def import_ids(
    partition: Partition,
    address: str,
    ids: Sequence[Known],
    rules: Rules,
    plan: Plan,
    now_ms: int,
) -> Iterator[Sequence[Output]]:
    """Fill the plan with ids that an address is to know; what it knows already stays.

    Each names the topic and the partition that its offset belongs to.
    """
    decider = _Decider(partition, rules, plan)
    plan.times_ms[partition.source] = decider.remember(address, ids, now_ms)
    plan.next_offsets[partition.source] = partition.next_offset
    yield decider.seal()


def identifier_of(known: Known) -> bytes:
    """An id that was told, as a strategy takes it."""
    return Digest(known.identifier) if known.hashed else known.identifier


def resettle(
    partition: Partition, caches: Iterable[str], rules: Rules, plan: Plan
) -> Iterator[Sequence[Output]]:
    """Fill the plan with what new settings make of caches that are held; nothing is read."""
    decider = _Decider(partition, rules, plan)
    for cache in caches:
        decider.resettle(cache)
    plan.next_offsets[partition.source] = partition.next_offset
    yield decider.seal()


def redrive(
    partition: Partition,
    letters: Iterable[Letter],
    mode: Mode,
    rules: Rules,
    plan: Plan,
    now_ms: int,
    outcomes: list[Outcome],
) -> Iterator[Sequence[Output]]:
    """Fill the plan with what becomes of dead letters; nothing is read.

    Adds what became of each to `outcomes`. Misdirected for a letter that others decide.
    """
    decider = _Decider(partition, rules, plan)
    with blaming_records():
        outputs = decider.redrive(letters, mode, now_ms, outcomes)
    yield outputs
    plan.next_offsets[partition.source] = partition.next_offset
    with blaming_records():
        acknowledgements = decider.seal()
    yield acknowledgements


def _decider(partition: Partition, rules: Rules, plan: Plan) -> "_Decider | Carrier":
    if partition.changelog is None:
        return Carrier(partition, rules, plan)
    return _Decider(partition, rules, plan)


class _Decider:
    """The records of one partition, in order, on drafts over its committed rings."""

    def __init__(self, partition: Partition, rules: Rules, plan: Plan) -> None:
        self._partition = partition
        self._source = partition.source
        self._rules = rules
        self._plan = plan
        self._groups = GroupsDraft(
            partition.groups,
            partition.kept_store,
            lambda size_bytes: plan.release(size_bytes, rules.batch_bytes_max),
        )
        self._places = Places(partition, rules.book, rules.cache, self._groups.waiting)
        self._progress = Progress(partition.source, partition.time_ms)
        self._desks: dict[bytes, Desk] = {}
        """By the inlet as records tell it; of those that tell none there is one."""
        self._lost: list[bytes] = []
        """Inlets that belong to no route."""
        self._routes: dict[Source, str] = {}
        """The names of their routes."""

    def decide(self, part: Slice, now_ms: int) -> list[Output]:
        """Give every record its fate, in order; what goes out for it."""
        progress = self._progress
        progress.outputs, progress.now_ms = [], now_ms
        self._doubt_the_lost()
        column = part.headers
        if self._plan.look is not None:
            self._plan.look(column)
        times_ms = [timestamp for _, timestamp in map(Message.timestamp, part.messages)]
        offsets, sizes_bytes = part.offsets, part.sizes_bytes
        columns = Columns(part.messages, offsets, offsets, times_ms, column, sizes_bytes)
        tally, size_bytes_max = self._plan.tally, max(sizes_bytes)
        grouping = self._grouping()
        failure = self._rules.placing.failure(self._source, offsets)
        for desk, rows in self._by_desk(columns):
            if failure is None:
                desk.lanes.make_room(size_bytes_max)
                desk.decide(rows, grouping)
            else:
                desk.fail(rows, grouping, failure.why)
            tally.consumed[desk.route] += len(rows.messages)
            tally.bytes_consumed[desk.route] += sum(rows.sizes_bytes)
        self._delete_outlived()
        self._count(times_ms)
        return progress.outputs

    def give_up(self, groups: Sequence[GroupName], now_ms: int) -> list[Output]:
        """Dead-letter what waits in these groups."""
        progress = self._progress
        progress.outputs, progress.now_ms = [], now_ms
        grouping = self._grouping()
        for name in groups:
            timeout_ms = self._places.at(name.address).settings.group_timeout_ms
            cause = f"its group was not complete after group_timeout_ms, {timeout_ms} ms"
            records = grouping.give_up(name, Rejection(Reason.GROUP_INCOMPLETE, cause))
            self._plan.given_up |= {(self._source, record.own_offset) for record in records}
        return progress.outputs

    def redrive(
        self, letters: Iterable[Letter], mode: Mode, now_ms: int, outcomes: list[Outcome]
    ) -> list[Output]:
        """See `redrive`."""
        progress, partition = self._progress, self._partition
        progress.outputs, progress.now_ms = [], now_ms
        grouping, outputs, tally = self._grouping(), progress.outputs, self._plan.tally
        for letter in letters:
            # What was passed on by address has no place here any more: the last one stands for it.
            offset = letter.own_offset if partition.inlet else max(0, partition.next_offset - 1)
            desk = self._desk(NOWHERE if partition.inlet else name_of(letter.source))
            self._check_home(letter, desk)
            outcome = redecided(letter, mode, offset, desk, grouping, outputs, tally)
            outcomes.append(outcome)
        return progress.outputs

    def _check_home(self, letter: Letter, desk: Desk) -> None:
        by_address = self._rules.by_address
        home, inlet = letter.source, desk.inlet
        if self._partition.inlet is None:
            with suppress(RejectedError):  # which will be told of the letter itself
                home = self._source
                address = inlet.address(letter.own_key, letter.headers)
                home = Source(by_address.topic, by_address.partition_of(address))
        if home != self._source and inlet.fault is None:
            raise Misdirected(f"{home.topic}-{home.partition} decides a letter sent to another.")

    def place(self, address: str, claim: Claim, writes: Source, missing: Iterable[int]) -> None:
        """See `place_publisher`."""
        place = self._places.at(address)
        assert isinstance(place.draft, PublishersDraft)  # the settings were looked at
        place.draft.place(claim, Origin(*writes, 0, self._progress.time_ms), missing)

    def remember(self, address: str, ids: Sequence[Known], now_ms: int) -> int:
        """See `import_ids`; the partition's time after it, as if their records had come."""
        place = self._places.at(address)
        self._places.check_room(place)
        told_ms = [min(known.time_ms, now_ms) for known in ids if known.time_ms]
        time_ms = max([self._progress.time_ms, *told_ms]) or now_ms
        for known in ids:
            claim = Claim(identifier=identifier_of(known))
            offset = IMPORTED if known.offset is None else known.offset
            at = Origin(known.topic or "", known.partition or 0, offset, time_ms)
            if place.draft.verdict(claim, at) is None:
                at_ms = time_ms if known.time_ms is None else min(known.time_ms, time_ms)
                place.draft.remember(claim, at._replace(time_ms=at_ms))
        return time_ms

    def resettle(self, cache: str) -> None:
        """See `resettle`."""
        place = self._places.of_cache(cache)
        foreign = self._partition.foreign(place.settings, place.strategy.kind, cache)
        self._write(foreign.kept)
        self._places.volatile += foreign.volatile

    def seal(self) -> list[Output]:
        """Close the drafts: what to remember, edits for the changelog, and acknowledgements."""
        plan, partition = self._plan, self._partition
        accepted, edits = plan.tally.accepted, self._places.deletions()
        for place in self._places:
            if not place.is_audit:
                for source, count in place.draft.accepted().items():
                    route = self._routes.get(source)
                    if route is not None:  # else it was imported
                        accepted[route, place.name] += count
            change = place.draft.change(place.cache)
            if change is not None:
                plan.sealed.append(Sealed(partition, place.cache, place.memory, change.content))
                self._places.write(place, change.edits, edits)
            self._places.write(place, self._places.forgettings(place), edits)
        if self._groups.change:
            edits += self._groups.edits()
            plan.groups[self._source] = self._groups.change
        self._write(edits)
        if self._places.volatile:
            plan.volatile[self._source] = self._places.volatile
        for desk in self._desks.values():
            desk.lanes.count(plan.tally)
        return acknowledged(self._rules.group_id, self._places, self._progress.now_ms)

    def _grouping(self) -> Grouping:
        """What decides groups, for as long as one call takes.

        It refers to this decider. If this kept it, each transaction would leave a cycle behind,
        with all that goes out for its last records, until the next search for cycles.
        """
        return Grouping(self._groups, self._places, self._opened)

    def _opened(self, parked: Parked) -> Opened:
        """A record that waited, as its inlet has it."""
        if self._partition.inlet is not None:
            return Opened(self._desk(NOWHERE).checks, parked, parked.headers)
        (inlet,), (own_offset,), (headers,) = untraced([parked.headers])
        record = Carried(parked, own_offset)
        return Opened(self._desk(inlet).checks, record, headers or ())

    def _by_desk(self, columns: Columns) -> Iterator[tuple[Desk, Columns]]:
        """Runs of records that came from one inlet, in order."""
        if self._partition.inlet is not None:
            yield self._desk(NOWHERE), columns
            return
        inlets, own_offsets, headers = untraced(columns.headers)
        start = 0
        for inlet, same in groupby(inlets):
            rows = slice(start, start + len(list(same)))
            start = rows.stop
            offsets = columns.offsets[rows]
            yield (
                self._desk(inlet),
                Columns(
                    messages=columns.messages[rows],
                    offsets=offsets,
                    own_offsets=offsets if inlet == NOWHERE else own_offsets[rows],
                    times_ms=columns.times_ms[rows],
                    headers=headers[rows],
                    sizes_bytes=columns.sizes_bytes[rows],
                ),
            )

    def _desk(self, written: bytes) -> Desk:
        desk = self._desks.get(written)
        if desk is None:
            inlet = self._inlet(written)
            parts = (self._rules, self._plan.tally, self._places, self._progress)
            desk = self._desks[written] = Desk(inlet, *parts)
            self._routes[inlet.source] = desk.route
            if inlet.fault is not None:
                self._lost.append(written)
        return desk

    def _doubt_the_lost(self) -> None:
        """What belongs to no route may belong to one by the next slice, which came later."""
        for written in self._lost:
            del self._desks[written]
        self._lost.clear()

    def _inlet(self, written: bytes) -> Inlet:
        if self._partition.inlet is not None:
            return self._partition.inlet
        if written == NOWHERE:
            return lost(self._source, "it does not tell which input it came from")
        return self._rules.inlets(written)

    def _count(self, times_ms: list[int]) -> None:
        """How far time has come."""
        plan, tally = self._plan, self._plan.tally
        plan.times_ms[self._source] = self._progress.time_ms
        oldest_ms = min(times_ms)
        if oldest_ms <= 0:
            oldest_ms = min((time for time in times_ms if time > 0), default=NO_TIME_MS)
        tally.oldest_ms = min(tally.oldest_ms, oldest_ms)
        newest_ms = max(times_ms)
        tally.newest_ms = max(tally.newest_ms, newest_ms)

    def _delete_outlived(self) -> None:
        """Write tombstones with the first records.

        So the changelog's partition joins the transaction while there is still something to
        decide, and the end need not wait for it.
        """
        self._write(self._places.deletions())

    def _write(self, edits: list[Edit]) -> None:
        changelog = self._partition.changelog
        assert changelog is not None  # it decides
        if edits:
            self._plan.edits.setdefault(changelog, []).extend(edits)
