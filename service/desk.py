"""Desk: the records of one inlet in one transaction, each given its fate in order.

Nearly all are plain: an id and nothing else to look at, an address that was seen before. Their
lane answers with the ring alone. Every other record goes through `Fates`, by every check.
"""

from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Message

from service.carried import Carried
from service.checks import Checks, Progress, Rules, output_of
from service.claim import BESIDES, BESIDES_IN_SESSIONS, plain_ids
from service.fates import Fates
from service.grouping import Grouping
from service.identifier import identifier_of
from service.inlet import Inlet
from service.lane import Lane, Lanes
from service.place import Places
from service.plan import Example, Output, Tally
from service.record import Record
from service.route import Headers
from state.rejection import Rejection, repetition_of


class Columns(NamedTuple):
    """Records of one inlet, in order; columns of equal length."""

    messages: Sequence[Message]
    offsets: Sequence[int]
    """In the partition that decides."""
    own_offsets: Sequence[int]
    """In the inlet."""
    times_ms: Sequence[int]
    headers: Sequence[Headers | None]
    sizes_bytes: Sequence[int]
    """Of the values."""


class Desk:
    """See the module."""

    def __init__(
        self,
        inlet: Inlet,
        rules: Rules,
        tally: Tally,
        places: Places,
        progress: Progress,
    ) -> None:
        self.checks = Checks(inlet, rules, tally, places, progress)
        self.lanes = Lanes(inlet, places, rules.placing)
        self.inlet = inlet
        self.route = inlet.route.settings.name
        self._base = places.spots.base(inlet.source)
        self._is_own = inlet.source == progress.source
        self._source, self._tally = inlet.source, tally
        self._distance = tally.distances_ms.append
        self._progress = progress
        self.fates = Fates(places, self.checks)
        self._identifier = identifier_of(inlet.route.settings.id)
        self._besides = BESIDES_IN_SESSIONS if rules.epochs else BESIDES

    def decide(self, columns: Columns, grouping: Grouping) -> None:
        """Give every record its fate; what goes out for it is added to the progress.

        This is the one loop that runs for each record. What all records have is read in columns,
        by callers written in C; a record's parts are not kept once it is sent, so they stay in
        the processor's cache.
        """
        progress, base = self._progress, self._base
        field, lane_of = self.lanes.field, self.lanes.by_value.get
        output, now_ms, time_ms = progress.outputs.append, progress.now_ms, progress.time_ms
        ids = self._plain_ids(columns.messages, columns.headers)
        own_offsets = columns.own_offsets
        spots = [base + offset for offset in own_offsets] if base else own_offsets
        rows = zip(
            columns.messages,
            columns.offsets,
            spots,
            columns.times_ms,
            columns.headers,
            ids,
            strict=True,
        )
        for message, offset, spot, timestamp, headers, identifier in rows:
            if timestamp > time_ms:
                time_ms = timestamp if timestamp <= now_ms else max(time_ms, now_ms)
            key = message.key()
            if identifier is None or timestamp <= 0:
                lane = None
            else:
                named = None if field is None else field.of(key, headers)
                lane = lane_of(named) or self.lanes.open(named, key, headers or ())
            if lane is not None and identifier is not None:
                number = lane.admit(identifier, spot, time_ms)
                if number is None:
                    place = lane.unkeyed if key is None else lane.keyed
                    value = message.value()
                    output((lane.topic, value, key, place, None, None, timestamp, headers or []))
                    continue
                if lane.drops:
                    if not lane.repeats:
                        lane.dropped = (number, spot - base, time_ms, identifier, headers or [])
                    lane.repeats += 1
                    continue
                if lane.dead_letter is not None:
                    lane.repeats += 1
                    repeated = (identifier, headers or [], spot - base, timestamp, time_ms)
                    output(self._repetition(message, *repeated, lane, number))
                    continue
            progress.time_ms = time_ms
            record: Record = message if self._is_own else Carried(message, spot - base)
            self.fates.decide(record, [] if headers is None else headers, offset, grouping)
        progress.time_ms = time_ms

    def fail(self, columns: Columns, grouping: Grouping, why: Rejection) -> None:
        """Dead-letter records whose checks failed; no check runs again."""
        rows = zip(
            columns.messages, columns.offsets, columns.own_offsets, columns.headers, strict=True
        )
        for message, offset, own_offset, headers in rows:
            record: Record = message if self._is_own else Carried(message, own_offset)
            self.fates.fail(record, headers or [], offset, grouping, why)

    def _repetition(
        self,
        message: Message,
        identifier: bytes,
        headers: Headers,
        offset: int,
        timestamp_ms: int,
        time_ms: int,
        lane: Lane,
        number: int,
    ) -> Output:
        """A plain duplicate on its way to its dead-letter topic."""
        place, target = lane.place, lane.dead_letter
        assert target is not None  # the caller looked
        origin = lane.draft.origin(number)
        self._distance(time_ms - origin.time_ms)
        if self._tally.example is None:
            original = repetition_of(origin).original
            source = self._source
            example = Example(*lane.label, source, offset, identifier, original, headers)
            self._tally.example = example
        envelope = self.checks.envelope(place)
        letter = envelope.repetition(headers, offset, timestamp_ms, identifier, origin)
        return output_of(message, target, letter, self._progress.now_ms)

    def _plain_ids(
        self, messages: Sequence[Message], column: Sequence[Headers | None]
    ) -> Sequence[bytes | None]:
        if self._identifier is None:
            return plain_ids(column, self._besides)
        return self._identifier.plain(messages, column, self._besides)
