"""Plan: the effects of one batch as a value. One transaction applies all of it or none of it."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ringfence_client.headers import Headers
from ringfence_service.dedup.duplicate_samples import DuplicateSamples
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.pending_groups import GroupsChange
from ringfence_service.errors import AwaitedError
from ringfence_state.cache import BatchTooLargeError
from ringfence_state.model import Edit, PartitionId
from ringfence_state.strategies.base import CommittedState

OnDelivery = Callable[[Any, Any], None]
"""Takes a delivery report: the client's error or None, and its message."""

Output = tuple[str, bytes | None, bytes | None, int, OnDelivery | None, None, int, Headers]
"""Arguments of `Producer.produce`, in order: topic, value, key, partition or BY_KEY, callback for
the delivery report or None, no partitioner, timestamp in ms since the epoch (0: now), headers."""

NO_TIME_MS = sys.maxsize
"""A time later than that of any record."""

BY_KEY = -1
"""The producer chooses by murmur2 of the key, like the Java client."""


class AddressChange(NamedTuple):
    """The committed change of one address on one partition."""

    partition: OwnedPartition
    address: str
    memory: CommittedState
    content: object
    """What `memory` applies; its type depends on the strategy."""


class Unchecked(StrEnum):
    """Why a record was accepted without a check whether it is a duplicate."""

    NO_ID = "no-id"
    """It claims nothing that its address checks."""
    UNREADABLE = "unreadable"
    """The document that would have its id cannot be decoded."""
    OFF = "off"
    """Its address detects no duplicates."""


@dataclass(slots=True)
class BatchCounts:
    """Record counts of a transaction by (route, cache); dead letters by (route, reason)."""

    accepted: Counter[tuple[str, str]] = field(default_factory=Counter)
    duplicates: Counter[tuple[str, str]] = field(default_factory=Counter)
    dead_letters: Counter[tuple[str, str]] = field(default_factory=Counter)
    consumed: Counter[str] = field(default_factory=Counter)
    """Records decided here, by route."""
    bytes_consumed: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[tuple[str, Unchecked]] = field(default_factory=Counter)
    """Of the accepted records those that passed without a check, by route and reason."""
    unchecked_causes: dict[tuple[str, Unchecked], str] = field(default_factory=dict)
    """Why the first of these records has no id, by route and reason."""
    stamped: Counter[str] = field(default_factory=Counter)
    """Of the accepted records those that got an id made of their position, by route."""
    carried: Counter[str] = field(default_factory=Counter)
    """Records forwarded to the second hop, by route."""
    replies: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Replies that records asked for, by route and result."""
    redriven: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Dead letters that were decided again, by mode and outcome."""
    records_read: int = 0
    bytes_read: int = 0
    """Estimated size in memory, headers included."""
    oldest_ms: int = NO_TIME_MS
    """The smallest timestamp."""
    newest_ms: int = 0
    """The largest timestamp."""
    distances_ms: list[int] = field(default_factory=list, compare=False)
    """Times from accepted records to their duplicates, where known at no extra cost."""
    samples: DuplicateSamples | None = field(default=None, compare=False)
    """Duplicates that are to be compared with their originals; None if none are."""


@dataclass(slots=True)
class Plan:
    """Filled by the decider, read by the commit. Outputs are sent meanwhile and not kept."""

    edits: dict[PartitionId, list[Edit]] = field(default_factory=dict)
    """By changelog partition."""
    volatile: dict[PartitionId, list[Edit]] = field(default_factory=dict)
    """By input partition: edits that go to no changelog."""
    next_offsets: dict[PartitionId, int] = field(default_factory=dict)
    """By input partition: the offset after the last record decided."""
    times_ms: dict[PartitionId, int] = field(default_factory=dict)
    groups: dict[PartitionId, GroupsChange] = field(default_factory=dict)
    """By input partition: groups that started, grew or ended."""
    is_bounded: bool = False
    """Whether to fail rather than exceed memory: it can be read again in smaller pieces."""
    released_bytes: int = 0
    """Size of the groups that end in this transaction."""
    is_partial: bool = False
    """Whether it clears only a part of a partition's state, and further plans follow."""
    given_up: set[tuple[PartitionId, int]] = field(default_factory=set)
    """Positions of pending records that are dead-lettered without reading a record."""
    rewritten: list[tuple[PartitionId, str]] = field(default_factory=list)
    """Caches of which some segments are rewritten."""
    replaced: list[tuple[PartitionId, str]] = field(default_factory=list)
    """Caches that are rewritten as a whole."""
    expired: list[tuple[PartitionId, tuple[str, ...]]] = field(default_factory=list)
    """The caches of each address that has expired, on one partition."""
    sealed: list[AddressChange] = field(default_factory=list)
    tally: BatchCounts = field(default_factory=BatchCounts)
    is_traced: bool = False
    """Whether delivery reports name the records that are refused."""
    waiting: dict[PartitionId, AwaitedError] = field(default_factory=dict)
    """By partition that has a record which cannot be decided yet; none from it on is."""
    on_headers: Callable[[Sequence[Headers | None]], None] | None = None
    """Callback for the headers of each slice, if the transaction is traced."""

    def release(self, size_bytes: int, bytes_max: int) -> bool:
        """Count a group of this size that ends; return whether more may end than have to.

        BatchTooLargeError if several groups together are larger than `bytes_max`.
        """
        is_first = not self.released_bytes
        self.released_bytes += size_bytes
        if self.is_bounded and not is_first and self.released_bytes > bytes_max:
            raise BatchTooLargeError
        return self.released_bytes < bytes_max // 2
