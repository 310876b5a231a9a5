"""A group with one input for one test, the files and commands around it, and what was said."""

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions  # where the types are exported

from tests.broker.reading import committed, drained, ends
from tests.broker.service import Service, Stage, configuration
from tests.broker.topics import create_topic, delete_topic, done
from tests.support.waiting import eventually

SERVICE_ENDS_S = 120.0
"""A broker that does not answer is asked five times; each waits five seconds for it."""


class Desk(Stage):
    """A group with one input, and the files and commands around it."""

    def __init__(self, client: Mapping[str, str], folder: Path, group: str) -> None:
        super().__init__(client, folder, group)
        self.input = f"{group}-in"
        self.output, self.letters = f"{self.input}.unique", f"{self.input}.dlq"
        self.changelog = f"{group}.changelog.{self.input}"

    def create(self, *topics: str, partitions: int = 1) -> None:
        for topic in topics or (self.input, self.output, self.letters):
            create_topic(self.client, topic, partitions)

    def config(self, *, service: str = "", kafka: str = "", more: str = "") -> Path:
        """The file of a configuration that is good, and of what makes it otherwise."""
        path = self.folder / "ringfence.toml"
        path.write_text(self._text(0, service, kafka, more), encoding="utf-8")
        return path

    def _text(self, port: int, service: str, kafka: str, more: str) -> str:
        return configuration(
            self.client,
            self.group,
            self.folder / "state",
            port,
            kafka=kafka,
            service=service,
            rest=f'[[routes]]\ninputs = ["{self.input}"]\nscope = "partition"\n{more}',
        )

    def service(self, *, service: str = "", more: str = "") -> Service:
        """A service that has been started."""
        process = self.written("service", lambda port: self._text(port, service, "", more))
        process.start()
        return process

    def refusal(self, *, service: str = "") -> str:
        """What a service that ends by itself with exit 5 says."""
        process = self.service(service=service)
        code = process.wait(SERVICE_ENDS_S)
        assert code == 5, f"it ended with {code}\n{process.tail()}"
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
        return ends(self.client, topic, "read_uncommitted")[0]

    def committed(self) -> int:
        try:
            return committed(self.client, self.group, self.input, 1)[0]
        except KafkaException:
            return -1  # a transaction is open, or the group has no coordinator yet

    def count(self, topic: str) -> int:
        """How many records of a topic are committed; markers of transactions do not count."""
        return len(drained(self.client, topic, 1))

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
        delete_topic(self.client, topic)
        admin = AdminClient({**self.client})
        eventually(lambda: topic not in admin.list_topics(timeout=10).topics)

    def truncate(self, topic: str, below: int) -> None:
        """Delete the first records of a topic."""
        place = TopicPartition(topic, 0, below)
        admin = AdminClient({**self.client})
        admin.delete_records([place])[place].result(30)

    def grow(self, topic: str, partitions: int) -> None:
        admin = AdminClient({**self.client})
        done(lambda: admin.create_partitions([NewPartitions(topic, partitions)])[topic])


def sentence(log: str) -> str:
    """The one sentence that is not a log line; a traceback would make it more than one."""
    told = [line for line in log.splitlines() if line.startswith("ringfence: ")]
    assert len(told) == 1, log
    assert "Traceback" not in log, log
    return told[0]
