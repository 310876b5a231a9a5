"""Plan: the effects of one batch as a value. One transaction applies all of it or none of it."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ringfence.headers import Headers, acknowledgements, bookmark
from service.dedup.address import AddressContext
from service.dedup.partition import OwnedPartition
from service.dedup.pending_groups import GroupsChange
from state.cache import BatchTooLargeError
from state.model import Edit, PartitionId
from state.strategies.base import CommittedState
from state.strategies.per_publisher import PublisherDraft

Output = tuple[str, bytes | None, bytes | None, int, None, None, int, Headers]
"""What `Producer.produce` takes, in its order: topic, value, key, partition or BY_KEY, no delivery
report, no partitioner, timestamp in ms since the epoch (0: now), headers."""

NO_TIME_MS = sys.maxsize
"""Later than any record."""

BY_KEY = -1
"""Let the producer choose by murmur2 of the key, as Java's clients do."""


class AddressChange(NamedTuple):
    """What the commit makes known of one address on one partition."""

    partition: OwnedPartition
    address: str
    memory: CommittedState
    content: object
    """What the memory takes over."""


class DuplicateExample(NamedTuple):
    """One duplicate of a transaction, for a person to look at."""

    route: str
    address: str
    source: PartitionId
    offset: int
    identifier: bytes | None
    original: str | None
    headers: Headers


@dataclass(slots=True)
class BatchCounts:
    """How many records met which fate: by (route, address), and rejected by (route, reason)."""

    accepted: Counter[tuple[str, str]] = field(default_factory=Counter)
    duplicates: Counter[tuple[str, str]] = field(default_factory=Counter)
    dead_letters: Counter[tuple[str, str]] = field(default_factory=Counter)
    consumed: Counter[str] = field(default_factory=Counter)
    """Records that met their fate here, by route."""
    bytes_consumed: Counter[str] = field(default_factory=Counter)
    carried: Counter[str] = field(default_factory=Counter)
    """Records that meet it elsewhere, by route."""
    redriven: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Dead letters that were decided anew, by mode and what became of them."""
    records_read: int = 0
    bytes_read: int = 0
    """In memory."""
    oldest_ms: int = NO_TIME_MS
    """The least timestamp."""
    newest_ms: int = 0
    """The greatest."""
    distances_ms: list[int] = field(default_factory=list, compare=False)
    """Times from accepted records to their duplicates, as far as they are known at no cost."""
    example: DuplicateExample | None = field(default=None, compare=False)
    """The first duplicate that was met."""


@dataclass(slots=True)
class Plan:
    """Filled by `decide`; read by the commit. The outputs go out meanwhile and are not kept."""

    edits: dict[PartitionId, list[Edit]] = field(default_factory=dict)
    """By changelog partition."""
    volatile: dict[PartitionId, list[Edit]] = field(default_factory=dict)
    """By input partition: what is remembered in no log."""
    next_offsets: dict[PartitionId, int] = field(default_factory=dict)
    """By input partition: the offset after the last record decided."""
    times_ms: dict[PartitionId, int] = field(default_factory=dict)
    groups: dict[PartitionId, GroupsChange] = field(default_factory=dict)
    """By input partition: groups that were begun, grew or ended."""
    is_bounded: bool = False
    """Whether it may be read again in smaller pieces, so that it must not take too much memory."""
    released_bytes: int = 0
    """Of the groups that end with this transaction."""
    is_partial: bool = False
    """Whether it clears a part of what a partition remembers, and others follow."""
    given_up: set[tuple[PartitionId, int]] = field(default_factory=set)
    """Places of records that are dead-lettered without any being read."""
    rewritten: list[tuple[PartitionId, str]] = field(default_factory=list)
    """Caches of which some runs are written anew."""
    replaced: list[tuple[PartitionId, str]] = field(default_factory=list)
    """Caches of which all is written anew."""
    sealed: list[AddressChange] = field(default_factory=list)
    tally: BatchCounts = field(default_factory=BatchCounts)
    on_headers: Callable[[Sequence[Headers | None]], None] | None = None
    """Is shown the headers of what is read, where the transaction is traced."""

    def release(self, size_bytes: int, bytes_max: int) -> bool:
        """Count a group of this size that ends; returns whether more may end than have to.

        BatchTooLargeError where several are larger than allowed.
        """
        is_first = not self.released_bytes
        self.released_bytes += size_bytes
        if self.is_bounded and not is_first and self.released_bytes > bytes_max:
            raise BatchTooLargeError
        return self.released_bytes < bytes_max // 2


def acknowledged(group_id: str, contexts: Iterable[AddressContext], now_ms: int) -> list[Output]:
    """The records for the addresses of one transaction."""
    topic = acknowledgements(group_id)
    found: list[Output] = []
    for context in contexts:
        if not isinstance(context.draft, PublisherDraft):
            continue
        for publisher, number in context.draft.covered().items():
            payload = {"sequence": number, "bookmark": bookmark(publisher, number).decode()}
            key, value = _text([context.name, publisher]), _text(payload)
            found.append((topic, value, key, 0, None, None, now_ms, []))
    return found


def _text(payload: object) -> bytes:
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
