"""Inputs added later, by configuration or by themselves, are read; missing ones are reported."""

import pytest

from tests.broker.conftest import NewWorld
from tests.broker.workload import PARTITIONS
from tests.broker.world import World
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker


@pytest.fixture
def world(broker: Broker, new_world: NewWorld) -> World:
    return new_world(broker.client_properties, count=300)


def test_an_input_more_is_read_though_the_group_remembers_the_member(world: World) -> None:
    more = f"{world.group}-more"
    world.create(more, f"{more}.dlq")
    world.send()
    first = world.started()
    first.wait_ready()
    first.stop()
    world.inputs.append(more)
    second = world.started()
    second.wait_ready(2 * PARTITIONS)
    second.stop()


def test_a_missing_input_is_reported_and_is_read_once_it_exists(world: World) -> None:
    late = f"{world.group}-late"
    world.send()
    world.inputs.append(late)
    service = world.started()
    service.wait_note(late)
    world.wait_decided()  # the other one does not wait for it
    world.create(late, f"{late}.dlq")
    service.wait_ready(2 * PARTITIONS)
    service.stop()
    world.verify()


def test_an_unavailable_broker_is_reported_even_when_no_records_arrive(
    own_broker: Broker, new_world: NewWorld
) -> None:
    world = new_world(own_broker.client_properties, count=300)
    world.send()
    service = world.started()
    world.wait_decided()
    service.wait_ready()
    own_broker.stop()
    service.wait_complaint("the broker")
    own_broker.start()
    world.conclude(service)
