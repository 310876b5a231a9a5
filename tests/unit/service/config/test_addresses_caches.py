"""What an address remembers besides its own ids: bridge stamps, and duplicates it has reported."""

from typing import Final

import pytest

from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT, NUMBER, PUBLISHER
from ringfence_service.config.addresses import AUDIT, BRIDGE, AddressBook, settings_of
from ringfence_service.config.model import RouteSettings
from ringfence_service.queries.addresses import AddressQuery
from tests.support.deciding import NOW_MS, World, named, reasons, record
from tests.support.helpers import answer
from tests.support.living import Living, turns

STAMP: Final = b"4L6g3nShT-eMCtK--X86sw/orders/3/17"
OTHER: Final = b"4L6g3nShT-eMCtK--X86sw/orders/3/18"


def audited(strategy: str = "ring", **settings: object) -> World:
    return World(addresses={"#": {"dead_letter_audit": True, "strategy": strategy, **settings}})


def counted(offset: int, number: int) -> object:
    return record(offset, (PUBLISHER, b"P"), (NUMBER, b"%d" % number))


# Bridges.


@pytest.mark.parametrize("strategy", ["audit", "sequence", "ordered"])
def test_stamps_count_where_an_address_goes_by_numbers(strategy: str) -> None:
    world = World(addresses={"#": {"strategy": strategy}})
    world.commit(named(0, STAMP))
    assert reasons(world.commit(named(1, STAMP), named(2, OTHER)).outputs) == ["duplicate", None]


def test_a_number_of_its_own_goes_before_a_stamp() -> None:
    world = World(addresses={"#": {"strategy": "sequence"}})
    numbered = ((PUBLISHER, b"P"), (NUMBER, b"1"))
    world.commit(record(0, (DUPLICATE_ID, STAMP), *numbered))
    plan = world.commit(record(1, (DUPLICATE_ID, OTHER), *numbered))
    assert reasons(plan.outputs) == ["duplicate"]


def test_ids_of_a_template_are_never_taken_for_stamps() -> None:
    world = World(RouteSettings(name="orders", inputs=("orders",), scope="partition", id="{key}"))
    world.commit(record(0, key=STAMP), record(1, (EXPIRES_AT, b"9" * 15), key=STAMP))
    assert world.partition.addresses == {"orders"}


def test_the_one_that_stamps_remembers_nothing() -> None:
    stamping = World(
        RouteSettings(name="orders", inputs=("orders",), scope="partition", missing_id="stamp")
    )
    assert stamping.commit(record(0)).edits == {}


# Dead letters that are deduplicated.


@pytest.mark.parametrize("strategy", ["ring", "window"])
def test_of_one_id_the_first_duplicate_is_dead_lettered_and_the_rest_are_counted(
    strategy: str,
) -> None:
    world = audited(strategy)
    world.commit(named(0, b"a"), named(1, b"b"))
    first = world.commit(named(2, b"a"), named(3, b"a"))
    assert reasons(first.outputs) == ["duplicate"]
    assert first.tally.duplicates.total() == 2
    later = world.commit(named(4, b"a"), named(5, b"b"))
    assert reasons(later.outputs) == ["duplicate"]
    assert later.tally.accepted.total() == 0


def test_repeated_duplicates_within_a_window_are_reported_once() -> None:
    world = audited("window", window_ms=1_000)
    times_ms = [NOW_MS - 5_000 + 900 * n for n in range(4)]
    plans = [world.commit(record(0, (DUPLICATE_ID, b"a"), timestamp_ms=at)) for at in times_ms]
    assert [reasons(plan.outputs) for plan in plans] == [[None], ["duplicate"], [], []]


@pytest.mark.parametrize("strategy", ["audit", "sequence"])
def test_duplicate_numbers_are_reported_once_too(strategy: str) -> None:
    world = audited(strategy)
    records = [counted(offset, number) for offset, number in enumerate((1, 2, 1, 1, 2, 2))]
    plan = world.commit(*records)  # type: ignore[arg-type]
    assert reasons(plan.outputs) == [None, None, "duplicate", "duplicate"]


@pytest.mark.parametrize("strategy", ["audit", "sequence", "ordered"])
def test_equal_numbers_of_nobody_are_two_records(strategy: str) -> None:
    world = audited(strategy)
    known = (PUBLISHER, b"P"), (NUMBER, b"1"), ("_SEQ_ID", b"1"), ("_PREV", b"0")
    world.commit(record(0, *known))
    for offset, group in ((1, b"t"), (3, b"u")):
        of_group = ("_TX_ID", group), ("_TX_SIZE", b"2")
        plan = world.commit(
            record(offset, *of_group, ("_TX_SEQ", b"1"), *known),
            record(offset + 1, *of_group, ("_TX_SEQ", b"2"), (NUMBER, b"5"), value=group),
        )
        assert plan.outputs[-1][1] == group
        assert reasons(plan.outputs[-1:]) == ["duplicate-in-transaction"]
    assert len(plan.outputs) == 1


# Under their names.


def test_the_cache_of_reported_duplicates_lasts_as_long_as_a_window() -> None:
    book = AddressBook.of({"#": {"strategy": "window", "window_size": 7}})
    audit = settings_of(book, AUDIT + "orders")
    assert (audit.strategy, audit.window_size) == ("window", 14)


def test_a_cache_is_a_ring_where_numbers_count() -> None:
    book = AddressBook.of({"#": {"strategy": "sequence", "publishers_max": 7}})
    assert settings_of(book, "orders").strategy == "sequence"
    assert settings_of(book, BRIDGE + "orders").strategy == "ring"
    audit = settings_of(book, AUDIT + "orders")
    assert (audit.strategy, audit.capacity) == ("ring", 14)


@pytest.mark.parametrize("cache", [BRIDGE, AUDIT])
def test_a_query_for_a_cache_by_its_name_returns_what_it_holds(cache: str) -> None:
    living = Living(addresses={"#": {"dead_letter_audit": True, "strategy": "sequence"}})
    headers = ((DUPLICATE_ID, STAMP), (PUBLISHER, b"P"))
    for _ in range(2):
        living.write(b"", *headers)
        living.write(b"", *headers, (NUMBER, b"1"))
    loop = living.running()
    (held,) = answer(AddressQuery(cache + "orders"), loop).partitions  # type: ignore[union-attr]
    assert held.ids_held == 1
    living.write(b"", *headers)
    turns(loop)
    assert living.committed() == 5
