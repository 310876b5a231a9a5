"""One address over many partitions: exact, whichever process is killed meanwhile."""

import random
from typing import Final

import pytest

from ringfence_service.config.model import Scope
from tests.broker.conftest import NewWorld
from tests.broker.workload import CAPACITY, PARTITIONS
from tests.broker.world import Manner
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

SEED: Final = 6


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scope", ["address", "id"])
@pytest.mark.parametrize(
    ("count", "kills"), [(6_000, 3), pytest.param(200_000, 10, marks=pytest.mark.long)]
)
def test_scattered_ids_are_decided_as_the_model_says_though_the_service_is_killed(
    broker: Broker, new_world: NewWorld, count: int, kills: int, scope: Scope
) -> None:
    chance, share = random.Random(SEED), count // (kills + 2)
    size = CAPACITY * (PARTITIONS if scope == "id" else 1)
    world = new_world(
        broker.client_properties,
        count=count,
        settings=f"id_cache_size = {size}",  # so that each partition has as many
        manner=Manner(scope=scope),
    )
    world.send()
    service = world.started()
    for life in range(kills):
        wanted = share * life + chance.randrange(1, share)
        eventually(lambda goal=wanted: world.decided >= goal, service)  # type: ignore[misc]
        service.kill()
        service.start()
    world.conclude(service)
