"""Media types: one path that is asked for, or given, as JSON and as lines of it (NDJSON).

A route of lines stands before the one of JSON, and matches only a request that names them.
"""

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

from service.control import NotPossible

NDJSON: Final = "application/x-ndjson"
LINE_BYTES_MAX: Final = 256 * 1024
"""An id of 64 KiB takes twice as much in hex."""


class AsksForLines(APIRoute):
    """A route for who accepts lines."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as any route does, if the header says so."""
        return _if_named("accept", scope, super().matches(scope))


class GivesLines(APIRoute):
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
