"""One address over many partitions of many inputs: exact, whoever is killed meanwhile."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from service.topics import by_address
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
from tests.broker.topics import create_topic
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker

DECIDING: Final = 12
SEED: Final = 6


class Size(NamedTuple):
    """How many records, what each address remembers, and how often the service is killed."""

    records: int
    capacity: int
    kills: int


SIZES: Final = (
    pytest.param(Size(50_000, 400, 4), id="fifty thousand"),
    pytest.param(Size(1_000_000, 8_000, 10), id="a million", marks=pytest.mark.long),
)


@pytest.fixture
def group(topic_name: Callable[[str], str]) -> str:
    return topic_name("scattered")


@pytest.fixture
def size(request: pytest.FixtureRequest) -> Size:
    found: Size = request.param
    return found


@pytest.fixture
def service(broker: Broker, group: str, tmp_path: Path, size: Size) -> Iterator[Service]:
    port, config = free_port(0), tmp_path / "ringfence.toml"
    write_config(config, broker.client_properties, group, port, size.capacity)
    own = Service(config, port, tmp_path / "service.log")
    yield own
    own.kill()


def kill_often(service: Service, decided: Callable[[], int], size: Size) -> None:
    """kill -9 at moments that chance chooses, while there is something to decide."""
    chance, share = random.Random(SEED), size.records // (size.kills + 2)
    for round_ in range(size.kills):
        wanted = share * round_ + chance.randrange(1, share)
        eventually(lambda goal=wanted: decided() >= goal, service)  # type: ignore[misc]
        service.kill()
        service.start()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", SIZES, indirect=True)
def test_scattered_ids_are_decided_as_the_model_says_though_the_service_is_killed(
    broker: Broker, group: str, service: Service, size: Size
) -> None:
    client = broker.client_properties
    places = inputs_of(client, group)
    todo = work(size.records, len(places), size.capacity, SEED)
    send(client, todo, places)
    create_topic(client, by_address(group), DECIDING, {"retention.ms": "-1"})
    with ExitStack() as reading:
        topics = {by_address(group): TRACE, f"{group}-out": TRACE, f"{group}-dlq": ORIGINAL}
        readers = [Reader(client, topic, header) for topic, header in topics.items()]
        carried, outputs, letters = (reading.enter_context(reader) for reader in readers)
        # Only now: what was decided is deleted from by-address.
        service.start()
        service.wait_ready(len(places) + DECIDING)
        kill_often(service, lambda: outputs.count + letters.count, size)
        eventually(lambda: outputs.count + letters.count >= size.records, service)
        service.stop()
        for reader in (carried, outputs, letters):
            reader.wait_level()  # with what might come twice
    verify(todo, places, carried.rows, outputs.rows, letters.rows, size.capacity)
