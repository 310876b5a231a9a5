"""A sample: how full caches are, without loading any, and what stores take."""

from pathlib import Path

from ringfence_service.config.addresses import AddressBook
from ringfence_service.dedup.partition import OccupancyStats
from ringfence_service.processor.occupancy import OccupancyScanner, StateSampler
from ringfence_service.telemetry.gauges import AddressFill, StateSample
from ringfence_state.model import PartitionId
from ringfence_state.rocksdb_store import RocksStores
from ringfence_state.store import StoreStats
from ringfence_state.strategies.base import Occupancy
from tests.support.deciding import NOW_MS, SOURCE, World, named

SIZE_4 = {"#": {"id_cache_size": 4}}


def taken(sampler: StateSampler, world: World, *labels: str, **more: World) -> StateSample:
    worlds = {world.partition.source: world.partition}
    worlds |= {PartitionId(name, 0): each.partition for name, each in more.items()}
    book = AddressBook.of(world.addresses)
    return sampler.take(worlds, OccupancyScanner(world.cache), book, set(labels))


def full() -> World:
    """Four ids of ten are left."""
    world = World(addresses=SIZE_4)
    fill(world, 0, 9)
    return world


def fill(world: World, first: int, last: int) -> None:
    ids = range(first, last + 1)
    world.commit(
        *(named(n, b"%d" % n, timestamp_ms=NOW_MS - 1000 + n) for n in ids)  # type: ignore[arg-type]
    )


def test_a_ring_that_is_not_full_has_no_horizon() -> None:
    world = World(addresses=SIZE_4)
    fill(world, 0, 2)
    assert taken(StateSampler(), world, "orders").fills == {"orders": AddressFill(4, 3, None)}


def test_a_full_ring_tells_the_time_from_its_oldest_id_to_its_newest() -> None:
    world = full()
    assert taken(StateSampler(), world, "orders").fills == {"orders": AddressFill(4, 4, 3)}


def test_what_went_since_the_last_sample_is_counted_once() -> None:
    world, sampler = World(addresses=SIZE_4), StateSampler()
    fill(world, 0, 1)
    assert taken(sampler, world, "orders").evicted["orders"] == 0
    fill(world, 2, 9)
    assert taken(sampler, world, "orders").evicted["orders"] == 6
    assert taken(sampler, world, "orders").evicted["orders"] == 0


def test_an_address_that_is_not_in_memory_any_more_keeps_what_was_measured() -> None:
    world, sampler = full(), StateSampler()
    before = taken(sampler, world, "orders").fills
    world.cache.drop(SOURCE)
    assert taken(sampler, world, "orders").fills == before
    assert world.cache.look(SOURCE, "orders") is None, "nothing is loaded for a sample"


def test_a_partition_that_is_gone_tells_nothing() -> None:
    world, sampler = full(), StateSampler()
    taken(sampler, world, "orders")
    sample = sampler.take({}, OccupancyScanner(world.cache), AddressBook.of(SIZE_4), {"orders"})
    assert sample.fills == {}
    assert sample.stores == StoreStats(0)


def test_an_address_without_a_label_counts_among_the_others() -> None:
    world = full()
    sample = taken(StateSampler(), world)
    assert sample.fills == {}
    assert sample.others_used == 4


def test_capacities_add_up_and_the_shortest_horizon_counts() -> None:
    one, other = AddressFill(10, 4, 70), AddressFill(20, 20, 30)
    assert one.plus(other) == AddressFill(30, 24, 30)
    assert one.plus(AddressFill(5, 0)) == AddressFill(15, 4, 70)
    assert AddressFill(1, 0).plus(AddressFill(1, 0)).horizon_ms is None


def test_addresses_that_count_numbers_have_no_fill() -> None:
    world = World(addresses={"#": {"strategy": "sequence"}})
    world.commit(named(0, b"a"))
    assert taken(StateSampler(), world, "orders").fills == {}


def test_a_store_on_disk_tells_what_it_takes(tmp_path: Path) -> None:
    world = World(addresses=SIZE_4)
    stores = RocksStores(tmp_path)
    world.partition.store = stores.open(SOURCE)
    fill(world, 0, 9)
    found = taken(StateSampler(), world, "orders").stores
    world.partition.drop()
    assert found.keys >= 1
    assert found.memory_bytes > 0
    assert found.disk_bytes > 0
    assert found.stalls == 0


def test_an_address_is_measured_again_when_it_or_its_settings_have_changed() -> None:
    stats, book, later = OccupancyStats(), AddressBook.of({}), AddressBook.of(SIZE_4)
    for change in (lambda: stats.begin(["a"], book), lambda: stats.changed("a")):
        change()
        assert stats.begin(["a"], book)
        assert not stats.is_current("a", book)
        stats.found("a", Occupancy(3), 4)
        assert stats.is_current("a", book)
        assert not stats.begin(["a"], book)
    assert not stats.is_current("a", later)
    assert stats.begin(["a"], later)
    assert not stats.is_current("a", later)


def test_of_an_address_that_cannot_be_measured_nothing_is_kept() -> None:
    stats, book = OccupancyStats(), AddressBook.of({})
    stats.begin(["a", "b"], book)
    for address in ("a", "b"):
        stats.found(address, Occupancy(3), 4)
    stats.found("a", None, 4)
    assert (stats.extents, stats.rooms) == ({"b": Occupancy(3)}, {"b": 4})
    assert not stats.is_current("a", book)
