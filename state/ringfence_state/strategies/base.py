"""Strategy interface: how an address remembers. One file each; `registry.py` lists them by name.

An address has a `CommittedState`. A batch adds a `Draft` to it; dropping the draft is the abort.
A strategy knows neither Kafka nor RocksDB nor a clock: the time of the partition is passed in.
What only some strategies can do is a capability of `Strategy`, which is None or empty elsewhere.
Invariant: code outside this folder asks for capabilities, never for a strategy's class or name.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from ringfence_client.headers import Reason
from ringfence_state.keys import address_of, after, prefix
from ringfence_state.model import Claim, Edit, Origin, PackedPositions, PartitionId, Rejection
from ringfence_state.segment import decode, newest_ms_of
from ringfence_state.store import Store
from ringfence_state.stored_segments import StoredSegments


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
    """Time from the oldest to the newest id, if one was evicted that should be known; else None."""


Admit = Callable[[bytes, int, int], int | None]
"""Takes an id, its packed position and its time; returns its number if it is known.

A new id is added, and the result is None.
"""


class IdDraft(Protocol):
    """A draft that judges a record by its id alone, and adds it in the same step."""

    @property
    def admit(self) -> Admit:
        """The function that judges ids, and adds new ones."""
        ...

    def origin(self, number: int) -> Origin:
        """Return the origin of a known id, this batch included."""
        ...

    def refresh(self, identifier: bytes, number: int, time_ms: int) -> None:
        """Note that a duplicate of a known id was found: some strategies restart its time."""
        ...


class Draft(Protocol):
    """The uncommitted changes of one batch to one address; only the batch sees them.

    `at` is the position of a record, with the deciding partition's time.
    """

    @property
    def by_id(self) -> IdDraft | None:
        """The draft itself, if it can judge and add a record in one step; else None."""
        ...

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

    def renew(self, claim: Claim) -> Claim:
        """Make a known claim new; return the claim to remember its record by.

        That claim is empty if the strategy takes nothing back: the record changes no state then.
        Else the caller remembers it before any other call, or drops the draft.
        """
        ...

    def covered(self) -> Mapping[str, int]:
        """Return the number up to which all is decided, for each publisher of the batch.

        Empty for strategies whose numbers do not cover the numbers before them.
        """
        ...

    def sightings(self, identifiers: Sequence[bytes], time_ms: int) -> list[list[Hit]]:
        """Return the hits of each id, one list per id, for all publishers.

        The lists are empty for strategies that hold no ids. Changes nothing.
        """
        ...

    def extent(self) -> Occupancy:
        """Return what is held before the batch adds anything."""
        ...

    def time_of(self, rank: int) -> int | None:
        """Return when a held id was last seen, before the batch adds anything.

        `rank` counts from the oldest, 0. None for strategies that hold no times.
        """
        ...

    def change(self, address: str) -> StateChange | None:
        """Return what to write and to apply after the commit; None without a change."""
        ...


class CommittedState(Protocol):
    """The committed state of an address, in memory."""

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes; only `apply`, `reread` and `shrink` change it."""
        ...

    @property
    def ids_held(self) -> int:
        """How many ids are held; 0 for strategies that hold publishers."""
        ...

    @property
    def ids_evicted(self) -> int:
        """How many ids capacity has evicted, from any starting point; 0 if they are not counted."""
        ...

    def has_outgrown(self, whole_ids_max: int) -> bool:
        """Whether another form suits its size better; the next use has to load it again.

        `whole_ids_max` limits states with all ids in memory that have another form.
        """
        ...

    def reread(self) -> bool:
        """Drop copies of entries that were rewritten; return False if it has to be loaded again."""
        ...

    def shrink(self) -> bool:
        """Give back memory that only makes decisions faster; return False if there is none."""
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


class HeldId(NamedTuple):
    """An id that an address holds."""

    identifier: bytes
    origin: Origin
    publisher: bytes = b""
    """The publisher that the id counts for; empty if it counts for all."""


class RankedId(NamedTuple):
    """An id of a list in the order of acceptance, with its number."""

    number: int
    identifier: bytes
    origin: Origin


class StoredIds(Protocol):
    """The ids that an address holds, listed from the store; they need not be in memory."""

    @property
    def floor(self) -> int:
        """The number of the oldest id."""
        ...

    @property
    def following(self) -> int:
        """The number after the newest id."""
        ...

    def newest_first(self, below: int) -> Iterator[RankedId]:
        """Yield the ids with numbers below `below`."""
        ...

    def oldest_first(self, first: int, end: int) -> Iterator[RankedId]:
        """Yield the ids with numbers from `first` to below `end`."""
        ...

    def slots_to_eviction(self, number: int) -> int:
        """Return how many other ids may be added before capacity evicts this one."""
        ...


class PublisherPosition(NamedTuple):
    """The highest number of a publisher, and its stream if the strategy has streams."""

    number: int
    stream: int | None = None
    source: PartitionId | None = None
    """The partition that the publisher writes, if the strategy allows only one."""


class HeldNumber(NamedTuple):
    """A publisher that an address holds."""

    publisher: str
    position: PublisherPosition
    missing: Sequence[int] | None
    """The numbers below its position that were never accepted; None if none can be."""


class Numbers(Protocol):
    """What a strategy does with the sequence numbers of publishers."""

    is_cumulative: bool
    """Whether a number, once held, covers all numbers before it."""
    has_streams: bool
    """Whether a number belongs to a stream."""
    has_missing: bool
    """Whether numbers below the highest may be missing."""
    has_bookmarks: bool
    """Whether a forwarded record carries a bookmark, with a number of its own if it had none."""

    def standing(self, memory: CommittedState, publisher: str) -> PublisherPosition | None:
        """Return the position of a publisher; None if it is unknown."""
        ...

    def held(self, memory: CommittedState, settings: StrategySettings) -> Iterator[HeldNumber]:
        """Yield every publisher."""
        ...

    def set_position(self, draft: Draft, claim: Claim, at: Origin, missing: Iterable[int]) -> None:
        """Set a publisher to the number of the claim, whatever its position was before.

        `at` names the partition that it writes; the `missing` numbers were never accepted.
        """
        ...


class DuplicateKey(NamedTuple):
    """The fields of a claim by which one record is a duplicate of another."""

    required: tuple[str, ...]
    """Without one of these the record is neither checked nor remembered."""
    optional: tuple[str, ...] = ()
    """Records that differ here are not duplicates of each other; absent is a value too."""


class Forms(NamedTuple):
    """How states are loaded: from all entries, or with most of them left in the store."""

    whole: Callable[[Iterable[tuple[bytes, bytes]]], CommittedState]
    stored: Callable[[StoredSegments], CommittedState] | None = None
    """For those with many ids; None if there is no such form."""
    check: Callable[[bytes], object] = decode
    """Raises UnknownFormatError for a value that this version did not write."""
    replayed: "Callable[[Store], Replayed | None]" = lambda _store: None
    """Returns what is to see the changelog of a store while it is replayed; None if nothing is."""


class Replayed(Protocol):
    """What prepares states while the changelog is replayed into their store."""

    def take(self, edits: Sequence[Edit]) -> None:
        """See the next edits, which the store has applied."""
        ...

    def finish(self) -> None:
        """End: all edits were seen."""
        ...


class Strategy(Protocol):
    """Loads the committed state of an address, and says what else can be done with it."""

    kind: bytes
    """The kind of its keys."""
    size_key: str
    """The setting that limits how many ids or publishers are held; empty if none ever are."""
    time_key: str
    """The setting that limits how long an id is held; empty if none does."""
    holds_ids: bool
    """Whether it holds ids, which may be imported; else publishers."""
    publisher_headers: frozenset[str]
    """The headers about the publisher that a claim is read from."""
    required_headers: tuple[str, ...]
    """The headers without which a record is no claim; empty if an id suffices."""
    refreshes: bool
    """Whether a duplicate may restart the time of its id."""

    @property
    def identity(self) -> DuplicateKey | None:
        """What a duplicate repeats; None if a verdict depends on more than what was accepted."""
        ...

    @property
    def numbers(self) -> Numbers | None:
        """What it does with sequence numbers; None if it decides by something else."""
        ...

    @property
    def forms(self) -> Forms:
        """How its states are loaded. A process may choose before it loads the first of them."""
        ...

    def claims(self, claim: Claim) -> bool:
        """Return whether the claim has what the strategy needs."""
        ...

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> CommittedState:
        """Return the state of an address from its keys and values, in key order.

        Raises UnknownFormatError for an entry that this version did not write.
        """
        ...

    def check(self, key: bytes, value: bytes) -> None:
        """Raise UnknownFormatError for an entry that this version did not write."""
        ...

    def extent(self, store: Store, address: str, settings: StrategySettings) -> Occupancy | None:
        """Return the occupancy from few entries of the store; None if it has to be loaded.

        Raises UnknownFormatError if an entry is damaged or missing.
        """
        ...

    def stored_ids(
        self, store: Store, address: str, settings: StrategySettings
    ) -> StoredIds | None:
        """Return the list of its ids; None if they are in no order, or it holds none.

        With a list, single ids can be forgotten: `Draft.renew`, then `renewals`.
        """
        ...

    def renewals(self, store: Store, address: str, draft: Draft) -> list[Edit]:
        """Return the edits that remove what the draft has renewed from stored entries."""
        ...

    def newest_ms(self, store: Store, address: str, enough_ms: int) -> int | None:
        """Return the latest time of a stored id, or one from `enough_ms` on; None if there is none.

        It loads nothing. Raises UnknownFormatError if an entry is damaged.
        """
        ...

    def clear(self, store: Store, address: str) -> list[Edit]:
        """Return the edits that leave the address empty."""
        ...

    def held_ids(
        self, entries: Iterable[tuple[bytes, bytes]], settings: StrategySettings
    ) -> Iterator[HeldId]:
        """Yield the ids that these entries hold; none for strategies that hold publishers."""
        ...


class HasForms:
    """The part of `Strategy` that loads states, for those with more than one form."""

    forms: ClassVar[Forms]

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> CommittedState:
        """Return the state of an address with all of its ids in memory, see `Strategy.load`."""
        return self.forms.whole(entries)

    def check(self, key: bytes, value: bytes) -> None:
        """Raise UnknownFormatError for an entry that this version did not write."""
        address_of(key)
        self.forms.check(value)


class HeldInMemory:
    """The parts of `Strategy` that are the same for all whose states are always in memory."""

    kind: bytes

    def extent(self, _store: Store, _address: str, _settings: StrategySettings) -> Occupancy | None:
        """Return None: it has to be loaded."""
        return None

    def stored_ids(
        self, _store: Store, _address: str, _settings: StrategySettings
    ) -> StoredIds | None:
        """Return None: ids are in no order."""
        return None

    def renewals(self, _store: Store, _address: str, _draft: Draft) -> list[Edit]:
        """Return no edits: what is remembered again replaces what was stored."""
        return []

    def newest_ms(self, _store: Store, _address: str, _enough_ms: int) -> int | None:
        """Return None: publishers are held, and a number may count without a time."""
        return None

    def clear(self, store: Store, address: str) -> list[Edit]:
        """Return a deletion for each entry."""
        return [Edit(key, None) for key, _ in store.scan(prefix(self.kind, address))]


class WholeState:
    """The parts of `CommittedState` that are the same for all whose strategy has no other form."""

    ids_evicted = 0
    """They are not counted."""

    def reread(self) -> bool:
        """Return False: its entries are in memory."""
        return False

    def has_outgrown(self, _whole_ids_max: int) -> bool:
        """No: there is one form."""
        return False

    def shrink(self) -> bool:
        """Return False: every entry is needed."""
        return False


def newest_in_segments(store: Store, kind: bytes, address: str, enough_ms: int) -> int | None:
    """Implement `Strategy.newest_ms` for strategies that store segments.

    The newest segment usually has it. Imported ids may be older than those before them, so all
    segments are read unless one of them has a time from `enough_ms` on.
    """
    begin, found = prefix(kind, address), list[int]()
    key = store.previous_key(after(kind, address))
    while key is not None and key.startswith(begin):
        newest_ms = newest_ms_of(store.get(key) or b"")
        if newest_ms is not None:
            found.append(newest_ms)
            if newest_ms >= enough_ms:
                break
        key = store.previous_key(key)
    return max(found, default=None)


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
