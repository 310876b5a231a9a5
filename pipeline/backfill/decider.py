"""Judge: the records of one deciding partition, in order, each given the verdict of the service.

The checks are the service's own (`service/dedup/evaluator.py`), in its own order, on the same
strategies; here is only who asks them without a broker. So what a broker alone knows is not
judged: whether the target exists and takes a record of that size, which sessions are open, and how
long a group has waited. Expiry is judged at the time that is told as now.

A record that waits for its group has no verdict before the group has one.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pipeline.backfill.inputs import Inputs
from pipeline.backfill.paged_store import Shelves, Standing
from ringfence.headers import Headers
from service.dedup.address import Place, Places
from service.dedup.checks import Checks, Opened, Progress, Rules
from service.dedup.claim import Identifier, identifier_of, plain_ids
from service.dedup.evaluator import Fates, Lanes
from service.dedup.output import Target
from service.dedup.partition import Partition, Phase
from service.dedup.pending_groups import Groups, GroupsDraft
from service.dedup.plan import Tally
from service.dedup.record import Carried, Record, source_of, untraced
from service.dedup.route import Inlet
from service.dedup.transaction_group import Grouping
from state.cache import Cache
from state.model import Claim, Rejection, Source, repetition_of
from state.pending_group import Parked

ACCEPTED: Final = "accepted"

_NO_LOG: Final = Source("", 0)


class Row(NamedTuple):
    """A record as the service reads it; see `Record`."""

    source: Source
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


class Verdict(NamedTuple):
    """What became of one record."""

    source: Source
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


class Judge:
    """See the module. Made anew for each batch: what it remembers is on the shelves."""

    def __init__(self, decider: Source, inputs: Inputs, shelves: Shelves, now_ms: int) -> None:
        self._inputs = inputs
        self._shelves = shelves
        self._position = shelves.standing.position
        own = inputs.inlet(decider)
        self._partition = Partition(
            source=decider,
            inlet=own,
            changelog=_NO_LOG,
            phase=Phase.RUNNING,
            store=shelves,
            time_ms=shelves.standing.time_ms,
            addresses=shelves.addresses,
            groups=Groups.of(shelves),
        )
        self._rules = inputs.rules(Cache(inputs.cache_memory_bytes))
        self._groups = GroupsDraft(self._partition.groups, shelves)
        waiting = self._groups.waiting
        self._places = Places(self._partition, self._rules.book, self._rules.cache, waiting)
        self._progress = Progress(decider, shelves.standing.time_ms, now_ms)
        self._findings = _Findings()
        self._desks: dict[Source, _Desk] = {}

    def judge(self, rows: Sequence[Row]) -> list[Verdict]:
        """The verdicts on these records, which come in the order in which they are decided."""
        findings = self._findings
        findings.verdicts = []
        # Not kept: it refers to this judge, and would keep all of a batch alive with it.
        grouping = Grouping(self._groups, self._places, self._opened)
        for source, start, end in _runs(rows):
            self._desk(source).judge(rows[start:end], self._position + start, grouping)
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
        self._shelves.save(Standing(self._position, self._progress.time_ms))

    def _desk(self, source: Source) -> "_Desk":
        desk = self._desks.get(source)
        if desk is None:
            inlet = self._inputs.inlet_of(source)
            checks = _Checks(inlet, self._rules, self._places, self._progress, self._findings)
            desk = self._desks[source] = _Desk(
                inlet, checks, self._rules, self._places, self._progress
            )
        return desk

    def _opened(self, parked: Parked) -> Opened:
        """A record that waited, as its inlet has it."""
        if self._partition.inlet is not None:
            desk = self._desk(self._partition.source)
            return Opened(desk.checks, parked, parked.headers)
        (inlet,), (own_offset,), (headers,) = untraced([parked.headers])
        source = source_of(inlet)
        assert source is not None  # it was parked by us, with its trace
        return Opened(self._desk(source).checks, Carried(parked, own_offset), headers or ())


def _runs(rows: Sequence[Row]) -> Iterator[tuple[Source, int, int]]:
    """Records that follow each other and come from one inlet."""
    start = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or rows[at].source != rows[start].source:
            yield rows[start].source, start, at
            start = at


class _Findings:
    """What was found of the records of one batch; all inlets share it."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self.position = 0
        """Of the record at hand."""


class _Checks(Checks):
    """The service's checks, which tell of a verdict what the service writes to topics."""

    def __init__(
        self,
        inlet: Inlet,
        rules: Rules,
        places: Places,
        progress: Progress,
        findings: _Findings,
    ) -> None:
        super().__init__(inlet, rules, Tally(), places, progress)
        self.findings = findings
        self._of = inlet.source
        self._at = progress

    def pass_on(
        self,
        place: Place,
        record: Record,
        headers: Headers,
        target: Target,
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
        place: Place | None,
        claim: Claim,
        why: Rejection,
        blamed: int,
    ) -> None:
        """See `Checks.reject`: no letter is written."""
        del headers, blamed
        self._note(place, record, claim, why)

    def _note(
        self, place: Place | None, record: Record, claim: Claim, why: Rejection | None
    ) -> None:
        self.findings.verdicts.append(
            Verdict(
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


class _Desk:
    """The records of one inlet: plain ones by their lane, as the service has it, or by fates."""

    def __init__(
        self,
        inlet: Inlet,
        checks: _Checks,
        rules: Rules,
        places: Places,
        progress: Progress,
    ) -> None:
        self.checks = checks
        self._is_own = inlet.source == progress.source
        self._base = places.spots.base(inlet.source)
        self._lanes = Lanes(inlet, places, rules.placing)
        self._fates = Fates(places, checks)
        self._identifier = identifier_of(inlet.route.settings.id)
        self._progress = progress

    def judge(self, rows: Sequence[Row], position: int, grouping: Grouping) -> None:
        """Every record that follows, the first of which is to be decided at this position."""
        progress, lanes, base = self._progress, self._lanes, self._base
        findings = self.checks.findings
        now_ms, time_ms, note = progress.now_ms, progress.time_ms, findings.verdicts.append
        lanes.make_room(1)
        ids = _plain_ids(rows, self._identifier)
        for at, (row, identifier) in enumerate(zip(rows, ids, strict=True), position):
            source, offset, timestamp_ms, key, _, headers = row
            if timestamp_ms > time_ms:
                time_ms = timestamp_ms if timestamp_ms <= now_ms else max(time_ms, now_ms)
            lane = None
            if identifier is not None and timestamp_ms > 0:
                named = None if lanes.field is None else lanes.field.of(key, headers)
                lane = lanes.by_value.get(named) or lanes.open(named, key, headers)
            if lane is None or identifier is None:
                progress.time_ms, findings.position = time_ms, at
                at_decider = offset if self._is_own else at
                self._fates.decide(row, headers, at_decider, grouping)
                continue
            number = lane.admit(identifier, base + offset, time_ms)
            verdict, cause, original = ACCEPTED, None, None
            if number is not None:
                why = repetition_of(lane.draft.origin(number))
                verdict, cause, original = why.reason.value, why.cause, why.original
            strategy, name = lane.place.settings.strategy, lane.place.name
            note(
                Verdict(
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


def _plain_ids(rows: Sequence[Row], template: Identifier | None) -> Sequence[bytes | None]:
    headers = [row.headers for row in rows]
    return plain_ids(headers) if template is None else template.plain(rows, headers)
