"""Letter values: dead letters and redrives as they are asked for and told of.

Simple types and bytes throughout: they cross processes, and pages of the API are made of them.
"""

from typing import Final, Literal, NamedTuple

from ringfence.headers import REPEATED
from state.edit import Source

Mode = Literal["through", "forget", "bypass"]
MODES: Final[tuple[Mode, ...]] = ("through", "forget", "bypass")

State = Literal["running", "done", "cancelled", "failed"]


class LetterPlace(NamedTuple):
    """Where a dead letter stands."""

    topic: str
    partition: int
    offset: int


class Letter(NamedTuple):
    """A dead letter as its input had it, on its way to be decided anew; see `Record`."""

    at: int
    """Where it stands among the dead letters of its partition."""
    topic: str
    partition: int
    own_offset: int
    timestamp_ms: int
    own_key: bytes | None
    own_value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    redrives: int
    """How often it was redriven before."""

    @property
    def source(self) -> Source:
        """The partition of the input that it came from."""
        return Source(self.topic, self.partition)

    def key(self) -> bytes | None:
        """See `Record.key`."""
        return self.own_key

    def value(self) -> bytes | None:
        """See `Record.value`."""
        return self.own_value

    def offset(self) -> int:
        """See `Record.offset`."""
        return self.own_offset

    def timestamp(self) -> tuple[int, int]:
        """A kind that nobody asks for, and its time."""
        return 1, self.timestamp_ms


class LetterFilter(NamedTuple):
    """Which dead letters are meant; what is empty or None leaves none out."""

    topics: tuple[str, ...] = ()
    address: str | None = None
    reasons: tuple[str, ...] = ()
    from_ms: int | None = None
    """Of the decision, inclusive."""
    to_ms: int | None = None
    """Of the decision, exclusive."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Of the original headers; one of that name has that value, for each of them."""
    key: bytes | None = None

    @property
    def looks_into_payload(self) -> bool:
        """Whether who asks learns something of keys or headers."""
        return bool(self.headers) or self.key is not None


class ToldPlace(NamedTuple):
    """The input record that a dead letter was made of."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class DeadLetterView(NamedTuple):
    """A dead letter as it is read; of one that is not ours, `reason` and `source` are None."""

    place: LetterPlace
    time_ms: int
    """Of the decision."""
    reason: str | None
    cause: str | None
    source: ToldPlace | None
    address: str | None
    strategy: str | None
    identifier: str | None
    """In REST notation, perhaps cut."""
    original: str | None
    redrives: int
    """How often it was redriven before it came here."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The original ones."""


class LetterPage(NamedTuple):
    """Dead letters that a search has found."""

    letters: tuple[DeadLetterView, ...]
    scanned: int
    place: object | None
    """Where the search goes on, which JSON can hold; None at the end."""


class LetterCounts(NamedTuple):
    """What was counted of dead letters."""

    scanned: int
    matched: int
    foreign: int
    """Records that no Ringfence has written."""
    by_reason: dict[str, int]
    by_address: dict[str, int]
    by_topic: dict[str, int]
    by_hour_ms: dict[int, int]
    """By the beginning of the hour."""
    place: object | None
    """Where the count goes on; None at the end."""


class Order(NamedTuple):
    """What somebody wants redriven, and how."""

    mode: Mode
    filter: LetterFilter
    letters: tuple[LetterPlace, ...] = ()
    """These and no others; empty for all that the filter lets through."""
    max_per_second: float | None = None
    limit: int | None = None
    reason: str = ""
    actor: str = ""


class Progress(NamedTuple):
    """How far a redrive has come, in records."""

    scanned: int = 0
    matched: int = 0
    sent: int = 0
    accepted: int = 0
    """Written to an output."""
    refused: int = 0
    """Refused again: a dead letter once more, or dropped."""
    waiting: int = 0
    """Parked until its transaction group is whole."""
    failed: int = 0
    """Given up: the broker or the route does not take them."""
    skipped: dict[str, int] = {}  # noqa: RUF012 - a default of a tuple, never changed
    """Not redriven, by reason."""


class RedriveView(NamedTuple):
    """A redrive as it stands."""

    id: str
    order: Order
    state: State
    created_at_ms: int
    updated_at_ms: int
    ended_at_ms: int | None
    records_total: int
    """How many records there were to look at when it was ordered, about."""
    progress: Progress
    rate_per_second: float
    eta_s: float | None
    """None while nobody can tell."""
    waiting_for: str | None
    """Why it does not go on, in a sentence."""
    error: str | None
    """Why it has failed, in a sentence."""

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1: of the records, or of its limit."""
        if self.state == "done":
            return 1.0
        shares = [self.progress.scanned / max(1, self.records_total)]
        if self.order.limit is not None:
            shares.append(self.progress.matched / self.order.limit)
        return min(1.0, max(shares))


class RedrivePreview(NamedTuple):
    """What a redrive would be about."""

    order: Order
    records_total: int
    counts: LetterCounts
    skipped: dict[str, int]
    """What cannot be redriven, by reason; foreign records do not count as matched."""
    samples: tuple[DeadLetterView, ...]

    @property
    def redrives(self) -> int:
        """How many of those that were counted would be redriven, at most."""
        unable = sum(number for why, number in self.skipped.items() if why != "foreign")
        able = self.counts.matched - unable
        return able if self.order.limit is None else min(able, self.order.limit)

    @property
    def doubles(self) -> int:
        """How many of those that match the output would then hold twice, at most."""
        if self.order.mode == "through":
            return 0
        found = sum(self.counts.by_reason.get(reason, 0) for reason in REPEATED)
        return min(found, self.redrives)
