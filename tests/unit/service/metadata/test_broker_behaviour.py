"""A broker that accepts transactions and does not keep their promises is not used."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from ringfence_service.errors import ExitCode
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.broker_behaviour import behaviour_test, verify_behaviour
from ringfence_service.metadata.image import MetadataImage
from tests.fakes.clients import FakeClients
from tests.fakes.consumer import FakeConsumer
from tests.fakes.errors import plain
from tests.fakes.log import FakeCluster
from tests.fakes.misbehaving import KINDS, AbortedGiver, MisbehavingClients
from tests.fakes.producer import FakeProducer
from tests.simulation.instance import FakeClock
from tests.support.helpers import ending
from tests.support.living import GROUP, Living, turn_until_running

TOPIC = config_topic(GROUP)


def cluster_with_topic() -> FakeCluster:
    cluster = FakeCluster()
    cluster.create_topic(TOPIC, cleanup_policy="compact")
    return cluster


def test_a_broker_that_keeps_its_promises_passes_and_readers_see_nothing_of_it() -> None:
    cluster, image = cluster_with_topic(), MetadataImage()
    verify_behaviour(FakeClients(cluster, GROUP, "0"), TOPIC, FakeClock(cluster))
    records = cluster.records(TOPIC)
    assert len(records) == 2
    for offset, record in enumerate(records):
        image.take(offset, record.key, record.value)
    assert (image.revision, image.layout, image.tested_cluster) == (0, None, None)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_broker_that_breaks_a_promise_is_refused_with_the_reason(
    kind: type[FakeConsumer | FakeProducer],
) -> None:
    cluster = cluster_with_topic()
    clients = MisbehavingClients(cluster, GROUP, kind)
    with ending(ExitCode.BROKER, f"it {KINDS[kind]}. Without that, outputs would have duplicates"):
        verify_behaviour(clients, TOPIC, FakeClock(cluster))


def test_a_request_that_the_broker_does_not_know_is_no_verdict() -> None:
    def refuse(step: str) -> None:
        if step == "send_offsets_to_transaction":
            raise plain(KafkaError.UNSUPPORTED_VERSION, "not implemented")

    cluster = cluster_with_topic()
    cluster.on_step = refuse
    with pytest.raises(KafkaException, match="not implemented"):
        verify_behaviour(FakeClients(cluster, GROUP, "0"), TOPIC, FakeClock(cluster))


def probes_of(living: Living) -> int:
    """How often a broker was tested: each test writes two records that are committed."""
    return sum(record.key == b'["probe"]' for record in living.cluster.records(TOPIC)) // 2


def test_a_group_tests_each_cluster_once_before_it_decides() -> None:
    living = Living()
    living.send("a")
    for _ in range(2):
        loop = living.loop(tests_broker=True)
        turn_until_running(loop)
        loop.close()
    assert probes_of(living) == 1
    moved = behaviour_test(living.clients(), TOPIC, living.clock, lambda: None)
    other = moved._replace(cluster_id="failed-over").passed
    living.write(other.value, key=other.key, topic=TOPIC)
    turn_until_running(living.loop(tests_broker=True))
    assert probes_of(living) == 2


def test_a_group_on_a_broker_that_fails_the_test_decides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living()
    living.send("a")
    clients = MisbehavingClients(living.cluster, GROUP, AbortedGiver)
    monkeypatch.setattr(living, "clients", lambda: clients)
    with ending(ExitCode.BROKER):
        living.worker(tests_broker=True).run()
    assert living.values("orders.unique") == []
    assert b'["broker"]' not in {record.key for record in living.cluster.records(TOPIC)}
