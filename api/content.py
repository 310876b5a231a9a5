"""Content negotiation: JSON and lines of JSON (NDJSON) at one path.

The route for lines stands before the one for JSON, and matches only a request that names that media
type. JSON that only Python accepts is refused.
"""

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

from service.queries.errors import NotPossible

NDJSON: Final = "application/x-ndjson"
LINE_BYTES_MAX: Final = 256 * 1024
"""An id of 64 KiB takes twice as much in hex."""
_DEPTH_MAX: Final = 20


class NdjsonAnswerRoute(APIRoute):
    """A route for who accepts lines."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as any route does, if the header says so."""
        return _if_named("accept", scope, super().matches(scope))


class NdjsonRequestRoute(APIRoute):
    """A route for who sends lines."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as any route does, if the header says so."""
        return _if_named("content-type", scope, super().matches(scope))


def _if_named(header: str, scope: Scope, match: tuple[Match, Scope]) -> tuple[Match, Scope]:
    return match if NDJSON in Headers(scope=scope).get(header, "") else (Match.NONE, {})


def lines_of(rows: list[dict[str, Any]]) -> bytes:
    """Rows as lines."""
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


async def read_lines(stream: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """Lines that are not empty, each with its number from 1 on; never more than one is kept."""
    rest, number = b"", 0
    async for chunk in stream:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            if line.strip():
                yield number, line
        if len(rest) > LINE_BYTES_MAX:
            raise NotPossible(f"Line {number + 1} is longer than {LINE_BYTES_MAX} bytes.")
    if rest.strip():
        yield number + 1, rest


def well_formed(value: object) -> object:
    """What JSON and UTF-8 can hold; ValueError for what only a lenient parser takes for JSON."""
    _check_depth(value, _DEPTH_MAX)
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("half of a character (\\ud800 to \\udfff alone) is no text") from None
    except ValueError:
        raise ValueError("NaN, Infinity and numbers beyond 1.8e308 are no JSON") from None
    return value


def _check_depth(value: object, left: int) -> None:
    inner = value.values() if isinstance(value, dict) else value
    for each in inner if isinstance(inner, Iterable) and not isinstance(inner, str) else ():
        if not left:
            raise ValueError(f"lists and objects stand within each other {_DEPTH_MAX} deep at most")
        _check_depth(each, left - 1)
