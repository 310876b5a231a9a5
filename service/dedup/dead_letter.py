"""Dead letter: the envelope of headers that explains why a record was not accepted.

The envelope is written and read here. It follows the headers that the record arrived with.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from ringfence.headers import REPEATED, DeadLetter, Headers, Reason, id_text
from service.dedup.record import Record
from state.model import IMPORTED, OFFSET_MAX, Origin, PartitionId, Rejection
from state.segment import HASHED_ID_BYTES, hashed

ID_CHARS_MAX: Final = 1024
"""A longer id is cut in the envelope; the record's own header still has it in full."""
_CUT: Final = "…sha256:"
"""Stands in a cut id before the SHA-256 of the whole."""
_DIGEST: Final = re.compile("[0-9a-f]{64}")

EARLIER_SETS_MAX: Final = 3
"""How many sets of earlier envelopes a dead letter keeps: the first one, which names the original
record, and the last ones. A consumer that copies dead letters to the input adds one each time."""

# Plain strings, made once: the binding accepts nothing else, and most records may be duplicates.
_REASON, _CAUSE, _TOPIC, _PARTITION, _OFFSET, _TIMESTAMP, _ADDRESS, _STRATEGY, _ID, _ORIGINAL = (
    name.value for name in DeadLetter if name is not DeadLetter.REDRIVES
)

_DUPLICATE: Final = (_REASON, Reason.DUPLICATE.value.encode())


class Part(IntEnum):
    """What differs in the headers of duplicates; numbers as in native/ringfence_native.c."""

    OFFSET = 0
    TIMESTAMP = 1
    ID = 2
    ORIGINAL = 3


class DeadLetterEnvelope:
    """The envelope headers that all dead letters of one partition and address share, made once."""

    __slots__ = ("_address", "_source_headers")

    def __init__(self, source: PartitionId, address: str | None, strategy: str = "") -> None:
        topic, number = source
        self._source_headers = ((_TOPIC, topic.encode()), (_PARTITION, b"%d" % number))
        self._address: tuple[tuple[str, bytes], ...] = ()
        if address is not None:
            self._address = ((_ADDRESS, address.encode()), (_STRATEGY, strategy.encode()))

    def letter(
        self, record: Record, headers: Headers, identifier: bytes | None, why: Rejection
    ) -> Headers:
        """Return the original headers, then the envelope without what is unknown."""
        letter = [
            *_capped(headers),
            (_REASON, why.reason.encode()),
            (_CAUSE, why.cause.encode()),
            *self._source_headers,
            (_OFFSET, b"%d" % (record.offset() or 0)),
            (_TIMESTAMP, b"%d" % record.timestamp()[1]),
            *self._address,
        ]
        if identifier is not None:
            letter.append((_ID, _text(identifier)))
        if why.original is not None:
            letter.append((_ORIGINAL, why.original.encode()))
        return letter

    def repetition(
        self, headers: Headers, offset: int, timestamp_ms: int, identifier: bytes, origin: Origin
    ) -> Headers:
        """Return the dead letter of a duplicate; fast, since every record may be one.

        Equal to `letter` with `repetition_of(origin)`, but built from bytes.
        """
        topic, partition, accepted_at, _ = origin
        if accepted_at == IMPORTED:
            return self._imported(headers, offset, timestamp_ms, identifier)
        original = b"%b-%d@%d" % (topic.encode(), partition, accepted_at)
        return [
            *_capped(headers),
            _DUPLICATE,
            (_CAUSE, b"its id was accepted at %b already" % original),
            *self._source_headers,
            (_OFFSET, b"%d" % offset),
            (_TIMESTAMP, b"%d" % timestamp_ms),
            *self._address,
            (_ID, _text(identifier)),
            (_ORIGINAL, original),
        ]

    def repetition_form(self) -> tuple[tuple[str, tuple[bytes | Part, ...]], ...]:
        """Return what `repetition` adds to the headers, in parts, for compiled code to fill in."""
        name, duplicate = _DUPLICATE
        return (
            (name, (duplicate,)),
            (_CAUSE, (b"its id was accepted at ", Part.ORIGINAL, b" already")),
            *((name, (value,)) for name, value in self._source_headers),
            (_OFFSET, (Part.OFFSET,)),
            (_TIMESTAMP, (Part.TIMESTAMP,)),
            *((name, (value,)) for name, value in self._address),
            (_ID, (Part.ID,)),
            (_ORIGINAL, (Part.ORIGINAL,)),
        )

    def _imported(
        self, headers: Headers, offset: int, timestamp_ms: int, identifier: bytes
    ) -> Headers:
        """Return the dead letter of a duplicate whose original is unknown: its id was imported."""
        return [
            *_capped(headers),
            _DUPLICATE,
            (_CAUSE, b"its id was imported"),
            *self._source_headers,
            (_OFFSET, b"%d" % offset),
            (_TIMESTAMP, b"%d" % timestamp_ms),
            *self._address,
            (_ID, _text(identifier)),
        ]


def _capped(headers: Headers) -> Headers:
    """Return the headers without the sets of envelopes beyond `EARLIER_SETS_MAX`."""
    # Compiled code leaves records with such a header to this function.
    if sum(name == _REASON for name, _ in headers) <= EARLIER_SETS_MAX:
        return headers
    sets = list(_sets(headers))
    gone = {row for rows in sets[1 : len(sets) - EARLIER_SETS_MAX + 1] for row in rows}
    return [header for row, header in enumerate(headers) if row not in gone]


def _sets(headers: Headers) -> Iterator[range]:
    """Yield the rows of each set: headers of an envelope, one behind the other, from a reason on.

    What does not name the place of a record is none of our sets.
    """
    rows = len(headers)
    for start in (row for row in range(rows) if _starts_envelope(headers[row])):
        end = start + 1
        while end < rows and headers[end][0] in _ENVELOPE_NAMES and headers[end][0] != _REASON:
            end += 1
        if _source(_envelope(headers[start:end])) is not None:
            yield range(start, end)


def _text(identifier: bytes) -> bytes:
    return shown_id(identifier).encode()


def shown_id(identifier: bytes) -> str:
    """Return an id in the form of the envelope: REST notation, cut if it is long.

    A cut id ends in the SHA-256 of the whole, so that `stored_id_of` can find it.
    """
    text = id_text(identifier)
    if len(text) <= ID_CHARS_MAX:
        return text
    end = _CUT + hashlib.sha256(identifier).hexdigest()
    return text[: ID_CHARS_MAX - len(end)] + end


def stored_id_of(text: str) -> bytes | None:
    """Return the stored form of the id that the envelope shows cut; None if the text is not cut."""
    beginning, cut, digits = text.rpartition(_CUT)
    if not cut or len(text) != ID_CHARS_MAX or not _DIGEST.fullmatch(digits):
        return None
    begins = beginning.encode()
    if beginning.startswith("hex:"):
        begins = bytes.fromhex(beginning[4 : 4 + 2 * HASHED_ID_BYTES])
    return hashed(begins, bytes.fromhex(digits))


Mode = Literal["through", "forget", "bypass"]

MODES: Final[tuple[Mode, ...]] = ("through", "forget", "bypass")

State = Literal["running", "done", "cancelled", "failed"]


class DeadLetterPosition(NamedTuple):
    """The position of a dead letter in its topic."""

    topic: str
    partition: int
    offset: int


class RedrivenRecord(NamedTuple):
    """The original record of a dead letter, to be decided again; a `Record`."""

    at: int
    """The offset of the dead letter in its dead-letter partition."""
    topic: str
    partition: int
    own_offset: int
    timestamp_ms: int
    own_key: bytes | None
    own_value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    redrives: int
    """How often the record was redriven before."""

    @property
    def source(self) -> PartitionId:
        """The input partition that the record came from."""
        return PartitionId(self.topic, self.partition)

    def key(self) -> bytes | None:
        """Return the key of the original record."""
        return self.own_key

    def value(self) -> bytes | None:
        """Return the value of the original record."""
        return self.own_value

    def offset(self) -> int:
        """Return the offset of the original record in its input."""
        return self.own_offset

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp; the kind is a constant that nothing reads."""
        return 1, self.timestamp_ms


class DeadLetterFilter(NamedTuple):
    """Which dead letters a request selects; an empty or None field selects all."""

    topics: tuple[str, ...] = ()
    address: str | None = None
    reasons: tuple[str, ...] = ()
    from_ms: int | None = None
    """Start of the decision times, inclusive."""
    to_ms: int | None = None
    """End of the decision times, exclusive."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Names and values that the original headers must all contain."""
    key: bytes | None = None
    source: tuple[str, int, int] | None = None
    """Topic, partition and offset of the record in its input. Not for redrives."""
    identifier: str | None = None
    """The id in the form of the envelope. Not for redrives."""

    @property
    def looks_into_payload(self) -> bool:
        """Whether the result reveals something about keys or headers."""
        return bool(self.headers) or self.key is not None


class SourcePosition(NamedTuple):
    """The input position and timestamp of the record that was dead-lettered."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class DeadLetterView(NamedTuple):
    """A dead letter as read; `reason` and `source` are None if Ringfence did not write it."""

    place: DeadLetterPosition
    time_ms: int
    """Time of the decision."""
    reason: str | None
    cause: str | None
    source: SourcePosition | None
    address: str | None
    strategy: str | None
    identifier: str | None
    """In REST notation, cut if it is long."""
    original: str | None
    redrives: int
    """How often the record was redriven before it was dead-lettered."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The original headers, without the envelope."""


class InputRecord(NamedTuple):
    """A record of an input as it is in its topic, to compare with a dead letter."""

    place: DeadLetterPosition
    time_ms: int
    """Timestamp of the record; negative if it has none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    address: str | None = None
    """Its address, as its route reads it now."""
    identifier: bytes | None = None
    """Its id, likewise."""
    id_error: str | None = None
    """Why it has no address or no id, as a sentence without its period."""


class Absence(NamedTuple):
    """Why no record can be read at a position."""

    why: Literal["topic", "partition", "deleted", "end", "gap", "open"]
    """Its topic is none of those searched, it has no such partition, the offset is below the start
    or at or above the end, no record is there, or an open transaction hides whether one is."""
    start: int = 0
    """The first offset of the partition."""
    end: int = 0
    """The offset after its last record."""


class DeadLetterPage(NamedTuple):
    """One page of a search for dead letters."""

    letters: tuple[DeadLetterView, ...]
    scanned: int
    place: object | None
    """The JSON-serialisable cursor of the next page; None at the end."""


class DeadLetterCounts(NamedTuple):
    """Counts of dead letters by several keys."""

    scanned: int
    matched: int
    foreign: int
    """Records that Ringfence did not write."""
    by_reason: dict[str, int]
    by_address: dict[str, int]
    by_topic: dict[str, int]
    by_hour_ms: dict[int, int]
    """By the start of the hour, in ms."""
    place: object | None
    """The cursor where the count continues; None at the end."""


class RedriveRequest(NamedTuple):
    """Which dead letters to redrive, and how."""

    mode: Mode
    filter: DeadLetterFilter
    letters: tuple[DeadLetterPosition, ...] = ()
    """Only these dead letters; empty for all that the filter selects."""
    max_per_second: float | None = None
    limit: int | None = None
    reason: str = ""
    actor: str = ""


class RedriveProgress(NamedTuple):
    """Progress of a redrive, in records."""

    scanned: int = 0
    matched: int = 0
    sent: int = 0
    accepted: int = 0
    """Written to an output."""
    refused: int = 0
    """Rejected again: dead-lettered once more, or dropped."""
    waiting: int = 0
    """Pending until their transaction group is complete."""
    failed: int = 0
    """Given up: the broker or the route does not accept them."""
    skipped: dict[str, int] = {}  # noqa: RUF012 - a default of a tuple, never changed
    """Records that were not redriven, by reason."""


class RedriveView(NamedTuple):
    """A redrive and its current state."""

    id: str
    order: RedriveRequest
    state: State
    created_at_ms: int
    updated_at_ms: int
    ended_at_ms: int | None
    records_total: int
    """About how many records there were to scan when it was ordered."""
    progress: RedriveProgress
    rate_per_second: float
    eta_s: float | None
    """None while it cannot be estimated."""
    waiting_for: str | None
    """Why it does not continue, as a sentence."""
    error: str | None
    """Why it failed, as a sentence."""

    @property
    def share(self) -> float:
        """How much is done, from 0 to 1: of the records, or of the limit if that is further."""
        if self.state == "done":
            return 1.0
        shares = [self.progress.scanned / max(1, self.records_total)]
        if self.order.limit is not None:
            shares.append(self.progress.matched / self.order.limit)
        return min(1.0, max(shares))


class RedriveEstimate(NamedTuple):
    """What a redrive would do, from a dry run."""

    order: RedriveRequest
    records_total: int
    counts: DeadLetterCounts
    skipped: dict[str, int]
    """Dead letters that cannot be redriven, by reason; foreign records are not in `matched`."""
    samples: tuple[DeadLetterView, ...]

    @property
    def redrives(self) -> int:
        """How many of the counted dead letters would be redriven, at most."""
        unable = sum(number for why, number in self.skipped.items() if why != "foreign")
        able = self.counts.matched - unable
        return able if self.order.limit is None else min(able, self.order.limit)

    @property
    def doubles(self) -> int:
        """How many records the output would then contain twice, at most."""
        if self.order.mode == "through":
            return 0
        found = sum(self.counts.by_reason.get(reason, 0) for reason in REPEATED)
        return min(found, self.redrives)


_ENVELOPE_NAMES: Final = frozenset(name.value for name in DeadLetter)

_PARTITIONS_MAX: Final = 2**31

_NUMBERS_MAX: Final = 2**63


class ParsedHeaders(NamedTuple):
    """The headers of a dead letter: the original ones, and the envelope by name."""

    original: Headers
    envelope: dict[str, str]
    source: SourcePosition | None
    """None if Ringfence did not write the record."""


def parse_headers(headers: Headers) -> ParsedHeaders:
    """Split the headers of a record in a dead-letter topic; the last envelope counts."""
    start = next(
        (row for row in reversed(range(len(headers))) if _starts_envelope(headers[row])), None
    )
    if start is None:
        return ParsedHeaders(headers, {}, None)
    envelope = _envelope(headers[start:])
    source = _source(envelope)
    if source is None:
        return ParsedHeaders(headers, {}, None)
    rest = [header for header in headers[start:] if header[0] not in _ENVELOPE_NAMES]
    return ParsedHeaders([*headers[:start], *rest], envelope, source)


def view_of(
    position: DeadLetterPosition,
    time_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> DeadLetterView:
    """Build the view of a record in a dead-letter topic."""
    original, envelope, source = parse_headers(headers)
    return DeadLetterView(
        place=position,
        time_ms=time_ms,
        reason=envelope.get(DeadLetter.REASON),
        cause=envelope.get(DeadLetter.CAUSE),
        source=source,
        address=envelope.get(DeadLetter.ADDRESS),
        strategy=envelope.get(DeadLetter.STRATEGY),
        identifier=envelope.get(DeadLetter.ID),
        original=envelope.get(DeadLetter.ORIGINAL),
        redrives=_number(envelope.get(DeadLetter.REDRIVES), _NUMBERS_MAX) or 0,
        key=key,
        value=value,
        headers=tuple(original),
    )


def letter_of(view: DeadLetterView) -> RedrivenRecord | None:
    """Return the original record of a dead letter; None if Ringfence did not write it."""
    if view.source is None:
        return None
    topic, partition, offset, timestamp_ms = view.source
    return RedrivenRecord(
        at=view.place.offset,
        topic=topic,
        partition=partition,
        own_offset=offset,
        timestamp_ms=timestamp_ms,
        own_key=view.key,
        own_value=view.value,
        headers=view.headers,
        redrives=view.redrives,
    )


def matches(view: DeadLetterView, criteria: DeadLetterFilter) -> bool:
    """Whether a filter selects a dead letter; its topics are not compared."""
    wanted_and_found = (
        (criteria.address, view.address),
        (criteria.key, view.key),
        (criteria.identifier, view.identifier),
        (criteria.source, (view.source or ())[:3]),
    )
    if any(wanted is not None and wanted != found for wanted, found in wanted_and_found):
        return False
    if criteria.reasons and view.reason not in criteria.reasons:
        return False
    if criteria.from_ms is not None and view.time_ms < criteria.from_ms:
        return False
    if criteria.to_ms is not None and view.time_ms >= criteria.to_ms:
        return False
    return all(header in view.headers for header in criteria.headers)


def _envelope(headers: Headers) -> dict[str, str]:
    """Return the headers of an envelope by name; the last of each name counts."""
    return {
        name: value.decode(errors="replace")
        for name, value in headers
        if name in _ENVELOPE_NAMES and value is not None
    }


def _starts_envelope(header: Sequence[object]) -> bool:
    return header[0] == DeadLetter.REASON.value


def _source(envelope: dict[str, str]) -> SourcePosition | None:
    topic = envelope.get(DeadLetter.TOPIC)
    partition = _number(envelope.get(DeadLetter.PARTITION), _PARTITIONS_MAX)
    offset = _number(envelope.get(DeadLetter.OFFSET), OFFSET_MAX + 1)
    if not topic or partition is None or offset is None:
        return None
    time = envelope.get(DeadLetter.TIMESTAMP, "")
    timestamp_ms = _number(time, _NUMBERS_MAX)
    return SourcePosition(topic, partition, offset, -1 if timestamp_ms is None else timestamp_ms)


def _number(text: str | None, limit: int) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    return int(text) if int(text) < limit else None
