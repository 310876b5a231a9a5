"""Three instances of two workers each, one of which comes or goes every three seconds."""

import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition

from service.topics import BY_ADDRESS, by_address, changelog
from state.edit import Source
from state.rocks import RocksStores
from tests.broker.reading import drained, still_open
from tests.broker.scattered import (
    ORIGINAL,
    PARTITIONS,
    TRACE,
    Reader,
    Work,
    inputs_of,
    judged,
    rings_in,
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

INSTANCES: Final = 3
WORKERS: Final = 2
EVERY_S: Final = 3.0
RATE: Final = 1_000
"""Records a second."""
CAPACITY: Final = 60
DECIDING: Final = 12
SEED: Final = 16


@pytest.fixture
def group(topic_name: Callable[[str], str]) -> str:
    return topic_name("crowd")


@pytest.fixture
def services(broker: Broker, group: str, tmp_path: Path) -> Iterator[list[Service]]:
    made = []
    for number in range(INSTANCES):
        port, path = free_port(0), tmp_path / f"{number}.toml"
        extra = f'instance = "{number}"\nworkers = {WORKERS}'
        write_config(path, broker.client_properties, group, port, CAPACITY, extra)
        made.append(Service(path, port, tmp_path / f"{number}.log"))
    yield made
    for service in made:
        service.kill()


def decided_by(services: Sequence[Service]) -> list[int]:
    """How many deciding partitions each worker has."""
    pages = [service.told("/v1/workers")["workers"] for service in services]
    return [w["partitions_owned"] for page in pages for w in page if w["hop"] == BY_ADDRESS]


def storm(services: Sequence[Service], seconds: float) -> None:
    """One comes or goes every three seconds; one always stays."""
    chance, ends_s = random.Random(SEED), time.monotonic() + seconds
    while time.monotonic() < ends_s:
        time.sleep(EVERY_S)  # noqa: TID251 - so often one comes or goes
        service = chance.choice(services[1:])
        if service.ended:
            service.start()
        else:
            leave(service)


def leave(service: Service) -> None:
    """Told to end; one that is just joining has to be let in first."""
    service.signal(signal.SIGTERM)
    service.wait(40)


def trickle(client: dict[str, str], todo: Work, places: list[TopicPartition]) -> None:
    """All of it at the rate."""
    begun_s = time.monotonic()
    for start in range(0, len(todo.ids), RATE):
        rows = slice(start, start + RATE)
        part = Work(todo.addresses[rows], todo.ids[rows], todo.places[rows])
        send(client, part, places, first=start)
        pause_s = begun_s + (start + RATE) / RATE - time.monotonic()
        time.sleep(max(0.0, pause_s))  # noqa: TID251 - the rate of the load


@pytest.mark.timeout(900)
@pytest.mark.row(13)
@pytest.mark.parametrize("seconds", [24, pytest.param(180, marks=pytest.mark.long)])
def test_a_crowd_that_comes_and_goes_decides_as_one(
    broker: Broker, group: str, services: list[Service], tmp_path: Path, seconds: int
) -> None:
    client = dict(broker.client_properties)
    places = inputs_of(client, group)
    todo = work(seconds * RATE, len(places), CAPACITY, SEED)
    for service in services:
        service.start()
    eventually(lambda: all(each.get("/readyz")[0] == 200 for each in services), *services)
    everywhere = [DECIDING // (INSTANCES * WORKERS)] * (INSTANCES * WORKERS)
    eventually(lambda: decided_by(services) == everywhere, *services)
    with ExitStack() as watching:
        topics = {by_address(group): TRACE, f"{group}-out": TRACE, f"{group}-dlq": ORIGINAL}
        readers = [Reader(client, topic, header) for topic, header in topics.items()]
        carried, outputs, letters = (watching.enter_context(reader) for reader in readers)
        load = threading.Thread(target=trickle, args=(client, todo, places), daemon=True)
        load.start()
        storm(services, seconds)
        load.join()
        eventually(lambda: outputs.count + letters.count >= len(todo.ids), *services)
        for service in services[1:]:
            if not service.ended:
                leave(service)
        services[0].wait_ready(len(places) + DECIDING)
        services[0].stop()
        for reader in (carried, outputs, letters):
            reader.wait_level()  # with what might come twice
    verify(todo, places, carried.rows, outputs.rows, letters.rows, CAPACITY)
    verify_state(client, group, todo, carried, tmp_path / "state" / group / "0")
    verify_read_again(client, f"{group}-out", outputs)
    verify_read_again(client, f"{group}-dlq", letters)


def verify_read_again(client: dict[str, str], topic: str, reader: Reader) -> None:
    """Who read meanwhile has seen what stands there in the end, in the same order."""
    again: dict[int, list[int]] = defaultdict(list)
    for each in drained(client, topic, PARTITIONS):
        again[each.partition].append(int(each.record.value or b""))
    meanwhile = {number: [row.number for row in rows] for number, rows in reader.rows.items()}
    assert again == meanwhile, f"{topic} was read otherwise meanwhile"


def verify_state(
    client: dict[str, str], group: str, todo: Work, carried: Reader, folder: Path
) -> None:
    """Changelog, stores and the model agree; nothing is open."""
    log = changelog(group, BY_ADDRESS)
    fold: dict[int, dict[bytes, bytes]] = {number: {} for number in range(DECIDING)}
    for each in drained(client, log, DECIDING):
        if each.record.value is None:
            fold[each.partition].pop(each.record.key or b"", None)
        else:
            fold[each.partition][each.record.key or b""] = each.record.value
    held = {
        (number, address): ids
        for number, entries in fold.items()
        for address, ids in rings_in(entries).items()
    }
    assert held == judged(carried.rows, todo, CAPACITY).rings, "the changelog is not the model"
    stores = RocksStores(folder)
    for number, entries in fold.items():
        store = stores.open(Source(by_address(group), number))
        kept = {key: value for key, value in store.scan(b"") if not key.startswith(b"\x00")}
        assert kept == entries, f"store {number} differs from its changelog"
        store.close()
    for topic in (log, by_address(group), f"{group}-out", f"{group}-dlq"):
        assert not still_open(client, topic), f"a transaction is still open on {topic}"
