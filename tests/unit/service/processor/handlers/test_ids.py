"""Ids that an administrator lists, forgets, clears and imports, on the live caches."""

import hashlib
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_api.parameters import sought_id
from ringfence_client.headers import DUPLICATE_ID, DeadLetter, id_text
from ringfence_service.config.model import RouteSettings
from ringfence_service.dedup.dead_letter import shown_id
from ringfence_service.dedup.record import KnownId
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.errors import NotPossible
from ringfence_service.queries.ids import (
    ChangeAnswer,
    ClearAddress,
    ForgetId,
    IdAnswer,
    IdCursor,
    IdQuery,
    IdsAnswer,
    IdSearch,
    IdsLookup,
    IdsQuery,
    ImportAnswer,
    ImportIds,
    LookupAnswer,
    RememberedId,
)
from ringfence_service.queries.registry import Query
from ringfence_state import cache as cache_module
from ringfence_state.segment import STORED_ID_BYTES_MAX, remembered
from tests.fakes.partition import Headers, Record
from tests.simulation.disk import Disk
from tests.support.helpers import answer, answered, some
from tests.support.living import ROUTE, Living, turn_until_running, turns

COMPACT: Final = {"#": {"id_cache_size": 1000}}


@pytest.fixture(params=["whole", "compact"])
def living(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Living:
    """Both forms of a ring."""
    if request.param == "compact":
        monkeypatch.setattr(cache_module, "WHOLE_IDS_MAX", -1)
    return Living(partitions=2)


def listed(loop: Loop, cursor: IdCursor | None = None, limit: int = 100) -> IdsAnswer:
    return answered(IdsAnswer, IdsQuery("orders", cursor, limit), loop)


def names(page: IdsAnswer) -> list[str]:
    return [each.identifier.decode() for each in page.ids]


def changed(query: Query, loop: Loop) -> int:
    found = answer(query, loop)
    assert isinstance(found, ChangeAnswer | ImportAnswer)
    return found.ids


def known(loop: Loop, identifier: str) -> bool:
    found = answered(IdAnswer, IdQuery("orders", identifier.encode()), loop)
    return found.known


def test_ids_are_listed_by_partition_the_newest_first(living: Living) -> None:
    living.send("a", "b", "c")
    living.send("x", partition=1)
    loop = living.running()
    turns(loop, 2)
    page = listed(loop)
    assert names(page) == ["c", "b", "a", "x"]
    assert [each.sighting.offset for each in page.ids] == [2, 1, 0, 0]
    assert page.ids[0].sighting.slots_to_eviction == 20_000
    assert page.cursor is None


def test_a_forgotten_id_is_accepted_again_and_the_others_are_not(living: Living) -> None:
    living.send("a", "b", "c")
    loop = living.running()
    assert changed(ForgetId("orders", b"b"), loop) == 1
    assert names(listed(loop)) == ["c", "a"]
    assert not known(loop, "b")
    living.send("a", "b", "c", "b")
    turns(loop, 2)
    assert living.values("orders.unique") == ["a", "b", "c", "b"]
    assert living.values("orders.dlq") == ["a", "c", "b"]


def test_of_an_id_that_is_not_known_nothing_is_forgotten(living: Living) -> None:
    living.send("a")
    loop = living.running()
    before = living.committed()
    assert changed(ForgetId("orders", b"b"), loop) == 0
    assert changed(ForgetId("other", b"a"), loop) == 0
    assert living.committed() == before


@pytest.mark.parametrize("strategy", ["ring", "window"])
def test_a_cleared_address_remembers_nothing_and_goes_on(strategy: str) -> None:
    living = Living(addresses={"#": {"strategy": strategy}})
    living.send("a", "b")
    loop = living.running()
    assert changed(ClearAddress("orders"), loop) == 2
    living.send("a", "b", "a")
    turns(loop, 2)
    loop.close()
    living.stores = Disk(living.cluster.step)
    living.send("b")
    turns(living.running())
    assert living.values("orders.unique") == ["a", "b", "a", "b"]
    assert living.values("orders.dlq") == ["a", "b"]


def test_a_cleared_ring_goes_on_counting(living: Living) -> None:
    living.send("a", "b")
    loop = living.running()
    changed(ClearAddress("orders"), loop)
    living.send("c")
    turns(loop, 2)
    assert names(listed(loop)) == ["c"]


def test_imported_ids_are_known_and_name_no_original(living: Living) -> None:
    loop = living.running()
    ids = (KnownId(b"a"), KnownId(b"b", 7, 5))
    assert changed(ImportIds("orders", "orders", 0, ids), loop) == 2
    living.send("a", "b", "c")
    turns(loop, 2)
    assert living.values("orders.unique") == ["c"]
    first, second = living.cluster.records("orders.dlq")
    assert DeadLetter.ORIGINAL not in dict(first.headers or [])
    assert dict(second.headers or [])[DeadLetter.ORIGINAL] == b"orders-0@7"
    living.cluster.wait(1)
    turns(loop, 1)
    assert living.board.read().counts.records_accepted == 1


def test_what_is_known_already_keeps_its_place(living: Living) -> None:
    living.send("a", "b")
    loop = living.running()
    changed(ImportIds("orders", "orders", 0, (KnownId(b"a", 99),)), loop)
    assert [each.sighting.offset for each in listed(loop).ids] == [1, 0]


def test_imported_into_one_partition_they_count_there_alone() -> None:
    living = Living(partitions=2)
    loop = living.running()
    changed(ImportIds("orders", "orders", 1, (KnownId(b"a"),)), loop)
    living.send("a")
    living.send("a", partition=1)
    turns(loop, 2)
    assert living.values("orders.unique", 0) == ["a"]
    assert living.values("orders.unique", 1) == []


@pytest.mark.parametrize(
    ("settings", "query", "sentence"),
    [
        ({"strategy": "sequence"}, ImportIds("orders", "orders", 0, (KnownId(b"a"),)), "sequence"),
        ({"id_cache_size": 0}, ImportIds("orders", "orders", 0, (KnownId(b"a"),)), "room"),
        ({}, ImportIds("orders", "orders", 7, (KnownId(b"a"),)), "orders-7"),
        ({"strategy": "window"}, ForgetId("orders", b"a"), "only a ring"),
        ({"strategy": "window"}, IdsQuery("orders", None, 10), "only a ring"),
    ],
)
def test_what_cannot_be_done_says_why(
    settings: dict[str, object], query: Query, sentence: str
) -> None:
    living = Living(addresses={"#": settings})
    living.write(b"a", (DUPLICATE_ID, b"a"), ("_PUBLISHER", b"P"), ("_SEQ", b"1"))
    loop = living.running()
    with pytest.raises(NotPossible, match=sentence):
        answer(query, loop)


def test_volatile_addresses_forget_in_memory_alone() -> None:
    living = Living(addresses={"#": {"persist_id_cache": False}})
    living.send("a", "b")
    loop = living.running()
    assert changed(ForgetId("orders", b"a"), loop) == 1
    living.send("a", "b")
    turns(loop, 2)
    assert living.values("orders.unique") == ["a", "b", "a"]
    changed(ClearAddress("orders"), loop)
    living.send("b")
    turns(loop, 2)
    assert living.values("orders.unique") == ["a", "b", "a", "b"]
    assert living.cluster.records("g.changelog.orders") == []


@given(st.lists(st.sampled_from("abcdef"), max_size=12), st.sets(st.sampled_from("abcdef")))
def test_forgetting_is_as_if_the_id_had_never_come(sent: list[str], gone: set[str]) -> None:
    living = Living(addresses={"#": {"id_cache_size": 100}})
    living.send(*sent)
    loop = living.running()
    for name in sorted(gone):
        assert changed(ForgetId("orders", name.encode()), loop) == (name in sent)
    living.send(*"abcdef")
    turns(loop, 2)
    first = list(dict.fromkeys(sent))
    again = [name for name in "abcdef" if name in gone or name not in sent]
    assert living.values("orders.unique") == first + again


# Exported, the oldest first, and imported.


def export(loop: Loop, limit: int = 100) -> list[RememberedId]:
    """All pages of an export."""
    query = IdsQuery("orders", None, limit, oldest_first=True)
    found: list[RememberedId] = []
    while True:
        page = answered(IdsAnswer, query, loop)
        found += page.ids
        if page.cursor is None:
            return found
        query = query._replace(cursor=page.cursor)


def as_known(each: RememberedId) -> KnownId:
    seen = each.sighting
    hashed = len(each.identifier) > STORED_ID_BYTES_MAX
    return KnownId(each.identifier, seen.offset, seen.time_ms, seen.topic, seen.partition, hashed)


def test_an_export_begins_with_the_oldest_and_ends_where_it_was_begun(living: Living) -> None:
    living.send(*"abcde")
    loop = living.running()
    assert [each.identifier for each in export(loop, 2)] == [b"a", b"b", b"c", b"d", b"e"]
    first = answered(IdsAnswer, IdsQuery("orders", None, 2, oldest_first=True), loop)
    living.send("f")
    turns(loop, 2)
    rest = answered(IdsAnswer, IdsQuery("orders", first.cursor, 100, oldest_first=True), loop)
    assert names(rest) == ["c", "d", "e"]


def test_what_is_exported_is_forgotten_in_the_same_order_where_it_is_imported(
    living: Living,
) -> None:
    long = ["l" * 65, "m" * 3_000]
    living.send("a", *long, "b")
    told = tuple(map(as_known, export(living.running())))
    other = Living(addresses={"#": {"id_cache_size": 3}})
    loop = other.running()
    change = ImportIds("orders", "orders", 0, told)
    assert answer(change._replace(dry_run=True), loop) == ImportAnswer(4, 4, complete=True)
    assert not export(loop)
    assert answer(change, loop) == ImportAnswer(4, 4, complete=True)
    assert [as_known(each) for each in export(loop)] == list(told[1:])
    other.send(*long, "b", "a")
    turns(loop, 2)
    assert other.values("orders.unique") == ["a"]
    assert len(other.values("orders.dlq")) == 3


def test_an_imported_id_keeps_the_position_it_was_given(living: Living) -> None:
    loop = living.running()
    now_ms = living.cluster.now_ms
    ids = (KnownId(b"a", 5, now_ms - 5, "live", 7), KnownId(b"b", 6, now_ms + 5, "live", 8))
    changed(ImportIds("orders", "orders", 0, ids), loop)
    assert [each.sighting.time_ms for each in listed(loop).ids] == [now_ms, now_ms - 5]
    living.send("a", "b")
    turns(loop, 2)
    letters = [dict(each.headers or []) for each in living.cluster.records("orders.dlq")]
    assert [each[DeadLetter.ORIGINAL] for each in letters] == [b"live-7@5", b"live-8@6"]


def test_each_id_is_decided_as_if_it_came_from_where_it_says() -> None:
    living = Living(partitions=2)
    loop = living.running()
    here, there = (KnownId(b"x", n, None, "orders", n) for n in range(2))
    assert changed(ImportIds("orders", None, None, (here, there)), loop) == 2
    assert [each.sighting.partition for each in listed(loop).ids] == [0, 1]
    foreign = KnownId(b"y", 1, None, "live")
    assert changed(ImportIds("orders", None, None, (here, foreign)), loop) == 1
    assert changed(ImportIds("orders", "orders", None, (foreign,)), loop) == 1
    places = [(each.identifier, each.sighting.partition) for each in listed(loop).ids]
    assert places == [(b"y", 0), (b"x", 0), (b"x", 1)]


def test_a_partition_that_has_seen_nothing_takes_its_time_from_imported_ids() -> None:
    living = Living(addresses={"#": {"strategy": "window", "window_ms": 1_000}})
    loop = living.running()
    now_ms = living.cluster.now_ms
    ids = (KnownId(b"a", 1, now_ms - 5_000), KnownId(b"b", 2, now_ms - 10), KnownId(b"c"))
    changed(ImportIds("orders", "orders", 0, ids), loop)
    assert [known(loop, name) for name in "abc"] == [False, True, True]
    living.send("a", "b", "c")
    turns(loop, 2)
    assert living.values("orders.unique") == ["a"]


def test_of_an_import_the_new_ones_are_counted(living: Living) -> None:
    living.send("a")
    loop = living.running()
    ids = tuple(KnownId(name.encode()) for name in "abcb")
    change = ImportIds("orders", "orders", 0, ids)
    assert answer(change, loop) == ImportAnswer(4, 2, complete=True)
    assert answer(change, loop) == ImportAnswer(4, 0, complete=True)


def test_an_imported_id_that_is_kept_as_a_digest_is_known_too() -> None:
    living, identifier = Living(), "x" * (STORED_ID_BYTES_MAX + 1)
    loop = living.running()
    answer(ImportIds("orders", "orders", 0, (KnownId(identifier.encode()),)), loop)
    living.send(identifier)
    turns(loop)
    assert (living.values("orders.unique"), living.values("orders.dlq")) == ([], [identifier])


def test_where_no_address_has_room_an_import_says_why() -> None:
    living = Living(addresses={"#": {"addresses_max": 1}})
    living.send("a")
    loop = living.running()
    cause = "the partition holds 1 addresses already"
    with pytest.raises(NotPossible, match=rf"^\w+ takes no ids: {cause}\.$"):
        answer(ImportIds("another", "orders", 0, (KnownId(b"a"),)), loop)


def test_a_trial_changes_nothing(living: Living) -> None:
    living.send("a", "b")
    loop = living.running()
    before = living.committed()
    assert changed(ForgetId("orders", b"a", dry_run=True), loop) == 1
    assert changed(ClearAddress("orders", dry_run=True), loop) == 2
    assert changed(ImportIds("orders", "orders", 0, (KnownId(b"c"),), dry_run=True), loop) == 1
    assert names(listed(loop)) == ["b", "a"]
    assert living.committed() == before


def test_many_ids_are_looked_up_as_each_is(living: Living) -> None:
    living.send("a", "b")
    loop = living.running()
    told = answered(LookupAnswer, IdsLookup("orders", (b"b", b"c", b"a", b"b")), loop)
    alone = []
    for name in (b"b", b"c", b"a", b"b"):
        one = answered(IdAnswer, IdQuery("orders", name), loop)
        alone.append(one.sightings)
    assert told.sightings == tuple(alone)


def test_an_id_is_found_at_every_address_that_remembers_it() -> None:
    route = RouteSettings(
        name="orders", inputs=("orders",), scope="partition", address="{header:addr}"
    )
    living = Living(route)
    for number, (address, name) in enumerate((("x", b"a"), ("y", b"b"), ("z", b"a"), ("z", b"b"))):
        headers: Headers = [("addr", address.encode()), (DUPLICATE_ID, name)]
        living.cluster.write("orders", 0, Record(None, b"v", headers, number))
    loop = living.running()
    turns(loop, 2)
    told = answered(LookupAnswer, IdSearch(b"a", ("x", "y", "z", "never seen")), loop)
    assert [[seen.offset for seen in each] for each in told.sightings] == [[0], [], [2], []]


OPERATIONS = st.sampled_from(["send", "forget", "restart"])


@given(
    held=st.integers(1, 12),
    between=st.lists(st.lists(OPERATIONS, max_size=3), max_size=8),
    limit=st.integers(1, 4),
    oldest_first=st.booleans(),
)
def test_pages_over_changing_data_hold_what_stayed_once(
    held: int, between: list[list[str]], limit: int, *, oldest_first: bool
) -> None:
    living = Living(addresses={"#": {"id_cache_size": 12}})
    living.send(*(f"old {number}" for number in range(held)))
    loop = living.running()
    before = {each.identifier for each in listed(loop).ids}
    query = IdsQuery("orders", None, limit, oldest_first)
    found: list[bytes] = []
    changes, gone = iter(between), set[bytes]()
    for count in range(100):
        page = answered(IdsAnswer, query, loop)
        found += [each.identifier for each in page.ids]
        if page.cursor is None:
            break
        query = query._replace(cursor=page.cursor)
        for number, operation in enumerate(next(changes, [])):
            if operation == "send":
                living.send(f"new {count} {number}")
                turns(loop, 2)
            elif operation == "forget":
                name = b"old %d" % (3 * number % held)
                changed(ForgetId("orders", name), loop)
                gone.add(name)
            else:
                loop.close()
                loop = living.loop()
                turn_until_running(loop)
    stayed = before & {each.identifier for each in listed(loop).ids}
    assert len(found) == len(set(found))
    assert stayed <= set(found)
    assert not gone & stayed


@pytest.mark.parametrize("strategy", ["ring", "window"])
@pytest.mark.parametrize("identifier", [b"x" * 65, b"y" * 200, b"\xff" * 1_000, b"z" * 5_000])
def test_a_long_id_is_found_by_what_lists_and_dead_letters_show(
    strategy: str, identifier: bytes
) -> None:
    living = Living(addresses={"#": {"strategy": strategy}})
    living.write(b"v", (DUPLICATE_ID, identifier))
    loop = living.running()
    shown = [id_text(remembered(identifier)), shown_id(identifier)]
    if strategy == "ring":
        shown.append(id_text(listed(loop).ids[0].identifier))
    for text in shown:
        found = answered(IdAnswer, IdQuery("orders", sought_id(text)), loop)
        assert [each.offset for each in found.sightings] == [0], text
    if strategy == "ring":
        assert changed(ForgetId("orders", sought_id(shown[0])), loop) == 1
        assert not answered(IdAnswer, IdQuery("orders", identifier), loop).known


@pytest.mark.parametrize(
    ("settings", "template", "told"),
    [
        ({}, "", None),
        ({"strategy": "sequence"}, "", "orders has the strategy sequence"),
        ({"id_cache_size": 0}, "", "orders remembers no ids"),
        ({}, "{sha256:value}", 'ids are made by "{sha256:value}" (orders)'),
        ({}, "order-{key}", 'ids are made by "order-{key}" (orders)'),
        ({}, "{key}", None),
        ({}, "{key}{header:a}", None),
    ],
)
def test_an_id_that_cannot_be_known_is_told_with_the_reason(
    settings: dict[str, object], template: str, told: str | None
) -> None:
    loop = Living(replace(ROUTE, id=template), {"#": settings}).running()
    why = answered(IdAnswer, IdQuery("orders", b"4711"), loop).why
    assert why is None if told is None else told in some(why)
    stamp = b"cluster/orders/0/1"
    assert answered(IdAnswer, IdQuery("orders", stamp), loop).why is None
    digest = hashlib.sha256(b"v").hexdigest().encode()
    if template == "{sha256:value}":
        assert answered(IdAnswer, IdQuery("orders", digest), loop).why is None
