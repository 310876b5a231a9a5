"""The publisher library and the service on a real Kafka: each message once and in order."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import murmur2

from ringfence_client.publisher.errors import AwayError, NameInUseError, RefusedError
from ringfence_client.publisher.outbox import Outbox, OutboxLimits, OutboxOwner
from ringfence_client.publisher.publisher import Publisher
from ringfence_client.publisher.sender import PublisherState
from tests.broker.reading import drained, ends
from tests.broker.service import Service, Stage
from tests.broker.topics import create_topic
from tests.broker.workload import Seen
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

PARTITIONS = 4
PROGRAM = ("-m", "tests.broker.publishing")
FLUSHED_S = 300


class Venue(Stage):
    """A service with one route, whose address goes by numbers, and its publishers."""

    def __init__(self, client: Mapping[str, str], folder: Path, group: str) -> None:
        super().__init__(client, folder, group)
        self.input, self.output = f"{group}-in", f"{group}-out"
        for topic in (self.input, self.output, f"{self.input}.dlq"):
            create_topic(client, topic, PARTITIONS)
        self.service = self.serving(
            "service",
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
        self.service.start()
        self.service.wait_ready(PARTITIONS)

    def settings(self, **more: Any) -> dict[str, Any]:
        """Settings of `author`, the only publisher."""
        return {
            "name": "author",
            "topic": self.input,
            "store": str(self.folder / "author.store"),
            "bootstrap_servers": self.client["bootstrap.servers"],
            "kafka": self.client,
            "admin_url": self.service.url,
            "group_id": self.group,
            **more,
        }

    def publisher(self, **more: Any) -> Publisher:
        return Publisher(**self.settings(**more))

    def program(self, count: int) -> Service:
        """One that publishes so many numbers, not yet started; see `publishing`."""
        file, first = self.folder / "author.json", str(self.folder / "author.first")
        told = {"count": count, "pause_s": 0.01, "first": first, "publisher": self.settings()}
        file.write_text(json.dumps(told))
        return self.adopted(Service(file, 0, self.folder / "author.log", PROGRAM))

    def pending(self) -> int:
        """How many messages the author's store holds, now that it has ended."""
        owner = OutboxOwner("author", self.input, self.input)
        store = Outbox(str(self.folder / "author.store"), owner, OutboxLimits(10**9, 10**12), 0)
        try:
            return store.pending
        finally:
            store.close()

    def sent(self) -> int:
        """How many messages publishers have written."""
        return sum(ends(self.client, self.input, "read_committed").values())

    def accepted(self) -> list[Seen]:
        return drained(self.client, self.output, PARTITIONS)

    def values(self) -> list[bytes | None]:
        return [each.record.value for each in self.accepted()]


@pytest.fixture
def venue(broker: Broker, topic_name: Callable[[str], str], tmp_path: Path) -> Iterator[Venue]:
    with Venue(broker.client_properties, tmp_path, topic_name("author")) as own:
        yield own


@pytest.mark.parametrize(
    ("count", "kills"), [(5_000, 4), pytest.param(100_000, 20, marks=pytest.mark.long)]
)
def test_killed_publishers_and_a_killed_service_leave_each_message_once_and_in_order(
    venue: Venue, count: int, kills: int
) -> None:
    chance, share = random.Random(7), count // (kills + 1)
    author, service = venue.program(count), venue.service
    for life in range(kills):
        author.start()
        wanted = life * share + chance.randrange(share)
        eventually(lambda wanted=wanted: venue.sent() >= wanted, service)  # type: ignore[misc]
        if life % 4 == 1:
            service.kill()
            service.start()
        assert not author.ended, author.tail()
        author.kill()
    author.start()
    eventually(lambda: author.ended, service, author)
    assert author.wait() == 0, author.tail()
    assert venue.pending() == 0
    service.wait_ready(PARTITIONS)
    service.stop()
    assert venue.values() == [b"%d" % number for number in range(count)]
    assert {each.partition for each in venue.accepted()} == {murmur2(b"author", PARTITIONS)}


def test_of_two_publishers_of_one_name_the_older_stops_and_another_user_is_refused(
    venue: Venue, tmp_path: Path
) -> None:
    def publisher(store: str, user: str) -> Publisher:
        return venue.publisher(store=tmp_path / store, user=user, ack_wait_s=1)

    with publisher("older", "u") as older:
        older.publish(b"0", key=b"k", headers=[("a", None), ("a", b"")])
        assert older.flush(FLUSHED_S), older.last_error
        with publisher("younger", "u") as younger, publisher("stranger", "v") as stranger:
            younger.publish(b"1")
            assert younger.flush(FLUSHED_S), younger.last_error
            over = (older, stranger)
            eventually(
                lambda: all(each.state is PublisherState.STOPPED for each in over), venue.service
            )
            for each in over:
                with pytest.raises(NameInUseError):
                    each.publish(b"never")
            younger.publish(b"2")
            assert younger.flush(FLUSHED_S), younger.last_error
    assert venue.values() == [b"0", b"1", b"2"]
    record = venue.accepted()[0].record
    assert (record.key, record.headers[:2]) == (b"k", (("a", None), ("a", b"")))


def test_a_broker_that_is_killed_is_waited_for(
    own_broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    told: list[Exception] = []
    with (
        Venue(own_broker.client_properties, tmp_path, topic_name("author")) as venue,
        venue.publisher(on_error=told.append) as publisher,
    ):
        publisher.publish(b"before")
        assert publisher.flush(FLUSHED_S), publisher.last_error
        own_broker.kill()
        for number in range(1000):
            publisher.publish(b"%d" % number)
        eventually(lambda: bool(told))
        own_broker.restart()
        assert publisher.flush(FLUSHED_S), publisher.last_error
        assert venue.values() == [b"before", *(b"%d" % number for number in range(1000))]
    assert all(isinstance(error, AwayError) for error in told)


def test_a_missing_topic_is_reported_and_waited_for(
    venue: Venue, topic_name: Callable[[str], str]
) -> None:
    late = topic_name("late")
    with venue.publisher(topic=late, address=venue.input, user="u") as publisher:
        publisher.publish(b"v")
        eventually(
            lambda: late in str(publisher.last_error) and publisher.state is PublisherState.WAITING
        )
        session = venue.service.told("/v1/publishers/author/session", {"user": "u"}, "PUT")
        assert session["epoch"] == 1, "it has opened none"
        create_topic(venue.client, late)
        eventually(lambda: publisher.state is PublisherState.SENDING)
        publisher.close(0)


def test_a_record_too_large_for_the_broker_stops_the_publisher_and_the_error_names_the_fix(
    venue: Venue, new_topic: Callable[..., str]
) -> None:
    small = new_topic("small", max_message_bytes="1000")
    with venue.publisher(topic=small, address=venue.input) as publisher:
        publisher.publish(b"x" * 5000)
        eventually(lambda: publisher.state is PublisherState.STOPPED)
        with pytest.raises(RefusedError, match=r"max\.message\.bytes"):
            publisher.publish(b"v")
        assert publisher.pending == 1


def test_a_property_that_the_client_refuses_stops_the_publisher(venue: Venue) -> None:
    with venue.publisher(producer={"no.such.property": "1"}) as publisher:
        eventually(lambda: publisher.state is PublisherState.STOPPED)
        assert "no.such.property" in str(publisher.last_error)
