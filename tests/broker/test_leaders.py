"""Two brokers: leaders of topics, of groups and of transactions move from one to the other."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from tests.broker.world import World
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine

pytestmark = pytest.mark.broker

TWICE = {
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
}
SMALL = Machine(heap_mb=512, short_lived=True)


@pytest.fixture
def pair(
    embedded_kind: None,  # noqa: ARG001 - skips where there is none
    tmp_path: Path,
) -> Iterator[tuple[EmbeddedBroker, EmbeddedBroker]]:
    """The first is the controller too; the second may go."""
    first = EmbeddedBroker(tmp_path / "first", properties=TWICE, machine=SMALL)
    second = EmbeddedBroker(tmp_path / "second", properties=TWICE, machine=SMALL, leader=first)
    with first, second:
        yield first, second


@pytest.mark.row(14)
def test_leaders_and_coordinators_that_move_in_mid_transaction_lose_nothing(
    pair: tuple[EmbeddedBroker, EmbeddedBroker],
    tmp_path: Path,
    topic_name: Callable[[str], str],
) -> None:
    first, second = pair
    client = {"bootstrap.servers": f"{first.bootstrap_servers},{second.bootstrap_servers}"}
    with World(client, tmp_path, topic_name("leaders"), count=2500) as world:
        world.create(replicas=2)
        service = world.service(free_port(0))
        world.send(1000)
        service.start()
        world.wait_decided(400)
        second.kill()  # it leads half of everything
        world.send(600)
        world.wait_decided(1300)
        world.glimpse()
        second.restart()
        world.send(400)
        elect_preferred(first)  # half of everything goes back, without anybody dying
        world.wait_decided()
        elect_preferred(first)
        world.send()
        world.wait_decided()
        service.wait_ready()
        service.stop()
        world.verify()
        world.verify_store()


def elect_preferred(broker: Broker) -> None:
    """Have each partition led by the broker that stands first in its list."""
    admin = AdminClient(dict(broker.client_properties))
    admin.elect_leaders(ElectionType.PREFERRED, None).result(timeout=30)
