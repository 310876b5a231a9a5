"""Editor: one change at a time over all instances, checked against the newest, with its history."""

from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from ringfence_client.headers import DUPLICATE_ID
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.audit import AuditHistory
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.layout import Topology
from ringfence_service.metadata.settings import KEPT_MAX, SettingsHistory, SettingsOverlay
from ringfence_service.metadata.settings_change import InvalidSettingsError, SettingsSnapshot
from ringfence_service.metadata.settings_service import SettingsService
from ringfence_service.metadata.topic import MetadataReader
from ringfence_service.metadata.watcher import MetadataWatcher
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_service.queries.settings import EvictionAnswer, EvictionQuery, Setting
from ringfence_state.strategies.base import CommittedState
from tests.fakes.clients import FakeClients
from tests.fakes.errors import fenced, plain
from tests.support.helpers import answer, answered, some
from tests.support.living import GROUP, ROUTE, Living, Turning, turns

TOPIC = config_topic(GROUP)
MORE: dict[str, object] = {"inputs": ["more"], "scope": "partition", "output": "orders.unique"}


class Read:
    """A bulletin without a thread: it reads when it is asked."""

    def __init__(self, living: Living) -> None:
        self._living = living

    def read(self) -> SettingsHistory:
        return settings_of(self._living).documents

    def wait(self, _revision: int, _timeout_s: float) -> None:
        """Nothing is late."""


def settings_of(living: Living) -> MetadataImage:
    follower = MetadataReader(living.clients("reader"), TOPIC, living.clock)
    try:
        follower.catch_up()
    finally:
        follower.close()
    return follower.settings


def editor_of(living: Living, loop: Loop | None = None) -> SettingsService:
    clients = FakeClients(living.cluster, GROUP, "admin")
    metadata_watcher = cast("MetadataWatcher", Read(living))
    return SettingsService(
        living.config, lambda _hop: clients, metadata_watcher, Turning(living, loop)
    )


def sized(size: int) -> SettingsOverlay:
    return SettingsOverlay(addresses={"#": {"id_cache_size": size}})


def edit(editor: SettingsService, overlay: SettingsOverlay) -> int:
    return editor.edit(lambda _: overlay, actor="me", reason="why").revision


def test_a_change_is_kept_with_who_made_it_and_why() -> None:
    living = Living()
    revision = edit(editor_of(living), sized(5))
    newest = some(settings_of(living).documents.newest)
    assert (newest.revision, newest.overlay) == (revision, sized(5))
    assert (newest.actor, newest.reason, newest.source) == ("me", "why", "rest")


def test_a_revision_is_validated_once() -> None:
    editor = editor_of(Living())
    assert editor.read().effective is editor.read().effective
    edit(editor, sized(5))
    effective = editor.read().effective
    assert effective.config.addresses.settings("any").id_cache_size == 5
    assert editor.try_out(lambda _: sized(6)).before.effective is effective


def test_a_change_sees_the_newest_and_what_it_raises_writes_nothing() -> None:
    living = Living()
    one, other = editor_of(living), editor_of(living)
    edit(one, sized(5))

    def change(standing: SettingsSnapshot) -> SettingsOverlay:
        assert standing.overlay == sized(5)
        raise NotPossible("no")

    with pytest.raises(NotPossible):
        other.edit(change, actor="", reason="")
    assert len(list(settings_of(living).documents)) == 1


@pytest.mark.row(35)
def test_a_change_that_was_made_is_not_refused_because_its_answer_was_lost() -> None:
    living = Living()
    before = edit(editor_of(living), sized(5))

    def if_match(standing: SettingsSnapshot) -> SettingsOverlay:
        if standing.revision != before:
            raise NotPossible("412")
        return sized(6)

    living.faults.at["commit_transaction.done"] = iter([fenced()])
    edited = editor_of(living).edit(if_match, actor="", reason="")
    newest = some(settings_of(living).documents.newest)
    assert (newest.revision, newest.overlay) == (edited.revision, sized(6))


def test_what_is_set_already_is_not_written_again() -> None:
    living = Living()
    editor = editor_of(living)
    first = edit(editor, sized(5))
    assert edit(editor, sized(5)) == first
    assert len(list(settings_of(living).documents)) == 1


def test_what_breaks_a_rule_is_refused_and_a_trial_writes_nothing() -> None:
    living = Living()
    editor = editor_of(living)
    with pytest.raises(InvalidSettingsError, match="nothing to read"):
        edit(editor, SettingsOverlay(routes={"orders": None}))
    with pytest.raises(InvalidSettingsError, match="create another"):
        edit(
            editor,
            SettingsOverlay(routes={"orders": {**MORE, "inputs": ["orders"], "address": "x"}}),
        )
    assert editor.try_out(lambda _: sized(3)).effective.config.addresses.patterns
    assert settings_of(living).documents.newest is None


def test_the_layout_follows_routes_that_come_and_go() -> None:
    living = Living()
    living.cluster.create_topic("more", 3)
    editor = editor_of(living)
    edit(editor, SettingsOverlay(routes={"more": MORE}))
    layout = some(settings_of(living).layout)
    assert (set(layout.routes), layout.partitions["more"]) == ({"orders", "more"}, 3)
    edit(editor, SettingsOverlay())
    assert set((settings_of(living).layout or layout).routes) == {"orders"}
    other = {**MORE, "scope": "address", "output": "x"}
    edit(editor, SettingsOverlay(routes={"more": other}))  # another route of the same name


def test_a_life_that_begins_meanwhile_writes_the_layout_of_what_is_set() -> None:
    living = Living()
    living.cluster.create_topic("more", 1)
    edit(editor_of(living), SettingsOverlay(routes={"more": MORE}))
    living.running()
    layout = some(settings_of(living).layout)
    assert set(layout.routes) == {"orders", "more"}
    assert isinstance(layout, Topology)


def test_the_newest_hundred_are_kept() -> None:
    living = Living()
    editor = editor_of(living)
    for size in range(KEPT_MAX + 3):
        edit(editor, sized(size + 1))
    kept = list(settings_of(living).documents)
    assert len(kept) == KEPT_MAX
    assert kept[0].number == KEPT_MAX + 3
    assert settings_of(living).documents.overlay_at(0) is None  # nobody knows any more


def test_a_client_that_waits_learns_when_every_deciding_partition_has_the_change() -> None:
    living = Living()
    loop = living.running()
    editor = editor_of(living, loop)
    assert editor.wait(editor.edit(lambda _: sized(5), actor="", reason=""), 5)
    idle = editor_of(living)
    assert not idle.wait(idle.edit(lambda _: sized(6), actor="", reason=""), 1)


def test_a_broker_that_does_not_answer_is_reported_as_unavailable() -> None:
    living = Living()
    living.faults.at["init_transactions"] = iter([plain(7, "no answer")])
    with pytest.raises(Unavailable, match="try again"):
        edit(editor_of(living), sized(5))


def test_a_change_that_is_too_large_for_a_record_is_refused_and_not_tried_again() -> None:
    living = Living()
    living.faults.at["produce"] = iter([plain(KafkaError.MSG_SIZE_TOO_LARGE, "too large")])
    with pytest.raises(NotPossible, match="make it smaller, or raise"):
        edit(editor_of(living), sized(5))
    edit(editor_of(living), sized(5))


# What would be forgotten.


def test_what_all_addresses_would_forget_takes_no_more_memory_than_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living(replace(ROUTE, address="{header:addr}"))
    for name in (b"a", b"b", b"c"):
        living.write(b"v", ("addr", name), (DUPLICATE_ID, b"1"))
    loop, held = living.running(), list[int]()
    turns(loop, 5)
    monkeypatch.setattr(loop.cache, "memory_bytes_max", 0)
    loop.cache.shrink()
    load = loop.cache._loaded

    def loaded(*place: Any) -> CommittedState:
        held.append(len(loop.cache._memories))
        return load(*place)

    monkeypatch.setattr(loop.cache, "_loaded", loaded)
    found = answered(EvictionAnswer, EvictionQuery({"#": {"id_cache_size": 0}}), loop)
    assert (found.ids_forgotten, held) == (3, [0, 1, 1]), "one state may exceed the limit"


def forgotten(living: Living, loop: Loop, **keys: Setting) -> EvictionAnswer:
    before = len(living.cluster.records("g.changelog.orders"))
    found = answer(EvictionQuery({"#": keys}), loop)
    turns(loop, 2)
    assert len(living.cluster.records("g.changelog.orders")) == before
    assert isinstance(found, EvictionAnswer)
    return found


@pytest.mark.parametrize("strategy", ["ring", "window"])
def test_a_resize_tells_how_many_would_be_forgotten_and_of_what_age(strategy: str) -> None:
    size = "id_cache_size" if strategy == "ring" else "window_size"
    living = Living(addresses={"#": {"strategy": strategy}})
    times = []
    for name in ("a", "b", "c", "d"):
        living.send(name)
        times.append(living.cluster.now_ms)
        living.clock.sleep(1)
    loop = living.running()
    found = forgotten(living, loop, strategy=strategy, **{size: 1})
    (cache,) = found.caches
    assert (found.ids_forgotten, found.needs_force, cache.ids_held) == (3, 0, 4)
    assert (cache.oldest_time_ms, cache.newest_time_ms) == (times[0], times[2])
    assert forgotten(living, loop, strategy=strategy, **{size: 9}).ids_forgotten == 0


@pytest.mark.parametrize("keys", [{"strategy": "window"}, {"persist_id_cache": False}])
def test_another_way_of_remembering_forgets_all_and_needs_force(keys: dict[str, Setting]) -> None:
    living = Living()
    living.send("a", "b")
    loop = living.running()
    found = forgotten(living, loop, **keys)
    assert (found.ids_forgotten, found.needs_force, found.caches_total) == (2, 1, 1)
    assert forgotten(living, loop, id_cache_size=20_000).caches == ()


def test_a_route_whose_input_an_earlier_one_reads_is_refused() -> None:
    living = Living(replace(ROUTE, inputs=("^ord.*",)))
    late = {**MORE, "inputs": ["orders"], "output": "other"}
    with pytest.raises(InvalidSettingsError, match="only the first route of a topic reads it"):
        edit(editor_of(living), SettingsOverlay(routes={"late": late}))


# Who reads along.


def test_a_bulletin_tells_what_is_set_once_it_has_read_to_the_end() -> None:
    living = Living()
    revision = edit(editor_of(living), sized(5))
    metadata_watcher = MetadataWatcher(
        lambda: living.clients("reader"), TOPIC, living.clock, AuditHistory().take
    )
    with pytest.raises(Unavailable, match="not been read yet"):
        metadata_watcher.read()
    metadata_watcher.start()
    try:
        metadata_watcher.wait(revision, 20)
        assert metadata_watcher.read().revision == revision
    finally:
        metadata_watcher.stop()
