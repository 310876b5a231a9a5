"""Two brokers, of which one goes: leaders move to the other, and replicas are too few."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from tests.broker.conftest import NewWorld
from tests.broker.topics import create_topic
from tests.broker.workload import PARTITIONS
from tools.broker.cluster import Broker
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("pair")]

TWICE = {
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
}
SMALL = Machine(heap_mb=512, short_lived=True)


class Pair(NamedTuple):
    """The first is the controller too; the second may go."""

    first: EmbeddedBroker
    second: EmbeddedBroker

    @property
    def client(self) -> Mapping[str, str]:
        both = (self.first.bootstrap_servers, self.second.bootstrap_servers)
        return {"bootstrap.servers": ",".join(both)}


@pytest.fixture(scope="module")
def pair(
    embedded_kind: None,  # noqa: ARG001 - skips where there is none
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    first = EmbeddedBroker(folder / "first", properties=TWICE, machine=SMALL)
    second = EmbeddedBroker(folder / "second", properties=TWICE, machine=SMALL, leader=first)
    with first, second:
        yield Pair(first, second)


@pytest.mark.row(14)
def test_leaders_and_coordinators_that_move_in_mid_transaction_lose_nothing(
    pair: Pair, new_world: NewWorld
) -> None:
    first, second = pair
    world = new_world(pair.client, replicas=2, count=2500)
    world.send(1000)
    service = world.started()
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
    world.conclude(service)


def test_too_few_replicas_are_waited_for(pair: Pair, new_world: NewWorld) -> None:
    world = new_world(pair.client, replicas=2, count=600)
    world.output += "-safe"
    both = {"retention.ms": "-1", "min.insync.replicas": "2"}
    create_topic(pair.client, world.output, PARTITIONS, both, replicas=2)
    world.send(300)
    service = world.started()
    world.wait_decided()
    pair.second.kill()
    world.send()
    service.wait_complaint("replicas")
    pair.second.restart()
    world.conclude(service)


def elect_preferred(broker: Broker) -> None:
    """Have each partition led by the broker that stands first in its list."""
    admin = AdminClient(dict(broker.client_properties))
    admin.elect_leaders(ElectionType.PREFERRED, None).result(timeout=30)
