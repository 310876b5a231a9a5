"""Dead letter: the headers that tell why a record is here, after the headers it came with."""

from typing import Final

from ringfence.headers import DeadLetter, Reason, id_text
from service.record import Record
from service.route import Headers
from state.edit import IMPORTED, Origin, Source
from state.rejection import Rejection

ID_CHARS_MAX: Final = 1024
"""A longer id is cut in the envelope; whole, it stands in the record's own header."""

# Plain strings, made once: the binding takes no other, and duplicates may be most of the records.
_REASON, _CAUSE, _TOPIC, _PARTITION, _OFFSET, _TIMESTAMP, _ADDRESS, _STRATEGY, _ID, _ORIGINAL = (
    name.value for name in DeadLetter if name is not DeadLetter.REDRIVES
)

_DUPLICATE: Final = (_REASON, Reason.DUPLICATE.value.encode())


class Envelope:
    """What is the same for all dead letters of one partition and address, made once."""

    __slots__ = ("_address", "_place")

    def __init__(self, source: Source, address: str | None, strategy: str = "") -> None:
        topic, number = source
        self._place = ((_TOPIC, topic.encode()), (_PARTITION, b"%d" % number))
        self._address: tuple[tuple[str, bytes], ...] = ()
        if address is not None:
            self._address = ((_ADDRESS, address.encode()), (_STRATEGY, strategy.encode()))

    def letter(
        self, record: Record, headers: Headers, identifier: bytes | None, why: Rejection
    ) -> Headers:
        """The original headers, then ours; what is not known is left out."""
        letter = [
            *headers,
            (_REASON, why.reason.encode()),
            (_CAUSE, why.cause.encode()),
            *self._place,
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
        """The letter of a duplicate, of which there may be as many as there are records.

        The same as `letter` with `repetition_of(origin)`, in bytes from the beginning.
        """
        topic, partition, accepted_at, _ = origin
        if accepted_at == IMPORTED:
            return self._imported(headers, offset, timestamp_ms, identifier)
        original = b"%b-%d@%d" % (topic.encode(), partition, accepted_at)
        return [
            *headers,
            _DUPLICATE,
            (_CAUSE, b"its id was accepted at %b already" % original),
            *self._place,
            (_OFFSET, b"%d" % offset),
            (_TIMESTAMP, b"%d" % timestamp_ms),
            *self._address,
            (_ID, _text(identifier)),
            (_ORIGINAL, original),
        ]

    def _imported(
        self, headers: Headers, offset: int, timestamp_ms: int, identifier: bytes
    ) -> Headers:
        """The letter of a duplicate of which nobody knows the original."""
        return [
            *headers,
            _DUPLICATE,
            (_CAUSE, b"its id was imported"),
            *self._place,
            (_OFFSET, b"%d" % offset),
            (_TIMESTAMP, b"%d" % timestamp_ms),
            *self._address,
            (_ID, _text(identifier)),
        ]


def _text(identifier: bytes) -> bytes:
    return id_text(identifier)[:ID_CHARS_MAX].encode()
