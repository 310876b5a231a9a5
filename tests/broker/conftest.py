"""A real Kafka for the tests: one that all share, and one that a test may kill."""

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # where the types are exported

from tools.broker.cluster import Broker, open_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Of the kind that the environment chooses; shared, so neither killed nor suspended."""
    with open_broker(tmp_path_factory.mktemp("broker")) as shared:
        yield shared


@pytest.fixture(scope="module")
def embedded_kind() -> None:
    if os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or os.environ.get("RINGFENCE_BROKER"):
        pytest.skip("the environment chooses another kind of broker")


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """For one test alone, which may kill, restart and suspend it."""
    own = open_broker(tmp_path / "broker", heap_mb=512, short_lived=True)
    if not own.controllable:
        pytest.skip("needs a broker that can be killed; unset what chooses another kind")
    with own:
        yield own


@pytest.fixture
def topic_name() -> Callable[[str], str]:
    """Return names that no other test and no other run has used."""
    return lambda name: f"{name}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_topic(broker: Broker, topic_name: Callable[[str], str]) -> Callable[..., str]:
    """Return what makes a topic on the shared broker and returns its name."""

    def make(name: str = "topic", partitions: int = 1, **config: str) -> str:
        topic = topic_name(name)
        settings = {key.replace("_", "."): value for key, value in config.items()}
        create_topic(broker.client_properties, topic, partitions, settings)
        return topic

    return make


def create_topic(
    client: Mapping[str, str],
    topic: str,
    partitions: int = 1,
    config: dict[str, str] | None = None,
    replicas: int = 1,
) -> None:
    # Its own name: futures never resolve once their client is collected.
    admin = AdminClient(dict(client))
    wanted = NewTopic(
        topic, num_partitions=partitions, replication_factor=replicas, config=config or {}
    )
    done(lambda: admin.create_topics([wanted], operation_timeout=30)[topic])


_NOT_YET = {
    KafkaError.INVALID_REPLICATION_FACTOR,  # it stood still, and is fenced until it is heard of
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
}
_ALREADY = {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS}


def done(ask: Callable[[], "Future[None]"], limit_s: float = 120) -> None:
    """Have a broker place partitions, and ask again one whose disk or processor stood still."""
    deadline, is_first = time.monotonic() + limit_s, True
    while True:
        try:
            ask().result(timeout=limit_s)
        except KafkaException as error:
            code = error.args[0].code()
            if not is_first and code in _ALREADY:
                return
            if code not in _NOT_YET or time.monotonic() > deadline:
                raise
            is_first = False
            time.sleep(0.2)
        else:
            return
