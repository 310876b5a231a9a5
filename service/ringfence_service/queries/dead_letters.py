"""Dead letters as they are searched, shown and redriven: positions, filters, views and redrives."""

from typing import Literal, NamedTuple

from ringfence_client.headers import REPEATED, DeadLetter, Headers
from ringfence_service.dedup.dead_letter import (
    Mode,
    RedrivenRecord,
    SourcePosition,
    parse_headers,
)

State = Literal["running", "done", "cancelled", "failed"]


class DeadLetterPosition(NamedTuple):
    """The position of a dead letter in its topic."""

    topic: str
    partition: int
    offset: int


class DeadLetterFilter(NamedTuple):
    """Which dead letters a request selects; an empty or None field selects all."""

    topics: tuple[str, ...] = ()
    address: str | None = None
    reasons: tuple[str, ...] = ()
    from_ms: int | None = None
    """Start of the decision times, inclusive."""
    to_ms: int | None = None
    """End of the decision times, exclusive."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Names and values that the original headers must all contain."""
    key: bytes | None = None
    source: tuple[str, int, int] | None = None
    """Topic, partition and offset of the record in its input. Not for redrives."""
    identifier: str | None = None
    """The id in the form of the envelope. Not for redrives."""

    @property
    def looks_into_payload(self) -> bool:
        """Whether the result reveals something about keys or headers."""
        return bool(self.headers) or self.key is not None


class DeadLetterView(NamedTuple):
    """A dead letter as read; `reason` and `source` are None if Ringfence did not write it."""

    position: DeadLetterPosition
    time_ms: int
    """Time of the decision."""
    reason: str | None
    cause: str | None
    source: SourcePosition | None
    address: str | None
    strategy: str | None
    identifier: str | None
    """In REST notation, cut if it is long."""
    original: str | None
    redrives: int
    """How often the record was redriven before it was dead-lettered."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The original headers, without the envelope."""


class InputRecord(NamedTuple):
    """A record of an input as it is in its topic, to compare with a dead letter."""

    position: DeadLetterPosition
    time_ms: int
    """Timestamp of the record; negative if it has none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    address: str | None = None
    """Its address, as its route reads it now."""
    identifier: bytes | None = None
    """Its id, likewise."""
    id_error: str | None = None
    """Why it has no address or no id, as a sentence without its period."""


class Absence(NamedTuple):
    """Why no record can be read at a position."""

    why: Literal["topic", "partition", "deleted", "end", "gap", "open"]
    """`topic`: it is not a dead-letter topic. `partition`: the topic has no such partition.
    `deleted`: the offset is below the start of the log. `end`: it is at or above the end. `gap`: no
    record has it. `open`: an open transaction hides whether a record has it."""
    start: int = 0
    """The first offset of the partition."""
    end: int = 0
    """The offset after its last record."""


class DeadLetterPage(NamedTuple):
    """One page of a search for dead letters."""

    letters: tuple[DeadLetterView, ...]
    scanned: int
    cursor: object | None
    """The JSON-serialisable cursor of the next page; None at the end."""


class DeadLetterCounts(NamedTuple):
    """Counts of dead letters by several keys."""

    scanned: int
    matched: int
    foreign: int
    """Records that Ringfence did not write."""
    by_reason: dict[str, int]
    by_address: dict[str, int]
    by_topic: dict[str, int]
    by_hour_ms: dict[int, int]
    """By the start of the hour, in ms."""
    cursor: object | None
    """The cursor where the count continues; None at the end."""


class RedriveRequest(NamedTuple):
    """Which dead letters to redrive, and how."""

    mode: Mode
    filter: DeadLetterFilter
    letters: tuple[DeadLetterPosition, ...] = ()
    """Only these dead letters; empty for all that the filter selects."""
    max_per_second: float | None = None
    limit: int | None = None
    reason: str = ""
    actor: str = ""


class RedriveProgress(NamedTuple):
    """Progress of a redrive, in records."""

    scanned: int = 0
    matched: int = 0
    sent: int = 0
    accepted: int = 0
    """Written to an output."""
    refused: int = 0
    """Rejected again: dead-lettered once more, or dropped."""
    waiting: int = 0
    """Pending until their transaction group is complete."""
    failed: int = 0
    """Given up: the broker or the route does not accept them."""
    skipped: dict[str, int] = {}  # noqa: RUF012 - a default of a tuple, never changed
    """Records that were not redriven, by reason."""


class RedriveView(NamedTuple):
    """A redrive and its current state."""

    id: str
    order: RedriveRequest
    state: State
    created_at_ms: int
    updated_at_ms: int
    ended_at_ms: int | None
    records_total: int
    """About how many records there were to scan when it was ordered."""
    progress: RedriveProgress
    rate_per_second: float
    eta_s: float | None
    """None while it cannot be estimated."""
    waiting_for: str | None
    """Why it does not continue, as a sentence."""
    error: str | None
    """Why it failed, as a sentence."""

    @property
    def share(self) -> float:
        """How much is done, from 0 to 1: of the records, or of the limit if that is further."""
        if self.state == "done":
            return 1.0
        shares = [self.progress.scanned / max(1, self.records_total)]
        if self.order.limit is not None:
            shares.append(self.progress.matched / self.order.limit)
        return min(1.0, max(shares))


class RedriveEstimate(NamedTuple):
    """What a redrive would do, from a dry run."""

    order: RedriveRequest
    records_total: int
    counts: DeadLetterCounts
    skipped: dict[str, int]
    """Dead letters that cannot be redriven, by reason; foreign records are not in `matched`."""
    samples: tuple[DeadLetterView, ...]

    @property
    def redrives(self) -> int:
        """How many of the counted dead letters would be redriven, at most."""
        unable = sum(number for why, number in self.skipped.items() if why != "foreign")
        able = self.counts.matched - unable
        return able if self.order.limit is None else min(able, self.order.limit)

    @property
    def doubles(self) -> int:
        """How many records the output would then contain twice, at most."""
        if self.order.mode == "through":
            return 0
        found = sum(self.counts.by_reason.get(reason, 0) for reason in REPEATED)
        return min(found, self.redrives)


def view_of(
    position: DeadLetterPosition,
    time_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> DeadLetterView:
    """Build the view of a record in a dead-letter topic."""
    parsed = parse_headers(headers)
    envelope = parsed.envelope
    return DeadLetterView(
        position=position,
        time_ms=time_ms,
        reason=envelope.get(DeadLetter.REASON),
        cause=envelope.get(DeadLetter.CAUSE),
        source=parsed.source,
        address=envelope.get(DeadLetter.ADDRESS),
        strategy=envelope.get(DeadLetter.STRATEGY),
        identifier=envelope.get(DeadLetter.ID),
        original=envelope.get(DeadLetter.ORIGINAL),
        redrives=parsed.redrives,
        key=key,
        value=value,
        headers=tuple(parsed.original),
    )


def letter_of(view: DeadLetterView) -> RedrivenRecord | None:
    """Return the original record of a dead letter; None if Ringfence did not write it."""
    if view.source is None:
        return None
    topic, partition, offset, timestamp_ms = view.source
    return RedrivenRecord(
        at=view.position.offset,
        topic=topic,
        partition=partition,
        own_offset=offset,
        timestamp_ms=timestamp_ms,
        own_key=view.key,
        own_value=view.value,
        headers=view.headers,
        redrives=view.redrives,
    )


def matches(view: DeadLetterView, criteria: DeadLetterFilter) -> bool:
    """Whether a filter selects a dead letter; its topics are not compared."""
    wanted_and_found = (
        (criteria.address, view.address),
        (criteria.key, view.key),
        (criteria.identifier, view.identifier),
        (criteria.source, (view.source or ())[:3]),
    )
    if any(wanted is not None and wanted != found for wanted, found in wanted_and_found):
        return False
    if criteria.reasons and view.reason not in criteria.reasons:
        return False
    if criteria.from_ms is not None and view.time_ms < criteria.from_ms:
        return False
    if criteria.to_ms is not None and view.time_ms >= criteria.to_ms:
        return False
    return all(header in view.headers for header in criteria.headers)
