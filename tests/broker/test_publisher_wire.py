"""The publisher library on a real Kafka, before a service that is played by the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import murmur2

from ringfence.courier import State
from ringfence.publish_errors import AwayError, RefusedError
from ringfence.publisher import Publisher
from ringfence.topics import acknowledgements
from tests.broker.stand_in import StandIn, deciding
from tests.broker.topics import create_topic
from tests.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

PARTITIONS = 4


@pytest.fixture
def topic(broker: Broker, topic_name: Callable[[str], str]) -> str:
    name = topic_name("published")
    create_topic(broker.client_properties, name, PARTITIONS)
    create_topic(broker.client_properties, acknowledgements(name), 3)
    return name


@pytest.fixture
def service(broker: Broker, topic: str) -> Iterator[StandIn]:
    with deciding(StandIn(broker.client_properties, topic, PARTITIONS, topic)) as running:
        yield running


def publisher_of(broker: Broker, service: StandIn, folder: Path, **settings: Any) -> Publisher:
    chosen = {
        "topic": service.address,
        "store": folder / "author.store",
        "bootstrap_servers": broker.bootstrap_servers,
        "kafka": dict(broker.client_properties),
        "admin_url": service.url,
        "group_id": service.address,
    }
    return Publisher("author", **{**chosen, **settings})


def accepted(service: StandIn) -> list[bytes | None]:
    return [sent.value for sent in service.judge.accepted]


def test_messages_arrive_on_the_partition_of_the_name(
    broker: Broker, service: StandIn, tmp_path: Path
) -> None:
    with publisher_of(broker, service, tmp_path) as publisher:
        for number in range(2500):
            publisher.publish(b"%d" % number, key=b"k", headers=[("a", None), ("a", b"")])
        assert publisher.flush(30), publisher.last_error
    assert accepted(service) == [b"%d" % number for number in range(2500)]
    assert service.partitions_written == {murmur2(b"author", PARTITIONS)}


def test_a_broker_that_is_killed_is_waited_for(
    own_broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_name("published")
    create_topic(own_broker.client_properties, topic)
    create_topic(own_broker.client_properties, acknowledgements(topic))
    told: list[Exception] = []
    with (
        deciding(StandIn(own_broker.client_properties, topic, 1, topic)) as service,
        publisher_of(own_broker, service, tmp_path, on_error=told.append) as publisher,
    ):
        publisher.publish(b"before")
        assert publisher.flush(30), publisher.last_error
        own_broker.kill()
        for number in range(1000):
            publisher.publish(b"%d" % number)
        eventually(lambda: bool(told))
        own_broker.restart()
        assert publisher.flush(150), publisher.last_error
        assert accepted(service) == [b"before", *(b"%d" % number for number in range(1000))]
    assert all(isinstance(error, AwayError) for error in told)


def test_a_topic_that_is_missing_is_told_and_waited_for(
    broker: Broker, service: StandIn, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    late = topic_name("late")
    with publisher_of(broker, service, tmp_path, topic=late, address=service.address) as publisher:
        publisher.publish(b"v")
        eventually(lambda: late in str(publisher.last_error))
        assert publisher.state is State.WAITING
        assert service.judge.epoch == 0
        create_topic(broker.client_properties, late)
        eventually(lambda: publisher.state is State.SENDING)
        publisher.close(0)


def test_what_the_broker_refuses_for_its_size_stops_the_publisher_with_the_mend(
    broker: Broker, service: StandIn, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    small = new_topic("small", max_message_bytes="1000")
    with publisher_of(broker, service, tmp_path, topic=small, address=service.address) as publisher:
        publisher.publish(b"x" * 5000)
        eventually(lambda: publisher.state is State.STOPPED)
        with pytest.raises(RefusedError, match=r"max\.message\.bytes"):
            publisher.publish(b"v")
        assert publisher.pending == 1


def test_a_property_that_the_client_refuses_stops_the_publisher(
    broker: Broker, service: StandIn, tmp_path: Path
) -> None:
    wrong = {"no.such.property": "1"}
    with publisher_of(broker, service, tmp_path, producer=wrong) as publisher:
        eventually(lambda: publisher.state is State.STOPPED)
        assert "no.such.property" in str(publisher.last_error)
