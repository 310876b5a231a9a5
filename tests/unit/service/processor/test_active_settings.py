"""Following: what is set while the loop lives takes effect between two batches, and stays."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace

import pytest

import ringfence_state.cache
from ringfence_client.headers import DUPLICATE_ID
from ringfence_service.config.model import Scope
from ringfence_service.kafka.topics import by_address, config_topic
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.metadata.settings import SettingsOverlay
from ringfence_service.metadata.topic import MetadataWriter
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.transaction import TransactionAbortedError
from ringfence_state.model import PartitionId
from ringfence_state.offset_metadata import OffsetMetadata, decode
from ringfence_state.segment import decode as run_of
from ringfence_state.segment import key as key_of
from tests.fakes.errors import abortable
from tests.fakes.partition import Record
from tests.support.helpers import some
from tests.support.living import (
    GROUP,
    LOG,
    ORDERS,
    ROUTE,
    Living,
    refused,
    turn_until_running,
    turns,
    waiting_for,
)
from tests.support.rings import ring_of

MORE = {"inputs": ["more"], "scope": "partition", "output": "orders.unique", "dead_letter": "dlq"}


def put(living: Living, overlay: SettingsOverlay) -> int:
    """Write a settings document, as any instance may; gives its revision."""
    topic = config_topic(GROUP)
    writer = MetadataWriter(lambda: living.clients("admin"), topic, living.clock)
    return writer.write(
        lambda settings: settings.documents.records(overlay, actor="a", reason="", time_ms=1)
    )


def put_raw(living: Living, number: int, value: object) -> int:
    writer = MetadataWriter(lambda: living.clients("admin"), config_topic(GROUP), living.clock)
    return writer.write(lambda _: MetadataRecord.of(["settings", number], value))


def sized(size: int, pattern: str = "#") -> SettingsOverlay:
    return SettingsOverlay(addresses={pattern: {"id_cache_size": size}})


def told(living: Living, source: PartitionId = ORDERS) -> OffsetMetadata:
    found = living.cluster.group(GROUP).committed[source]
    return some(decode(found.metadata))


def names(count: int, first: int = 0) -> list[str]:
    return [f"id{number}" for number in range(first, first + count)]


def accepted(living: Living, loop: Loop, *ids: str) -> list[str]:
    """Those of the ids, sent now, that are let through."""
    before = len(living.values("orders.unique"))
    living.send(*ids)
    turns(loop, 3)
    return living.values("orders.unique")[before:]


# Sizes.


def test_a_resize_keeps_the_newest_exactly_and_growing_again_keeps_them() -> None:
    living = Living(addresses={"#": {"id_cache_size": 20}})
    living.send(*names(20))
    loop = living.running()
    for size in (10, 5, 20):
        put(living, sized(size))
        turns(loop, 2)
    assert accepted(living, loop, *names(5, first=15)) == []
    assert accepted(living, loop, *names(15)) == names(15)


def test_it_is_in_the_changelog_before_anything_else_is_read() -> None:
    living = Living(addresses={"#": {"id_cache_size": 20}})
    living.send(*names(20))
    loop = living.running()
    revision = put(living, sized(5))
    loop.turn()
    newest = living.cluster.records(*LOG)[-1]
    run = run_of(newest.value or b"")
    assert (run.ids, run.end - run.floor, run.capacity) == ((), 5, 5)
    assert told(living).applied == told(living).revision == revision
    assert living.board.read().config_revision in {0, revision}


def test_a_window_is_resized_at_once_too() -> None:
    living = Living(addresses={"#": {"strategy": "window", "window_size": 10}})
    living.send(*names(10))
    loop = living.running()
    for size in (3, 10):
        put(living, SettingsOverlay(addresses={"#": {"strategy": "window", "window_size": size}}))
        turns(loop, 2)
    loop.close()
    loop = living.running()
    assert accepted(living, loop, *names(3, first=7)) == []
    assert accepted(living, loop, *names(2)) == names(2)


def test_what_is_set_holds_in_the_next_life() -> None:
    living = Living(addresses={"#": {"id_cache_size": 20}})
    put(living, sized(2))
    living.send(*names(4))
    loop = living.running()
    assert accepted(living, loop, *names(4)) == names(4)


def test_a_life_that_ends_before_the_commit_settles_in_the_next() -> None:
    living = Living(addresses={"#": {"id_cache_size": 20}})
    living.send(*names(20))
    loop = living.running()
    revision = put(living, sized(5))
    living.faults.at["commit_transaction"] = iter([refused()])
    loop.turn()
    assert told(living).applied == 0
    loop.close()
    loop = living.running()
    assert told(living).applied == revision
    put(living, sized(20))
    turns(loop, 2)
    assert accepted(living, loop, "id14", "id15") == ["id14"]


def test_many_caches_are_settled_in_pieces_and_only_the_last_tells_the_revision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringfence_service.processor.settings_follower.PIECE_CACHES_MAX", 2)
    route = replace(Living().config.routes[0], address="{header:a}")
    living = Living(route)
    for address in ("v", "w", "x", "y", "z"):
        for name in names(3):
            living.write(b"", ("a", address.encode()), (DUPLICATE_ID, name.encode()))
    loop = living.running()
    revision = put(living, sized(1))
    seen = []
    for _ in range(5):
        living.clock.sleep(1)
        loop.turn()
        seen.append((told(living).applied, living.board.read().config_revision))
    assert seen[:2] == [(0, 0)] * 2
    assert seen[-1] == (revision, revision)
    partition = loop.assignment.running[ORDERS]
    for address in ("v", "w", "x", "y", "z"):
        ring = ring_of(loop.cache, ORDERS, partition.kept_store, address)
        assert len(ring) == 1


def test_only_caches_whose_settings_change_are_looked_at() -> None:
    living = Living()
    living.send("a")
    loop = living.running()
    before = len(living.cluster.records(*LOG))
    revision = put(living, sized(5, "elsewhere"))
    turns(loop, 2)
    assert told(living).applied == revision
    assert len(living.cluster.records(*LOG)) == before


def test_what_another_owner_remembered_by_the_old_settings_is_settled_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringfence_service.processor.settings_follower.PIECE_CACHES_MAX", 1)
    living = Living(replace(Living().config.routes[0], address="{header:a}"))
    for address in (b"v", b"w"):
        for name in names(3):
            living.write(b"", ("a", address), (DUPLICATE_ID, name.encode()))
    loop = living.running()
    theirs = Record(key_of("x", 0), living.cluster.records(*LOG)[0].value, None, 1)
    put(living, sized(1))
    loop.turn()
    living.cluster.write(*LOG, theirs)
    loop.assignment.retake(ORDERS, wipe=False)
    turns(loop, 8)
    store = loop.assignment.running[ORDERS].kept_store
    assert [len(ring_of(loop.cache, ORDERS, store, address)) for address in "vwx"] == [1, 1, 1]


@pytest.mark.parametrize("scope", ["partition", "address"])
def test_where_nothing_is_new_nothing_is_asked_and_nothing_committed(scope: Scope) -> None:
    """Of two documents the topics contradict the newer one, which is refused once."""
    living = Living(replace(ROUTE, scope=scope))
    living.cluster.create_topic("more", 2)
    living.cluster.create_topic(f"{GROUP}.changelog.more", 1, cleanup_policy="compact")
    living.send("a")
    loop = living.running()
    for overlay in (sized(5), SettingsOverlay(routes={"more": MORE})):
        put(living, overlay)
        turns(loop, 5)
    before = living.faults.passed.copy()
    turns(loop, 5)
    asked, commits = living.faults.passed - before, "send_offsets_to_transaction"
    assert [asked[step] for step in ("names", "topics", "ends", commits)] == [0] * 4
    loop.close()
    turns(living.running(), 5)
    assert living.faults.passed[commits] == before[commits] > 0
    assert "on_partitions_added" in (living.board.read().config_fault or "")


# Strategies.


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"strategy": "ring"}, {"strategy": "window"}),
        ({"strategy": "window"}, {"strategy": "ring"}),
        ({"persist_id_cache": True}, {"persist_id_cache": False}),
        ({"persist_id_cache": False}, {"persist_id_cache": True}),
    ],
)
def test_what_was_remembered_in_another_way_is_forgotten_and_does_not_come_back(
    before: Mapping[str, object], after: Mapping[str, object]
) -> None:
    living = Living(addresses={"#": before})
    living.send("a", "b")
    loop = living.running()
    put(living, SettingsOverlay(addresses={"#": after}))
    turns(loop, 2)
    assert accepted(living, loop, "a", "a") == ["a"]
    put(living, SettingsOverlay())
    turns(loop, 2)
    assert accepted(living, loop, "b", "b") == ["b"]


@pytest.mark.parametrize(
    ("before", "between"),
    [
        ({}, {"strategy": "window"}),
        ({}, {"persist_id_cache": False}),
        ({"persist_id_cache": False}, {"persist_id_cache": True}),
    ],
)
def test_a_ring_that_begins_again_is_not_taken_for_the_one_before(
    before: Mapping[str, object], between: Mapping[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ringfence_state.cache, "WHOLE_IDS_MAX", 1)
    living = Living(addresses={"#": before}, cache_memory_mb=0)
    loop = living.running()
    assert accepted(living, loop, "a", "b", "c") == ["a", "b", "c"]
    assert accepted(living, loop, "a") == []
    put(living, SettingsOverlay(addresses={"#": between}))
    assert accepted(living, loop, "d") == ["d"]
    put(living, SettingsOverlay())
    assert accepted(living, loop, "x", "y", "z") == ["x", "y", "z"]
    assert accepted(living, loop, "x", "y", "z") == []


# Routes.


def living_with_more(partitions: int = 1) -> Living:
    living = Living(partitions=partitions)
    for name in ("more", "dlq"):
        living.cluster.create_topic(name, partitions)
    return living


def send_more(living: Living, *ids: str) -> None:
    for name in ids:
        living.write(name.encode(), (DUPLICATE_ID, name.encode()), topic="more")


def test_a_route_that_is_added_is_read_from_its_beginning() -> None:
    living = living_with_more()
    loop = living.running()
    send_more(living, "x", "x")
    put(living, SettingsOverlay(routes={"more": MORE}))
    turns(loop, 20)
    assert living.values("orders.unique") == ["x"]
    assert living.values("dlq") == ["x"]
    assert living.committed(PartitionId("more", 0)) == 2


def test_a_route_that_is_deleted_is_read_no_more_and_one_that_comes_back_goes_on() -> None:
    living = living_with_more()
    loop = living.running()
    put(living, SettingsOverlay(routes={"more": MORE}))
    turns(loop, 20)
    put(living, SettingsOverlay())
    loop.turn()
    send_more(living, "x")
    turns(loop, 10)
    assert living.values("orders.unique") == []
    assert PartitionId("more", 0) not in loop.assignment.partitions
    put(living, SettingsOverlay(routes={"more": MORE}))
    turns(loop, 20)
    assert living.values("orders.unique") == ["x"]


def test_a_route_that_goes_and_comes_before_the_group_speaks_is_read() -> None:
    living = living_with_more()
    loop = living.running()
    put(living, SettingsOverlay(routes={"more": MORE}))
    turns(loop, 20)
    for overlay in (SettingsOverlay(), SettingsOverlay(routes={"more": MORE})):
        put(living, overlay)
        with contextlib.suppress(TransactionAbortedError):  # the group is on its way
            loop.upkeep.follow_settings()
    send_more(living, "x")
    turns(loop, 30)
    assert living.values("orders.unique") == ["x"]


def test_a_route_whose_output_changes_goes_elsewhere_from_then_on() -> None:
    living = living_with_more()
    loop = living.running()
    assert accepted(living, loop, "a") == ["a"]
    keys = {"inputs": ["orders"], "scope": "partition", "output": "more"}
    put(living, SettingsOverlay(routes={"orders": keys}))
    loop.turn()
    assert accepted(living, loop, "a", "b") == []
    assert living.values("more") == ["b"]


def test_an_input_that_moves_to_another_route_is_taken_over_again() -> None:
    living = living_with_more()
    loop = living.running()
    living.send("a")
    loop.turn()
    other = {"inputs": ["orders"], "scope": "address", "address": "x"}
    put(living, SettingsOverlay(routes={"orders": None, "other": other}))
    turns(loop, 20)
    (partition,) = loop.assignment.running.values()
    assert partition.changelog is None
    assert living.board.read().hops == ("inputs", "by-address")


def test_a_new_output_is_written_in_the_turn_that_brings_it_into_force() -> None:
    living = Living()
    living.cluster.create_topic("other")
    loop = living.running()
    to_other = {"inputs": ["orders"], "scope": "partition", "output": "other"}
    put(living, SettingsOverlay(routes={"orders": to_other}))
    living.send("a")
    loop.turn()
    assert (living.values("other"), waiting_for(living)) == (["a"], None)


# Pause.


def test_a_paused_route_is_owned_and_restored_and_not_read() -> None:
    living = Living()
    loop = living.running()
    revision = put(living, SettingsOverlay(paused=("orders",)))
    turns(loop, 2)
    living.send("a", "b")
    living.clock.sleep(3)
    turns(loop, 3)
    (status,) = living.board.read().partitions
    assert (status.phase, status.paused, status.lag_records) == ("running", True, 2)
    assert living.board.read().phase == "running"
    assert told(living).applied == revision
    assert living.values("orders.unique") == []
    put(living, SettingsOverlay())
    turns(loop, 3)
    assert living.values("orders.unique") == ["a", "b"]


def test_what_was_read_before_a_pause_and_not_decided_waits_for_its_end() -> None:
    living = Living(batch_bytes_max=1000)
    loop = living.running()
    living.send("a", "b", size=1000)
    loop.turn()
    put(living, SettingsOverlay(paused=("orders",)))
    turns(loop, 3)
    assert living.values("orders.unique") == ["a"]
    put(living, SettingsOverlay())
    turns(loop, 3)
    assert living.values("orders.unique") == ["a", "b"]


def test_a_pause_holds_in_the_next_life_and_over_an_abort() -> None:
    living = Living()
    put(living, SettingsOverlay(paused=("orders",)))
    living.send("a")
    loop = living.running()
    put(living, SettingsOverlay(paused=("orders",), addresses={"#": {"id_cache_size": 7}}))
    living.faults.at["commit_transaction"] = iter([refused()])
    turns(loop, 5)
    assert living.values("orders.unique") == []
    put(living, SettingsOverlay())
    turns(loop, 3)
    assert living.values("orders.unique") == ["a"]


# What cannot hold.


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"format": 99}, "run the newer version"),
        ({"format": 1, "routes": 7}, "cannot read"),
        ({"format": 1, "routes": {"orders": None}}, "no route is left"),
        (
            {"format": 1, "routes": {"x": {"inputs": ["orders"], "address": "orders"}}},
            "their scopes differ",
        ),
    ],
)
def test_settings_invalid_here_change_nothing_and_are_reported(
    value: object, sentence: str
) -> None:
    living = Living(addresses={"#": {"id_cache_size": 20}})
    loop = living.running()
    last = put(living, sized(2))
    turns(loop, 2)
    revision = put_raw(living, 2, value)
    living.clock.sleep(1)
    assert accepted(living, loop, "a", "b", "c", "a") == ["a", "b", "c", "a"]
    status = living.board.read()
    assert (status.phase, status.config_revision) == ("running", last)
    assert f"revision {revision}" in (status.config_fault or "")
    assert sentence in (status.config_fault or "")
    assert (told(living).applied, told(living).revision) == (last, revision)
    loop.close()
    loop = living.running()
    living.clock.sleep(1)
    turns(loop, 2)
    assert sentence in (living.board.read().config_fault or "")
    assert set(some(loop.follower.settings.layout).routes) == {"orders"}
    assert accepted(living, loop, "a", "c") == []
    put(living, sized(20))
    living.clock.sleep(1)
    turns(loop, 2)
    assert living.board.read().config_fault is None


def test_what_the_topics_contradict_is_refused_in_the_next_life_too() -> None:
    living = living_with_more()
    living.cluster.create_topic(by_address(GROUP), 5)
    loop = living.running()
    put(living, sized(7))
    addressed = {"more": {**MORE, "scope": "address"}}
    put(living, SettingsOverlay(paused=("orders",), routes=addressed))
    for value in ("first", "second"):
        living.clock.sleep(1)
        turns(loop, 2)
        assert "by_address_partitions" in (living.board.read().config_fault or "")
        assert accepted(living, loop, value) == [value], "what is refused pauses no route"
        loop.close()
        loop = living.running()
    assert loop.config.addresses.settings("orders").id_cache_size == 7
    assert accepted(living, loop, "a", "a") == ["a"]


def test_a_broker_that_does_not_answer_delays_a_document_and_loses_nothing() -> None:
    living = living_with_more()
    loop = living.running()
    put(living, SettingsOverlay(routes={"more": MORE}))
    living.faults.at["names"] = iter([abortable(7, "no answer")])
    send_more(living, "x")
    turns(loop, 30)
    assert living.values("orders.unique") == ["x"]
    turn_until_running(loop)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_restored_partition_is_settled_where_others_stopped(*, is_known: bool) -> None:
    """Where nobody knows any more what had been set by then, all that is held is looked at."""
    living = Living(addresses={"#": {"id_cache_size": 20}})
    put(living, sized(20))
    living.send(*names(20))
    living.running().close()
    put(living, sized(5))
    if not is_known:
        gone = Record(b'["settings",1]', None, None, 1)
        living.cluster.write(config_topic(GROUP), 0, gone)
    loop = living.running()
    put(living, sized(20))
    turns(loop, 2)
    assert accepted(living, loop, "id14", "id15") == ["id14"]


def test_a_file_that_manages_itself_holds_whatever_was_set() -> None:
    living = Living(addresses={"#": {"id_cache_size": 20}}, managed_by="file")
    put(living, sized(1)._replace(routes={"more": MORE}))
    loop = living.running()
    assert set(some(loop.follower.settings.layout).routes) == {"orders"}
    put(living, SettingsOverlay(paused=("orders",)))
    assert accepted(living, loop, "a", "b", "a") == ["a", "b"]
    living.clock.sleep(1)
    turns(loop, 2)
    assert living.board.read().config_fault is None
    assert told(living).applied == 0


def test_addresses_that_the_configuration_names_have_labels_before_any_other() -> None:
    living = Living()
    loop = living.running()
    put(living, sized(5, "billing.eu"))
    turns(loop)
    labels = living.watch.metrics.labelled_addresses
    assert labels == {"orders", "billing.eu"}
