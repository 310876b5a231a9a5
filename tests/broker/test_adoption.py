"""A live topic is adopted before the first record; what one service remembers goes to another."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Producer

from api.media import NDJSON
from ringfence.headers import DUPLICATE_ID, DeadLetter
from tests.broker.conftest import create_topic
from tests.broker.reading import drained
from tests.broker.service import REPOSITORY, Service
from tests.broker.workload import Seen
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker

COUNT: Final = 3_000
PARTITIONS: Final = 3
LATER: Final = 40
STARTED_MS: Final = 1_700_000_000_000


class Venue(NamedTuple):
    """A service of a group of its own, in front of one input."""

    client: Mapping[str, str]
    config: Path
    service: Service
    group: str
    port: int
    owned: int

    @property
    def input(self) -> str:
        return f"{self.group}-in"

    def adopt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command."""
        command = [sys.executable, "-m", "service.cli", "adopt", "--config", str(self.config)]
        return subprocess.run(  # noqa: PLW1510 - its status is looked at
            [*command, *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
        )

    def request(
        self, path: str, content: bytes | None = None, **headers: str
    ) -> tuple[bytes, Mapping[str, str]]:
        """Ask the API, and again while it is too busy; content is posted."""
        url = f"http://127.0.0.1:{self.port}{path}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(url, data=content, headers=named)
        told: list[tuple[bytes, Mapping[str, str]]] = []

        def is_told() -> bool:
            try:
                with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 - our own
                    names = {n.lower(): value for n, value in reply.headers.items()}
                    told.append((reply.read(), names))
            except urllib.error.HTTPError as refusal:
                with refusal:
                    if refusal.code != 503:
                        raise
            return bool(told)

        eventually(is_told, self.service)
        return told[0]


@pytest.fixture
def venue(
    broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> Iterator[Callable[[str], "Venue"]]:
    """Makes services that run; each is ended after the test."""
    services: list[Service] = []

    @contextmanager
    def started(scope: str) -> Iterator[Venue]:
        group, port = topic_name("adopting"), free_port(0)
        client = broker.client_properties
        for name in ("in", "out", "dlq"):
            create_topic(client, f"{group}-{name}", PARTITIONS, {"retention.ms": "-1"})
        config = tmp_path / f"{group}.toml"
        config.write_text(_config(client, group, port, scope, tmp_path), encoding="utf-8")
        service = Service(config, port, tmp_path / f"{group}.log")
        services.append(service)
        service.start()
        owned = 2 * PARTITIONS if scope == "address" else PARTITIONS
        service.wait_ready(owned)
        yield Venue(client, config, service, group, port, owned)
        service.stop()

    entered = []

    def make(scope: str) -> Venue:
        entered.append(started(scope))
        return entered[-1].__enter__()

    yield make
    for each in entered:
        each.__exit__(None, None, None)
    for service in services:
        service.kill()


def _config(client: Mapping[str, str], group: str, port: int, scope: str, folder: Path) -> str:
    kafka = "\n".join(f'"{name}" = "{value}"' for name, value in client.items())
    return f"""
[kafka]
{kafka}
[service]
group_id = "{group}"
state_dir = "{folder / group}"
by_address_partitions = {PARTITIONS}
session_timeout_ms = 6000
[api]
port = {port}
[[routes]]
inputs = ["{group}-in"]
scope = "{scope}"
address = "{{header:addr}}"
output = "{group}-out"
dead_letter = "{group}-dlq"
"""


def write(client: Mapping[str, str], topic: str, numbers: Iterator[int] | range) -> None:
    """Records whose key, and with it their partition, follows from their number."""
    producer = Producer({**client, "enable.idempotence": True, "partitioner": "murmur2_random"})
    for number in numbers:
        producer.produce(
            topic,
            key=b"%d" % (number % 50),
            value=b"%d" % number,
            headers=[("addr", b"a%d" % (number % 2)), (DUPLICATE_ID, b"id-%d" % number)],
            timestamp=STARTED_MS + number,
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def decided(venue: Venue, count: int) -> tuple[list[Seen], list[Seen]]:
    """What was accepted, and the dead letters, once there are so many."""

    def all_of_it() -> int:
        return sum(
            len(drained(venue.client, f"{venue.group}-{n}", PARTITIONS)) for n in ("out", "dlq")
        )

    eventually(lambda: all_of_it() >= count, venue.service)
    out, letters = (drained(venue.client, f"{venue.group}-{n}", PARTITIONS) for n in ("out", "dlq"))
    return out, letters


def number_of(each: Seen) -> int:
    return int(each.record.value or b"")


@pytest.mark.parametrize("scope", ["address", "partition"])
def test_copies_of_what_was_adopted_are_duplicates_with_the_place_of_their_original(
    venue: Callable[[str], Venue], topic_name: Callable[[str], str], scope: str
) -> None:
    own = venue(scope)
    live = topic_name("live")
    create_topic(own.client, live, PARTITIONS, {"retention.ms": "-1"})
    write(own.client, live, range(COUNT))
    trial = own.adopt("--from-topic", live, "--dry-run")
    assert trial.returncode == 0, trial.stderr
    assert f"{COUNT:,} ids of 2 addresses, {COUNT:,} of them not known" in trial.stdout
    done = own.adopt("--from-topic", live, "--reason", "the first start")
    assert done.returncode == 0, done.stderr
    assert f"{COUNT:,} ids of 2 addresses, {COUNT:,} of them not known" in done.stdout
    again = own.adopt("--from-topic", live)
    assert f"{COUNT:,} ids of 2 addresses, 0 of them not known" in again.stdout

    originals = {
        number_of(each): f"{live}-{each.partition}@{each.offset}"
        for each in drained(own.client, live, PARTITIONS)
    }
    copies = range(0, COUNT, 7)
    write(own.client, own.input, copies)
    write(own.client, own.input, range(COUNT, COUNT + LATER))
    out, letters = decided(own, len(copies) + LATER)
    assert sorted(map(number_of, out)) == list(range(COUNT, COUNT + LATER))
    assert {
        number_of(each): (dict(each.record.headers)[DeadLetter.ORIGINAL] or b"").decode()
        for each in letters
    } == {number: originals[number] for number in copies}


def test_records_of_the_input_itself_are_not_taken_for_copies_of_themselves(
    venue: Callable[[str], Venue],
) -> None:
    own = venue("address")
    write(own.client, own.input, range(COUNT))
    decided(own, 1)
    write(own.client, own.input, range(COUNT, 2 * COUNT))
    done = own.adopt("--from-topic", own.input)
    assert done.returncode == 0, done.stderr
    assert "0 of them not known before" in done.stdout
    out, letters = decided(own, 2 * COUNT)
    assert (sorted(map(number_of, out)), letters) == (list(range(2 * COUNT)), [])


def test_what_one_service_exports_another_imports_as_it_is(
    venue: Callable[[str], Venue], tmp_path: Path
) -> None:
    first, second = venue("address"), venue("address")
    write(first.client, first.input, range(1_000))
    decided(first, 1_000)
    exported, headers = first.request("/v1/addresses/a0/ids:export", Accept=NDJSON)
    assert headers["ringfence-complete"] == "true"
    rows = [json.loads(line) for line in exported.splitlines()]
    assert sorted(row["id"] for row in rows) == sorted(f"id-{n}" for n in range(0, 1_000, 2))

    path = f"/v1/addresses/a0/ids:import?input={second.input}"
    told, _ = second.request(path, exported, Content_Type=NDJSON)
    assert (json.loads(told)["ids"], json.loads(told)["complete"]) == (500, True)
    there, _ = second.request("/v1/addresses/a0/ids:export", Accept=NDJSON)
    assert there == exported

    file = tmp_path / "ids.ndjson"
    file.write_bytes(exported)
    done = second.adopt("--from-file", str(file), "--address", "a1", "--input", second.input)
    assert "500 ids of 1 addresses, 500 of them not known" in done.stdout, done.stderr
    known = looked_up(second, "a1", "id-0", "id-1")
    assert [each["known"] for each in known] == [True, False]
    assert known[0]["sightings"][0]["topic"] == first.input


def looked_up(venue: Venue, address: str, *ids: str) -> list[dict[str, Any]]:
    """What the API tells of ids."""
    body = json.dumps({"ids": ids}).encode()
    told, _ = venue.request(
        f"/v1/addresses/{address}/ids:lookup", body, Content_Type="application/json"
    )
    found: list[dict[str, Any]] = json.loads(told)["ids"]
    return found
