"""Pending groups against a slow and obvious model, and what a call costs where many wait."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import FrameType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringfence_service.dedup.address as address_module
import ringfence_service.dedup.pending_groups as pending_module
import ringfence_service.dedup.waiting_order as order_module
from ringfence_client.headers import Headers
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import RouteSettings
from ringfence_service.dedup.pending_groups import PendingGroup, PendingGroups, PendingGroupsDraft
from ringfence_service.dedup.waiting_order import GroupName, HeapOrder
from ringfence_state.memory_store import MemoryStore
from ringfence_state.pending_group import PendingRecord, encode
from ringfence_state.store import Identity, StorePosition
from tests.support.deciding import NOW_MS, Decided, World, reasons, record

POSITION = StorePosition(Identity("c", "i", "l", 1), 0, 0, 0)
ADDRESSES = ("a", "b", "c")
OTHERS = ("end", "eldest", "eldest of all", "abort", "settings", "restore")


class Act(NamedTuple):
    """One thing that happens within a transaction, or between two."""

    what: str
    address: str
    group: int
    position: int
    offset: int
    """How far behind the newest record a group may begin: redrives do."""
    size: int


ACTS = st.lists(
    st.builds(
        Act,
        st.sampled_from((*["park"] * 4, *["commit", "wait"] * 2, *OTHERS)),
        st.sampled_from(ADDRESSES),
        st.integers(0, 6),
        st.integers(1, 3),
        st.sampled_from((0, 0, 0, 3, 50)),
        st.integers(0, 40),
    ),
    max_size=80,
)


class Slow:
    """What waits, as a plain dict: each question looks at all of it."""

    def __init__(self) -> None:
        self.begun: dict[GroupName, int] = {}
        self.sizes: dict[GroupName, dict[int, int]] = {}
        self.seen_s: dict[GroupName, float] = {}

    def copy(self) -> "Slow":
        """The same, for a transaction that may be aborted."""
        new = Slow()
        new.begun, new.seen_s = dict(self.begun), self.seen_s
        new.sizes = {name: dict(sizes) for name, sizes in self.sizes.items()}
        return new

    def eldest(self, address: str | None) -> GroupName:
        """The group that began first, by offset and then by name."""
        mine = ((begun, n) for n, begun in self.begun.items() if address in {None, n.address})
        return min(mine)[1]

    def end(self, name: GroupName) -> None:
        """Forget a group."""
        del self.begun[name], self.sizes[name]

    def overdue(self, now_s: float, book: AddressBook) -> set[GroupName]:
        """All that have waited for too long."""
        return {
            name
            for name in self.begun
            if now_s - self.seen_s.setdefault(name, now_s)
            > book.settings(name.address).group_timeout_ms / 1000
        }


class Scene:
    """Both of them, and the store."""

    def __init__(self) -> None:
        self.store, self.now_s, self.offset = MemoryStore(), 0, 100
        self.groups, self.slow = PendingGroups(), Slow()
        self.book = AddressBook.of({})
        self.begin()

    def begin(self) -> None:
        """Begin a transaction."""
        self.draft = PendingGroupsDraft(self.groups, self.store)
        self.open = self.slow.copy()

    def do(self, act: Act) -> None:
        """Have both of them do it."""
        name = GroupName(act.address, b"%d" % act.group)
        if act.what == "park":
            self._park(name, act)
        elif act.what == "end" and name in self.open.begun:
            self._end(name)
        elif act.what == "eldest" and self.draft.waiting.of(act.address):
            self._end(self.draft.eldest(act.address))
        elif act.what == "eldest of all" and self.draft.open_count:
            self._end(self.draft.eldest(None))
        elif act.what == "commit":
            self._commit()
        elif act.what == "abort":
            self.begin()
        elif act.what == "wait":
            self._wait(act.size)
        elif act.what == "settings":
            timeouts = {act.address: {"group_timeout_ms": 1_000 * (act.size + 1)}}
            self.book = AddressBook.of(timeouts)
        elif act.what == "restore":
            self.groups, self.slow.seen_s = PendingGroups.of(self.store), {}
            self.begin()

    def _park(self, name: GroupName, act: Act) -> None:
        self.offset += 1
        offset = self.offset - act.offset
        waiting = PendingRecord(3, offset, offset, NOW_MS, None, b"." * act.size, [])
        self.draft.park(name, act.position, waiting)
        self.open.begun.setdefault(name, offset)
        size_bytes = len(encode(waiting))
        self.open.sizes.setdefault(name, {})[act.position] = size_bytes

    def _end(self, name: GroupName) -> None:
        self.draft.end(name)
        self.open.end(name)

    def _commit(self) -> None:
        self.store.apply(self.draft.edits(), POSITION)
        self.groups.apply(self.draft.change)
        ended = self.slow.begun.items() - self.open.begun.items()
        for name, _ in ended:
            self.slow.seen_s.pop(name, None)
        self.slow = self.open
        self.begin()

    def _wait(self, seconds: int) -> None:
        """What the loop does between two transactions."""
        self.begin()
        self.now_s += seconds
        late = list(self.groups.overdue(self.now_s, self.book))
        assert len(set(late)) == len(late)
        assert set(late) == self.slow.overdue(self.now_s, self.book)
        for name in self.groups.first(late, 5, 1 << 30):
            self._end(name)
        self._commit()

    def check(self) -> None:
        """Both say the same about what the transaction sees."""
        draft, slow = self.draft, self.open
        counts = Counter(name.address for name in slow.begun)
        assert {a: draft.waiting.of(a) for a in draft.waiting} == counts
        assert len(draft.waiting) == len(counts)
        assert draft.open_count == len(slow.begun)
        assert draft.open_bytes == sum(sum(sizes.values()) for sizes in slow.sizes.values())
        for address in counts:
            assert draft.eldest(address) == slow.eldest(address)
        if counts:
            assert draft.eldest(None) == slow.eldest(None)
        held = {name: group.bytes_of for name, group in self.groups.open.items()}
        assert held == self.slow.sizes
        assert PendingGroups.of(self.store).open == self.groups.open


@settings(max_examples=150, deadline=None)
@given(acts=ACTS)
def test_groups_wait_end_and_time_out_as_in_a_slow_model(acts: list[Act]) -> None:
    scene = Scene()
    for act in acts:
        scene.do(act)
        scene.check()


def test_entries_of_ended_groups_are_removed() -> None:
    scene, book = Scene(), AddressBook.of({})
    for number in range(2_000):
        scene.do(Act("park", "abc"[number % 3], number, 1, 0, 0))
        scene.do(Act("commit", "", 0, 0, 0, 0))
        list(scene.groups.overdue(0, book))
        if number >= 3:
            scene.do(Act("end", "abc"[number % 3], number - 3, 0, 0, 0))
    groups = scene.groups
    heaps: list[HeapOrder[Any]] = [groups._ages, groups._dues, *groups._ages_of.values()]
    assert max(len(heap._heap) for heap in heaps) < 100
    assert len(groups._seen_s) + len(groups._due_s) < 20


# What a call costs.

MODULES = {module.__file__ for module in (address_module, pending_module, order_module)}


@contextmanager
def lines_run() -> Iterator[list[int]]:
    """Count the lines that are run in what tracks waiting groups: some for each one looked at."""
    counted, before = [0], sys.gettrace()

    def trace(frame: FrameType, event: str, _argument: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in MODULES:
            return None
        counted[0] += event == "line"
        return trace

    sys.settrace(trace)
    try:
        yield counted
    finally:
        sys.settrace(before)


def waiting(count: int, addresses: int) -> PendingGroups:
    """So many groups, of so many addresses."""
    names = (GroupName(f"a{n % addresses}", b"%d" % n) for n in range(count))
    groups = PendingGroups()
    groups.apply({name: PendingGroup(2, n, {1: 50}) for n, name in enumerate(names)})
    return groups


def cost_of_a_turn(count: int, addresses: int) -> int:
    """Of a turn in which one group begins, one is displaced, and one times out."""
    groups, book = waiting(count, addresses), AddressBook.of({"z": {"group_timeout_ms": 1_000}})
    late = GroupName("z", b"late")
    groups.apply({late: PendingGroup(2, count, {1: 50})})
    assert not any(groups.overdue(0, book))
    with lines_run() as counted:
        assert not any(groups.overdue(1, book))
        assert list(groups.overdue(2, book)) == [late]
        draft = PendingGroupsDraft(groups, MemoryStore())
        draft.park(GroupName("a0", b"new"), 1, PendingRecord(2, 0, count, 0, None, None, []))
        assert draft.eldest("a0") == draft.eldest(None) == GroupName("a0", b"0")
        draft.change[GroupName("a0", b"0")] = None
        assert draft.eldest(None) == GroupName(f"a{1 % addresses}", b"1")
        groups.apply(draft.change)
    return counted[0]


@pytest.mark.parametrize("addresses", [1, 1_000])
def test_a_turn_costs_what_it_changes_however_many_groups_wait(addresses: int) -> None:
    few, many = cost_of_a_turn(1_000, addresses), cost_of_a_turn(50_000, addresses)
    assert many <= few + 20
    assert few < 500


def test_what_is_overdue_is_read_as_far_as_it_fits_into_a_transaction() -> None:
    groups, book = waiting(20_000, 100), AddressBook.of({"#": {"group_timeout_ms": 1_000}})
    assert not any(groups.overdue(0, book))
    with lines_run() as counted:
        assert len(groups.first(groups.overdue(5, book), 10, 1 << 30)) == 10
    assert counted[0] < 1_000


def test_groups_that_time_out_do_so_in_the_order_in_which_they_are_due() -> None:
    groups = waiting(6, 2)
    book = AddressBook.of({"a0": {"group_timeout_ms": 9_000}, "a1": {"group_timeout_ms": 1_000}})
    assert not any(groups.overdue(0, book))
    assert [name.address for name in groups.overdue(60, book)] == ["a1"] * 3 + ["a0"] * 3
    longer = AddressBook.of({"a1": {"group_timeout_ms": 100_000}})
    assert [name.address for name in groups.overdue(61, longer)] == ["a0"] * 3


# The limits of all addresses together.

ROUTE = RouteSettings("orders", inputs=("orders",), scope="partition", address="{key}")


def begin(world: World, *groups: str) -> Decided:
    """Each of them with its first record, at an address of its own."""

    def headers(name: str) -> Headers:
        return [("_TX_ID", name.encode()), ("_TX_SIZE", b"2"), ("_TX_SEQ", b"1")]

    first = world.partition.next_offset
    return world.commit(
        *(
            record(first + row, *headers(name), key=name.encode(), value=name.encode())
            for row, name in enumerate(groups)
        )
    )


def given_up(plan: Decided) -> list[bytes | None]:
    assert reasons(plan.outputs) == ["group-incomplete"] * len(plan.outputs)
    return [output[1] for output in plan.outputs]


def test_of_the_groups_of_all_addresses_the_eldest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringfence_service.dedup.transaction_group.GROUPS_MAX", 3)
    world = World(ROUTE, addresses={"#": {"groups_open_max": 1}})
    assert given_up(begin(world, "z", "y", "x")) == []
    assert given_up(begin(world, "w", "v")) == [b"z", b"y"]
    assert given_up(begin(world, "u")) == [b"x"]
    assert len(world.partition.groups.open) == 3
    world.addresses = {"#": {"groups_open_max": 5}}
    assert given_up(begin(world, "t", "s", "r")) == [b"w"]


def test_the_eldest_groups_make_room_for_the_bytes_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(ROUTE)
    begin(world, "a", "b", "c")
    limit = world.partition.groups.bytes
    monkeypatch.setattr("ringfence_service.dedup.transaction_group.BYTES_MAX", limit)
    assert given_up(begin(world, "d")) == [b"a"]
    assert given_up(begin(world, "e" * 20)) == [b"b", b"c"]
    assert world.partition.groups.bytes <= limit
    assert given_up(begin(world, "f" * 300)) == [b"d", b"e" * 20, b"f" * 300]


def test_where_more_wait_than_may_one_record_ends_a_few_and_the_next_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(ROUTE, addresses={"#": {"groups_open_max": 1}})
    begin(world, *(f"g{number:02}" for number in range(30)))
    monkeypatch.setattr("ringfence_service.dedup.transaction_group.GROUPS_MAX", 5)
    ended = [len(given_up(begin(world, name))) for name in islice("abcdefgh", 5)]
    assert ended == [8, 8, 8, 5, 1]


def test_new_addresses_are_refused_without_a_look_at_all_that_wait() -> None:
    names = [f"n{number}" for number in range(400)]
    world = World(ROUTE, addresses={"#": {"addresses_max": 400}})
    begin(world, *names)
    with lines_run() as counted:
        plan = begin(world, *(f"m{number}" for number in range(400)))
    assert reasons(plan.outputs) == ["too-many-addresses"] * 400
    assert counted[0] < 400 * 60
