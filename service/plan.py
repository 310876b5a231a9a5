"""Plan: what one batch will do, as a value: all of it in one transaction, or none of it."""

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from service.partition import Partition
from service.route import Headers
from state.cache import AnyRing
from state.edit import Edit, Source
from state.run import Run

Output = tuple[str, bytes | None, bytes | None, int, None, None, int, Headers]
"""What `Producer.produce` takes, in its order: topic, value, key, partition or BY_KEY, no delivery
report, no partitioner, timestamp in ms since the epoch (0: now), headers."""

NO_TIME_MS = sys.maxsize
"""Later than any record."""

BY_KEY = -1
"""Let the producer choose by murmur2 of the key, as Java's clients do."""


class Sealed(NamedTuple):
    """What the commit makes known of one address on one partition."""

    partition: Partition
    address: str
    ring: AnyRing
    runs: tuple[Run, ...]
    deleted: int
    """How many outlived runs are deleted with it."""


@dataclass(slots=True)
class Tally:
    """How many records met which fate: by (route, address), and rejected by (route, reason)."""

    accepted: Counter[tuple[str, str]] = field(default_factory=Counter)
    duplicates: Counter[tuple[str, str]] = field(default_factory=Counter)
    dead_letters: Counter[tuple[str, str]] = field(default_factory=Counter)
    consumed: Counter[str] = field(default_factory=Counter)
    bytes_consumed: Counter[str] = field(default_factory=Counter)
    oldest_ms: int = NO_TIME_MS
    """The least timestamp."""


@dataclass(slots=True)
class Plan:
    """Filled by `decide`; read by the commit. The outputs go out meanwhile and are not kept."""

    edits: dict[Source, list[Edit]] = field(default_factory=dict)
    """By changelog partition."""
    next_offsets: dict[Source, int] = field(default_factory=dict)
    """By input partition: the offset after the last record decided."""
    times_ms: dict[Source, int] = field(default_factory=dict)
    sealed: list[Sealed] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
