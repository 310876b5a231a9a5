"""Three brokers: each of them is restarted, killed or frozen in turn while the service works."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tests.broker.conftest import create_topic
from tests.broker.test_broker_tool import WRITTEN, produce, read
from tools.broker.three import NUMBERS, ThreeBrokers

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def three(
    embedded_kind: None,  # noqa: ARG001 - skips where there is none
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path_factory.mktemp("three")) as cluster:
        yield cluster


def test_of_three_brokers_any_may_be_away_and_what_was_acknowledged_stays(
    three: ThreeBrokers, topic_name: Callable[[str], str]
) -> None:
    client, topic = three.client_properties, topic_name("kept")
    create_topic(client, topic, replicas=len(NUMBERS))
    for _ in NUMBERS:
        leader = three.leader(topic)
        three.nodes[leader].kill()
        assert produce(client, topic, b"%d" % leader) == [WRITTEN]
        assert three.leader(topic) != leader
        three.nodes[leader].start()
        three.wait_in_sync()
    assert len(read(client, topic, len(NUMBERS))) == len(NUMBERS)
    admin = AdminClient(dict(client))
    described = admin.describe_consumer_groups(["reader"])["reader"].result(30)
    assert three.group_coordinator("reader") == described.coordinator.id
