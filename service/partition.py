"""Partition: one deciding partition as this instance holds it, from the grant to the loss.

Granted by the group, it is `ASSIGNED` until the committed offset is known, `RESTORING` until its
store equals the changelog, and `RUNNING` from then on. Only a running one is read.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from service.route import InputRoute
from state.changelog import OffsetMetadata
from state.edit import Source
from state.run import address_of, prefix
from state.store import Identity, Store


class Phase(Enum):
    """Where a partition stands; the values are what status shows."""

    ASSIGNED = "assigned"
    RESTORING = "restoring"
    RUNNING = "running"


class Log(NamedTuple):
    """The offsets that a log has: from `start` up to, not including, `end`."""

    start: int
    end: int


class Facts(NamedTuple):
    """What the broker says of a partition when it is taken over."""

    committed_offset: int | None
    metadata: OffsetMetadata | None
    input: Log
    changelog: Log
    identity: Identity


@dataclass(slots=True)
class Partition:
    """Owned by the loop; changed only between batches and in the group's callbacks."""

    source: Source
    route: InputRoute
    changelog: Source
    partitions: int
    """How many partitions the input topic has."""
    phase: Phase = Phase.ASSIGNED
    store: Store | None = None
    facts: Facts | None = None
    committed_offset: int | None = None
    next_offset: int = 0
    changelog_next: int = 0
    restored_records: int = 0
    """Changelog records that were replayed when it was taken over."""
    to_clear: bool = False
    """Its state is to be forgotten, by a transaction, before it is read."""
    time_ms: int = 0
    """The largest of min(record timestamp, wall clock) so far; it never goes back."""
    addresses: set[str] = field(default_factory=set)


def addresses_of(store: Store) -> set[str]:
    """Every address that a store holds something of, found by skipping from one to the next."""
    found: set[str] = set()
    key = store.next_key(b"r")
    while key is not None and key.startswith(b"r"):
        address = address_of(key)
        found.add(address)
        key = store.next_key(prefix(address) + b"\xff" * 9)
    return found
