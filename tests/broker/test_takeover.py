"""Another instance takes over what one that was killed had remembered, with an empty disk and not.

How long it takes is printed, not judged.
"""

import time
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

IDS: Final = 1_000_000
COUNT: Final = 1_150_000
CAPACITY: Final = 20_000
"""Of each of fifty addresses: a million together."""
SESSION_MS: Final = 10_000
"""The default: so long nobody knows that a process is gone."""
SEED: Final = 3


@pytest.fixture
def group(topic_name: Callable[[str], str]) -> str:
    return topic_name("takeover")


@pytest.fixture
def pair(broker: Broker, group: str, tmp_path: Path) -> Iterator[list[Service]]:
    """Two instances, each with a folder of its own; one partition decides all."""
    made = []
    for number in range(2):
        port, path = free_port(0), tmp_path / str(number) / "ringfence.toml"
        path.parent.mkdir()
        extra = f'instance = "{number}"\nby_address_partitions = 1'
        write_config(path, broker.client_properties, group, port, CAPACITY, extra, SESSION_MS)
        made.append(Service(path, port, path.parent / "service.log"))
    yield made
    for service in made:
        service.kill()


def decides(service: Service, topic: str) -> bool:
    return any(p["topic"] == topic and p["phase"] == "running" for p in service.partitions())


def restored(service: Service, topic: str) -> int:
    """How many changelog records it has read for it."""
    (found,) = [p["restored_records"] for p in service.partitions() if p["topic"] == topic]
    return int(found)


@pytest.mark.timeout(900)
def test_what_was_remembered_is_taken_over_with_an_empty_disk_and_with_its_own_copy(
    broker: Broker, group: str, pair: list[Service]
) -> None:
    client, topic = broker.client_properties, by_address(group)
    places = inputs_of(client, group)
    first, second = pair
    todo = work(COUNT, len(places), CAPACITY, SEED)
    first.start()
    first.wait_ready(len(places) + 1)
    with ExitStack() as reading:
        readers = [Reader(client, f"{group}-{name}", None) for name in ("out", "dlq")]
        outputs, letters = (reading.enter_context(reader) for reader in readers)

        def decided() -> int:
            return outputs.count + letters.count

        send(client, todo, places)
        eventually(lambda: decided() >= COUNT, first)
        second.start()
        eventually(lambda: second.get("/readyz")[0] == 200, second)
        time.sleep(3)  # until the two have shared out what there is
        owner, other = (first, second) if decides(first, topic) else (second, first)
        cold_s = taken_over_s(owner, other, topic)
        replayed = restored(other, topic)
        owner.start()
        eventually(lambda: owner.get("/readyz")[0] == 200, owner)
        send(client, work(1_000, len(places), CAPACITY, SEED + 1), places, first=COUNT)
        eventually(lambda: decided() >= COUNT + 1_000, other)
        assert decides(other, topic), "who comes back takes nothing away"
        warm_s = taken_over_s(other, owner, topic)
        tail = restored(owner, topic)
        more = work(1_000, len(places), CAPACITY, SEED + 2)
        send(client, more, places, first=COUNT + 1_000)
        eventually(lambda: decided() >= COUNT + 2_000, owner)
    held = ids_held(owner)
    owner.stop()
    print(
        f"\n{held} ids; after kill -9, the session's {SESSION_MS // 1000} s included: "
        f"{cold_s:.1f} s with an empty disk ({replayed} changelog records), "
        f"{warm_s:.1f} s with a copy ({tail})"
    )
    assert held == IDS
    assert tail < replayed, "its own copy spares the restore"


def taken_over_s(owner: Service, other: Service, topic: str) -> float:
    """Kill the owner; the time until the other decides."""
    owner.kill()
    killed_s = time.monotonic()
    eventually(lambda: decides(other, topic), other)
    return time.monotonic() - killed_s


def ids_held(service: Service) -> int:
    """Over all addresses."""
    pages = (service.told(f"/v1/addresses?name=a{number:02}") for number in range(50))
    return sum(ring["ids_held"] for page in pages for ring in page["partitions"])
