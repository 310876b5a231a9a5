"""Pending groups: which records of a partition's unfinished transaction groups have arrived.

A group has a name within an address. Its records are in the state (`state/pending_group.py`);
this module tracks which of them have arrived, and `transaction_group.py` decides the groups.
Invariant: `PendingGroups` equals the content of the store, and additions and removals of a
transaction are visible to its `PendingGroupsDraft` alone until the commit.
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
    """The name of a group within an address."""

    address: str
    group: bytes


@dataclass(slots=True)
class PendingGroup:
    """Which positions of a group have arrived, with the size of each record."""

    size: int
    begun: int
    """The offset of the first record that arrived."""
    bytes_of: dict[int, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all records have arrived."""
        return len(self.bytes_of) == self.size

    @property
    def bytes(self) -> int:
        """Size of all records that have arrived."""
        return sum(self.bytes_of.values())


GroupsChange = Mapping[GroupName, PendingGroup | None]
"""Groups after a transaction; None for one that ended."""


class PendingGroups:
    """The pending groups of one partition."""

    def __init__(self) -> None:
        self.open: dict[GroupName, PendingGroup] = {}
        self._seen_s: dict[GroupName, float] = {}

    @classmethod
    def of(cls, store: Store) -> "PendingGroups":
        """Load the groups from a store; their timeouts start again."""
        groups = cls()
        for group_position, record in parked_in(store):
            name = GroupName(group_position.address, group_position.group)
            group = groups.open.setdefault(name, PendingGroup(record.size, record.begun))
            group.bytes_of[group_position.position] = len(encode(record))
        return groups

    def apply(self, change: GroupsChange) -> None:
        """Apply the change of a committed transaction."""
        for name, group in change.items():
            earlier = self.open.pop(name, None)
            if group is not None:
                self.open[name] = group
            if group is None or earlier is None or earlier.begun != group.begun:
                self._seen_s.pop(name, None)  # a new group has its own timeout

    def overdue(self, now_s: float, timeout_s: Callable[[str], float]) -> list[GroupName]:
        """Return the groups that have waited longer than the timeout of their address.

        The time counts from the first call that finds a group, so it starts again with each owner.
        """
        return [
            name
            for name in self.open
            if now_s - self._seen_s.setdefault(name, now_s) > timeout_s(name.address)
        ]

    def first(
        self, names: Sequence[GroupName], records_max: int, bytes_max: int
    ) -> list[GroupName]:
        """Return the leading groups that one transaction may end, and at least one."""
        groups = [self.open[name] for name in names]
        records = accumulate(len(group.bytes_of) for group in groups)
        sizes = accumulate(group.bytes for group in groups)
        fits = [
            n <= records_max and size <= bytes_max for n, size in zip(records, sizes, strict=True)
        ]
        return list(names[: max(1, fits.count(True))])


class PendingGroupsDraft:
    """The changes of one transaction to the groups of a partition."""

    def __init__(
        self,
        groups: PendingGroups,
        store: Store,
        release: Callable[[int], bool] = lambda _bytes: True,
    ) -> None:
        """`release` gets the size of each group that ends, before its records are read.

        It returns whether the transaction has room for more groups than have to end.
        """
        self._open = groups.open
        self._store = store
        self._release = release
        self._entries: dict[GroupPosition, bytes] = {}
        self.has_room = True
        """Whether the transaction has room for more groups than have to end."""
        self.change: dict[GroupName, PendingGroup | None] = {}
        self.waiting = Counter(name.address for name in groups.open)
        """Number of pending groups by address."""

    def find(self, name: GroupName) -> PendingGroup | None:
        """Return a pending group, or None."""
        return self.change[name] if name in self.change else self._open.get(name)

    def park(self, name: GroupName, position: int, record: PendingRecord) -> PendingRecord | None:
        """Store a record for its group; return the copy that it replaces."""
        group, group_position = self._own(name, record), GroupPosition(*name, position)
        earlier = self._record(group_position) if position in group.bytes_of else None
        entry = self._entries[group_position] = encode(record._replace(begun=group.begun))
        group.bytes_of[position] = len(entry)
        return earlier

    def end(self, name: GroupName) -> list[PendingRecord]:
        """Remove a group; return its records by position."""
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
        """Return the oldest group of an address, which has at least one."""
        names = (name for name in (*self._open, *self.change) if name.address == address)
        found = ((name, self.find(name)) for name in names)
        return min((group.begun, name) for name, group in found if group is not None)[1]

    def edits(self) -> list[Edit]:
        """Return the edits for store and changelog."""
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
        """Return the group for this transaction to change; the record starts it if it is new."""
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
        assert entry is not None  # a pending record is in the store
        return decode(entry)
