"""Dead letter: the envelope of headers that explains why a record was not accepted.

The envelope is written and read here. It follows the headers that the record arrived with.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from ringfence_client.headers import DeadLetter, Headers, Reason, id_text
from ringfence_service.dedup.record import Record
from ringfence_state.model import IMPORTED, OFFSET_MAX, Origin, PartitionId, Rejection
from ringfence_state.segment import HASHED_ID_BYTES, hashed

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

_ENVELOPE_NAMES: Final = frozenset(name.value for name in DeadLetter)

_PARTITIONS_MAX: Final = 2**31
"""Above every partition of Kafka, whose number is a signed integer of 32 bits."""

_NUMBERS_MAX: Final = 2**63
"""Above every timestamp of Kafka, a signed integer of 64 bits, and every count of redrives."""

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


class SourcePosition(NamedTuple):
    """The input position and timestamp of the record that was dead-lettered."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


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


class ParsedHeaders(NamedTuple):
    """The headers of a dead letter: the original ones, and the envelope by name."""

    original: Headers
    envelope: dict[str, str]
    source: SourcePosition | None
    """None if Ringfence did not write the record."""

    @property
    def redrives(self) -> int:
        """How often the record was redriven."""
        return _number(self.envelope.get(DeadLetter.REDRIVES), _NUMBERS_MAX) or 0


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
