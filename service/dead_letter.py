"""Dead letter: the headers that tell why a record is here, after the headers it came with."""

from typing import Final

from confluent_kafka import Message

from ringfence.headers import DeadLetter, id_text
from service.rejection import RejectedError
from service.route import Headers
from state.edit import Source

ID_CHARS_MAX: Final = 1024
"""A longer id is cut in the envelope; whole, it stands in the record's own header."""

# Plain strings, made once: the binding takes no other, and duplicates may be most of the records.
_REASON, _CAUSE, _TOPIC, _PARTITION, _OFFSET, _TIMESTAMP, _ADDRESS, _STRATEGY, _ID, _ORIGINAL = (
    name.value for name in DeadLetter if name is not DeadLetter.REDRIVES
)


def envelope(
    message: Message,
    headers: Headers,
    source: Source,
    address: str | None,
    identifier: bytes | None,
    rejection: RejectedError,
) -> Headers:
    """The original headers, then ours; what is not known is left out."""
    topic, number = source
    told: list[tuple[str, str | None]] = [
        (_REASON, rejection.reason.value),
        (_CAUSE, rejection.cause),
        (_TOPIC, topic),
        (_PARTITION, str(number)),
        (_OFFSET, str(message.offset())),
        (_TIMESTAMP, str(message.timestamp()[1])),
        (_ADDRESS, address),
        (_STRATEGY, None if address is None else "ring"),
        (_ID, None if identifier is None else id_text(identifier)[:ID_CHARS_MAX]),
        (_ORIGINAL, rejection.original),
    ]
    return [*headers, *((name, text.encode()) for name, text in told if text is not None)]
