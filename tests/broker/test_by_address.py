"""One address over many partitions of many inputs: exact, whoever is killed meanwhile."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from service.topics import by_address
from tests.broker.conftest import create_topic
from tests.broker.scattered import (
    ORIGINAL,
    TRACE,
    Reader,
    inputs_of,
    send,
    verify,
    work,
    write_config,
)
from tests.broker.service import Service
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker

COUNT: Final = 1_000_000
DECIDING: Final = 12
CAPACITY: Final = 8_000
KILLS: Final = 10
SEED: Final = 6


@pytest.fixture
def group(topic_name: Callable[[str], str]) -> str:
    return topic_name("scattered")


@pytest.fixture
def service(broker: Broker, group: str, tmp_path: Path) -> Iterator[Service]:
    port, config = free_port(0), tmp_path / "ringfence.toml"
    write_config(config, broker.client_properties, group, port, CAPACITY)
    own = Service(config, port, tmp_path / "service.log")
    yield own
    own.kill()


def kill_often(service: Service, decided: Callable[[], int], times: int) -> None:
    """kill -9 at moments that chance chooses, while there is something to decide."""
    chance = random.Random(SEED)
    for round_ in range(1, times + 1):
        wanted = COUNT * round_ // (times + 2)
        eventually(lambda goal=wanted: decided() >= goal, service)  # type: ignore[misc]
        time.sleep(chance.random())
        service.kill()
        service.start()


@pytest.mark.timeout(600)
def test_a_million_scattered_ids_are_decided_as_the_model_says_with_ten_kills(
    broker: Broker, group: str, service: Service
) -> None:
    client = broker.client_properties
    places = inputs_of(client, group)
    todo = work(COUNT, len(places), CAPACITY, SEED)
    send(client, todo, places)
    create_topic(client, by_address(group), DECIDING, {"retention.ms": "-1"})
    with ExitStack() as reading:
        topics = {by_address(group): TRACE, f"{group}-out": TRACE, f"{group}-dlq": ORIGINAL}
        readers = [Reader(client, topic, header) for topic, header in topics.items()]
        carried, outputs, letters = (reading.enter_context(reader) for reader in readers)
        # Only now: what was decided is deleted from by-address.
        service.start()
        service.wait_ready(len(places) + DECIDING)
        kill_often(service, lambda: outputs.count + letters.count, KILLS)
        eventually(lambda: outputs.count + letters.count >= COUNT, service)
        time.sleep(2)  # for what might come twice
        service.stop()
    verify(todo, places, carried.rows, outputs.rows, letters.rows, CAPACITY)
