"""Addresses in a list: what they hold, reported without loading them into memory."""

from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence_api.resources.address_directory import FIRST, AddressDirectory, AddressOrder
from ringfence_client.headers import DUPLICATE_ID
from ringfence_service.processor.handlers import addresses as listing
from ringfence_service.processor.handlers.addresses import memory_status
from ringfence_service.processor.handlers.dispatch import answer as service_answer
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.addresses import (
    AddressAnswer,
    AddressesAnswer,
    AddressesQuery,
    AddressQuery,
    AddressRow,
    DirectoryAnswer,
    DirectoryQuery,
    SortKey,
)
from ringfence_service.queries.errors import NotRestored
from ringfence_service.queries.ids import ClearAddress, IdQuery
from ringfence_service.queries.registry import Query
from ringfence_service.queries.sizing import STORED_BYTES
from ringfence_state import cache as cache_module
from ringfence_state.model import Edit, PackedPositions
from ringfence_state.segment import key
from tests.support.helpers import answer, answered, some
from tests.support.living import ROUTE, Living, turn_until_running, turns
from tests.support.rings import ring_of


def order(loop: Loop, sort: SortKey = "name") -> list[str]:
    told = answered(DirectoryAnswer, DirectoryQuery(), loop)
    assert told.complete
    places = AddressDirectory(told, datetime.now(UTC)).page(
        "", AddressOrder(sort, descends=False), FIRST, 100
    )
    return [place.address for place in places.positions]


def rows(loop: Loop, *names: str) -> dict[str, AddressRow]:
    told = answered(AddressesAnswer, AddressesQuery(names), loop)
    return {row.address: row for row in told.rows}


def world(size: int = 3, **settings: object) -> Living:
    return Living(
        replace(ROUTE, address="{header:addr}"),
        {"#": {"id_cache_size": size, **settings}},
    )


def send(living: Living, address: str, *ids: str) -> None:
    for name in ids:
        living.write(name.encode(), (DUPLICATE_ID, name.encode()), ("addr", address.encode()))


def anew(living: Living) -> Loop:
    """A loop that has everything on its disk and nothing in memory."""
    loop = living.loop()
    turn_until_running(loop)
    return loop


@pytest.fixture(params=["whole", "compact"])
def both_forms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "compact":
        monkeypatch.setattr(cache_module, "WHOLE_IDS_MAX", -1)


def test_addresses_are_listed_by_name() -> None:
    living = world()
    for name in ("b", "a", "ab"):
        send(living, name, "1")
    loop = living.running()
    assert order(loop) == ["a", "ab", "b"]
    assert set(rows(loop, "a", "b", "never seen")) == {"a", "b"}


def test_accepted_and_duplicates_are_counted_for_each_address_since_the_start() -> None:
    living = world()
    send(living, "a", "1", "2", "1")
    send(living, "b", "1", "1", "1")
    loop = living.running()
    found = rows(loop, "a", "b")
    assert (found["a"].accepted, found["a"].duplicates) == (2, 1)
    assert (found["b"].accepted, found["b"].duplicates) == (1, 2)
    assert order(loop, "duplicates") == ["a", "b"]
    assert order(loop, "accepted") == ["b", "a"]


def test_what_a_bridge_stamped_is_counted_where_its_ids_are_held() -> None:
    living = Living()
    for offset in (3, 4, 4):
        living.send(f"4L6g3nShT-eMCtK--X86sw/orders/3/{offset}")
    found = rows(living.running(), "orders", "BRIDGE.orders")
    assert {name: row[-2:] for name, row in found.items()} == {"BRIDGE.orders": (2, 1)}


def test_what_holds_nothing_is_not_counted() -> None:
    """There may be an address for each record."""
    living = world(size=0)
    send(living, "a", "1", "1")
    assert order(living.running()) == []


@pytest.mark.parametrize(
    ("query", "steps"), [(DirectoryQuery(), 10), (AddressesQuery(tuple(map(str, range(5)))), 2)]
)
def test_what_is_asked_of_many_addresses_is_answered_in_steps(
    monkeypatch: pytest.MonkeyPatch, query: Query, steps: int
) -> None:
    """Of which none looks at more than two of five addresses, here."""
    monkeypatch.setattr(listing, "_ADDRESSES_A_STEP", 1)
    monkeypatch.setattr(listing, "_ROWS_A_STEP", 2)
    living = world()
    for number in range(5):
        send(living, str(number), "1")
    taken = service_answer(query, living.running())
    assert isinstance(taken, Generator)
    assert len(list(taken)) == steps


def test_a_list_during_which_partitions_move_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "_ADDRESSES_A_STEP", 1)
    living = world()
    send(living, "a", "1")
    send(living, "b", "1")
    loop = living.running()
    taken = service_answer(DirectoryQuery(), loop)
    assert isinstance(taken, Generator)
    next(taken)
    loop.assignment.rebalances += 1
    with pytest.raises(NotRestored):
        next(taken)


@pytest.mark.usefixtures("both_forms")
def test_what_is_held_is_reported_without_loading_it() -> None:
    living = world()
    send(living, "full", "1", "2")
    living.cluster.now_ms += 70
    send(living, "full", "3", "4")
    send(living, "new", "1")
    living.running().close()
    loop = anew(living)
    found = {name: row.partitions[0] for name, row in rows(loop, "full", "new").items()}
    assert (found["full"].ids_held, found["full"].bytes) == (3, 0)
    assert (found["full"].runs, found["full"].disk_bytes) == (0, 3 * STORED_BYTES)
    assert found["full"].horizon_ms == 70
    assert (found["new"].ids_held, found["new"].horizon_ms) == (1, None)
    partition = next(iter(loop.assignment.running.values()))
    assert loop.cache.look(partition.source, "full") is None
    assert answer(IdQuery("full", b"2"), loop).known  # type: ignore[union-attr]  # it is loaded now
    loaded = memory_status(partition, "full", loop)
    assert loaded.bytes > 0
    assert loaded._replace(bytes=0) == found["full"]


def test_the_order_by_horizon_is_found_without_loading_anything() -> None:
    living = world()
    for gap, name in ((500, "calm"), (5, "busy")):
        for number in range(4):
            living.cluster.now_ms += gap
            send(living, name, f"{number}")
    send(living, "new", "1")
    living.running().close()
    loop = anew(living)
    turns(loop, 3)
    assert order(loop, "horizon") == ["busy", "calm", "new"]
    assert order(loop, "ids_held")[0] == "new"
    assert order(loop, "fill")[0] == "new"


def test_a_window_that_is_not_in_memory_is_not_known_until_it_is_asked_for_alone() -> None:
    living = world(strategy="window")
    send(living, "a", "1", "2")
    living.running().close()
    loop = anew(living)
    assert rows(loop, "a")["a"].partitions[0].ids_held is None
    told = answered(AddressAnswer, AddressQuery("a"), loop)
    assert told.partitions[0].ids_held == 2


def test_a_cleared_address_holds_nothing() -> None:
    living = world()
    send(living, "a", "1", "2")
    loop = living.running()
    assert rows(loop, "a")["a"].partitions[0].ids_held == 2
    answer(ClearAddress("a"), loop)
    assert rows(loop, "a")["a"].partitions[0].ids_held == 0


def test_what_a_damaged_store_holds_is_not_known_and_stops_nobody() -> None:
    living = world()
    send(living, "a", "1")
    loop = living.running()
    send(living, "a", "2")
    turns(loop, 2)
    (partition,) = loop.assignment.running.values()
    store = partition.kept_store
    position = some(store.position())
    store.apply([Edit(key("a", 0), None)], position)
    partition.survey.changed("a")
    turns(loop, 2)
    assert rows(loop, "a")["a"].partitions[0].ids_held is None


def test_a_partition_that_is_gone_takes_what_was_known_along() -> None:
    living = world()
    send(living, "a", "1")
    loop = living.running()
    assert order(loop, "ids_held") == ["a"]
    loop.assignment.retake(next(iter(loop.assignment.running)), wipe=True)
    turn_until_running(loop)
    assert rows(loop, "a")["a"].partitions[0].ids_held == 1


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("12345678")), max_size=25),
    st.integers(1, 4),
)
def test_what_is_read_from_the_disk_is_what_memory_tells(
    sent: list[tuple[str, str]], size: int
) -> None:
    living = world(size)
    for number, (address, identifier) in enumerate(sent):
        living.cluster.now_ms += number
        send(living, address, identifier)
    loop = living.running()
    turns(loop, 2)
    (partition,) = loop.assignment.running.values()
    for name, row in rows(loop, "a", "b").items():
        ring = ring_of(loop.cache, partition.source, partition.kept_store, name)
        (told,) = row.partitions
        extent = ring.draft(size, PackedPositions(partition.source)).extent()
        assert extent == (
            told.ids_held,
            told.oldest_time_ms,
            told.newest_time_ms,
            told.horizon_ms,
        )
