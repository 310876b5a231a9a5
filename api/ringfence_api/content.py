"""Content negotiation: JSON and NDJSON (lines of JSON) at one path.

The NDJSON route is registered before the JSON route and matches only requests that name its media
type. JSON that only Python accepts is refused.
"""

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

from ringfence_service.queries.errors import NotPossible

NDJSON: Final = "application/x-ndjson"
LINE_BYTES_MAX: Final = 256 * 1024
"""An id of 64 KiB takes 128 KiB in hex."""
_DEPTH_MAX: Final = 20
"""Deeper than any document of the API, and far from where Python's own recursion ends.

The check, the validation and the encoding of a document recurse into each level.
"""


class NdjsonAnswerRoute(APIRoute):
    """A route for clients that accept NDJSON."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match like any route, if the header names NDJSON."""
        return _if_named("accept", scope, super().matches(scope))


class NdjsonRequestRoute(APIRoute):
    """A route for clients that send NDJSON."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match like any route, if the header names NDJSON."""
        return _if_named("content-type", scope, super().matches(scope))


def _if_named(header: str, scope: Scope, match: tuple[Match, Scope]) -> tuple[Match, Scope]:
    return match if NDJSON in Headers(scope=scope).get(header, "") else (Match.NONE, {})


def lines_of(rows: list[dict[str, Any]]) -> bytes:
    """Return rows as NDJSON."""
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


async def read_lines(stream: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the non-empty lines with their numbers, from 1; at most one line is buffered.

    Raise NotPossible if a line is longer than `LINE_BYTES_MAX`.
    """
    rest, number = b"", 0
    async for chunk in stream:
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            number += 1
            if line.strip():
                yield number, line
        if len(rest) > LINE_BYTES_MAX:
            raise NotPossible(f"Line {number + 1} is longer than {LINE_BYTES_MAX} bytes.")
    if rest.strip():
        yield number + 1, rest


def well_formed(value: object) -> object:
    """Return the value if strict JSON in UTF-8 can represent it; raise ValueError otherwise."""
    _check_depth(value, _DEPTH_MAX)
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("an unpaired surrogate (\\ud800 to \\udfff) is not text") from None
    except ValueError:
        raise ValueError("NaN, Infinity and numbers beyond 1.8e308 are not JSON") from None
    return value


def _check_depth(value: object, left: int) -> None:
    inner = value.values() if isinstance(value, dict) else value
    for each in inner if isinstance(inner, Iterable) and not isinstance(inner, str) else ():
        if not left:
            raise ValueError(f"lists and objects are nested more than {_DEPTH_MAX} levels deep")
        _check_depth(each, left - 1)
