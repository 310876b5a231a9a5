"""Pending groups: the transaction groups of a partition that wait for the rest of their records.

A group is a name on an address. Its records are in the state (`state/pending_group.py`); this
module tracks which of them have arrived. Invariant: `PendingGroups` equals the content of the
store, and additions and removals of a transaction are visible to its `PendingGroupsDraft` alone
until the commit.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from state.model import Edit
from state.pending_group import GroupPosition, PendingRecord, decode, encode, parked_in
from state.store import Store


class GroupName(NamedTuple):
    """A group of an address."""

    address: str
    group: bytes


@dataclass(slots=True)
class PendingGroup:
    """Which positions are there, with the bytes of each record."""

    size: int
    begun: int
    """The offset of the record that began it."""
    bytes_of: dict[int, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return len(self.bytes_of) == self.size

    @property
    def bytes(self) -> int:
        """Of all records that are there."""
        return sum(self.bytes_of.values())


GroupsChange = Mapping[GroupName, PendingGroup | None]
"""Groups as a transaction leaves them; None: ended."""


class PendingGroups:
    """What waits on one partition."""

    def __init__(self) -> None:
        self.open: dict[GroupName, PendingGroup] = {}
        self._seen_s: dict[GroupName, float] = {}

    @classmethod
    def of(cls, store: Store) -> "PendingGroups":
        """What a store holds; their time begins anew."""
        groups = cls()
        for group_position, record in parked_in(store):
            name = GroupName(group_position.address, group_position.group)
            group = groups.open.setdefault(name, PendingGroup(record.size, record.begun))
            group.bytes_of[group_position.position] = len(encode(record))
        return groups

    def apply(self, change: GroupsChange) -> None:
        """Take over what a transaction has committed."""
        for name, group in change.items():
            earlier = self.open.pop(name, None)
            if group is not None:
                self.open[name] = group
            if group is None or earlier is None or earlier.begun != group.begun:
                self._seen_s.pop(name, None)  # one that begins where another ended has its own

    def overdue(self, now_s: float, timeout_s: Callable[[str], float]) -> list[GroupName]:
        """Those that wait for longer than the timeout of their address.

        The time counts from the first call that finds a group, so it begins anew with each owner.
        """
        return [
            name
            for name in self.open
            if now_s - self._seen_s.setdefault(name, now_s) > timeout_s(name.address)
        ]

    def first(
        self, names: Sequence[GroupName], records_max: int, bytes_max: int
    ) -> list[GroupName]:
        """As many of these as one transaction may end; one at least."""
        groups = [self.open[name] for name in names]
        records = accumulate(len(group.bytes_of) for group in groups)
        sizes = accumulate(group.bytes for group in groups)
        fits = [
            n <= records_max and size <= bytes_max for n, size in zip(records, sizes, strict=True)
        ]
        return list(names[: max(1, fits.count(True))])


class PendingGroupsDraft:
    """One transaction on the groups of a partition."""

    def __init__(
        self,
        groups: PendingGroups,
        store: Store,
        release: Callable[[int], bool] = lambda _bytes: True,
    ) -> None:
        """`release` is told the bytes of each group that ends, before its records are read.

        It answers whether more may end in this transaction than has to.
        """
        self._open = groups.open
        self._store = store
        self._release = release
        self._entries: dict[GroupPosition, bytes] = {}
        self.has_room = True
        """Whether more groups may end in this transaction than have to."""
        self.change: dict[GroupName, PendingGroup | None] = {}
        self.waiting = Counter(name.address for name in groups.open)
        """How many groups wait, by address."""

    def find(self, name: GroupName) -> PendingGroup | None:
        """A group that waits."""
        return self.change[name] if name in self.change else self._open.get(name)

    def park(self, name: GroupName, position: int, record: PendingRecord) -> PendingRecord | None:
        """Keep a record for its group; gives the copy whose place it takes."""
        group, group_position = self._own(name, record), GroupPosition(*name, position)
        earlier = self._record(group_position) if position in group.bytes_of else None
        entry = self._entries[group_position] = encode(record._replace(begun=group.begun))
        group.bytes_of[position] = len(entry)
        return earlier

    def end(self, name: GroupName) -> list[PendingRecord]:
        """What waited in a group, by position; it waits no longer."""
        group = self.find(name)
        assert group is not None  # the caller found it
        self.has_room = self._release(group.bytes)
        positions = [GroupPosition(*name, position) for position in sorted(group.bytes_of)]
        records = [self._record(group_position) for group_position in positions]
        for group_position in positions:
            self._entries.pop(group_position, None)
        self.change[name] = None
        self.waiting[name.address] -= 1
        return records

    def eldest(self, address: str) -> GroupName:
        """The group of an address that was begun first; there is one."""
        names = (name for name in (*self._open, *self.change) if name.address == address)
        found = ((name, self.find(name)) for name in names)
        return min((group.begun, name) for name, group in found if group is not None)[1]

    def edits(self) -> list[Edit]:
        """What store and changelog have to learn."""
        ended = [(name, self._open[name]) for name in self.change if name in self._open]
        positions = [
            GroupPosition(*name, position) for name, group in ended for position in group.bytes_of
        ]
        gone = [Edit(each.key, None) for each in positions if self._is_gone(each)]
        return gone + [
            Edit(group_position.key, entry) for group_position, entry in self._entries.items()
        ]

    def _is_gone(self, group_position: GroupPosition) -> bool:
        group = self.find(GroupName(group_position.address, group_position.group))
        return group is None or group_position.position not in group.bytes_of

    def _own(self, name: GroupName, record: PendingRecord) -> PendingGroup:
        """The group as this transaction may change it; begun by the record if it is new."""
        group = self.find(name)
        if group is None:
            group = self.change[name] = PendingGroup(record.size, record.own_offset)
            self.waiting[name.address] += 1
        elif name not in self.change:
            group = self.change[name] = PendingGroup(group.size, group.begun, dict(group.bytes_of))
        return group

    def _record(self, group_position: GroupPosition) -> PendingRecord:
        entry = self._entries.get(group_position)
        if entry is None:
            entry = self._store.get(group_position.key)
        assert entry is not None  # what waits is in the store
        return decode(entry)
