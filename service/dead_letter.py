"""Dead letter: the headers that tell why a record is here, after the headers it came with."""

from confluent_kafka import Message

from ringfence.headers import DeadLetter, id_text
from service.rejection import RejectedError
from service.route import Headers
from state.edit import Source

ID_CHARS_MAX = 1024
"""A longer id is cut in the envelope; whole, it stands in the record's own header."""


def envelope(
    message: Message,
    headers: Headers,
    source: Source,
    address: str | None,
    identifier: bytes | None,
    rejection: RejectedError,
) -> Headers:
    """The original headers, then ours; what is not known is left out."""
    ours = {
        DeadLetter.REASON: rejection.reason,
        DeadLetter.CAUSE: rejection.cause,
        DeadLetter.TOPIC: source.topic,
        DeadLetter.PARTITION: str(source.partition),
        DeadLetter.OFFSET: str(message.offset()),
        DeadLetter.TIMESTAMP: str(message.timestamp()[1]),
        DeadLetter.ADDRESS: address,
        DeadLetter.STRATEGY: None if address is None else "ring",
        DeadLetter.ID: None if identifier is None else id_text(identifier)[:ID_CHARS_MAX],
        DeadLetter.ORIGINAL: rejection.original,
    }
    told = [(str(name), text.encode()) for name, text in ours.items() if text is not None]
    return [*headers, *told]
