"""Per-publisher state: an entry for each publisher, for the strategies that count numbers.

A rule, one file each, judges a claim by its publisher's entry alone and returns the next entry.
Entries are ordered by their last use, so that a rule may evict the least recently used.
"""

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, cast

from ringfence.headers import Reason
from state.keys import UnknownFormatError, prefix, reader_of, rest_of
from state.model import Claim, Edit, Origin, PackedPositions, PartitionId, Rejection
from state.segment import FORMAT
from state.strategies.base import Hit, Occupancy, StateChange, StrategySettings

E = TypeVar("E")

_STAMP: Final = struct.Struct("<BQ")
_ORIGIN: Final = struct.Struct("<IQQ")
# Measured roughly: key, entry and their places in two tables.
_ENTRY_BYTES: Final = 400


BY_HAND: Final = 2**64 - 1
"""In place of an offset: the number was set by an administrator."""


class PublisherPosition(NamedTuple):
    """The highest number of a publisher, and its stream where there are any."""

    number: int
    stream: int | None = None
    source: PartitionId | None = None
    """The partition that the publisher writes, where only one may be written."""


class PublisherRule(Protocol[E]):
    """How one strategy judges."""

    kind: bytes
    forgets: bool
    """Whether the publisher that was idle longest makes room for a new one."""
    covers: bool
    """Whether a number, once it is held, covers all before it."""

    def claims(self, claim: Claim) -> bool:
        """Whether a claim says what the rule asks for."""
        ...

    def room(self, settings: StrategySettings) -> int:
        """How many publishers an address holds."""
        ...

    def verdict(
        self, known: E | None, claim: Claim, source: PartitionId, settings: StrategySettings
    ) -> Rejection | None:
        """Why the claim is refused, or None."""
        ...

    def accepted(
        self, known: E | None, claim: Claim, origin: Origin, settings: StrategySettings
    ) -> E:
        """The entry after a record that was accepted."""
        ...

    def placed(
        self, claim: Claim, origin: Origin, settings: StrategySettings, missing: Iterable[int]
    ) -> E:
        """The entry of a publisher of which all up to a number is decided, but for some."""
        ...

    def standing(self, entry: E) -> PublisherPosition:
        """How far its publisher has come."""
        ...

    def pack(self, entry: E) -> bytes:
        """The entry as bytes."""
        ...

    def unpack(self, value: bytes) -> E:
        """The entry that `pack` wrote; struct.error, ValueError or IndexError for other bytes."""
        ...


class PublisherTable(Generic[E]):
    """See `Memory`."""

    def __init__(self, rule: PublisherRule[E], entries: Iterable[tuple[int, str, E]] = ()) -> None:
        self.rule = rule
        self.entries: OrderedDict[str, E] = OrderedDict()
        self.stamp = 0
        """Of the entry that was touched last."""
        for stamp, name, entry in sorted(entries):
            self.stamp = stamp
            self.entries[name] = entry

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def memory_bytes(self) -> int:
        """See `Memory.memory_bytes`."""
        return _ENTRY_BYTES * len(self.entries)

    def begin(
        self, settings: StrategySettings, _packed_positions: PackedPositions
    ) -> "PublisherDraft[E]":
        """See `Memory.begin`."""
        return PublisherDraft(self, settings)

    def apply(self, content: object) -> None:
        """See `Memory.apply`."""
        change = cast("_PublisherContent[E]", content)
        for name in change.gone:
            self.entries.pop(name, None)
        for name, entry in change.touched.items():
            self.entries[name] = entry
            self.entries.move_to_end(name)
        self.stamp += len(change.touched)

    def forget(self) -> None:
        """See `Memory.forget`: nothing is kept that is not needed."""

    def standing(self, name: str) -> PublisherPosition | None:
        """How far a publisher has come."""
        entry = self.entries.get(name)
        return None if entry is None else self.rule.standing(entry)


class _PublisherContent(NamedTuple, Generic[E]):
    gone: set[str]
    touched: OrderedDict[str, E]


class PublisherDraft(Generic[E]):
    """See `Draft`."""

    def __init__(self, memory: PublisherTable[E], settings: StrategySettings) -> None:
        self._memory = memory
        self._rule = memory.rule
        self._settings = settings
        self._touched: OrderedDict[str, E] = OrderedDict()
        self._gone: set[str] = set()
        self._count = len(memory)
        self._eldest: Iterator[str] = iter(memory.entries)
        self._heard: dict[str, None] = {}
        self._accepted = Counter[PartitionId]()
        self._make_room()  # the last life may have held more

    def accepted(self) -> Mapping[PartitionId, int]:
        """See `Draft.accepted`."""
        return self._accepted

    def deletions(self, _address: str) -> list[Edit]:
        """See `Draft.deletions`."""
        return []

    def verdict(self, claim: Claim, at: Origin) -> Rejection | None:
        """See `Draft.verdict`."""
        return self._verdict(self._known(claim.publisher or ""), self._count, claim, at)

    def verdicts(self, claims: Sequence[Claim], at: Sequence[Origin]) -> list[Rejection | None]:
        """See `Draft.verdicts`."""
        entries: dict[str, E] = {}
        found: list[Rejection | None] = []
        count = self._count
        for claim, place in zip(claims, at, strict=True):
            name = claim.publisher or ""
            known = entries.get(name) or self._known(name)
            why = self._verdict(known, count, claim, place)
            if why is not None and name in entries:
                why = why._replace(cause="of its group, one before it rules it out", original=None)
            found.append(why)
            if why is None:
                entries[name] = self._rule.accepted(known, claim, place, self._settings)
                count += known is None
        return found

    def repeated(self, claim: Claim, _at: Origin) -> None:
        """See `Draft.repeated`: a publisher that repeats itself is not idle."""
        name = claim.publisher or ""
        known = self._known(name)
        assert known is not None  # a repetition repeats something
        self._heard[name] = None
        if self._rule.forgets:
            self._touch(name, known)

    def remember(self, claim: Claim, at: Origin) -> None:
        """See `Draft.remember`."""
        name = claim.publisher or ""
        known = self._known(name)
        self._touch(name, self._rule.accepted(known, claim, at, self._settings))
        self._heard[name] = None
        self._accepted[PartitionId(at.topic, at.partition)] += 1
        if known is None:
            self._count += 1
        self._make_room()

    def covered(self) -> dict[str, int]:
        """Up to which number all is decided, of each publisher that was heard of."""
        if not self._rule.covers:
            return {}
        entries = {name: self._known(name) for name in self._heard}
        known = {name: entry for name, entry in entries.items() if entry is not None}
        return {name: self._rule.standing(entry).number for name, entry in known.items()}

    def place(self, claim: Claim, at: Origin, missing: Iterable[int] = ()) -> None:
        """Have a publisher stand where an administrator says, whatever it did before.

        `at` names the partition that it writes; numbers that are `missing` were never accepted.
        """
        name, origin = claim.publisher or "", at._replace(offset=BY_HAND)
        self._count += self._known(name) is None
        self._touch(name, self._rule.placed(claim, origin, self._settings, missing))
        self._heard[name] = None

    def sightings(self, identifiers: Sequence[bytes], _time_ms: int) -> list[list[Hit]]:
        """See `Draft.sightings`: there are no ids."""
        return [[] for _ in identifiers]

    def extent(self) -> Occupancy:
        """See `Draft.extent`."""
        return Occupancy(self._count)

    def change(self, address: str) -> StateChange | None:
        """See `Draft.change`."""
        if not self._touched and not self._gone:
            return None
        begin = prefix(self._rule.kind, address)
        edits = [Edit(begin + n.encode(), None) for n in self._gone if n not in self._touched]
        for stamp, (name, entry) in enumerate(self._touched.items(), self._memory.stamp + 1):
            value = _STAMP.pack(FORMAT, stamp) + self._rule.pack(entry)
            edits.append(Edit(begin + name.encode(), value))
        return StateChange(edits, _PublisherContent(self._gone, self._touched))

    def _verdict(self, known: E | None, count: int, claim: Claim, at: Origin) -> Rejection | None:
        room = self._rule.room(self._settings)
        if known is None and not self._rule.forgets and count >= room:
            cause = f"the address knows {room} publishers already, and publishers_max is no more"
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
        """Forget, where the rule forgets at all; else who is known stays known."""
        while self._rule.forgets and self._count > self._rule.room(self._settings):
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
"""By format: the stamp of an entry, and what its rule has packed."""


class PublisherStrategy(Generic[E]):
    """See `Strategy`: a rule with a memory of publishers."""

    def __init__(self, rule: PublisherRule[E]) -> None:
        self._rule = rule
        self.kind = rule.kind

    def claims(self, claim: Claim) -> bool:
        """See `Strategy.claims`."""
        return self._rule.claims(claim)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> PublisherTable[E]:
        """See `Strategy.load`; UnknownFormatError for what is not ours."""
        return PublisherTable(self._rule, [self._entry(key, value) for key, value in entries])

    def _entry(self, key: bytes, value: bytes) -> tuple[int, str, E]:
        try:
            stamp, packed = reader_of(value, _STAMPS)(value)
            return stamp, rest_of(key).decode(), self._rule.unpack(packed)
        except UnknownFormatError:
            raise
        except (struct.error, ValueError, IndexError) as error:
            raise UnknownFormatError(value[:64].hex()) from error


def told(number: int | None) -> int:
    """What a rule asks for: without it nothing is judged or remembered."""
    assert number is not None
    return number


def elsewhere(origin: Origin, source: PartitionId) -> Rejection:
    """A publisher that writes a second partition."""
    cause = (
        f"its publisher writes {origin.topic}-{origin.partition} and now "
        f"{source.topic}-{source.partition} too; a publisher writes one partition"
    )
    return Rejection(Reason.INVALID_CLAIM, cause)


def accepted_at(origin: Origin) -> tuple[str, str | None]:
    """Where a number was accepted: for a person, and as the original of a duplicate."""
    if origin.offset == BY_HAND:
        return "was set by an administrator", None
    return f"was accepted at {origin}", str(origin)


def pack_origin(origin: Origin) -> bytes:
    """A place and its time."""
    return _ORIGIN.pack(origin.partition, origin.offset, origin.time_ms) + origin.topic.encode()


def unpack_origin(value: bytes) -> Origin:
    """What `pack_origin` wrote."""
    partition, offset, time_ms = _ORIGIN.unpack_from(value)
    return Origin(value[_ORIGIN.size :].decode(), partition, offset, time_ms)
