"""Formatting: numbers, sizes, times and durations for people, in console and commands. Pure.

Times are UTC, with the date unless it is today. A number has its unit beside it or in the head of
its column. Durations are also read here, in every form that people write.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

NONE: Final = "\N{EN DASH}"
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_SPANS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_NUMBER: Final = r"\d{1,12}(?:\.\d+)?"  # longer numbers exceed what JSON and clocks can represent
_ISO: Final = re.compile(
    rf"P(?:(?P<d>{_NUMBER})D)?"
    rf"(?:T(?:(?P<h>{_NUMBER})H)?(?:(?P<m>{_NUMBER})M)?(?:(?P<s>{_NUMBER})S)?)?"
)
_SHORT: Final = re.compile(rf"({_NUMBER})(ms|s|min|m|h|d)")
_UNIT_MS: Final = dict(_SPANS) | {"ms": 1, "m": 60_000}


def number(value: float | None) -> str:
    """Return a count, with commas between thousands."""
    return NONE if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return a rate per second; below 10 with one decimal."""
    if value is None:
        return NONE
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def short(value: float) -> str:
    """Return a number for a scale, such as 1.5k or 20M."""
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{prefix}"
    return f"{value:.3g}"


def size(bytes_: float | None) -> str:
    """Return a size in bytes, in the unit that leaves one to four digits."""
    if bytes_ is None:
        return NONE
    value, unit = float(bytes_), 0
    while value >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return (
        f"{value:.0f} {_SIZES[unit]}"
        if unit == 0 or value >= 100
        else f"{value:.1f} {_SIZES[unit]}"
    )


def duration(ms: float | None) -> str:
    """Return a duration in its two largest units."""
    if ms is None:
        return NONE
    if ms < 1_000:
        return f"{ms:.0f} ms" if ms >= 1 or ms == 0 else f"{ms:.1f} ms"
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    left = round(ms / 1000) * 1000
    parts: list[str] = []
    for unit, length in _SPANS:
        count, left = divmod(left, length)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def seconds(value: float | None) -> str:
    """Return a duration, given in seconds."""
    return duration(None if value is None else value * 1000)


def percent(share: float | None) -> str:
    """Return a share of 1 as a percentage."""
    if share is None:
        return NONE
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{share * 100:.1f} %" if share < 0.1 else f"{share * 100:.0f} %"


def moment(text: str | None) -> datetime | None:
    """Parse a time of the API."""
    return None if text is None else datetime.fromisoformat(text)


def clock(time: datetime, now: datetime) -> str:
    """Return the time of day in UTC, with the date unless it is today."""
    utc = time.astimezone(UTC)
    if utc.date() == now.astimezone(UTC).date():
        return f"{utc:%H:%M:%S}"
    return f"{utc:%Y-%m-%d %H:%M:%S}"


def ago(time: datetime, now: datetime) -> str:
    """Return how long ago a time was."""
    passed_ms = (now - time) / timedelta(milliseconds=1)
    if passed_ms < 1_000:
        return "now"
    return f"{duration(max(1_000, passed_ms // 1_000 * 1_000))} ago"


def sentence(text: str | None) -> str:
    """Return the text with a capital first letter; empty for None."""
    return text[:1].upper() + text[1:] if text else ""


def plural(count: float, one: str, many: str | None = None) -> str:
    """Return a count and its noun."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def short_duration_ms(text: str) -> int | None:
    """Return the milliseconds of `250ms`, `30s`, `90m`, `2h` or `7d`; None for other formats."""
    found = _SHORT.fullmatch(text)
    return None if found is None else round(float(found[1]) * _UNIT_MS[found[2]])


def duration_ms(text: str) -> int | None:
    """Return the milliseconds of `PT30M`, `30m` or `1800` (seconds); None for other formats."""
    found = _ISO.fullmatch(text)
    if found and any(found.groups()):
        return round(sum(float(value) * _UNIT_MS[u] for u, value in found.groupdict("0").items()))
    return round(float(text) * 1000) if re.fullmatch(_NUMBER, text) else short_duration_ms(text)
