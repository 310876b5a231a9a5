"""The directory: in any order what a dumb sort gives, read once for all who ask."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_api.resources.address_directory import (
    FIRST,
    FRESH_S_EACH,
    AddressDirectory,
    AddressDirectoryCache,
    AddressOrder,
    RankedAddress,
)
from ringfence_service.queries.addresses import DirectoryAnswer, DirectoryQuery, SortKey
from ringfence_service.queries.errors import TimedOut, Unavailable
from ringfence_service.queries.inbox import QueryService
from ringfence_service.queries.registry import Answer, Query
from tests.support.waiting import LIMIT_S

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ORDERS = [AddressOrder(key, descends) for key in get_args(SortKey) for descends in (False, True)]
ORDERS.remove(AddressOrder("name", descends=True))
NAMES = st.sampled_from(["a", "ab", "abc", "b", "ba", "c"])
NUMBERS = st.integers(0, 3)
HELD = st.tuples(NAMES, st.none() | NUMBERS, st.none() | NUMBERS.map(float), st.none() | NUMBERS)
COUNTED = st.tuples(NAMES, NUMBERS, NUMBERS)
Held = list[tuple[str, int | None, float | None, int | None]]
Counted = list[tuple[str, int, int]]


def told(held: Held, counted: Counted) -> DirectoryAnswer:
    columns = [tuple(row[number] for row in held) for number in range(4)]
    counts = [tuple(row[number] for row in counted) for number in range(3)]
    return DirectoryAnswer._make([*columns, *counts, True])


def in_order(held: Held, counted: Counted, order: AddressOrder) -> list[str]:
    """Each address by its sum, its most or its least, else by its name at the end."""

    def rank(name: str) -> tuple[bool, float, str]:
        rows = [row[1:] for row in held if row[0] == name]
        counts = [row[1:] for row in counted if row[0] == name]
        values: Mapping[SortKey, float | None] = {
            "ids_held": sum(_known(row[0] for row in rows)) if _known(r[0] for r in rows) else None,
            "fill": max(_known(row[1] for row in rows), default=None),
            "horizon": min(_known(row[2] for row in rows), default=None),
            "accepted": sum(row[0] for row in counts),
            "duplicates": sum(row[1] for row in counts),
        }
        value = values.get(order.key)
        if value is None:
            return True, 0, name
        return False, -value if order.descends else value, name

    return sorted({row[0] for row in held} | {row[0] for row in counted}, key=rank)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


@given(
    st.lists(HELD, max_size=12),
    st.lists(COUNTED, max_size=8),
    st.sampled_from(ORDERS),
    st.sampled_from(["", "a", "ab", "x"]),
    st.integers(1, 4),
)
def test_its_pages_hold_what_a_dumb_sort_of_all_rows_gives(
    held: Held, counted: Counted, order: AddressOrder, prefix: str, size: int
) -> None:
    directory = AddressDirectory(told(held, counted), NOW)
    found, after, is_last = list[RankedAddress](), FIRST, False
    while not is_last:
        page = directory.page(prefix, order, after, size)
        is_last, found = page.is_last, [*found, *page.positions]
        assert len(page.positions) == size or is_last
        after = found[-1] if found else FIRST
    listed = [name for name in in_order(held, counted, order) if name.startswith(prefix)]
    assert [place.address for place in found] == listed


class Loops(QueryService):
    """Answer on demand, with a given number of addresses."""

    def __init__(self, addresses: int) -> None:
        self.asked: list[asyncio.Future[Answer]] = []
        self.within_s: list[float] = []
        self.addresses = addresses

    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        assert query == DirectoryQuery()
        self.asked.append(asyncio.get_running_loop().create_future())
        self.within_s.append(timeout_s)
        return self.asked[-1]

    def answer(self) -> None:
        names = tuple(map(str, range(self.addresses)))
        self.asked[-1].set_result(told([(name, 1, None, None) for name in names], []))


def scenario(run: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_S):
            await run()

    asyncio.run(bounded())


async def settled() -> None:
    """Let every task that can proceed do so."""
    for _ in range(10):
        await asyncio.sleep(0)  # noqa: TID251 - none


def test_the_loops_are_asked_once_for_all_who_wait_and_not_again_while_it_is_fresh() -> None:
    now_s, loops = [0.0], Loops(1000)
    fresh_s = 1000 * FRESH_S_EACH

    async def run() -> None:
        directories = AddressDirectoryCache(loops, LIMIT_S, lambda: now_s[0])
        waiting = [asyncio.create_task(directories.newest()) for _ in range(50)]
        await settled()
        loops.answer()
        first = await waiting[0]
        assert all([await each is first for each in waiting])
        now_s[0] = fresh_s * 0.9
        assert await directories.newest() is first
        assert len(loops.asked) == 1
        now_s[0] = fresh_s * 1.1  # nobody waits while another is read
        assert [await directories.newest() for _ in range(50)] == [first] * 50
        await settled()
        assert len(loops.asked) == 2
        now_s[0] = fresh_s * 5  # it is too old by now
        late = asyncio.create_task(directories.newest())
        await settled()
        loops.answer()
        assert await late is not first
        assert len(loops.asked) == 2

    scenario(run)


def test_waiting_callers_get_the_refusal_of_the_loops_and_the_next_caller_asks_again() -> None:
    loops = Loops(1)

    async def run() -> None:
        directories = AddressDirectoryCache(loops, LIMIT_S, lambda: 0.0)
        waiting = asyncio.create_task(directories.newest())
        await settled()
        loops.asked[-1].set_exception(Unavailable("The partitions moved."))
        with pytest.raises(Unavailable, match="moved"):
            await waiting
        again = asyncio.create_task(directories.newest())
        await settled()
        loops.answer()
        assert (await again).complete

    scenario(run)


def test_a_directory_that_cannot_be_read_in_time_is_given_more_time() -> None:
    loops = Loops(1)

    async def run() -> None:
        directories = AddressDirectoryCache(loops, 0.01, lambda: 0.0)
        for _ in range(3):
            with pytest.raises(TimedOut):
                await directories.newest()
            while directories._reading is not None:
                await asyncio.wait([directories._reading])
                await settled()
        assert loops.within_s == [0.01, 0.02, 0.04]

    scenario(run)
