"""Message: what a publisher sends, and its row in the outbox.

Keys and values are bytes or None; headers keep their order and repeats, each with bytes or None.
"""

import json
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
Row = tuple[int, bytes | None, bytes | None, str, int, int]
"""Number, key, value, headers, timestamp, bytes."""


class Message(NamedTuple):
    """A message to publish; `timestamp_ms` is in milliseconds since the epoch."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def bytes(self) -> int:
        """Size of key, value and headers in bytes."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.value or b"") + len(self.key or b"") + headers


class NumberedMessage(NamedTuple):
    """A message and its number."""

    number: int
    message: Message


def row_of(number: int, message: Message) -> Row:
    """Return the outbox row of a message."""
    # JSON has no bytes; Latin-1 maps every byte to a character.
    headers = json.dumps(
        [(name, None if value is None else value.decode("latin-1"))
         for name, value in message.headers]
    )  # fmt: skip
    return number, message.key, message.value, headers, message.timestamp_ms, message.bytes


def numbered(
    number: int, key: bytes | None, value: bytes | None, headers: str, timestamp_ms: int
) -> NumberedMessage:
    """Return the message of an outbox row."""
    pairs = tuple(
        (name, None if text is None else text.encode("latin-1"))
        for name, text in json.loads(headers)
    )
    return NumberedMessage(number, Message(value, key, pairs, timestamp_ms))
