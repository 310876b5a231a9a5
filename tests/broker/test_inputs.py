"""Inputs that come later, by configuration or by themselves, are read; those that lack are told."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.workload import PARTITIONS
from tests.broker.world import World
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker


@pytest.fixture
def world(broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]) -> Iterator[World]:
    with World(broker.client_properties, tmp_path, topic_name("inputs"), count=300) as own:
        yield own


def test_an_input_more_is_read_though_the_group_remembers_the_member(world: World) -> None:
    more = f"{world.group}-more"
    world.create()
    world.create(more, f"{more}.dlq")
    world.send()
    port = free_port(0)
    first = world.service(port)
    first.start()
    first.wait_ready()
    first.stop()
    world.inputs.append(more)
    second = world.service(port)
    second.start()
    second.wait_ready(2 * PARTITIONS)
    second.stop()


def test_an_input_that_is_missing_is_told_and_read_once_it_is_there(world: World) -> None:
    late = f"{world.group}-late"
    world.create()
    world.send()
    world.inputs.append(late)
    service = world.service(free_port(0))
    service.start()
    service.wait_complaint(late)
    world.wait_decided()  # the other one does not wait for it
    world.create(late, f"{late}.dlq")
    service.wait_ready(2 * PARTITIONS)
    service.stop()
    world.verify()


def test_a_broker_that_is_gone_is_told_though_nothing_comes_in(
    own_broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    with World(own_broker.client_properties, tmp_path, topic_name("idle"), count=300) as world:
        world.create()
        world.send()
        service = world.service(free_port(0))
        service.start()
        world.wait_decided()
        service.wait_ready()
        own_broker.stop()
        service.wait_complaint("the broker")
        own_broker.start()
        service.wait_ready()
        service.stop()
        world.verify()
