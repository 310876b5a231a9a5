"""Standby copies: an instance that is killed, or loses its volume, is taken over warm."""

import shutil

import pytest

from tests.broker.conftest import NewWorld
from tests.broker.service import Service, wait_shared
from tests.broker.world import Manner, World
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

IDS = 4_000
BATCH = 20
"""Records of a transaction, so that the changelogs have some hundred records."""


def warm_copies(service: Service) -> list[int]:
    """How many warm copies each partition has."""
    found = service.told("/v1/partitions")["partitions"]
    return [sum(copy["warm"] for copy in each["standbys"]) for each in found]


def wait_warm(world: World, *services: Service, copies: int = 1) -> None:
    """Until all partitions are shared, and each has so many warm copies."""
    wait_shared(*services)
    eventually(lambda: warm_copies(services[0]) == [copies] * world.owned, *services)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_instance_is_taken_over_from_the_copies_of_the_other(
    broker: Broker, new_world: NewWorld, workers: int
) -> None:
    manner = Manner(workers=workers, service='standby = "all"', batch_records=BATCH)
    world = new_world(broker.client_properties, count=IDS + 1_000, manner=manner)
    world.send(IDS)
    first = world.started("0", volume="first")
    world.wait_decided()
    second = world.started("1", volume="second")
    wait_warm(world, first, second)
    first.kill()
    second.wait_ready()
    assert sum(second.restored) < IDS / BATCH / 4
    world.send(500)
    world.wait_decided()
    third = world.started("0", volume="third")
    wait_warm(world, second, third)
    second.kill()
    third.wait_ready()
    assert sum(third.restored) < IDS / BATCH / 4
    world.send(500)
    world.wait_decided()
    world.conclude(third, volume="third")


@pytest.mark.long
def test_instances_without_volumes_are_replaced_one_after_the_other(
    broker: Broker, new_world: NewWorld
) -> None:
    manner = Manner(service='standby = "all"', batch_records=BATCH)
    world = new_world(broker.client_properties, count=IDS + 900, manner=manner)
    world.send(IDS)
    services = [world.started(str(number), volume=f"volume-{number}") for number in range(3)]
    world.wait_decided()
    wait_warm(world, *services, copies=2)
    for number, service in enumerate(services):
        service.stop()
        shutil.rmtree(world.folder / f"volume-{number}")
        service.start()
        world.send(300)
        wait_warm(world, *services, copies=2)
        assert max(map(sum, (each.restored for each in services))) < IDS / BATCH / 4
    world.wait_decided()
    for service in services[1:]:
        service.stop()
    world.conclude(services[0], volume="volume-0")
