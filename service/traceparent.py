"""Traceparent: which trace a record belongs to, as its headers tell it in W3C's notation.

It is read for logs and spans alone; the header passes through as it is.
"""

import re
from typing import Final, NamedTuple

from service.route import Headers

HEADER: Final = "traceparent"
_SHAPE: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Trace(NamedTuple):
    """A trace, and the span that sent the record."""

    trace_id: str
    span_id: str
    flags: int


def trace_of(headers: Headers) -> Trace | None:
    """What the first such header tells, if it is valid."""
    value = next((value for name, value in headers if name == HEADER), None)
    found = None if value is None else _SHAPE.fullmatch(value)
    if found is None:
        return None
    trace_id, span_id = found[1].decode(), found[2].decode()
    if not (int(trace_id, 16) and int(span_id, 16)):
        return None
    return Trace(trace_id, span_id, int(found[3], 16))
