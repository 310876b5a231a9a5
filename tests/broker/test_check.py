"""What cannot go well is said before or at the start: one sentence, its mend, its exit code.

The commands are real processes on a real broker; what they leave with is the contract.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient

from tests.broker.conftest import create_topic
from tests.broker.world import REPOSITORY, Service, eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker

SERVICE_ENDS_S = 30.0


class Desk:
    """A group with one input, and the files and commands around it."""

    def __init__(self, client: Mapping[str, str], folder: Path, group: str) -> None:
        self.client = dict(client)
        self.folder = folder
        self.group = group
        self.input = f"{group}-in"
        self.output, self.letters = f"{self.input}.unique", f"{self.input}.dlq"
        self.changelog = f"{group}.changelog.{self.input}"
        self.services: list[Service] = []

    def create(self, *topics: str, partitions: int = 1) -> None:
        for topic in topics or (self.input, self.output, self.letters):
            create_topic(self.client, topic, partitions)

    def config(self, port: int = 0, *, service: str = "", kafka: str = "", more: str = "") -> Path:
        """A configuration that is good, and what makes it otherwise."""
        properties = "\n".join(f'"{name}" = "{value}"' for name, value in self.client.items())
        path = self.folder / "ringfence.toml"
        path.write_text(
            f"[kafka]\n{properties}\n{kafka}\n"
            f'[service]\ngroup_id = "{self.group}"\nstate_dir = "{self.folder / "state"}"\n'
            f"session_timeout_ms = 6000\n{service}\n[api]\nport = {port}\n"
            f'[[routes]]\ninputs = ["{self.input}"]\nscope = "partition"\n{more}\n',
            encoding="utf-8",
        )
        return path

    def service(self, *, service: str = "") -> Service:
        """A service that has been started."""
        port = free_port(0)
        process = Service(self.config(port, service=service), port, self.folder / "service.log")
        process.start()
        self.services.append(process)
        return process

    def refusal(self, *, service: str = "") -> str:
        """What a service that ends by itself with exit 5 says."""
        process = self.service(service=service)
        assert process.wait(SERVICE_ENDS_S) == 5, process.tail()
        return sentence(process.tail())

    def send(self, *ids: bytes) -> None:
        producer = KafkaProducer(self.client)
        for each in ids:
            producer.produce(self.input, value=b"v", headers=[("_DUPL_ID", each)])
        assert producer.flush(20) == 0

    def serve_to_end(self, *, service: str = "") -> None:
        """One service, until it has decided all that there is."""
        process = self.service(service=service)
        eventually(lambda: self.committed() == self.end(self.input), 40, process)
        process.stop()

    def end(self, topic: str) -> int:
        return self._ask(lambda c: c.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)[1])

    def committed(self) -> int:
        place = TopicPartition(self.input, 0)
        try:
            return self._ask(lambda c: c.committed([place], timeout=5)[0].offset)
        except KafkaException:
            return -1  # a transaction is open, or the group has no coordinator yet

    def count(self, topic: str) -> int:
        """How many records of a topic are committed; markers of transactions do not count."""

        def read(consumer: Consumer) -> int:
            place = TopicPartition(topic, 0, 0)
            end = consumer.get_watermark_offsets(place, timeout=5)[1]
            consumer.assign([place])
            found = 0

            def drained() -> bool:
                nonlocal found
                found += len(consumer.consume(1000, 0.1))
                return end == 0 or consumer.position([place])[0].offset >= end

            eventually(drained, 20)
            return found

        return self._ask(read)

    def reset(self, offset: int) -> None:
        """As an operator would with Kafka's own tools, once the group has no members."""
        admin = AdminClient({**self.client})
        place = ConsumerGroupTopicPartitions(self.group, [TopicPartition(self.input, 0, offset)])

        def done() -> bool:
            try:
                answer = admin.alter_consumer_group_offsets([place])[self.group].result(10)
            except KafkaException:
                return False  # the last member is not forgotten yet
            return all(each.error is None for each in answer.topic_partitions)

        eventually(done, 30)

    def forget_group(self) -> None:
        admin = AdminClient({**self.client})

        def done() -> bool:
            try:
                admin.delete_consumer_groups([self.group])[self.group].result(10)
            except KafkaException:
                return False
            return True

        eventually(done, 30)

    def delete(self, topic: str) -> None:
        admin = AdminClient({**self.client})
        admin.delete_topics([topic])[topic].result(30)
        eventually(lambda: topic not in admin.list_topics(timeout=10).topics, 30)

    def _ask(self, question: Callable[[Consumer], int]) -> int:
        consumer = Consumer({**self.client, "group.id": self.group, "enable.auto.commit": False})
        try:
            return question(consumer)
        finally:
            consumer.close()


@pytest.fixture
def desk(broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]) -> Iterator[Desk]:
    own = Desk(broker.client_properties, tmp_path, topic_name("check"))
    yield own
    for service in own.services:
        if not service.ended:
            service.process.kill()
            service.process.wait(timeout=10)


def ringfence(command: str, config: Path, limit_s: float = 40) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "KAFKA_BOOTSTRAP_SERVERS"}
    return subprocess.run(
        [sys.executable, "-m", "service.cli", command, "--config", str(config)],
        cwd=REPOSITORY,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
    )


def sentence(log: str) -> str:
    """The one sentence that is not a log line; a traceback would make it more than one."""
    told = [line for line in log.splitlines() if line.startswith("ringfence: ")]
    assert len(told) == 1, log
    assert "Traceback" not in log, log
    return told[0]


def test_check_prints_what_a_good_configuration_reads_and_writes(desk: Desk) -> None:
    desk.create()
    done = ringfence("check", desk.config())
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"inputs: {desk.input}\n" in done.stdout
    assert f"outputs: {desk.letters}, {desk.output}\n" in done.stdout


def test_check_names_five_faults_at_once_each_with_its_mend(desk: Desk) -> None:
    desk.create(desk.input, partitions=3)
    desk.create(desk.letters)
    create_topic(desk.client, desk.changelog, 1, {"cleanup.policy": "compact"})
    config = desk.config(
        kafka='"enable.auto.commit" = true',
        service="batch_record_max = 10",
        more='[addresses."orders.#.eu"]\nid_cache_size = 10',
    )
    done = ringfence("check", config)
    said = done.stdout
    assert done.returncode == 1, said + done.stderr
    assert "5 problems:" in said
    assert said.count("     mend: ") == 5
    for what, mend in (
        ("service.batch_record_max", "batch_records_max"),
        ("enable.auto.commit", "remove it"),
        ("orders.#.eu", "`#` last for any number"),
        (f'"{desk.output}"', "create it"),
        (f'"{desk.changelog}" has 1 partitions', "on_partitions_added"),
    ):
        after = said.partition(what)[2]
        assert after, f"{what} is not named in\n{said}"
        assert mend in after.partition("mend: ")[2].partition("\n")[0], said


def test_serve_ends_with_3_when_the_broker_cannot_be_reached(desk: Desk) -> None:
    desk.client["bootstrap.servers"] = f"127.0.0.1:{free_port(0)}"
    done = ringfence("serve", desk.config(), limit_s=SERVICE_ENDS_S)
    assert done.returncode == 3, done.stderr
    assert desk.client["bootstrap.servers"] in sentence(done.stderr)


def test_a_second_process_of_an_instance_ends_with_4(desk: Desk) -> None:
    desk.create()
    first = desk.service()
    eventually(lambda: first.get("/readyz")[0] == 200, 60, first)
    done = ringfence("serve", desk.config())
    assert done.returncode == 4, done.stderr
    assert "set service.instance" in sentence(done.stderr)
    first.stop()


def test_offsets_reset_by_hand_are_refused_until_the_operator_says_what_they_mean(
    desk: Desk,
) -> None:
    desk.create()
    desk.send(b"1", b"2", b"3")
    desk.serve_to_end()
    desk.reset(0)
    assert "on_reset_offset to keep_state or clear_state" in desk.refusal()
    desk.serve_to_end(service='on_reset_offset = "keep_state"')
    assert (desk.count(desk.output), desk.count(desk.letters)) == (3, 3)
    desk.reset(0)
    desk.serve_to_end(service='on_reset_offset = "clear_state"')
    assert (desk.count(desk.output), desk.count(desk.letters)) == (6, 3)
    desk.send(b"1")
    desk.serve_to_end()
    assert (desk.count(desk.output), desk.count(desk.letters)) == (6, 4)


def test_a_changelog_made_anew_is_refused_and_the_mend_mends(desk: Desk) -> None:
    desk.create()
    desk.send(b"1", b"2", b"3")
    desk.serve_to_end()
    desk.delete(desk.changelog)
    create_topic(desk.client, desk.changelog, 1, {"cleanup.policy": "compact"})
    said = desk.refusal()
    assert "was deleted and made anew" in said
    assert "delete the group's offsets and set service.on_reset_offset" in said
    desk.forget_group()
    desk.serve_to_end(service='on_reset_offset = "keep_state"')
    assert (desk.count(desk.output), desk.count(desk.letters)) == (6, 0)
