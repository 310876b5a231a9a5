"""Addresses that are not kept: in memory alone, and in no log."""

from typing import Final

import pytest

from ringfence_service.config.model import RouteSettings
from ringfence_state.cache import Cache
from ringfence_state.keys import SEGMENTS, prefix
from tests.support.deciding import World, named, reasons, topics
from tests.support.living import LOG, ORDERS, Living, in_group, turns

ROUTE: Final = RouteSettings(name="orders", inputs=("orders",), scope="partition")
FORGETFUL: Final = {"orders": {"persist_id_cache": False}}


def test_it_detects_while_it_lives_and_writes_nothing() -> None:
    living = Living(addresses=FORGETFUL)
    living.send("a", "b", "a")
    loop = living.running()
    living.send("b")
    turns(loop, 2)
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values("orders.dlq") == ["a", "b"]
    assert living.cluster.records(*LOG) == []


def test_it_forgets_when_its_partition_is_taken_over_again() -> None:
    living = Living(addresses=FORGETFUL)
    living.send("a")
    living.write(b"b", *in_group("t", 1, 2))
    loop = living.running()
    turns(loop)
    partition = loop.assignment.running[ORDERS]
    assert partition.groups.open
    assert partition.survey.extents
    partition.written_at = 0  # as in a changelog that was truncated
    loop.assignment.retake(ORDERS, wipe=False)
    assert not partition.groups.open
    assert not partition.survey.extents
    living.send("a")
    turns(loop)
    assert living.values("orders.unique") == ["a", "a"]


@pytest.mark.parametrize("strategy", ["ring", "window"])
def test_what_was_kept_before_is_deleted(strategy: str) -> None:
    keeping = {"orders": {"strategy": strategy}}
    world = World(ROUTE, addresses=keeping)
    world.commit(named(0, b"a"))
    world.addresses = {"orders": {"strategy": strategy, "persist_id_cache": False}}
    world.cache = Cache(1 << 30)
    plan = world.commit(named(1, b"a"), named(2, b"a"))
    assert len(topics(plan)) == 2
    assert reasons(plan.outputs)[0] is None
    assert [edit.value for edits in plan.edits.values() for edit in edits] == [None]
    assert list(world.store.scan(prefix(SEGMENTS, "orders"))) == []
    assert not world.decide(named(3, b"b")).edits


def test_a_small_ring_drops_what_it_no_longer_remembers() -> None:
    world = World(ROUTE, addresses={"orders": {"persist_id_cache": False, "id_cache_size": 2}})
    for offset in range(20):
        world.commit(named(offset, b"%d" % offset))
    assert len(list(world.partition.volatile.scan(b"r"))) <= 4
    assert world.store.position() is None
