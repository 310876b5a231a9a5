"""The publisher library and the service, both killed at any time: each message once, in order."""

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ringfence.courier import State
from ringfence.publish_errors import NameInUseError
from ringfence.publisher import Publisher
from tests.broker.author import Author
from tests.broker.reading import drained, ends
from tests.broker.service import Stage, configuration
from tests.broker.topics import create_topic
from tests.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

PARTITIONS = 4


@pytest.fixture
def venue(broker: Broker, topic_name: Callable[[str], str], tmp_path: Path) -> Iterator["Venue"]:
    with Venue(broker.client_properties, tmp_path, topic_name("author")) as own:
        own.service.start()
        own.service.wait_ready(PARTITIONS)
        yield own


class Venue(Stage):
    """A service with one route, whose address goes by numbers."""

    def __init__(self, client: Mapping[str, str], folder: Path, group: str) -> None:
        super().__init__(client, folder, group)
        self.input, self.output = f"{group}-in", f"{group}-out"
        for topic in (self.input, self.output, f"{self.input}.dlq"):
            create_topic(client, topic, PARTITIONS)
        self.service = self.written("service", self._text)

    def _text(self, port: int) -> str:
        return configuration(
            self.client,
            self.group,
            self.folder / "state",
            port,
            service="transaction_timeout_ms = 3000",
            rest=f"""
[[routes]]
inputs = ["{self.input}"]
scope = "partition"
output = "{self.output}"
[addresses."#"]
strategy = "sequence"
""",
        )

    @property
    def written_count(self) -> int:
        """How many messages publishers have written."""
        return sum(ends(self.client, self.input, "read_committed").values())


@pytest.mark.parametrize(
    ("count", "kills"), [(12_000, 6), pytest.param(100_000, 20, marks=pytest.mark.long)]
)
def test_killed_publishers_and_a_killed_service_leave_each_message_once_and_in_order(
    broker: Broker, venue: Venue, tmp_path: Path, count: int, kills: int
) -> None:
    chance, share, service = random.Random(7), count // (kills + 1), venue.service
    with Author(
        tmp_path,
        broker.client_properties,
        topic=venue.input,
        count=count,
        pause_s=0.01,
        admin_url=service.url,
        group_id=venue.group,
    ) as author:
        for life in range(kills):
            author.start()
            wanted = life * share + chance.randrange(share)
            eventually(lambda wanted=wanted: venue.written_count >= wanted, service)  # type: ignore[misc]
            if life % 4 == 1:
                service.kill()
                service.start()
            author.kill()
        author.start()
        eventually(lambda: author.process.poll() is not None, service)
        author.wait(1)
        assert author.pending() == 0
    service.wait_ready(PARTITIONS)
    service.stop()
    written = drained(broker.client_properties, venue.output, PARTITIONS)
    values = [each.record.value for each in written]
    assert values == [b"%d" % number for number in range(count)]
    assert len({each.partition for each in written}) == 1


def test_of_two_publishers_of_one_name_the_older_stops_and_another_user_is_refused(
    broker: Broker, venue: Venue, tmp_path: Path
) -> None:
    def publisher(store: str, user: str) -> Publisher:
        return Publisher(
            "author",
            topic=venue.input,
            store=tmp_path / store,
            bootstrap_servers=broker.bootstrap_servers,
            admin_url=venue.service.url,
            group_id=venue.group,
            user=user,
            kafka=broker.client_properties,
            ack_wait_s=1,
        )

    with publisher("older", "u") as older:
        older.publish(b"0")
        assert older.flush(30), older.last_error
        with publisher("younger", "u") as younger, publisher("stranger", "v") as stranger:
            younger.publish(b"1")
            assert younger.flush(30), younger.last_error
            over = (older, stranger)
            eventually(lambda: all(each.state is State.STOPPED for each in over), venue.service)
            for each in over:
                with pytest.raises(NameInUseError):
                    each.publish(b"never")
            younger.publish(b"2")
            assert younger.flush(30), younger.last_error
    written = drained(broker.client_properties, venue.output, PARTITIONS)
    assert [each.record.value for each in written] == [b"0", b"1", b"2"]
