"""After a commit: store, memory and partition say the same."""

import pytest

from ringfence_service.config.model import RouteSettings
from ringfence_service.processor.apply import apply
from ringfence_state.cache import Cache
from ringfence_state.store import StoreFailedError, StorePosition
from tests.support.deciding import CHANGELOG, IDENTITY, NOW_MS, SOURCE, World, named, record
from tests.support.rings import ring_of


def test_a_commit_moves_partition_and_store_together() -> None:
    world = World()
    world.commit(named(3, b"a"), record(4))
    partition = world.partition
    assert (partition.next_offset, partition.committed_offset, partition.changelog_next) == (
        5,
        5,
        10,
    )
    assert world.store.position() == StorePosition(IDENTITY, 5, 10, NOW_MS)
    assert partition.addresses == {"orders"}
    for cache in (world.cache, Cache(1 << 30)):
        assert ring_of(cache, SOURCE, world.store, "orders").committed(b"a") == 0


def test_a_batch_that_remembers_nothing_leaves_the_store_alone() -> None:
    world = World()
    world.commit(record(3))
    assert world.partition.next_offset == 4
    assert world.store.position() is None


def test_the_cache_is_shrunk_and_nothing_is_forgotten() -> None:
    route = RouteSettings("orders", inputs=("orders",), scope="partition", address="{key}")
    world = World(route)
    world.cache = Cache(0)
    world.commit(named(0, b"a", key=b"x"), named(1, b"a", key=b"y"))
    assert [world.cache.look(SOURCE, name) is None for name in "xy"] == [True, False]
    again = named(2, b"a", key=b"x"), named(3, b"a", key=b"y")
    assert world.decide(*again).tally.duplicates.total() == 2


def test_a_store_that_fails_passes_its_error_on() -> None:
    class Full(type(World().store)):  # type: ignore[misc]
        def apply(self, edits: object, position: object) -> None:
            del edits, position
            raise StoreFailedError("No space left")

    world = World()
    plan = world.decide(named(0, b"a"))
    world.partition.store = Full()
    with pytest.raises(StoreFailedError):
        apply(plan, {CHANGELOG: 10}, {SOURCE: world.partition}, world.cache, NOW_MS)
