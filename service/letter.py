"""Letter: a dead letter as it is read: what its headers tell, and the record that it was made of.

Ours stand after the original headers; of several sets the last is ours, and those before it belong
to the record, which was somebody's dead letter when it came to us. A record without such a set is
foreign: it is told of, and never redriven.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ringfence.headers import DeadLetter
from service.letter_values import (
    DeadLetterView,
    Letter,
    LetterFilter,
    LetterPlace,
    ToldPlace,
)
from service.route import Headers

_OURS: Final = frozenset(name.value for name in DeadLetter)
_PARTITIONS_MAX: Final = 2**31
_OFFSETS_MAX: Final = 2**63


class Told(NamedTuple):
    """The headers of a dead letter: the original ones, and what ours say."""

    original: Headers
    ours: dict[str, str]
    source: ToldPlace | None
    """None of a record that is not ours."""


def told(headers: Headers) -> Told:
    """What the headers of a record in a dead-letter topic tell."""
    start = next((row for row in reversed(range(len(headers))) if _begins(headers[row])), None)
    if start is None:
        return Told(headers, {}, None)
    ours = {
        name: value.decode(errors="replace")
        for name, value in headers[start:]
        if name in _OURS and value is not None
    }
    source = _source(ours)
    if source is None:
        return Told(headers, {}, None)
    rest = [header for header in headers[start:] if header[0] not in _OURS]
    return Told([*headers[:start], *rest], ours, source)


def view_of(
    place: LetterPlace, time_ms: int, key: bytes | None, value: bytes | None, headers: Headers
) -> DeadLetterView:
    """A record of a dead-letter topic as it is shown."""
    original, ours, source = told(headers)
    return DeadLetterView(
        place=place,
        time_ms=time_ms,
        reason=ours.get(DeadLetter.REASON),
        cause=ours.get(DeadLetter.CAUSE),
        source=source,
        address=ours.get(DeadLetter.ADDRESS),
        strategy=ours.get(DeadLetter.STRATEGY),
        identifier=ours.get(DeadLetter.ID),
        original=ours.get(DeadLetter.ORIGINAL),
        redrives=_number(ours.get(DeadLetter.REDRIVES), _OFFSETS_MAX) or 0,
        key=key,
        value=value,
        headers=tuple(original),
    )


def letter_of(view: DeadLetterView) -> Letter | None:
    """The record that a dead letter was made of; None where it is not ours."""
    if view.source is None:
        return None
    topic, partition, offset, timestamp_ms = view.source
    return Letter(
        at=view.place.offset,
        topic=topic,
        partition=partition,
        own_offset=offset,
        timestamp_ms=timestamp_ms,
        own_key=view.key,
        own_value=view.value,
        headers=view.headers,
        redrives=view.redrives,
    )


def matches(view: DeadLetterView, wanted: LetterFilter) -> bool:
    """Whether a filter lets a dead letter through; its topics are not looked at."""
    if wanted.address is not None and view.address != wanted.address:
        return False
    if wanted.reasons and view.reason not in wanted.reasons:
        return False
    if wanted.from_ms is not None and view.time_ms < wanted.from_ms:
        return False
    if wanted.to_ms is not None and view.time_ms >= wanted.to_ms:
        return False
    if wanted.key is not None and view.key != wanted.key:
        return False
    return all(header in view.headers for header in wanted.headers)


def _begins(header: Sequence[object]) -> bool:
    return header[0] == DeadLetter.REASON.value


def _source(ours: dict[str, str]) -> ToldPlace | None:
    topic = ours.get(DeadLetter.TOPIC)
    partition = _number(ours.get(DeadLetter.PARTITION), _PARTITIONS_MAX)
    offset = _number(ours.get(DeadLetter.OFFSET), _OFFSETS_MAX)
    if not topic or partition is None or offset is None:
        return None
    time = ours.get(DeadLetter.TIMESTAMP, "")
    timestamp_ms = _number(time, _OFFSETS_MAX)
    return ToldPlace(topic, partition, offset, -1 if timestamp_ms is None else timestamp_ms)


def _number(text: str | None, limit: int) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    return int(text) if int(text) < limit else None
