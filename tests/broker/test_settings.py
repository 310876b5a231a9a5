"""What is set over REST at one of several instances: live on all, exact, there after kill -9."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ringfence_client.headers import DUPLICATE_ID
from tests.broker.reading import drained
from tests.broker.service import Answer, Service, Stage
from tests.broker.topics import create_topic
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

PARTITIONS = 3
APPLIED = "wait=applied&timeout=60s"


class Fleet(Stage):
    """Instances of one group, and what they read and write."""

    def __init__(self, client: Mapping[str, str], folder: Path, group: str) -> None:
        super().__init__(client, folder, group)
        self.input, self.more, self.output = f"{group}-in", f"{group}-more", f"{group}-out"
        for topic in (self.input, self.more, self.output, f"{group}-dlq"):
            create_topic(client, topic, PARTITIONS)
        self.services: list[Service] = []

    def start(self, instances: int) -> None:
        """So many, until all are ready."""
        self.services = [self._instance(number) for number in range(instances)]
        for service in self.services:
            service.start()
        self.wait_ready()

    def _instance(self, instance: int) -> Service:
        return self.serving(
            f"{instance}",
            service=f"""
instance = "{instance}"
transaction_timeout_ms = 3000
by_address_partitions = 4""",
            rest=f"""
[[routes]]
name = "orders"
inputs = ["{self.input}"]
scope = "partition"
output = "{self.output}"
dead_letter = "{self.group}-dlq"
[addresses."#"]
id_cache_size = 2000
""",
        )

    def wait_ready(self) -> None:
        """Until all know the settings."""

        def are_ready() -> bool:
            return all(s.is_ready and s.get("/v1/settings")[0] == 200 for s in self.services)

        eventually(are_ready, *self.services)

    def kill(self) -> None:
        """All of them, and start them again."""
        for service in self.services:
            service.kill()
            service.start()
        self.wait_ready()

    def put(self, instance: int, path: str, body: object) -> int:
        """Put a document, and have it applied everywhere; gives the revision."""
        service = self.services[instance]

        def is_put() -> bool:
            found = service.ask(path)
            headers = {"If-Match": found.document["etag"]} if found.status == 200 else {}
            answers.append(service.ask(f"{path}?{APPLIED}", body, "PUT", headers))
            # Others write the metadata topic too; what is not applied yet is waited for again.
            return answers[-1].status not in {202, 503}

        answers: list[Answer] = []
        eventually(is_put, *self.services)
        return self.applied(answers[-1])

    def post(self, instance: int, path: str) -> int:
        """Have something done, and applied everywhere; gives the revision."""
        answers: list[Answer] = []

        def is_done() -> bool:
            answers.append(self.services[instance].answered(f"{path}?{APPLIED}", method="POST"))
            return answers[-1].status != 202

        eventually(is_done, *self.services)
        return self.applied(answers[-1])

    @staticmethod
    def applied(answer: Answer) -> int:
        assert answer.status in {200, 201}, answer
        assert answer.document.get("applied"), answer
        return int(answer.document["revision"])

    def send(self, topic: str, ids: Sequence[str], partition: int = 0) -> None:
        producer = Producer({**self.client, "enable.idempotence": True, "linger.ms": 5})
        for name in ids:
            headers: list[tuple[str, str | bytes | None]] = [(DUPLICATE_ID, name.encode())]
            producer.produce(topic, value=name.encode(), headers=headers, partition=partition)
        assert producer.flush(60) == 0

    def accepted(self) -> list[str]:
        records = drained(self.client, self.output, PARTITIONS)
        return [(each.record.value or b"").decode() for each in records]

    def letters(self) -> int:
        return len(drained(self.client, f"{self.group}-dlq", PARTITIONS))

    def decided(self, count: int) -> None:
        """Until so many records have met their fate."""
        eventually(lambda: len(self.accepted()) + self.letters() >= count, *self.services)

    def everywhere(self, true: Callable[[Service], bool]) -> None:
        """What holds at every instance, soon."""
        eventually(lambda: all(map(true, self.services)), *self.services)


@pytest.fixture
def fleet(broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]) -> Iterator[Fleet]:
    with Fleet(broker.client_properties, tmp_path, topic_name("set")) as own:
        yield own


@pytest.mark.timeout(600)
def test_a_change_on_one_of_three_instances_reaches_all_and_survives_kill_9(fleet: Fleet) -> None:
    fleet.start(3)
    address = "/v1/address-settings/%23"
    first = fleet.put(1, address, {"id_cache_size": 7})
    more = {"inputs": [fleet.more], "output": fleet.output, "dead_letter": f"{fleet.group}-dlq"}
    second = fleet.put(2, "/v1/routes/more", more)
    assert second > first
    fleet.everywhere(lambda each: each.ask("/v1/routes/more").status == 200)
    fleet.everywhere(lambda each: each.told(address)["id_cache_size"] == 7)
    fleet.send(fleet.more, ["a", "b"], 0)
    fleet.send(fleet.more, ["b", "c"], 2)  # the second hop was started: one address, any partition
    fleet.decided(4)
    assert sorted(fleet.accepted()) == ["a", "b", "c"]
    fleet.kill()
    fleet.everywhere(lambda each: each.told("/v1/info")["config_revision"] == second)
    fleet.send(fleet.more, ["a", "d"], 1)
    fleet.decided(6)
    assert sorted(fleet.accepted()) == ["a", "b", "c", "d"]
    fleet.post(0, f"/v1/settings/revisions/{first}:rollback")
    fleet.everywhere(lambda each: each.ask("/v1/routes/more").status == 404)
    assert fleet.services[2].told(address)["id_cache_size"] == 7
    for service in fleet.services:
        service.stop()
