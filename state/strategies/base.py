"""Strategy interface: how an address remembers. One file each; `registry.py` lists them by name.

An address has a `CommittedState`. A batch adds a `Draft` to it; dropping the draft is the abort.
A strategy knows neither Kafka nor RocksDB nor a clock: the time of the partition is passed in.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ringfence.headers import Reason
from state.model import Claim, Edit, Origin, PackedPositions, PartitionId, Rejection


class StrategySettings(Protocol):
    """The settings of an address that strategies read."""

    @property
    def capacity(self) -> int:
        """How many ids a ring holds."""
        ...

    @property
    def window_ms(self) -> int:
        """How long a window holds an id, in milliseconds."""
        ...

    @property
    def window_size(self) -> int:
        """How many ids a window holds."""
        ...

    @property
    def refresh_on_hit(self) -> bool:
        """Whether a duplicate restarts the time of its id."""
        ...

    @property
    def publishers_max(self) -> int:
        """How many publishers `sequence` and `ordered` hold."""
        ...

    @property
    def audit_depth(self) -> int:
        """How many numbers of a producer `audit` holds."""
        ...

    @property
    def audit_producers(self) -> int:
        """How many producers `audit` holds."""
        ...

    @property
    def audit_jump_max(self) -> int:
        """How far above its highest number a producer may jump."""
        ...

    @property
    def below_window(self) -> str:
        """How to judge a number below the window: `duplicate`, or `accept` as ActiveMQ does."""
        ...


class StateChange(NamedTuple):
    """The changes of a draft: edits for changelog and store, content for `CommittedState.apply`."""

    edits: list[Edit]
    content: object


class Hit(NamedTuple):
    """An accepted record with a known id."""

    origin: Origin
    """Where it was accepted; the time is that of the last time the id was seen."""
    slots_to_eviction: int
    """How many other ids may be added before capacity evicts this one."""


class Occupancy(NamedTuple):
    """How many ids or publishers are held, and the times of the oldest and the newest.

    Strategies that hold numbers have no times.
    """

    held: int
    oldest_ms: int | None = None
    newest_ms: int | None = None
    horizon_ms: int | None = None
    """Time from the oldest to the newest id, once capacity evicts; else None."""


class Draft(Protocol):
    """The uncommitted changes of one batch to one address; only the batch sees them.

    `at` is the position of a record, with the deciding partition's time.
    """

    def accepted(self) -> Mapping[PartitionId, int]:
        """Return how many records were accepted, by source partition."""
        ...

    def deletions(self, address: str) -> list[Edit]:
        """Return the deletions that do not depend on the batch; known before its first record."""
        ...

    def verdict(self, claim: Claim, at: Origin) -> Rejection | None:
        """Return why the claim is rejected, or None. Changes nothing."""
        ...

    def verdicts(self, claims: Sequence[Claim], at: Sequence[Origin]) -> list[Rejection | None]:
        """Return the verdicts of a group whose records are judged in order. Changes nothing."""
        ...

    def repeated(self, claim: Claim, at: Origin) -> None:
        """Note that a duplicate was reported: some strategies remember its id longer for that."""
        ...

    def remember(self, claim: Claim, at: Origin) -> None:
        """Add an accepted record."""
        ...

    def sightings(self, identifiers: Sequence[bytes], time_ms: int) -> list[list[Hit]]:
        """Return the hits of each id, one list per id, for all publishers.

        The lists are empty for strategies that hold numbers. Changes nothing.
        """
        ...

    def extent(self) -> Occupancy:
        """Return what is held before the batch adds anything."""
        ...

    def change(self, address: str) -> StateChange | None:
        """Return what to write and to apply after the commit; None without a change."""
        ...


class CommittedState(Protocol):
    """The committed state of an address, in memory."""

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        ...

    def __len__(self) -> int:
        """Return how many ids or publishers are held."""
        ...

    def begin(self, settings: StrategySettings, packed_positions: PackedPositions) -> Draft:
        """Begin the draft of a batch; at most one is open at a time.

        `packed_positions` are those of the deciding partition.
        """
        ...

    def apply(self, content: object) -> None:
        """Apply the content of a draft's change, after its commit."""
        ...

    def forget(self) -> None:
        """Free what no verdict depends on any more; may be deferred."""
        ...


class Strategy(Protocol):
    """Loads the committed state of an address."""

    kind: bytes
    """The kind of its keys."""

    def claims(self, claim: Claim) -> bool:
        """Return whether the claim has what the strategy needs."""
        ...

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> CommittedState:
        """Return the state of an address from its keys and values, in key order.

        Raises UnknownFormatError for an entry that this version did not write.
        """
        ...


def verdicts_by_name(
    draft: Draft, claims: Sequence[Claim], at: Sequence[Origin], name: Callable[[Claim], Hashable]
) -> list[Rejection | None]:
    """Implement `Draft.verdicts` for strategies that judge a claim by its name alone."""
    before: set[Hashable] = set()
    found: list[Rejection | None] = []
    for claim, origin in zip(claims, at, strict=True):
        why = draft.verdict(claim, origin)
        if why is None:
            if name(claim) in before:
                why = Rejection(Reason.DUPLICATE, "an earlier record of its group has the same id")
            before.add(name(claim))
        found.append(why)
    return found
