"""What is set over REST at one of several instances: live on all, exact, there after kill -9."""

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from ringfence.headers import DUPLICATE_ID
from tests.broker.conftest import create_topic
from tests.broker.reading import drained
from tests.broker.service import Service
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker

PARTITIONS = 3


class Answer(NamedTuple):
    """Of the API."""

    status: int
    body: dict[str, Any]


class Fleet:
    """Instances of one group, and what they read and write."""

    def __init__(
        self, client: Mapping[str, str], folder: Path, group: str, partitions: int
    ) -> None:
        self.client, self._folder, self.group = client, folder, group
        self.partitions = partitions
        self.input, self.more, self.output = f"{group}-in", f"{group}-more", f"{group}-out"
        for topic in (self.input, self.more, self.output, f"{group}-dlq"):
            create_topic(client, topic, partitions)
        self.ports: dict[str, int] = {}
        self.services: list[Service] = []

    def service(self, instance: str) -> Service:
        port = self.ports[instance] = free_port(0)
        config = self._folder / f"{instance}.toml"
        config.write_text(self._config(instance, port), encoding="utf-8")
        service = Service(config, port, self._folder / f"{instance}.log")
        self.services.append(service)
        return service

    def call(
        self, instance: str, method: str, path: str, body: object = None, **headers: str
    ) -> Answer:
        """Ask an instance; whatever it answers."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[instance]}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={**named, "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:  # noqa: S310
                return Answer(reply.status, json.loads(reply.read()))
        except urllib.error.HTTPError as refusal:
            with refusal:
                return Answer(refusal.code, json.loads(refusal.read()))

    def put(self, instance: str, path: str, body: object) -> int:
        """Put a document, and have it applied everywhere; gives the revision."""

        def made() -> Answer:
            found = self.call(instance, "GET", path)
            headers = {"If_Match": found.body["etag"]} if found.status == 200 else {}
            return self.call(instance, "PUT", f"{path}?wait=applied&timeout=60s", body, **headers)

        done = self.in_the_end(made)
        assert (done.status, done.body.get("applied")) == (200, True), done
        return int(done.body["revision"])

    def in_the_end(self, ask: Callable[[], Answer]) -> Answer:
        """What is answered when others, who write the config topic too, leave room for it."""
        told: list[Answer] = []

        def is_told() -> bool:
            told.append(ask())
            return told[-1].status != 503

        eventually(is_told, *self.services)
        return told[-1]

    def send(self, topic: str, ids: Sequence[str], partition: int = 0) -> None:
        producer = Producer({**self.client, "enable.idempotence": True, "linger.ms": 5})
        for name in ids:
            headers: list[tuple[str, str | bytes | None]] = [(DUPLICATE_ID, name.encode())]
            producer.produce(topic, value=name.encode(), headers=headers, partition=partition)
        assert producer.flush(60) == 0

    def accepted(self) -> list[str]:
        records = drained(self.client, self.output, self.partitions)
        return [(each.record.value or b"").decode() for each in records]

    def letters(self) -> int:
        return len(drained(self.client, f"{self.group}-dlq", self.partitions))

    def decided(self, count: int) -> None:
        """Until so many records have met their fate."""
        eventually(lambda: len(self.accepted()) + self.letters() >= count, *self.services)

    def _config(self, instance: str, port: int) -> str:
        kafka = "\n".join(f'"{name}" = "{value}"' for name, value in self.client.items())
        return f"""
[kafka]
{kafka}
[service]
group_id = "{self.group}"
instance = "{instance}"
state_dir = "{self._folder / "state"}"
session_timeout_ms = 6000
transaction_timeout_ms = 3000
by_address_partitions = 4
[api]
port = {port}
[[routes]]
name = "orders"
inputs = ["{self.input}"]
scope = "partition"
output = "{self.output}"
dead_letter = "{self.group}-dlq"
[addresses."#"]
id_cache_size = 2000
"""


Make = Callable[[int], Fleet]


@pytest.fixture
def fleet(broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]) -> Iterator[Make]:
    made: list[Fleet] = []

    def make(partitions: int) -> Fleet:
        made.append(Fleet(broker.client_properties, tmp_path, topic_name("set"), partitions))
        return made[-1]

    yield make
    for service in (each for own in made for each in own.services if each.started):
        service.kill()


def ready(service: Service) -> bool:
    return service.get("/readyz")[0] == 200 and service.get("/v1/settings")[0] == 200


def end(service: Service) -> None:
    """In order, however busy the machine is: how quickly, other tests tell."""
    service.signal(signal.SIGTERM)
    assert service.wait(60) == 0


def all_ready(*services: Service) -> None:
    eventually(lambda: all(map(ready, services)), *services)


def seen_by_all(fleet: Fleet, true: Callable[[str], bool]) -> None:
    """What holds at every instance, soon."""
    eventually(lambda: all(map(true, fleet.ports)), *fleet.services)


@pytest.mark.timeout(600)
def test_what_one_of_three_is_told_holds_at_all_and_survives_kill_9(
    fleet: Make,
) -> None:
    own = fleet(PARTITIONS)
    services = [own.service(name) for name in "012"]
    for service in services:
        service.start()
    all_ready(*services)
    address = "/v1/address-settings/%23"
    first = own.put("1", address, {"id_cache_size": 7})
    more = {"inputs": [own.more], "output": own.output, "dead_letter": f"{own.group}-dlq"}
    second = own.put("2", "/v1/routes/more", more)
    assert second > first
    seen_by_all(own, lambda name: own.call(name, "GET", "/v1/routes/more").status == 200)
    seen_by_all(own, lambda name: own.call(name, "GET", address).body["id_cache_size"] == 7)
    own.send(own.more, ["a", "b"], 0)
    own.send(own.more, ["b", "c"], 2)  # the second hop was started: one address, any partition
    own.decided(4)
    assert sorted(own.accepted()) == ["a", "b", "c"]
    for service in services:
        service.kill()
        service.start()
    all_ready(*services)
    eventually(
        lambda: all(
            own.call(name, "GET", "/v1/info").body["config_revision"] == second for name in "012"
        ),
        *services,
    )
    own.send(own.more, ["a", "d"], 1)
    own.decided(6)
    assert sorted(own.accepted()) == ["a", "b", "c", "d"]
    rollback = f"/v1/settings/revisions/{first}:rollback?wait=applied&timeout=60s"
    back = own.in_the_end(lambda: own.call("0", "POST", rollback))
    assert (back.status, back.body.get("applied")) == (200, True), back
    seen_by_all(own, lambda name: own.call(name, "GET", "/v1/routes/more").status == 404)
    assert own.call("2", "GET", address).body["id_cache_size"] == 7
    for service in services:
        end(service)


@pytest.mark.timeout(600)
def test_a_pause_holds_over_a_restart_and_nothing_is_lost(fleet: Make) -> None:
    own = fleet(PARTITIONS)
    service = own.service("0")
    service.start()
    all_ready(service)
    pause = "/v1/routes/orders:pause?wait=applied&timeout=60s"
    done = own.in_the_end(lambda: own.call("0", "POST", pause))
    assert (done.status, done.body.get("applied")) == (200, True), done
    own.send(own.input, ["a", "b", "a"])
    for kills in (False, True):
        eventually(lambda: lag(own) == 3, service)
        eventually(lambda: ready(service), service)
        assert own.accepted() == []
        if not kills:
            service.kill()
            service.start()
            all_ready(service)
    resumed = own.in_the_end(lambda: own.call("0", "POST", "/v1/routes/orders:resume"))
    assert resumed.status == 200
    own.decided(3)
    assert own.accepted() == ["a", "b"]
    end(service)


def lag(fleet: Fleet) -> int:
    partitions = fleet.call("0", "GET", "/v1/partitions").body["partitions"]
    if not all(each["paused"] for each in partitions):
        return -1
    return sum(each["lag_records"] or 0 for each in partitions)
