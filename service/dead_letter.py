"""Dead letter: the headers that tell why a record is here, after the headers it came with."""

from typing import Final

from confluent_kafka import Message

from ringfence.headers import DeadLetter, Reason, id_text
from service.rejection import Rejection
from service.route import Headers
from state.edit import Origin, Source

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

    def __init__(self, source: Source, address: str | None) -> None:
        topic, number = source
        self._place = ((_TOPIC, topic.encode()), (_PARTITION, b"%d" % number))
        self._address: tuple[tuple[str, bytes], ...] = ()
        if address is not None:
            self._address = ((_ADDRESS, address.encode()), (_STRATEGY, b"ring"))

    def letter(
        self, message: Message, headers: Headers, identifier: bytes | None, why: Rejection
    ) -> Headers:
        """The original headers, then ours; what is not known is left out."""
        letter = [
            *headers,
            (_REASON, why.reason.encode()),
            (_CAUSE, why.cause.encode()),
            *self._place,
            (_OFFSET, b"%d" % (message.offset() or 0)),
            (_TIMESTAMP, b"%d" % message.timestamp()[1]),
            *self._address,
        ]
        if identifier is not None:
            letter.append((_ID, _text(identifier)))
        if why.original is not None:
            letter.append((_ORIGINAL, why.original.encode()))
        return letter

    def repetition(
        self, message: Message, headers: Headers, identifier: bytes, origin: Origin
    ) -> Headers:
        """The letter of a duplicate, of which there may be as many as there are records.

        The same as `letter` with `repetition_of(origin)`, in bytes from the beginning.
        """
        original = b"%b-%d@%d" % (origin.topic.encode(), origin.partition, origin.offset)
        return [
            *headers,
            _DUPLICATE,
            (_CAUSE, b"its id was accepted at %b already" % original),
            *self._place,
            (_OFFSET, b"%d" % (message.offset() or 0)),
            (_TIMESTAMP, b"%d" % message.timestamp()[1]),
            *self._address,
            (_ID, _text(identifier)),
            (_ORIGINAL, original),
        ]


def _text(identifier: bytes) -> bytes:
    return id_text(identifier)[:ID_CHARS_MAX].encode()
