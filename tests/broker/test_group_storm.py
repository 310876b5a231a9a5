"""Members that sleep, come, go, or bear one name: work goes on and nothing is doubled."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.victim import Step
from tests.broker.world import Manner, World
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker

EXIT_FENCED = 4
IMPATIENT = Manner(consumer='"max.poll.interval.ms" = 13500')
LONGER_THAN_EVERY_TIMEOUT_S = 15
"""Beyond the session, the transaction and its scan, and what may lie between two polls."""


@pytest.fixture
def world(broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]) -> Iterator[World]:
    client, group = broker.client_properties, topic_name("storm")
    with World(client, tmp_path, group, count=3000, manner=IMPATIENT) as own:
        own.create()
        yield own


@pytest.mark.row(10)
def test_one_that_slept_longer_than_every_timeout_goes_on_alone(world: World) -> None:
    world.send(1500)
    service = world.service(free_port(0))
    step = {"VICTIM_STEP": Step.INSIDE_COMMIT, "VICTIM_COUNT": "4"}
    service.start({**step, "VICTIM_SIGNAL": "STOP"})
    service.wait_until_stopped()
    time.sleep(LONGER_THAN_EVERY_TIMEOUT_S)  # noqa: TID251 - what lies between two polls is one of them
    world.glimpse()
    service.signal(signal.SIGCONT)
    world.send()
    world.wait_decided()
    service.wait_ready()
    service.stop()
    world.verify()
    world.verify_store()


@pytest.mark.row(11)
def test_of_two_that_start_at_once_with_one_name_one_stays(world: World) -> None:
    first, second = world.service(free_port(0)), world.service(free_port(0), volume="other")
    world.send(1000)
    first.start()
    second.start()
    eventually(lambda: first.ended or second.ended, first, second)
    left, stays = (first, second) if first.ended else (second, first)
    assert left.wait() == EXIT_FENCED, left.tail()
    world.send()
    world.wait_decided()
    stays.stop()
    world.verify()


@pytest.mark.row(13)
def test_a_storm_of_members_that_come_and_go_hinders_nothing(world: World) -> None:
    stays, comes = world.service(free_port(0)), world.service(free_port(0), "1")
    goes = world.service(free_port(0), "2")
    stays.start()
    world.send(600)
    for number in range(2):
        comes.start()
        comes.wait_started()
        goes.start()
        world.send(300)
        goes.wait_started()
        comes.stop()
        if number == 1:
            goes.signal(signal.SIGKILL)
            goes.wait()
        else:
            goes.stop()
        world.glimpse()
    world.send()
    world.wait_decided()
    stays.wait_ready()
    stays.stop()
    world.verify()


@pytest.mark.row(13)
def test_members_that_come_while_others_restore_take_over_what_is_not_restored_yet(
    world: World,
) -> None:
    services = [world.service(free_port(0), str(number)) for number in range(3)]
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
        first.signal(signal.SIGKILL)
        first.wait()
        shutil.rmtree(world.store_folder())
    first.start()
    world.send()
    world.wait_decided()
    first.wait_ready()
    first.stop()
    world.verify()
    world.verify_store()
