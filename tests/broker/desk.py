"""A group with one input for one test, the files and commands around it, and what was said."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions  # where the types are exported

from tests.broker.conftest import create_topic, done
from tests.broker.service import Service
from tests.waiting import eventually
from tools.broker.config import _free_port as free_port

SERVICE_ENDS_S = 120.0
"""A broker that does not answer is asked five times; each waits five seconds for it."""


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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for service in self.services:
            service.kill()

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

    def service(self, *, service: str = "", more: str = "") -> Service:
        """A service that has been started."""
        port = free_port(0)
        config = self.config(port, service=service, more=more)
        process = Service(config, port, self.folder / "service.log")
        process.start()
        self.services.append(process)
        return process

    def refusal(self, *, service: str = "") -> str:
        """What a service that ends by itself with exit 5 says."""
        process = self.service(service=service)
        assert process.wait(SERVICE_ENDS_S) == 5, process.tail()
        told = sentence(process.tail())
        process.log.unlink()
        return told

    def send(self, *ids: bytes) -> None:
        producer = KafkaProducer(self.client)
        for each in ids:
            producer.produce(self.input, value=b"v", headers=[("_DUPL_ID", each)])
        assert producer.flush(20) == 0

    def serve_to_end(self, *, service: str = "", more: str = "") -> None:
        """One service, until it has decided all that there is."""
        process = self.service(service=service, more=more)
        eventually(lambda: self.committed() == self.end(self.input), process)
        process.stop()

    def end(self, topic: str) -> int:
        return self._ask(lambda c: c.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)[1])

    def committed(self) -> int:
        place = TopicPartition(self.input, 0)
        try:
            return self._ask(lambda c: c.committed([place], timeout=5)[0].offset)
        except KafkaException:
            return -1  # a transaction is open, or the group has no coordinator yet

    def count_of_all(self, topic: str) -> int:
        """How many records of a topic are committed, on all of its partitions."""
        metadata = AdminClient({**self.client}).list_topics(topic, timeout=10).topics[topic]
        return sum(self.count(topic, number) for number in metadata.partitions)

    def count(self, topic: str, partition: int = 0) -> int:
        """How many records of a topic are committed; markers of transactions do not count."""

        def read(consumer: Consumer) -> int:
            place = TopicPartition(topic, partition, 0)
            end = consumer.get_watermark_offsets(place, timeout=5)[1]
            consumer.assign([place])
            found = 0

            def drained() -> bool:
                nonlocal found
                found += len(consumer.consume(1000, 0.1))
                return end == 0 or consumer.position([place])[0].offset >= end

            eventually(drained)
            return found

        return self._ask(read)

    def reset(self, offset: int, metadata: str = "") -> None:
        """As an operator would with Kafka's own tools, once the group has no members."""
        admin = AdminClient({**self.client})
        places = [TopicPartition(self.input, 0, offset, metadata)]
        place = ConsumerGroupTopicPartitions(self.group, places)

        def done() -> bool:
            try:
                answer = admin.alter_consumer_group_offsets([place])[self.group].result(10)
            except KafkaException:
                return False  # the last member is not forgotten yet
            return all(each.error is None for each in answer.topic_partitions)

        eventually(done)

    def forget_group(self) -> None:
        admin = AdminClient({**self.client})

        def done() -> bool:
            try:
                admin.delete_consumer_groups([self.group])[self.group].result(10)
            except KafkaException:
                return False
            return True

        eventually(done)

    def delete(self, topic: str) -> None:
        admin = AdminClient({**self.client})
        admin.delete_topics([topic])[topic].result(30)
        eventually(lambda: topic not in admin.list_topics(timeout=10).topics)

    def truncate(self, topic: str, below: int) -> None:
        """Delete the first records of a topic."""
        place = TopicPartition(topic, 0, below)
        admin = AdminClient({**self.client})
        admin.delete_records([place])[place].result(30)

    def grow(self, topic: str, partitions: int) -> None:
        admin = AdminClient({**self.client})
        done(lambda: admin.create_partitions([NewPartitions(topic, partitions)])[topic])

    def _ask(self, question: Callable[[Consumer], int]) -> int:
        consumer = Consumer({**self.client, "group.id": self.group, "enable.auto.commit": False})
        try:
            return question(consumer)
        finally:
            consumer.close()


def sentence(log: str) -> str:
    """The one sentence that is not a log line; a traceback would make it more than one."""
    told = [line for line in log.splitlines() if line.startswith("ringfence: ")]
    assert len(told) == 1, log
    assert "Traceback" not in log, log
    return told[0]
