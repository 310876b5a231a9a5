"""Three brokers: each is restarted, killed or stands still in turn, and the service goes on."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.broker.conftest import NewWorld, ThreeNetwork
from tests.broker.reading import drained
from tests.broker.recorder import Recorder
from tests.broker.service import Service, wait_shared
from tests.broker.topics import create_topic
from tests.broker.world import World
from tests.histories.checks import anomalies
from tests.support.waiting import eventually
from tools.broker.embedded import EmbeddedBroker
from tools.broker.three import NUMBERS, ThreeBrokers

pytestmark = pytest.mark.broker

AWAY_RECORDS = 150
"""What is sent while a broker is away, and has to be decided before it is back."""


@pytest.fixture
def brokers(three: ThreeNetwork) -> ThreeBrokers:
    return three.brokers


@pytest.fixture
def client(brokers: ThreeBrokers) -> Mapping[str, str]:
    """For the clients of the test; that a broker is away is no news on the terminal."""
    return {**brokers.client_properties, "log_level": "0"}


def test_of_three_brokers_any_may_be_away_and_what_was_acknowledged_stays(
    brokers: ThreeBrokers, client: Mapping[str, str], topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("kept")
    create_topic(client, topic, replicas=len(NUMBERS))
    produce(client, topic, b"before")
    leader = brokers.leader(topic)
    brokers.nodes[leader].kill()
    produce(client, topic, b"while it is away")
    assert brokers.leader(topic) != leader
    brokers.nodes[leader].start()
    brokers.wait_in_sync()
    kept = [each.record.value for each in drained(client, topic, 1)]
    assert kept == [b"before", b"while it is away"]
    described = AdminClient(dict(client)).describe_consumer_groups
    # The role moves back to a broker that has returned, and the client does not ask again.
    eventually(
        lambda: (
            described(["reader"])["reader"].result(30).coordinator.id
            == brokers.group_coordinator("reader")
        )
    )


def produce(client: Mapping[str, str], topic: str, value: bytes) -> None:
    """What is read later was acknowledged by then."""
    producer = Producer({**client, "linger.ms": 0})
    producer.produce(topic, value)
    assert producer.flush(60) == 0


@contextmanager
def working(
    new_world: NewWorld, brokers: ThreeBrokers, client: Mapping[str, str]
) -> Iterator[tuple[World, Sequence[Service], Recorder]]:
    """Two instances at work; after the test everything is held against the model."""
    ours = brokers.client_properties
    world = new_world(client, replicas=len(NUMBERS), count=4000, service_client=ours)
    with Recorder(world) as recorder:
        instances = [world.started(name) for name in "01"]
        world.send(400, recorder.note)
        world.wait_decided()
        yield world, instances, recorder
        world.send(400, recorder.note)
        world.wait_decided()
        wait_shared(*instances)
        for instance in instances:
            instance.stop()
    assert anomalies(recorder.history()) == []
    world.verify()


@pytest.mark.row(14)
@pytest.mark.row(36)
@pytest.mark.parametrize(
    "end", [pytest.param(EmbeddedBroker.stop, marks=pytest.mark.long), EmbeddedBroker.kill]
)
def test_each_of_three_brokers_goes_in_turn_while_instances_are_killed(
    brokers: ThreeBrokers,
    client: Mapping[str, str],
    new_world: NewWorld,
    end: Callable[[EmbeddedBroker], None],
) -> None:
    chance = random.Random(1)
    with working(new_world, brokers, client) as (world, instances, recorder):
        for broker in brokers.nodes.values():
            world.send(AWAY_RECORDS, recorder.note)
            end(broker)
            killed = chance.choice(instances)
            killed.kill()
            killed.start()
            world.send(AWAY_RECORDS, recorder.note)
            world.wait_decided()
            for instance in instances:
                assert not instance.ended, instance.tail()
            world.send(AWAY_RECORDS, recorder.note)
            broker.start()
            brokers.wait_in_sync()


@pytest.mark.long
@pytest.mark.row(36)
def test_a_coordinator_that_stands_still_is_replaced_by_another_broker(
    brokers: ThreeBrokers, client: Mapping[str, str], new_world: NewWorld
) -> None:
    with working(new_world, brokers, client) as (world, instances, recorder):
        for find in (
            brokers.group_coordinator,
            lambda name: brokers.transaction_coordinator(f"{name}-0"),
        ):
            still = brokers.nodes[find(world.group)]
            world.send(AWAY_RECORDS, recorder.note)
            still.suspend()
            world.send(AWAY_RECORDS, recorder.note)
            world.wait_decided()
            still.resume()
            for instance in instances:
                assert not instance.ended, instance.tail()
            brokers.wait_in_sync()
