"""Times as users write them: a moment with its zone, or how long ago."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from service.errors import ExitCode, ExitError

_AGO: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|min|m|h|d)")
_UNIT_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def moment(text: str | None) -> str | None:
    """Return RFC 3339 for a time (`2026-01-02T03:04:05Z`, local without a zone) or `90m` ago."""
    if text is None:
        return None
    if _AGO.fullmatch(text):
        return (datetime.now(UTC) - timedelta(milliseconds=duration_ms(text))).isoformat()
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError) as error:
        sentence = (
            f"{text!r} is no time ({error}); write 2026-01-02T03:04:05Z, the same without zone "
            "for local time, or how long ago: 30s, 90m, 2h, 7d."
        )
        raise ExitError(ExitCode.USAGE, sentence) from error


def duration_ms(text: str) -> int:
    """Return how many milliseconds `30s`, `90m`, `2h` or `7d` are."""
    found = _AGO.fullmatch(text)
    if found is None:
        sentence = f"{text!r} is no duration; write 250ms, 30s, 90m, 2h or 7d."
        raise ExitError(ExitCode.USAGE, sentence)
    return round(float(found[1]) * _UNIT_MS[found[2]])
