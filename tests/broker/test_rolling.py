"""A rolling update: two instances with different files, one of which names a route that is new."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from ringfence.headers import DUPLICATE_ID
from service.topics import fallback
from tests.broker.reading import drained
from tests.broker.service import Service, Stage, configuration
from tests.broker.topics import create_topic
from tests.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

COUNT: Final = 200
DECIDING: Final = 4


class Fleet(Stage):
    """Two instances of one group, each with a file of its own."""

    def started(self, instance: int, *routes: str) -> Service:
        """An instance with a file that has these routes."""
        service = self.written(f"{instance}", lambda port: self._text(port, instance, routes))
        service.start()
        return service

    def send(self, route: str, numbers: range) -> None:
        producer = Producer({**self.client, "enable.idempotence": True})
        for number in numbers:
            text = b"%d" % number
            headers: list[tuple[str, str | bytes | None]] = [(DUPLICATE_ID, text)]
            producer.produce(f"{self.group}-{route}", text, key=text, headers=headers)
        assert producer.flush(30) == 0

    def out(self, route: str) -> list[int]:
        """What went out of a route."""
        found = drained(self.client, f"{self.group}-{route}-out", 1)
        return sorted(int(each.record.value or b"") for each in found)

    @property
    def lost(self) -> int:
        """How many records belong to no route."""
        return len(drained(self.client, fallback(self.group), 1))

    def _text(self, port: int, instance: int, routes: Sequence[str]) -> str:
        return configuration(
            self.client,
            self.group,
            self.folder / "state",
            port,
            service=f'instance = "{instance}"\nby_address_partitions = {DECIDING}',
            rest="".join(
                f"""
[[routes]]
name = "{route}"
inputs = ["{self.group}-{route}"]
address = "{{key}}"
output = "{self.group}-{route}-out"
dead_letter = "{self.group}-dlq"
"""
                for route in routes
            ),
            session_ms=45_000,
        )


@pytest.fixture
def fleet(broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]) -> Iterator[Fleet]:
    group = topic_name("rolling")
    for name in ("old", "new", "old-out", "new-out", "dlq"):
        create_topic(broker.client_properties, f"{group}-{name}", 1)
    with Fleet(broker.client_properties, tmp_path, group) as own:
        yield own


@pytest.mark.row(34)
def test_a_route_that_the_update_adds_loses_no_record_to_the_dead_letters(fleet: Fleet) -> None:
    first, second = fleet.started(0, "old"), fleet.started(1, "old")
    wait_balanced(first, second)
    second.stop()
    second = fleet.started(1, "old", "new")
    wait_balanced(first, second)
    fleet.send("new", range(COUNT))
    first.wait_complaint("instance 1 has a route for")
    assert fleet.lost == 0
    first.stop()
    first = fleet.started(0, "old", "new")
    fleet.send("new", range(COUNT, 2 * COUNT))
    eventually(lambda: fleet.out("new") == list(range(2 * COUNT)), first, second)
    assert fleet.lost == 0


def wait_balanced(*services: Service) -> None:
    """Until each has its share of by-address, restored."""
    share = DECIDING // len(services)
    eventually(lambda: all(decides(each) == share for each in services), *services)


def decides(service: Service) -> int:
    """How many partitions of by-address it has, all of them restored; 0 while it does not tell."""
    try:
        found = service.partitions()
    except TimeoutError:
        return 0
    ours = [each for each in found if each["topic"].endswith(".by-address")]
    return len(ours) if all(each["phase"] == "running" for each in ours) else 0
