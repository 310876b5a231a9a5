"""What one remembered that was killed is taken over, with an empty disk and with a copy."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from service.topics import by_address
from tests.broker.scattered import Reader, inputs_of, send, work, write_config
from tests.broker.service import Service
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker

ADDRESSES: Final = 50
SEED: Final = 3


@pytest.fixture
def group(topic_name: Callable[[str], str]) -> str:
    return topic_name("takeover")


@pytest.fixture(
    params=[
        pytest.param(600, id="30 thousand ids"),
        pytest.param(20_000, id="a million ids", marks=pytest.mark.long),
    ]
)
def capacity(request: pytest.FixtureRequest) -> int:
    """Of each address."""
    return int(request.param)


@pytest.fixture
def pair(broker: Broker, group: str, tmp_path: Path, capacity: int) -> Iterator[list[Service]]:
    """Two instances, each with a folder of its own; one partition decides all."""
    made = []
    for number in range(2):
        port, path = free_port(0), tmp_path / str(number) / "ringfence.toml"
        path.parent.mkdir()
        extra = f'instance = "{number}"\nby_address_partitions = 1'
        write_config(path, broker.client_properties, group, port, capacity, extra)
        made.append(Service(path, port, path.parent / "service.log"))
    yield made
    for service in made:
        service.kill()


def decides(service: Service, topic: str) -> bool:
    return any(p["topic"] == topic and p["phase"] == "running" for p in service.partitions())


def is_shared(first: Service, second: Service, partitions: int) -> bool:
    """Whether each has some of them, and both together all."""
    owned = [len(each.partitions()) for each in (first, second)]
    return min(owned) > 0 and sum(owned) == partitions


def restored(service: Service, topic: str) -> int:
    """How many changelog records it has read for it."""
    (found,) = [p["restored_records"] for p in service.partitions() if p["topic"] == topic]
    return int(found)


@pytest.mark.timeout(900)
def test_what_was_remembered_is_taken_over_with_an_empty_disk_and_with_its_own_copy(
    broker: Broker, group: str, pair: list[Service], capacity: int
) -> None:
    client, topic = broker.client_properties, by_address(group)
    places = inputs_of(client, group)
    first, second = pair
    count = capacity * ADDRESSES * 3 // 2
    todo = work(count, len(places), capacity, SEED)
    first.start()
    first.wait_ready(len(places) + 1)
    with ExitStack() as reading:
        readers = [Reader(client, f"{group}-{name}", None) for name in ("out", "dlq")]
        outputs, letters = (reading.enter_context(reader) for reader in readers)

        def decided() -> int:
            return outputs.count + letters.count

        send(client, todo, places)
        eventually(lambda: decided() >= count, first)
        second.start()
        eventually(lambda: is_shared(first, second, len(places) + 1), first, second)
        owner, other = (first, second) if decides(first, topic) else (second, first)
        take_over(owner, other, topic)
        replayed = restored(other, topic)
        owner.start()
        eventually(lambda: owner.get("/readyz")[0] == 200, owner)
        send(client, work(1_000, len(places), capacity, SEED + 1), places, first=count)
        eventually(lambda: decided() >= count + 1_000, other)
        assert decides(other, topic), "who comes back takes nothing away"
        take_over(other, owner, topic)
        tail = restored(owner, topic)
        more = work(1_000, len(places), capacity, SEED + 2)
        send(client, more, places, first=count + 1_000)
        eventually(lambda: decided() >= count + 2_000, owner)
    held = ids_held(owner)
    owner.stop()
    assert held == capacity * ADDRESSES
    assert tail < replayed, "its own copy spares the restore"


def take_over(owner: Service, other: Service, topic: str) -> None:
    """Kill the owner, and wait until the other decides."""
    owner.kill()
    eventually(lambda: decides(other, topic), other)


def ids_held(service: Service) -> int:
    """Over all addresses."""
    pages = (service.told(f"/v1/addresses?name=a{number:02}") for number in range(ADDRESSES))
    return sum(ring["ids_held"] for page in pages for ring in page["partitions"])
