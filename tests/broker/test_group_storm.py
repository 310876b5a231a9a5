"""Members that sleep, come, go, or bear one name: work goes on and nothing is doubled."""

import shutil
import signal
import time

import pytest

from tests.broker.conftest import NewWorld
from tests.broker.service import struck
from tests.broker.victim import Step
from tests.broker.world import Manner, World
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

EXIT_FENCED = 4
IMPATIENT = Manner(consumer='"max.poll.interval.ms" = 13500')
LONGER_THAN_EVERY_TIMEOUT_S = 15
"""Beyond the session, the transaction and its scan, and what may lie between two polls."""


@pytest.fixture
def world(broker: Broker, new_world: NewWorld) -> World:
    return new_world(broker.client_properties, manner=IMPATIENT)


@pytest.mark.row(10)
def test_one_that_slept_longer_than_every_timeout_goes_on_alone(world: World) -> None:
    world.send(1500)
    service = world.service()
    service.start(struck(Step.INSIDE_COMMIT, 4, "STOP"))
    service.wait_until_stopped()
    time.sleep(LONGER_THAN_EVERY_TIMEOUT_S)  # noqa: TID251 - what lies between two polls is one of them
    world.glimpse()
    service.signal(signal.SIGCONT)
    world.conclude(service)


@pytest.mark.row(11)
def test_of_two_that_start_at_once_with_one_name_one_stays(world: World) -> None:
    world.send(1000)
    first, second = world.started(), world.started(volume="other")
    eventually(lambda: first.ended or second.ended, first, second)
    left, stays = (first, second) if first.ended else (second, first)
    assert left.wait() == EXIT_FENCED, left.tail()
    world.conclude(stays, volume="state" if stays is first else "other")


@pytest.mark.row(13)
def test_members_that_come_while_others_restore_take_over_what_is_not_restored_yet(
    world: World,
) -> None:
    services = [world.service(instance=name) for name in "012"]
    first = services[0]
    world.send(2000)
    first.start()
    world.wait_decided()
    first.stop()
    shutil.rmtree(world.store_folder())
    for _ in range(2):
        for service in services:
            service.start()
            service.wait_started()
        world.send(200)
        for service in services[1:]:
            service.stop()
        shutil.rmtree(world.store_folder("1"), ignore_errors=True)
        first.kill()
        shutil.rmtree(world.store_folder())
    first.start()
    world.conclude(first)
