"""Transaction groups: all of it goes out, or all of it goes to the dead letters."""

from collections.abc import Mapping
from typing import Final

import pytest
from confluent_kafka import Message

from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT, ORIGIN, DeadLetter, Reason
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import RouteSettings
from ringfence_service.config.tasks import Hop
from ringfence_service.dedup.dead_letter import RedrivenRecord
from ringfence_service.dedup.pending_groups import PendingGroup, PendingGroups, PendingGroupsDraft
from ringfence_service.dedup.record import RejectedError
from ringfence_service.dedup.waiting_order import GroupName
from ringfence_state.memory_store import MemoryStore
from ringfence_state.pending_group import HEADERS_MAX, KIND, PendingRecord
from tests.support.deciding import (
    FALLBACK,
    NOW_MS,
    SOURCE,
    Decided,
    World,
    cluster_of,
    reasons,
    record,
    told,
    topics,
)
from tests.support.helpers import some
from tests.support.living import GROUP, LOG, ORDERS, Living, turns

DUPLICATES: Final = ["duplicate-in-transaction"] * 2
Header = tuple[str, bytes | None]


def in_group(position: int, size: int, name: bytes = b"t", identifier: str = "") -> list[Header]:
    group: list[Header] = [
        ("_TX_ID", name),
        ("_TX_SIZE", b"%d" % size),
        ("_TX_SEQ", b"%d" % position),
    ]
    return [*group, (DUPLICATE_ID, identifier.encode())] if identifier else group


def member(
    offset: int, position: int, size: int, identifier: str = "", name: bytes = b"t"
) -> Message:
    headers = in_group(position, size, name, identifier)
    return record(offset, *headers, value=b"v%d" % offset)


def values(plan: Decided) -> list[bytes | None]:
    return [output[1] for output in plan.outputs]


def held(world: World) -> int:
    return len(list(world.store.scan(KIND)))


def test_a_group_goes_out_whole_with_its_last_record_in_order() -> None:
    world = World()
    assert world.commit(member(0, 3, 3, "c"), member(1, 1, 3, "a")).outputs == []
    assert held(world) == 2
    plan = world.commit(member(2, 2, 3, "b"))
    assert values(plan) == [b"v1", b"v2", b"v0"]
    assert plan.tally.accepted.total() == 3
    assert held(world) == 0


def test_a_group_of_one_transaction_leaves_nothing_in_the_state() -> None:
    world = World()
    plan = world.commit(member(0, 1, 2, "a"), member(1, 2, 2, "b"))
    assert values(plan) == [b"v0", b"v1"]
    assert held(world) == 0
    assert len(plan.edits) == 1


def test_nothing_of_it_is_remembered_before_it_is_whole() -> None:
    world = World()
    world.commit(member(0, 1, 2, "a"))
    plan = world.commit(record(1, (DUPLICATE_ID, b"a")))
    assert reasons(plan.outputs) == [None]


def test_a_record_that_a_bridge_stamped_is_remembered_where_its_group_is() -> None:
    world, stamp = World(), "cluster/orders/0/7"
    plan = world.commit(member(0, 1, 2, "a"), member(1, 2, 2, stamp))
    assert values(plan) == [b"v0", b"v1"]
    assert world.partition.addresses == {"orders"}
    assert reasons(world.decide(record(2, (DUPLICATE_ID, b"a"))).outputs) == ["duplicate"]


def test_the_groups_that_wait_are_those_that_a_new_owner_finds() -> None:
    world = World(addresses={"#": {"groups_open_max": 2}})
    world.commit(member(0, 2, 3, name=b"a"), member(1, 1, 3, name=b"b"))
    world.commit(member(2, 1, 3, name=b"a"))
    assert PendingGroups.of(world.store).open == world.partition.groups.open
    begun_again = [member(3, 1, 3, name=b"c"), member(4, 3, 3, name=b"a")]
    plan = world.commit(*begun_again)
    assert reasons(plan.outputs) == ["group-incomplete"] * 3
    held_now = world.partition.groups.open
    assert {name.group: set(group.bytes_of) for name, group in held_now.items()} == {
        b"c": {1},
        b"a": {3},
    }
    assert PendingGroups.of(world.store).open == held_now


def test_a_duplicate_anywhere_rejects_all_of_it() -> None:
    world = World()
    world.commit(record(0, (DUPLICATE_ID, b"b")))
    plan = world.commit(member(1, 1, 2, "a"), member(2, 2, 2, "b"))
    assert reasons(plan.outputs) == DUPLICATES
    assert told(plan.outputs[0][-1])[DeadLetter.ORIGINAL] == "orders-1@0"
    assert "position 2 of its group" in told(plan.outputs[0][-1])[DeadLetter.CAUSE]
    assert plan.tally.duplicates.total() == 2
    assert reasons(world.commit(record(3, (DUPLICATE_ID, b"a"))).outputs) == [None]


def test_one_id_twice_in_it_rejects_all_of_it() -> None:
    world = World()
    plan = world.commit(member(0, 1, 2, "a"), member(1, 2, 2, "a"))
    assert reasons(plan.outputs) == DUPLICATES
    assert reasons(world.commit(record(2, (DUPLICATE_ID, b"a"))).outputs) == [None]


def test_one_id_suffices() -> None:
    route = RouteSettings(
        name="orders", inputs=("orders",), scope="partition", missing_id="dead_letter"
    )
    world = World(route)
    plan = world.commit(member(0, 1, 3), member(1, 2, 3, "a"), member(2, 3, 3))
    assert reasons(plan.outputs) == [None] * 3
    again = world.commit(member(3, 1, 3), member(4, 2, 3, "a"), member(5, 3, 3))
    assert reasons(again.outputs) == ["duplicate-in-transaction"] * 3


def test_without_any_id_the_route_says_what_becomes_of_it() -> None:
    route = RouteSettings(
        name="orders", inputs=("orders",), scope="partition", missing_id="dead_letter"
    )
    plan = World(route).commit(member(0, 1, 2), member(1, 2, 2))
    assert reasons(plan.outputs) == ["missing-id", "missing-id"]
    route = RouteSettings(name="orders", inputs=("orders",), scope="partition", missing_id="stamp")
    plan = World(route).commit(member(0, 1, 2), member(1, 2, 2))
    stamps = [dict(output[-1])[DUPLICATE_ID] for output in plan.outputs]
    assert stamps == [b"cluster/orders/1/0", b"cluster/orders/1/1"]


def test_what_is_sent_again_after_half_of_it_is_judged_as_one() -> None:
    world = World()
    world.commit(member(0, 1, 3, "a"), member(1, 2, 3, "b"))
    plan = world.commit(member(2, 1, 3, "a"), member(3, 2, 3, "b"), member(4, 3, 3, "c"))
    letters = [output for output in plan.outputs if output[0] == "orders.dlq"]
    assert [output[1] for output in letters] == [b"v0", b"v1"]
    assert [told(output[-1])[DeadLetter.REASON] for output in letters] == ["duplicate"] * 2
    assert told(letters[0][-1])[DeadLetter.ORIGINAL] == "orders-1@2"
    passed = [output[1] for output in plan.outputs if output[0] == "orders.unique"]
    assert passed == [b"v2", b"v3", b"v4"]
    assert held(world) == 0


def test_groups_of_one_name_on_two_addresses_are_two() -> None:
    route = RouteSettings(name="orders", inputs=("orders",), scope="partition", address="{key}")
    world = World(route)
    mine = record(0, *in_group(1, 2), key=b"x")
    other = record(1, *in_group(2, 2), key=b"y")
    assert world.commit(mine, other).outputs == []


def test_a_record_comes_out_of_the_state_as_it_went_in() -> None:
    world = World()
    odd: list[Header] = [("a", None), ("a", b""), ("é", b"\xff")]
    first = record(0, *in_group(1, 2), *odd, key=b"", value=None, timestamp_ms=7)
    world.commit(first)
    topic, value, key, _, _, _, timestamp, headers = world.commit(member(1, 2, 2)).outputs[0]
    assert (topic, value, key, timestamp) == ("orders.unique", None, b"", 7)
    assert list(headers) == [*in_group(1, 2), *odd]


def test_an_expired_record_does_not_join() -> None:
    world = World()
    late = record(0, *in_group(1, 2), (EXPIRES_AT, b"1"))
    plan = world.commit(late, member(1, 2, 2))
    assert reasons(plan.outputs) == ["expired"]


@pytest.mark.parametrize(
    "told",
    [
        {"_TX_ID": b"t"},
        {"_TX_ID": b"t", "_TX_SIZE": b"2"},
        {"_TX_ID": b"t", "_TX_SIZE": b"2", "_TX_SEQ": b"0"},
        {"_TX_ID": b"t", "_TX_SIZE": b"2", "_TX_SEQ": b"3"},
        {"_TX_ID": b"t", "_TX_SIZE": b"two", "_TX_SEQ": b"1"},
        {"_TX_ID": b"t" * 1025, "_TX_SIZE": b"2", "_TX_SEQ": b"1"},
    ],
)
def test_a_record_that_does_not_tell_its_place_is_invalid(told: Mapping[str, bytes]) -> None:
    plan = World().commit(record(0, *told.items()))
    assert reasons(plan.outputs) == ["invalid-claim"]


def test_a_record_that_tells_another_size_is_invalid_and_harms_nobody() -> None:
    world = World()
    plan = world.commit(member(0, 1, 2, "a"), member(1, 2, 3, "b"), member(2, 2, 2, "b"))
    assert reasons(plan.outputs) == ["invalid-claim", None, None]


def test_a_group_of_too_many_records_is_refused_at_once() -> None:
    world = World(addresses={"#": {"group_records_max": 2}})
    plan = world.commit(member(0, 1, 3), member(1, 2, 3), member(2, 3, 3))
    assert reasons(plan.outputs) == ["group-too-large"] * 3
    assert held(world) == 0
    assert reasons(world.commit(member(3, 1, 2), member(4, 2, 2)).outputs) == [None] * 2


def test_a_group_of_too_many_bytes_is_dead_lettered_whole() -> None:
    first, second = (record(n, *in_group(n + 1, 3), value=b"." * 600) for n in range(2))
    group = some(World().commit(first, second).groups[SOURCE][GroupName("orders", b"t")])
    for less, letters in ((0, 0), (1, 2)):
        world = World(addresses={"#": {"group_bytes_max": group.bytes - less}})
        world.commit(first)
        assert reasons(world.commit(second).outputs) == ["group-too-large"] * letters
        assert held(world) == 2 - letters


@pytest.mark.row(22)
def test_a_record_with_as_many_headers_as_the_state_can_count_waits_for_its_group() -> None:
    many: list[Header] = [("h", b"")] * (HEADERS_MAX - 3)
    world = World()
    world.commit(record(0, *many, *in_group(1, 2)))
    plan = world.commit(member(1, 2, 2))
    assert [output[-1] for output in plan.outputs] == [[*many, *in_group(1, 2)], in_group(2, 2)]


@pytest.mark.row(22)
@pytest.mark.parametrize("count", [HEADERS_MAX + 1, 70_000])
def test_a_record_with_more_headers_than_that_is_dead_lettered_alone(count: int) -> None:
    many: list[Header] = [("h", b"")] * (count - 3)
    world = World()
    plan = world.commit(record(0, *many, *in_group(1, 2)), member(1, 2, 2))
    assert reasons(plan.outputs) == ["group-too-large"]
    assert str(HEADERS_MAX) in told(plan.outputs[0][-1])["ringfence.cause"]
    assert held(world) == 1


def test_the_header_that_names_the_inlet_counts_too() -> None:
    route = RouteSettings(name="orders", inputs=("orders",))
    many: list[Header] = [("h", b"")] * (HEADERS_MAX - 3)
    world = World(route, hop=Hop.ADDRESSES)
    plan = world.commit(record(0, *many, *in_group(1, 2), (ORIGIN, b"orders-0@7")))
    assert reasons(plan.outputs) == ["group-too-large"]


def test_the_group_that_was_begun_first_makes_room() -> None:
    world = World(addresses={"#": {"groups_open_max": 2}})
    world.commit(member(0, 1, 2, name=b"z"), member(1, 1, 2, name=b"y"))
    plan = world.commit(member(2, 1, 2, name=b"x"))
    assert values(plan) == [b"v0"]
    assert reasons(plan.outputs) == ["group-incomplete"]
    assert reasons(world.commit(member(3, 2, 2, name=b"y")).outputs) == [None, None]


def test_each_record_makes_room_for_its_group_however_many_bytes_have_ended() -> None:
    world = World(addresses={"#": {"groups_open_max": 1}}, batch_bytes_max=1)
    assert values(world.commit(*(member(n, 1, 2, name=b"%d" % n) for n in range(3)))) == [
        b"v0",
        b"v1",
    ]


def test_duplicates_that_are_to_be_dropped_go_with_their_group() -> None:
    world = World(addresses={"#": {"on_duplicate": "drop"}})
    plan = world.commit(member(0, 1, 2, "a"), member(1, 2, 2, "a"))
    assert plan.outputs == []
    assert plan.tally.duplicates.total() == 2


def test_duplicates_that_are_to_be_marked_go_out_with_their_group() -> None:
    world = World(addresses={"#": {"on_duplicate": "mark"}})
    world.commit(record(0, (DUPLICATE_ID, b"a")))
    plan = world.commit(member(1, 1, 2, "a"), member(2, 2, 2, "b"))
    assert [topic for topic, *_ in plan.outputs] == ["orders.unique"] * 2
    marks = [dict(output[-1]).get("ringfence.duplicate") for output in plan.outputs]
    assert marks == [b"orders-1@0", None]


def test_what_does_not_fit_its_output_takes_its_group_along() -> None:
    cluster = cluster_of(orders_dlq=3)
    cluster.create_topic("orders.unique", 3, record_bytes_max=500)
    world = World(cluster=cluster)
    large = record(0, *in_group(1, 2), value=b"." * 600)
    plan = world.commit(large, member(1, 2, 2, "a"))
    assert reasons(plan.outputs) == ["too-large", "too-large"]
    assert reasons(world.commit(record(2, (DUPLICATE_ID, b"a"))).outputs) == [None]


def test_what_the_broker_refused_is_put_down_to_the_last_record() -> None:
    refused = {(SOURCE, 1): RejectedError(Reason.TOO_LARGE, "the broker refused it")}
    world = World(refused=refused)
    plan = world.decide(member(0, 1, 2, "a"), member(1, 2, 2, "b"))
    assert reasons(plan.outputs) == ["too-large", "too-large"]
    assert topics(plan) == ["orders.dlq", "orders.dlq"]
    world.undeliverable.add((SOURCE, 1))
    assert topics(world.decide(member(0, 1, 2, "a"), member(1, 2, 2, "b"))) == [FALLBACK] * 2


@pytest.mark.parametrize("offset", [0, 1])
def test_a_record_that_the_state_cannot_take_is_dead_lettered_alone(offset: int) -> None:
    refused = {(SOURCE, offset): RejectedError(Reason.TOO_LARGE, "the broker refused it")}
    plan = World(refused=refused).commit(*(member(n, n + 1, 3) for n in range(3)))
    assert reasons(plan.outputs) == ["too-large"]


def test_a_number_out_of_order_rejects_its_group_and_is_neither_marked_nor_forgiven() -> None:
    world = World(addresses={"#": {"strategy": "ordered", "on_duplicate": "mark"}})

    def counted(position: int, number: int) -> list[Header]:
        numbers = [("_SEQ_ID", 1), ("_PREV", number - 1), ("_SEQ", number)]
        told = [(name, b"%d" % value) for name, value in numbers]
        return [*in_group(position, 2), ("_PUBLISHER", b"P"), *told]

    world.commit(record(1, *counted(1, 1)), record(2, *counted(2, 2)))
    group = [counted(1, 3), counted(2, 5)]
    plan = world.commit(*(record(3 + n, *headers) for n, headers in enumerate(group)))
    assert reasons(plan.outputs) == ["out-of-order"] * 2
    assert plan.acks == []
    letters = [RedrivenRecord(0, *SOURCE, n, 0, b"k", b"v", tuple(group[n]), 0) for n in range(2)]
    assert world.redrive("forget", *letters)[0] == ["waiting", "refused"]


@pytest.mark.parametrize(
    ("strategy", "epochs", "reason"),
    [("sequence", {}, "invalid-claim"), ("ring", {"P": 1}, "name-in-use")],
)
def test_a_group_is_judged_by_what_holds_when_it_is_whole(
    strategy: str, epochs: dict[str, int], reason: str
) -> None:
    world = World()
    first = record(0, *in_group(1, 2, identifier="a"), ("_PUBLISHER", b"P"), ("_SEQ", b"one"))
    world.commit(first)
    world.addresses, world.epochs = {"#": {"strategy": strategy}}, epochs
    assert reasons(world.commit(member(1, 2, 2, "b")).outputs) == [reason] * 2


def test_an_id_that_a_group_repeats_restarts_its_window() -> None:
    world = World(addresses={"#": {"strategy": "window", "window_ms": 1_000}})
    group = in_group(1, 1)
    for ago_ms, headers in ((5_000, group), (4_500, group), (3_900, [])):
        sent = record(0, *headers, (DUPLICATE_ID, b"a"), timestamp_ms=NOW_MS - ago_ms)
        plan = world.commit(sent)
    assert reasons(plan.outputs) == ["duplicate"]


# In the loop.


def send(living: Living, *records: tuple[int, int, str]) -> None:
    for position, size, identifier in records:
        living.write(identifier.encode(), *in_group(position, size, identifier=identifier))


def test_the_group_timeout_restarts_with_a_new_owner() -> None:
    living = Living(addresses={"#": {"group_timeout_ms": 5_000}})
    send(living, (1, 2, "a"))
    living.running().close()
    living.cluster.wait(60)
    loop = living.running()
    send(living, (2, 2, "b"))
    turns(loop, 2)
    assert living.values("orders.unique") == ["a", "b"]


def test_what_times_out_and_fits_no_dead_letter_topic_ends_in_the_fallback() -> None:
    living = Living(addresses={"#": {"group_timeout_ms": 5_000}})
    living.cluster.create_topic("orders.dlq", limit_bytes=100)
    send(living, (1, 2, "a"))
    loop = living.running()
    turns(loop, 2)
    living.cluster.wait(6)
    turns(loop, 4)
    assert living.values("g.dead-letters") == ["a"]
    assert living.values("orders.dlq") == []


def test_a_state_that_is_to_be_cleared_loses_its_groups_too() -> None:
    living = Living(on_reset_offset="clear_state")
    send(living, (1, 2, "a"))
    living.running().close()
    del living.cluster.group(GROUP).committed[ORDERS]
    turns(living.running())
    stored = [record.value for record in living.cluster.records(*LOG)]
    assert stored.count(None) == 1
    assert living.values("orders.unique") == []


def test_a_group_of_a_name_that_was_used_before_has_a_time_of_its_own() -> None:
    name, groups = GroupName("orders", b"t"), PendingGroups()
    groups.apply({name: PendingGroup(2, begun=0)})
    book = AddressBook.of({})
    assert list(groups.overdue(0, book)) == []
    groups.apply({name: PendingGroup(2, begun=7)})  # ended and begun again in one transaction
    assert list(groups.overdue(100, book)) == []
    assert list(groups.overdue(160, book)) == []
    assert list(groups.overdue(161, book)) == [name]


@pytest.mark.parametrize(
    ("records_max", "bytes_max", "count"),
    [(4, 40, 3), (3, 40, 2), (4, 39, 2), (2, 40, 1), (4, 19, 1), (0, 0, 1)],
)
def test_as_many_groups_end_in_one_transaction_as_fit_and_at_least_one(
    records_max: int, bytes_max: int, count: int
) -> None:
    groups, names = PendingGroups(), [GroupName("orders", name) for name in (b"a", b"b", b"c")]
    members = [{1: 10}, {1: 10, 3: 10}, {2: 10}]
    each_group = zip(names, members, strict=True)
    groups.apply({name: PendingGroup(3, 0, each) for name, each in each_group})
    assert groups.first(names, records_max, bytes_max) == names[:count]


def test_a_transaction_without_a_limit_has_room_for_another_group_that_ends() -> None:
    draft, name = PendingGroupsDraft(PendingGroups(), MemoryStore()), GroupName("orders", b"t")
    waiting = PendingRecord(2, 0, 0, NOW_MS, b"k", b"v", [])
    draft.park(name, 1, waiting)
    assert draft.end(name) == [waiting]
    assert draft.has_room
