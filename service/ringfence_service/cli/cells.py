"""Cells: values formatted for people on a terminal, and for programs in a pipe.

The plain form is exact: digits without separators, bytes, milliseconds, RFC 3339 in UTC.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple

from ringfence_service import formatting
from ringfence_service.errors import ExitCode, ExitError

Tone = Literal["", "good", "warn", "bad", "dim", "strong"]

NOTHING: Final = "-"


_PHASES: Final[Mapping[str, Tone]] = {
    **dict.fromkeys(("running", "done", "active", "open", "accepted", "applied"), "good"),
    **dict.fromkeys(("starting", "restoring", "assigned", "waiting", "paused", "stopping"), "warn"),
    **dict.fromkeys(("ended", "failed", "lost", "cancelled", "refused"), "bad"),
}


class Cell(NamedTuple):
    """One value of a page."""

    plain: str
    text: str | None = None
    """The form for people, if it differs from `plain`."""
    tone: Tone = ""
    right: bool = False
    """Whether the value is right-aligned."""
    wraps: bool = False
    """Whether the value may wrap over several lines."""
    ratio: float | None = None
    """From 0 to 1: draw a bar before the text."""

    @property
    def shown(self) -> str:
        """The form for people."""
        return self.plain if self.text is None else self.text


def word(text: object, tone: Tone = "") -> Cell:
    """Return a name, a sentence or other text as a cell."""
    if text is None or text == "":
        return Cell("", NOTHING, "dim")
    return Cell(str(text), tone=tone, wraps=True)


def phase(text: str | None) -> Cell:
    """Return a state as a cell, coloured by whether it is good."""
    return word(text, _PHASES.get(text or "", ""))


def yes(value: bool | None) -> Cell:  # noqa: FBT001 - the value to show
    """Return "yes" or "no" as a cell."""
    return word(None if value is None else ("yes" if value else "no"))


def count(number: int | None, tone: Tone = "") -> Cell:
    """Return a number as a cell."""
    if number is None:
        return Cell("", NOTHING, "dim", right=True)
    return Cell(str(number), f"{number:,}", tone, right=True)


def size(size_bytes: int | None) -> Cell:
    """Return a number of bytes as a cell."""
    if size_bytes is None:
        return count(None)
    return Cell(str(size_bytes), formatting.size(size_bytes), right=True)


def span(span_ms: float | None) -> Cell:
    """Return a duration as a cell."""
    if span_ms is None:
        return count(None)
    return Cell(str(round(span_ms)), formatting.duration(span_ms), right=True)


def when(time: str | None, *, utc: bool, now: datetime | None = None) -> Cell:
    """Return a time of the API with its zone; with `now`, also how long ago it was."""
    if time is None:
        return word(None)
    moment = datetime.fromisoformat(time)
    local = moment.astimezone(UTC if utc else None)
    shown = local.isoformat(sep=" ", timespec="seconds")
    if utc:
        shown = shown.replace("+00:00", "Z")
    if now is not None:
        age_ms = (now - moment).total_seconds() * 1_000
        span = formatting.duration(abs(age_ms))
        shown += f"  ({span} ago)" if age_ms >= 0 else f"  (in {span})"
    return Cell(moment.astimezone(UTC).isoformat().replace("+00:00", "Z"), shown)


def share(part: float | None, whole: float | None) -> Cell:
    """Return a part of a whole as a bar and a percentage."""
    if part is None or not whole:
        return Cell("", NOTHING, "dim")
    ratio = min(1.0, max(0.0, part / whole))
    return Cell(f"{100 * ratio:.1f}%", f"{100 * ratio:3.0f} %", ratio=ratio)


def position(document: Mapping[str, Any] | None) -> Cell:
    """Return the position of a record: topic-partition@offset."""
    if document is None:
        return word(None)
    offset = document.get("offset")
    end = "@?" if offset is None else f"@{offset}"
    return word(f"{document['topic']}-{document['partition']}{end}")


def source(document: Mapping[str, Any]) -> Cell:
    """Return a partition as a cell: topic-partition."""
    return Cell(f"{document['topic']}-{document['partition']}")


def age(time: str | None) -> Cell:
    """Return how long ago a time was."""
    if time is None:
        return word(None)
    moment = datetime.fromisoformat(time)
    passed_ms = (datetime.now(UTC) - moment).total_seconds() * 1_000
    plain = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return Cell(plain, f"{formatting.duration(max(0, passed_ms))} ago", right=True)


def text_of(value: object) -> str:
    """Return a value of a document as text: text unchanged, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def moment(text: str | None) -> str | None:
    """Return RFC 3339 for a time (`2026-01-02T03:04:05Z`, local without a zone) or `90m` ago.

    Raises ExitError for any other text.
    """
    if text is None:
        return None
    if (ago_ms := formatting.short_duration_ms(text)) is not None:
        return (datetime.now(UTC) - timedelta(milliseconds=ago_ms)).isoformat()
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError) as error:
        sentence = (
            f"{text!r} is not a time ({error}); write 2026-01-02T03:04:05Z, the same without zone "
            "for local time, or how long ago: 30s, 90m, 2h, 7d."
        )
        raise ExitError(ExitCode.USAGE, sentence) from error


def duration_ms(text: str) -> int:
    """Return the milliseconds of `30s`, `90m`, `2h` or `7d`; raise ExitError for other text."""
    found = formatting.short_duration_ms(text)
    if found is None:
        sentence = f"{text!r} is not a duration; write 250ms, 30s, 90m, 2h or 7d."
        raise ExitError(ExitCode.USAGE, sentence)
    return found
