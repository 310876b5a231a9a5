"""Identifier: the duplicate id as a route's template makes it of a record.

For producers that nobody can change: {key}, {header:NAME} and {sha256:value}, with text between.
A record that does not fill the template has no id; what becomes of it, `missing_id` says.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

from ringfence.headers import ID_BYTES_MAX
from service.claim import BESIDES, is_plain
from service.consume import UNREADABLE
from service.record import Record
from service.route import Field, Headers

_FIELD: Final = re.compile(r"\{(key|header:[^{}]+|sha256:value)\}")

Part = Callable[[Record, Headers], bytes | None]


class Identifier:
    """The ids of one route's records."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def of(self, record: Record, headers: Headers) -> bytes | None:
        """The id of a record, or None where a field is missing."""
        found = []
        for part in self._parts:
            value = part(record, headers)
            if value is None:
                return None
            found.append(value)
        return b"".join(found)

    def plain(
        self,
        messages: Sequence[Record],
        column: Sequence[Headers | None],
        besides: AbstractSet[str] = BESIDES,
    ) -> list[bytes | None]:
        """The ids of records of which nothing else has to be looked at; None for the others."""
        found: list[bytes | None] = []
        for message, headers in zip(messages, column, strict=True):
            identifier = None
            if headers is not UNREADABLE and is_plain(headers or (), besides):
                identifier = self.of(message, headers or ())
            is_long = identifier is not None and len(identifier) > ID_BYTES_MAX
            found.append(None if is_long else identifier)
        return found


@lru_cache
def identifier_of(template: str) -> Identifier | None:
    """What makes the ids of a route; None where the headers tell."""
    pieces = _FIELD.split(template)
    parts = [_part(piece) if at % 2 else _text(piece) for at, piece in enumerate(pieces) if piece]
    return Identifier(parts) if parts else None


def _part(name: str) -> Part:
    if name == "sha256:value":
        return _digest
    field = Field(None if name == "key" else name.removeprefix("header:"))
    return lambda record, headers: field.of(record.key(), headers)


def _text(text: str) -> Part:
    constant = text.encode()
    return lambda _record, _headers: constant


def _digest(record: Record, _headers: Headers) -> bytes | None:
    value = record.value()
    return None if value is None else hashlib.sha256(value).hexdigest().encode()
