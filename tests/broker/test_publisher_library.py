"""The publisher library and the service, both killed at any time: each message once, in order."""

import json
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringfence.courier import State
from ringfence.publish_errors import NameInUseError
from ringfence.publisher import Publisher
from tests.broker.author import Author
from tests.broker.conftest import create_topic
from tests.broker.reading import drained, ends
from tests.broker.service import Service
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

PARTITIONS = 4


@pytest.fixture
def service(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> Iterator["SequenceService"]:
    running = SequenceService(broker, topic_name("author"), tmp_path)
    try:
        running.start()
        running.wait_ready(PARTITIONS)
        yield running
    finally:
        running.kill()


class SequenceService(Service):
    """A service with one route, whose address goes by numbers."""

    def __init__(self, broker: Broker, group: str, folder: Path) -> None:
        self.group = group
        self.input, self.output = f"{group}-in", f"{group}-out"
        for topic in (self.input, self.output, f"{self.input}.dlq"):
            create_topic(broker.client_properties, topic, PARTITIONS)
        port = free_port(0)
        client = broker.client_properties.items()
        kafka = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client)
        config = folder / "service.toml"
        config.write_text(
            f"""
[kafka]
{kafka}
[service]
group_id = "{group}"
state_dir = "{folder / "state"}"
session_timeout_ms = 6000
transaction_timeout_ms = 3000
[api]
port = {port}
[[routes]]
inputs = ["{self.input}"]
scope = "partition"
output = "{self.output}"
[addresses."#"]
strategy = "sequence"
""",
            encoding="utf-8",
        )
        super().__init__(config, port, folder / "service.log")
        self.url = f"http://127.0.0.1:{port}"
        self._client = broker.client_properties

    @property
    def written(self) -> int:
        """How many messages publishers have written."""
        return sum(ends(self._client, self.input, "read_committed").values())


@pytest.mark.parametrize(
    ("count", "kills"), [(12_000, 6), pytest.param(100_000, 20, marks=pytest.mark.long)]
)
def test_killed_publishers_and_a_killed_service_leave_each_message_once_and_in_order(
    broker: Broker, service: SequenceService, tmp_path: Path, count: int, kills: int
) -> None:
    chance, share = random.Random(7), count // (kills + 1)
    with Author(
        tmp_path,
        broker.client_properties,
        topic=service.input,
        count=count,
        pause_s=0.01,
        admin_url=service.url,
        group_id=service.group,
    ) as author:
        for life in range(kills):
            author.start()
            wanted = life * share + chance.randrange(share)
            eventually(lambda wanted=wanted: service.written >= wanted, service)  # type: ignore[misc]
            if life % 4 == 1:
                service.signal(signal.SIGKILL)
                service.wait()
                service.start()
            author.kill()
        author.start()
        eventually(lambda: author.process.poll() is not None, service)
        author.wait(1)
        assert author.pending() == 0
    service.wait_ready(PARTITIONS)
    service.stop()
    written = drained(broker.client_properties, service.output, PARTITIONS)
    values = [each.record.value for each in written]
    assert values == [b"%d" % number for number in range(count)]
    assert len({each.partition for each in written}) == 1


def test_of_two_publishers_of_one_name_the_older_stops_and_another_user_is_refused(
    broker: Broker, service: SequenceService, tmp_path: Path
) -> None:
    def publisher(store: str, user: str) -> Publisher:
        return Publisher(
            "author",
            topic=service.input,
            store=tmp_path / store,
            bootstrap_servers=broker.bootstrap_servers,
            admin_url=service.url,
            group_id=service.group,
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
            eventually(lambda: all(each.state is State.STOPPED for each in over), service)
            for each in over:
                with pytest.raises(NameInUseError):
                    each.publish(b"never")
            younger.publish(b"2")
            assert younger.flush(30), younger.last_error
    written = drained(broker.client_properties, service.output, PARTITIONS)
    assert [each.record.value for each in written] == [b"0", b"1", b"2"]
