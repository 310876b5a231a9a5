"""Three instances of two workers each, one of which comes or goes every three seconds.

The pause of a partition that stays where it is is printed, not judged.
"""

import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import TopicPartition, murmur2

from service.topics import BY_ADDRESS, by_address, changelog
from state.edit import Source
from state.rocks import RocksStores
from tests.broker.meanwhile import Meanwhile
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
STORM_S: Final = 180.0
RATE: Final = 1_000
"""Records a second."""
CAPACITY: Final = 500
DECIDING: Final = 12
LOOK_S: Final = 0.25
SEED: Final = 16


class Glimpse(NamedTuple):
    """Who runs each deciding partition at one moment."""

    at_s: float
    owners: dict[int, str]


class Owners(Meanwhile):
    """Looks who runs what, as fast as the instances answer."""

    def __init__(self, services: Sequence[Service], topic: str) -> None:
        super().__init__(self._look)
        self.glimpses: list[Glimpse] = []
        self._services = services
        self._topic = topic

    def stayed(self, partition: int, start_s: float, end_s: float) -> bool:
        """Whether one instance ran it all that time, as far as anybody saw."""
        seen = [g for g in self.glimpses if start_s - 2 * LOOK_S <= g.at_s <= end_s + 2 * LOOK_S]
        owners = {glimpse.owners.get(partition) for glimpse in seen}
        return len(owners) == 1 and None not in owners

    def _look(self) -> None:
        while not self._ends.wait(LOOK_S):
            at_s, owners = time.monotonic(), dict[int, str]()
            for number, service in enumerate(self._services):
                for each in _partitions(service):
                    if each["topic"] == self._topic and each["phase"] == "running":
                        owners[each["partition"]] = f"{number}/{service.process.pid}"
            self.glimpses.append(Glimpse(at_s, owners))


def _partitions(service: Service) -> list[dict[str, Any]]:
    try:
        return [] if service.ended else service.partitions()
    except (AssertionError, TimeoutError):
        return []  # it does not listen yet, or not any more


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


def storm(services: Sequence[Service], seconds: float) -> int:
    """One comes or goes every three seconds; one always stays."""
    chance, ends_s, moves = random.Random(SEED), time.monotonic() + seconds, 0
    while time.monotonic() < ends_s:
        time.sleep(EVERY_S)
        service = chance.choice(services[1:])
        moves += 1
        if service.ended:
            service.start()
        else:
            leave(service)
    return moves


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
        time.sleep(max(0.0, begun_s + (start + RATE) / RATE - time.monotonic()))


@pytest.mark.timeout(600)
@pytest.mark.row(13)
def test_a_crowd_that_comes_and_goes_decides_as_one(
    broker: Broker, group: str, services: list[Service], tmp_path: Path
) -> None:
    client = dict(broker.client_properties)
    places = inputs_of(client, group)
    todo = work(int(STORM_S * RATE), len(places), CAPACITY, SEED)
    for service in services:
        service.start()
    eventually(lambda: all(each.get("/readyz")[0] == 200 for each in services), *services)
    everywhere = [DECIDING // (INSTANCES * WORKERS)] * (INSTANCES * WORKERS)
    eventually(lambda: decided_by(services) == everywhere, *services)
    with ExitStack() as watching:
        topics = {by_address(group): TRACE, f"{group}-out": TRACE, f"{group}-dlq": ORIGINAL}
        readers = [Reader(client, topic, header) for topic, header in topics.items()]
        carried, outputs, letters = (watching.enter_context(reader) for reader in readers)
        owners = watching.enter_context(Owners(services, by_address(group)))
        load = threading.Thread(target=trickle, args=(client, todo, places), daemon=True)
        load.start()
        moves = storm(services, STORM_S)
        load.join(60)
        eventually(lambda: outputs.count + letters.count >= len(todo.ids), *services)
        time.sleep(2)  # for what might come twice
    verify(todo, places, carried.rows, outputs.rows, letters.rows, CAPACITY)
    for service in services[1:]:
        if not service.ended:
            leave(service)
    services[0].wait_ready(len(places) + DECIDING)
    services[0].stop()
    verify_state(client, group, todo, carried, tmp_path / "state" / group / "0")
    verify_read_again(client, f"{group}-out", outputs)
    verify_read_again(client, f"{group}-dlq", letters)
    tell_pauses(owners, [outputs, letters], todo, moves)


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


def tell_pauses(owners: Owners, readers: Sequence[Reader], todo: Work, moves: int) -> None:
    """Print how long partitions that stayed where they were brought nothing."""
    times_s: dict[int, list[float]] = defaultdict(list)
    for reader in readers:
        for number, at_s in reader.times_s.items():
            address = b"a%02d" % todo.addresses[number]
            times_s[murmur2(address, DECIDING)].append(at_s)
    stayed, moved = [0.0], [0.0]
    for partition, all_s in times_s.items():
        all_s.sort()
        for before_s, after_s in pairwise(all_s):
            is_short = after_s - before_s < LOOK_S
            kept = is_short or owners.stayed(partition, before_s, after_s)
            (stayed if kept else moved).append(after_s - before_s)
    print(
        f"\n{moves} times an instance came or went: the longest pause of a partition that stayed "
        f"{max(stayed):.2f} s (99.9 % below {_quantile(stayed, 0.999):.2f} s), of one that moved "
        f"{max(moved):.2f} s"
    )


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]
