"""Strategy: how an address remembers. One file each; `registry.py` lists them by name.

An address has a `CommittedState`. A batch adds a `Draft` to it; dropping the draft is the abort.
A strategy knows neither Kafka nor RocksDB nor a clock: it is given the time of the partition.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ringfence.headers import Reason
from state.model import Claim, Edit, Origin, PackedPositions, PartitionId, Rejection


class StrategySettings(Protocol):
    """What strategies are told by the settings of an address."""

    @property
    def capacity(self) -> int:
        """How many ids a ring holds."""
        ...

    @property
    def window_ms(self) -> int:
        """For how long a window holds an id."""
        ...

    @property
    def window_size(self) -> int:
        """How many ids a window holds."""
        ...

    @property
    def refresh_on_hit(self) -> bool:
        """Whether a duplicate begins the time of its id anew."""
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
        """How far a producer may jump ahead."""
        ...

    @property
    def below_window(self) -> str:
        """What a number below the window is: `duplicate`, or `accept` as ActiveMQ has it."""
        ...


class StateChange(NamedTuple):
    """What a draft makes known of its address: for the changelog, and for memory."""

    edits: list[Edit]
    content: object


class Hit(NamedTuple):
    """A record whose id is known."""

    origin: Origin
    """Where it was accepted; the time is that of the last sight."""
    slots_to_eviction: int
    """How many other ids may come before it is forgotten for their number."""


class Occupancy(NamedTuple):
    """How much is held, and from when to when. What goes by numbers knows no times."""

    held: int
    oldest_ms: int | None = None
    newest_ms: int | None = None
    horizon_ms: int | None = None
    """From the oldest to the newest, once the number of ids is what makes it forget."""


class Draft(Protocol):
    """One batch on one address: it sees its own additions, and nobody else does.

    `at` is where a record stands, with the deciding partition's time.
    """

    def accepted(self) -> Mapping[PartitionId, int]:
        """How many records it has accepted, by where they came from."""
        ...

    def deletions(self, address: str) -> list[Edit]:
        """What is deleted whatever the batch brings; known before its first record."""
        ...

    def verdict(self, claim: Claim, at: Origin) -> Rejection | None:
        """Why the claim is refused, or None. Changes nothing."""
        ...

    def verdicts(self, claims: Sequence[Claim], at: Sequence[Origin]) -> list[Rejection | None]:
        """Why each is refused where they come as one group, in order. Changes nothing."""
        ...

    def repeated(self, claim: Claim, at: Origin) -> None:
        """A duplicate was told of: some strategies remember it longer for that."""
        ...

    def remember(self, claim: Claim, at: Origin) -> None:
        """The record with this claim was accepted."""
        ...

    def sightings(self, identifiers: Sequence[bytes], time_ms: int) -> list[list[Hit]]:
        """Where each id was accepted, for whomever; nowhere where numbers are held.

        Changes nothing.
        """
        ...

    def extent(self) -> Occupancy:
        """What is held before the batch adds anything."""
        ...

    def change(self, address: str) -> StateChange | None:
        """What to write and, after the commit, to apply; None when nothing changed."""
        ...


class CommittedState(Protocol):
    """What an address has committed."""

    @property
    def memory_bytes(self) -> int:
        """What it takes, about."""
        ...

    def __len__(self) -> int:
        """How many ids or publishers it holds."""
        ...

    def begin(self, settings: StrategySettings, packed_positions: PackedPositions) -> Draft:
        """Begin the only batch; `packed_positions` are those of the deciding partition."""
        ...

    def apply(self, content: object) -> None:
        """Take over what a draft's change has told, after its commit."""
        ...

    def forget(self) -> None:
        """Let go what no verdict depends on any more; there is no hurry."""
        ...


class Strategy(Protocol):
    """How to come by a memory."""

    kind: bytes
    """The kind of its keys."""

    def claims(self, claim: Claim) -> bool:
        """Whether a claim says what the strategy asks for."""
        ...

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> CommittedState:
        """The memory of an address from its keys and values, in the order of the keys."""
        ...


def verdicts_by_name(
    draft: Draft, claims: Sequence[Claim], at: Sequence[Origin], name: Callable[[Claim], Hashable]
) -> list[Rejection | None]:
    """See `Draft.verdicts`: where the name of a claim is all that it is judged by."""
    before: set[Hashable] = set()
    found: list[Rejection | None] = []
    for claim, place in zip(claims, at, strict=True):
        why = draft.verdict(claim, place)
        if why is None:
            if name(claim) in before:
                why = Rejection(Reason.DUPLICATE, "its id stands in its group before")
            before.add(name(claim))
        found.append(why)
    return found
