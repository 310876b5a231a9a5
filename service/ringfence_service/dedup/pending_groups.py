"""Pending groups: which records of a partition's unfinished transaction groups have arrived.

A group has a name within an address. Its records are in the state
(`state/ringfence_state/pending_group.py`); this module tracks which of them have arrived, and
`transaction_group.py` decides the groups. Invariants: `PendingGroups` equals the content of the
store, and additions and removals of a transaction are visible to its `PendingGroupsDraft` alone
until the commit. What a call costs depends on the groups that it changes or returns, however many
wait.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ringfence_service.config.addresses import AddressBook
from ringfence_service.dedup.waiting_order import (
    AddressCounts,
    Age,
    EldestOrder,
    GroupName,
    HeapOrder,
)
from ringfence_state.model import Edit
from ringfence_state.pending_group import GroupPosition, PendingRecord, decode, encode, parked_in
from ringfence_state.store import Store


@dataclass(slots=True)
class PendingGroup:
    """Which positions of a group have arrived, with the size of each record."""

    size: int
    begun: int
    """The offset of the first record that arrived."""
    bytes_of: dict[int, int] = field(default_factory=dict)
    bytes: int = 0
    """Size of all records that have arrived."""

    def __post_init__(self) -> None:
        self.bytes = sum(self.bytes_of.values())

    def put(self, position: int, size_bytes: int) -> None:
        """Add the record of a position, or replace it."""
        self.bytes += size_bytes - self.bytes_of.get(position, 0)
        self.bytes_of[position] = size_bytes

    @property
    def is_complete(self) -> bool:
        """Whether all records have arrived."""
        return len(self.bytes_of) == self.size

    def would_complete(self, position: int) -> bool:
        """Whether it is complete with a record at this position."""
        return len(self.bytes_of) + (position not in self.bytes_of) == self.size


GroupsChange = Mapping[GroupName, PendingGroup | None]
"""Groups after a transaction; None for one that ended."""


class PendingGroups:
    """The pending groups of one partition."""

    def __init__(self) -> None:
        self.open: dict[GroupName, PendingGroup] = {}
        self.bytes = 0
        """Size of all their records."""
        self.waiting = Counter[str]()
        """How many there are of each address that has any."""
        self._ages = HeapOrder[int]()
        self._ages_of: dict[str, HeapOrder[int]] = {}
        """The ages by address."""
        self._seen_s: dict[GroupName, float] = {}
        """When `overdue` found each of them."""
        self._unseen: dict[GroupName, None] = {}
        """Those that it has not found yet."""
        self._due_s: dict[GroupName, float] = {}
        self._dues = HeapOrder[float]()
        self._book: AddressBook | None = None
        """The settings with whose timeouts they are due."""

    @classmethod
    def of(cls, store: Store) -> "PendingGroups":
        """Load the groups from a store; their timeouts start again."""
        found: dict[GroupName, PendingGroup] = {}
        for group_position, record in parked_in(store):
            name = GroupName(group_position.address, group_position.group)
            group = found.setdefault(name, PendingGroup(record.size, record.begun))
            group.put(group_position.position, len(encode(record)))
        groups = cls()
        groups.apply(found)
        return groups

    def apply(self, change: GroupsChange) -> None:
        """Apply the change of a committed transaction."""
        for name, group in change.items():
            earlier = self.open.pop(name, None)
            is_same = group is not None and earlier is not None and earlier.begun == group.begun
            self.bytes += (group.bytes if group else 0) - (earlier.bytes if earlier else 0)
            if earlier is not None and not is_same:
                self._end(name)  # a new group of the name has its own timeout
            if group is not None:
                self.open[name] = group
                if not is_same:
                    self._begin(name, group.begun)
        self._ages.thin_out(len(self.open), self._is_open)
        self._dues.thin_out(len(self._due_s), self._is_due)
        for address in {name.address for name in change} & self._ages_of.keys():
            self._ages_of[address].thin_out(self.waiting[address], self._is_open)

    def _begin(self, name: GroupName, begun: int) -> None:
        age = (begun, name)
        self._ages.add(age)
        self._ages_of.setdefault(name.address, HeapOrder()).add(age)
        self.waiting[name.address] += 1
        self._unseen[name] = None

    def _end(self, name: GroupName) -> None:
        self._unseen.pop(name, None)
        self._seen_s.pop(name, None)
        self._due_s.pop(name, None)
        self.waiting[name.address] -= 1
        if not self.waiting[name.address]:
            del self.waiting[name.address], self._ages_of[name.address]

    def ages(self, address: str | None) -> Iterator[Age]:
        """Yield the groups of an address, or of all, the eldest first; some may have ended."""
        return iter(self._ages if address is None else self._ages_of.get(address, ()))

    def overdue(self, now_s: float, book: AddressBook) -> Iterator[GroupName]:
        """Yield the groups that have waited longer than the timeout of their address.

        The time counts from the first call that finds a group, so it starts again with each owner.
        New settings give all groups their new timeouts.
        """
        if book is not self._book:
            self._book, self._dues = book, HeapOrder()
            self._time(self._seen_s, book)
        if self._unseen:
            self._seen_s.update(dict.fromkeys(self._unseen, now_s))
            self._time(self._unseen, book)
            self._unseen.clear()
        first = self._dues.first(self._is_due)
        if first is None or first[0] >= now_s:
            return
        for due in self._dues:
            if due[0] >= now_s:
                return
            if self._is_due(due):
                yield due[1]

    def _time(self, names: Iterable[GroupName], book: AddressBook) -> None:
        """Set until when these groups wait."""
        for name in names:
            timeout_s = book.settings(name.address).group_timeout_ms / 1000
            due_s = self._due_s[name] = self._seen_s[name] + timeout_s
            self._dues.add((due_s, name))

    def _is_open(self, age: Age) -> bool:
        group = self.open.get(age[1])
        return group is not None and group.begun == age[0]

    def _is_due(self, due: tuple[float, GroupName]) -> bool:
        return self._due_s.get(due[1]) == due[0]

    def first(
        self, names: Iterable[GroupName], records_max: int, bytes_max: int
    ) -> list[GroupName]:
        """Return the leading groups that one transaction may end, and at least one."""
        found, records, size_bytes = dict[GroupName, None](), 0, 0
        for name in names:
            group = self.open[name]
            records, size_bytes = records + len(group.bytes_of), size_bytes + group.bytes
            if found and (records > records_max or size_bytes > bytes_max):
                break
            found[name] = None
        return list(found)


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
        self._groups, self._open = groups, groups.open
        self._store = store
        self._release = release
        self._entries: dict[GroupPosition, bytes] = {}
        self.has_room = True
        """Whether the transaction has room for more groups than have to end."""
        self.change: dict[GroupName, PendingGroup | None] = {}
        self.waiting = AddressCounts(groups.waiting)
        self.open_count = len(groups.open)
        """How many groups wait, of all addresses."""
        self.open_bytes = groups.bytes
        """The size of their records."""
        self._orders: dict[str | None, EldestOrder] = {}
        """The groups by address, and all for None."""

    def find(self, name: GroupName) -> PendingGroup | None:
        """Return a pending group, or None."""
        return self.change[name] if name in self.change else self._open.get(name)

    def park(self, name: GroupName, position: int, record: PendingRecord) -> PendingRecord | None:
        """Store a record for its group; return the copy that it replaces."""
        group, group_position = self._own(name, record), GroupPosition(*name, position)
        earlier = self._record(group_position) if position in group.bytes_of else None
        entry = self._entries[group_position] = encode(record._replace(begun=group.begun))
        self.open_bytes -= group.bytes
        group.put(position, len(entry))
        self.open_bytes += group.bytes
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
        self.waiting.add(name.address, -1)
        self.open_count -= 1
        self.open_bytes -= group.bytes
        return records

    def eldest(self, address: str | None) -> GroupName:
        """Return the oldest group of an address, or of all for None; there is at least one."""
        return self._order(address).first(self._is_open)[1]

    def _order(self, address: str | None) -> EldestOrder:
        order = self._orders.get(address)
        if order is None:
            order = self._orders[address] = EldestOrder(self._groups.ages(address))
        return order

    def _is_open(self, age: Age) -> bool:
        group = self.find(age[1])
        return group is not None and group.begun == age[0]

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
            self.waiting.add(name.address, 1)
            self.open_count += 1
            for order in (name.address, None):
                self._order(order).begin((group.begun, name))
        elif name not in self.change:
            group = self.change[name] = PendingGroup(group.size, group.begun, dict(group.bytes_of))
        return group

    def _record(self, group_position: GroupPosition) -> PendingRecord:
        entry = self._entries.get(group_position)
        if entry is None:
            entry = self._store.get(group_position.key)
        assert entry is not None  # a pending record is in the store
        return decode(entry)
