"""Per-publisher state: one entry per publisher, for the strategies that judge by number.

A rule, one file each, judges a claim by its publisher's entry alone and returns the next entry.
A rule for sequence numbers also says what a number means, and can set one.
Entries are ordered by their last use, so that a rule may evict the least recently used.
"""

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, cast

from ringfence_client.headers import NUMBER, PREVIOUS, PUBLISHER, STREAM, Reason
from ringfence_state.keys import UnknownFormatError, prefix, reader_of, rest_of
from ringfence_state.model import (
    NO_CLAIM,
    Claim,
    Edit,
    Origin,
    PackedPositions,
    PartitionId,
    Rejection,
)
from ringfence_state.segment import FORMAT
from ringfence_state.strategies.base import (
    CommittedState,
    Draft,
    DuplicateKey,
    Forms,
    HeldId,
    HeldInMemory,
    HeldNumber,
    Hit,
    Occupancy,
    PublisherPosition,
    StateChange,
    StrategySettings,
    WholeState,
)

E = TypeVar("E")

NUMBER_HEADERS: Final = frozenset({PUBLISHER, NUMBER, STREAM, PREVIOUS})
"""The headers that number rules read; an invalid one is rejected, whichever rule it is."""

_STAMP: Final = struct.Struct("<BQ")
_ORIGIN: Final = struct.Struct("<IQQ")
_ENTRY_BYTES: Final = 400
"""Measured roughly: key, entry and their slots in two tables."""


BY_HAND: Final = 2**64 - 1
"""Takes the place of an offset: an administrator has set the number."""


class PublisherRule(Protocol[E]):
    """How one strategy judges a claim by its publisher's entry."""

    kind: bytes
    size_key: str
    """The setting that limits how many publishers an address holds."""
    publisher_headers: frozenset[str]
    """The headers about the publisher that a claim is read from."""
    required_headers: tuple[str, ...]
    """The headers without which a record is no claim; empty if an id suffices."""
    evicts: bool
    """Whether a new publisher evicts the one that was idle longest."""

    @property
    def identity(self) -> DuplicateKey | None:
        """What a duplicate repeats, as in `Strategy`."""
        ...

    def claims(self, claim: Claim) -> bool:
        """Return whether the claim has what the rule needs."""
        ...

    def verdict(
        self, known: E | None, claim: Claim, source: PartitionId, settings: StrategySettings
    ) -> Rejection | None:
        """Return why the claim is rejected, or None."""
        ...

    def accepted(
        self, known: E | None, claim: Claim, origin: Origin, settings: StrategySettings
    ) -> E:
        """Return the entry after the record was accepted."""
        ...

    def pack(self, entry: E) -> bytes:
        """Return the entry as bytes."""
        ...

    def unpack(self, value: bytes) -> E:
        """Return the entry that `pack` wrote.

        Raises struct.error, ValueError or IndexError for other bytes.
        """
        ...


class NumberRule(PublisherRule[E], Protocol):
    """A rule that judges by sequence numbers; the flags are those of `Numbers`."""

    is_cumulative: bool
    has_streams: bool
    has_bookmarks: bool

    @property
    def missing(self) -> Callable[[E, StrategySettings], Sequence[int]] | None:
        """Returns the numbers below its position that a publisher skipped; None if none can be."""
        ...

    def entry_at(
        self, claim: Claim, origin: Origin, settings: StrategySettings, missing: Iterable[int]
    ) -> E:
        """Return the entry of a publisher that an administrator set to this number.

        All numbers up to it count as accepted, except the `missing` ones.
        """
        ...

    def standing(self, entry: E) -> PublisherPosition:
        """Return the position of the publisher."""
        ...


class PublisherTable(WholeState, Generic[E]):
    """The committed entries of an address, in the order of their last use."""

    def __init__(
        self, strategy: "PublisherStrategy[E]", entries: Iterable[tuple[int, str, E]] = ()
    ) -> None:
        self.strategy = strategy
        self.entries: OrderedDict[str, E] = OrderedDict()
        self.stamp = 0
        """The stamp of the entry that was used last."""
        for stamp, name, entry in sorted(entries):
            self.stamp = stamp
            self.entries[name] = entry

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        return _ENTRY_BYTES * len(self.entries)

    @property
    def ids_held(self) -> int:
        """Return 0: publishers are held."""
        return 0

    def begin(
        self, settings: StrategySettings, _packed_positions: PackedPositions
    ) -> "PublisherDraft[E]":
        """Begin the draft of a batch; at most one is open at a time."""
        return PublisherDraft(self, settings)

    def apply(self, content: object) -> None:
        """Apply the content of a committed change."""
        change = cast("_PublisherContent[E]", content)
        for name in change.gone:
            self.entries.pop(name, None)
        for name, entry in change.touched.items():
            self.entries[name] = entry
            self.entries.move_to_end(name)
        self.stamp += len(change.touched)


class _PublisherContent(NamedTuple, Generic[E]):
    gone: set[str]
    touched: OrderedDict[str, E]


class PublisherDraft(Generic[E]):
    """One batch on the publishers of one address."""

    def __init__(self, memory: PublisherTable[E], settings: StrategySettings) -> None:
        self._memory = memory
        self._rule = memory.strategy.rule
        self._numbers = memory.strategy.numbers
        self._room: int = getattr(settings, memory.strategy.size_key)
        self._settings = settings
        self._touched: OrderedDict[str, E] = OrderedDict()
        self._gone: set[str] = set()
        self._count = len(memory)
        self._eldest: Iterator[str] = iter(memory.entries)
        self._seen: dict[str, None] = {}
        self._accepted = Counter[PartitionId]()
        self._make_room()  # before a restart, the settings may have allowed more

    @property
    def by_id(self) -> None:
        """None: a verdict depends on the publisher."""
        return

    def accepted(self) -> Mapping[PartitionId, int]:
        """Return how many records were accepted, by source partition."""
        return self._accepted

    def deletions(self, _address: str) -> list[Edit]:
        """Return the deletions that are known before the first record: none."""
        return []

    def verdict(self, claim: Claim, at: Origin) -> Rejection | None:
        """Return why the claim is rejected, or None."""
        return self._verdict(self._known(claim.publisher or ""), self._count, claim, at)

    def verdicts(self, claims: Sequence[Claim], at: Sequence[Origin]) -> list[Rejection | None]:
        """Return the verdicts of a group whose records are judged together."""
        entries: dict[str, E] = {}
        found: list[Rejection | None] = []
        count = self._count
        for claim, origin in zip(claims, at, strict=True):
            name = claim.publisher or ""
            known = entries.get(name) or self._known(name)
            why = self._verdict(known, count, claim, origin)
            if why is not None and name in entries:
                cause = "an earlier record of its group rules it out"
                why = why._replace(cause=cause, original=None)
            found.append(why)
            if why is None:
                entries[name] = self._rule.accepted(known, claim, origin, self._settings)
                count += known is None
        return found

    def repeated(self, claim: Claim, _at: Origin) -> None:
        """Note a duplicate: a publisher that repeats itself is not idle."""
        name = claim.publisher or ""
        known = self._known(name)
        assert known is not None  # a repetition repeats something
        self._seen[name] = None
        if self._rule.evicts:
            self._touch(name, known)

    def remember(self, claim: Claim, at: Origin) -> None:
        """Add an accepted record."""
        name = claim.publisher or ""
        known = self._known(name)
        self._touch(name, self._rule.accepted(known, claim, at, self._settings))
        self._seen[name] = None
        self._accepted[PartitionId(at.topic, at.partition)] += 1
        if known is None:
            self._count += 1
        self._make_room()

    def covered(self) -> dict[str, int]:
        """Return the number up to which all is decided, for each publisher of the batch."""
        if self._numbers is None or not self._numbers.is_cumulative:
            return {}
        rule = self._numbers.rule
        entries = {name: self._known(name) for name in self._seen}
        known = {name: entry for name, entry in entries.items() if entry is not None}
        return {name: rule.standing(entry).number for name, entry in known.items()}

    def renew(self, _claim: Claim) -> Claim:
        """Return the empty claim: what a publisher has sent is not taken back."""
        return NO_CLAIM

    def set_position(self, claim: Claim, at: Origin, missing: Iterable[int]) -> None:
        """Set a publisher to the number of the claim, as `Numbers.place` describes."""
        assert self._numbers is not None  # it has called
        name, origin = claim.publisher or "", at._replace(offset=BY_HAND)
        self._count += self._known(name) is None
        self._touch(name, self._numbers.rule.entry_at(claim, origin, self._settings, missing))
        self._seen[name] = None

    def sightings(self, identifiers: Sequence[bytes], _time_ms: int) -> list[list[Hit]]:
        """Return an empty list for each id: no ids are held."""
        return [[] for _ in identifiers]

    def extent(self) -> Occupancy:
        """Return what is held before the batch adds anything."""
        return Occupancy(self._count)

    def time_of(self, _rank: int) -> None:
        """Return None: publishers are held, without times."""
        return

    def change(self, address: str) -> StateChange | None:
        """Return what to write and to apply after the commit; None without a change."""
        if not self._touched and not self._gone:
            return None
        begin = prefix(self._rule.kind, address)
        edits = [Edit(begin + n.encode(), None) for n in self._gone if n not in self._touched]
        for stamp, (name, entry) in enumerate(self._touched.items(), self._memory.stamp + 1):
            value = _STAMP.pack(FORMAT, stamp) + self._rule.pack(entry)
            edits.append(Edit(begin + name.encode(), value))
        return StateChange(edits, _PublisherContent(self._gone, self._touched))

    def _verdict(self, known: E | None, count: int, claim: Claim, at: Origin) -> Rejection | None:
        if known is None and not self._rule.evicts and count >= self._room:
            limit = f"the limit of {self._memory.strategy.size_key}"
            cause = f"the address already has {self._room} publishers, {limit}"
            return Rejection(Reason.INVALID_CLAIM, cause)
        return self._rule.verdict(known, claim, PartitionId(at.topic, at.partition), self._settings)

    def _known(self, name: str) -> E | None:
        found = self._touched.get(name)
        if found is None and name not in self._gone:
            found = self._memory.entries.get(name)
        return found

    def _touch(self, name: str, entry: E) -> None:
        self._touched[name] = entry
        self._touched.move_to_end(name)

    def _make_room(self) -> None:
        """Evict publishers above the limit, if the rule evicts at all."""
        while self._rule.evicts and self._count > self._room:
            self._forget_eldest()

    def _forget_eldest(self) -> None:
        self._count -= 1
        for name in self._eldest:
            if name not in self._touched:
                self._gone.add(name)
                return
        name, _ = self._touched.popitem(last=False)
        if name in self._memory.entries:
            self._gone.add(name)


def _stamp_1(value: bytes) -> tuple[int, bytes]:
    _, stamp = _STAMP.unpack_from(value)
    return int(stamp), value[_STAMP.size :]


_STAMPS: Final[Mapping[int, Callable[[bytes], tuple[int, bytes]]]] = {1: _stamp_1}
"""Readers by format; each returns the stamp of an entry and what its rule has packed."""


class PublisherStrategy(HeldInMemory, Generic[E]):
    """A strategy made of a rule and a table of publishers."""

    time_key = ""
    holds_ids = False
    refreshes = False
    numbers: "PublisherNumbers[E] | None" = None

    def __init__(self, rule: PublisherRule[E]) -> None:
        self.rule = rule
        self.kind = rule.kind
        self.size_key = rule.size_key
        self.publisher_headers = rule.publisher_headers
        self.required_headers = rule.required_headers
        self.identity = rule.identity

    def claims(self, claim: Claim) -> bool:
        """Return whether the claim has what the strategy needs."""
        return self.rule.claims(claim)

    def check(self, key: bytes, value: bytes) -> None:
        """Raise UnknownFormatError for an entry that this version did not write."""
        self.load([(key, value)])

    @property
    def forms(self) -> Forms:
        """One form: every entry is in memory."""
        return Forms(self.load)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> PublisherTable[E]:
        """Return the table of an address; raise UnknownFormatError as `Strategy.load` does."""
        return PublisherTable(self, [self._entry(key, value) for key, value in entries])

    def held_ids(
        self, _entries: Iterable[tuple[bytes, bytes]], _settings: StrategySettings
    ) -> Iterator[HeldId]:
        """Yield nothing: publishers are held."""
        return iter(())

    def _entry(self, key: bytes, value: bytes) -> tuple[int, str, E]:
        try:
            stamp, packed = reader_of(value, _STAMPS)(value)
            return stamp, rest_of(key).decode(), self.rule.unpack(packed)
        except UnknownFormatError:
            raise
        except (struct.error, ValueError, IndexError) as error:
            raise UnknownFormatError(value[:64].hex()) from error


class NumberStrategy(PublisherStrategy[E]):
    """A strategy whose rule judges by sequence numbers."""

    def __init__(self, rule: NumberRule[E]) -> None:
        super().__init__(rule)
        self.numbers = PublisherNumbers(rule)


class PublisherNumbers(Generic[E]):
    """What a strategy with a number rule does with sequence numbers; implements `Numbers`."""

    def __init__(self, rule: NumberRule[E]) -> None:
        self.rule = rule
        self.is_cumulative = rule.is_cumulative
        self.has_streams = rule.has_streams
        self.has_missing = rule.missing is not None
        self.has_bookmarks = rule.has_bookmarks

    def standing(self, memory: CommittedState, publisher: str) -> PublisherPosition | None:
        """Return the position of a publisher; None if it is unknown."""
        entry = cast("PublisherTable[E]", memory).entries.get(publisher)
        return None if entry is None else self.rule.standing(entry)

    def held(self, memory: CommittedState, settings: StrategySettings) -> Iterator[HeldNumber]:
        """Yield every publisher, the least recently used first."""
        for publisher, entry in cast("PublisherTable[E]", memory).entries.items():
            missing = None if self.rule.missing is None else self.rule.missing(entry, settings)
            yield HeldNumber(publisher, self.rule.standing(entry), missing)

    def set_position(self, draft: Draft, claim: Claim, at: Origin, missing: Iterable[int]) -> None:
        """Set a publisher to the number of the claim, whatever its position was before."""
        cast("PublisherDraft[E]", draft).set_position(claim, at, missing)


def required(number: int | None) -> int:
    """Return a number that `claims` has checked to be present."""
    assert number is not None
    return number


def second_partition(origin: Origin, source: PartitionId) -> Rejection:
    """Return the rejection of a publisher that writes a second partition."""
    cause = (
        f"its publisher writes {origin.topic}-{origin.partition} and now also "
        f"{source.topic}-{source.partition}; a publisher writes one partition"
    )
    return Rejection(Reason.INVALID_CLAIM, cause)


def accepted_at(origin: Origin) -> tuple[str, str | None]:
    """Return where a number was accepted: as text for people, and as a duplicate's original."""
    if origin.offset == BY_HAND:
        return "was set by an administrator", None
    return f"was accepted at {origin}", str(origin)


def pack_origin(origin: Origin) -> bytes:
    """Return an origin as bytes."""
    return _ORIGIN.pack(origin.partition, origin.offset, origin.time_ms) + origin.topic.encode()


def unpack_origin(value: bytes) -> Origin:
    """Return the origin that `pack_origin` wrote."""
    partition, offset, time_ms = _ORIGIN.unpack_from(value)
    return Origin(value[_ORIGIN.size :].decode(), partition, offset, time_ms)
