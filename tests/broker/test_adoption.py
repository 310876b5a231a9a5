"""A live topic is adopted before the first record; what one service remembers goes to another."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from ringfence_api.content import NDJSON
from ringfence_client.headers import DUPLICATE_ID, DeadLetter
from tests.broker.reading import drained
from tests.broker.service import Stage, ringfence
from tests.broker.topics import create_topic
from tests.broker.workload import Seen
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

COUNT: Final = 3_000
PARTITIONS: Final = 3
LATER: Final = 40
STARTED_MS: Final = 1_700_000_000_000


class Venue(Stage):
    """A group of its own, with one input and a service that runs."""

    def __init__(self, client: Mapping[str, str], folder: Path, group: str, scope: str) -> None:
        super().__init__(client, folder, group)
        self.input = f"{group}-in"
        for name in ("in", "out", "dlq"):
            create_topic(client, f"{group}-{name}", PARTITIONS, {"retention.ms": "-1"})
        self.start(scope)

    def start(self, scope: str, name: str = "", source: str = "") -> None:
        """Start a service whose route has this scope, name and input, by default its own."""
        self.service = self.serving(
            self.group,
            self.group,
            service=f"by_address_partitions = {PARTITIONS}",
            rest=f"""
[[routes]]
name = "{name or self.input}"
inputs = ["{source or self.input}"]
scope = "{scope}"
address = "{{header:addr}}"
output = "{self.group}-out"
dead_letter = "{self.group}-dlq"
""",
        )
        self.service.start()
        self.service.wait_ready(PARTITIONS if scope == "partition" else 2 * PARTITIONS)

    def adopt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command."""
        return ringfence("adopt", "--config", str(self.folder / f"{self.group}.toml"), *arguments)


@pytest.fixture
def venue(
    broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> Iterator[Callable[[str], Venue]]:
    """Makes services that run; each is ended after the test."""
    with ExitStack() as venues:

        def make(scope: str) -> Venue:
            own = Venue(broker.client_properties, tmp_path, topic_name("adopting"), scope)
            return venues.enter_context(own)

        yield make


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


@pytest.mark.parametrize(
    "scope", ["address", "id", pytest.param("partition", marks=pytest.mark.long)]
)
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
    # The number of new ids is that of the last attempt: an earlier answer may have been late.
    assert f"{COUNT:,} ids of 2 addresses" in done.stdout
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
    lines, as_lines = {"Accept": NDJSON}, {"Content-Type": NDJSON}
    answer = first.service.answered("/v1/addresses/a0/ids:export", headers=lines)
    assert answer.headers["ringfence-complete"] == "true"
    exported = answer.text
    rows = [json.loads(line) for line in exported.splitlines()]
    assert sorted(row["id"] for row in rows) == sorted(f"id-{n}" for n in range(0, 1_000, 2))

    path = f"/v1/addresses/a0/ids:import?input={second.input}"
    told = second.service.told(path, exported.encode(), headers=as_lines)
    assert (told["ids"], told["complete"]) == (500, True)
    there = second.service.answered("/v1/addresses/a0/ids:export", headers=lines)
    assert there.text == exported

    file = tmp_path / "ids.ndjson"
    file.write_text(exported)
    done = second.adopt("--from-file", str(file), "--address", "a1", "--input", second.input)
    assert "500 ids of 1 addresses, 500 of them not known" in done.stdout, done.stderr
    asked = {"ids": ["id-0", "id-1"]}
    known = second.service.told("/v1/addresses/a1/ids:lookup", asked)["ids"]
    assert [each["known"] for each in known] == [True, False]
    assert known[0]["sightings"][0]["topic"] == first.input


def test_an_address_goes_over_to_scope_id_and_no_copy_is_accepted(
    venue: Callable[[str], Venue],
) -> None:
    """The steps of docs/operations.md."""
    own, lines = venue("address"), {"Accept": NDJSON}
    write(own.client, own.input, range(COUNT))
    decided(own, COUNT)
    own.service.told(f"/v1/routes/{own.input}:pause?wait=applied", method="POST")
    write(own.client, own.input, range(COUNT, COUNT + LATER))
    write(own.client, own.input, range(0, COUNT, 11))
    eventually(lambda: not any(each["lag_records"] for each in by_address(own)), own.service)
    exported = {}
    for address in ("a0", "a1"):
        exported[address] = own.service.answered(
            f"/v1/addresses/{address}/ids:export", headers=lines
        ).text
        own.service.told(f"/v1/addresses/{address}:clear", method="POST")
    own.service.stop()

    silent = f"{own.group}-none"
    create_topic(own.client, silent, PARTITIONS)
    own.start("id", "by-id", silent)
    for address, text in exported.items():
        told = own.service.told(
            f"/v1/addresses/{address}/ids:import?input={silent}",
            text.encode(),
            headers={"Content-Type": NDJSON},
        )
        assert told["ids"] == COUNT / 2
    own.service.stop()
    own.start("id", "by-id")
    copies = range(0, COUNT, 11)
    out, letters = decided(own, COUNT + LATER + len(copies))
    assert sorted(map(number_of, out)) == list(range(COUNT + LATER))
    assert sorted(map(number_of, letters)) == list(copies)


def by_address(own: Venue) -> list[dict[str, Any]]:
    """The deciding partitions of the second hop."""
    return [each for each in own.service.partitions() if each["topic"].endswith(".by-address")]
