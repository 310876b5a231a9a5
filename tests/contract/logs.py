"""The two logs that the suite in test_log.py runs on: a real Kafka, and the fake."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec  # where the types are exported
from confluent_kafka.cimpl import NewTopic  # where the types are exported

from ringfence_service.kafka.admin import KafkaClusterAdmin
from ringfence_service.kafka.client_log import ConsumerLog
from ringfence_service.kafka.clients import LIBRDKAFKA, PRODUCING
from tests.broker.topics import delete_topic
from tests.fakes.admin import FakeAdmin
from tests.fakes.consumer import FakeConsumer, OnCommit
from tests.fakes.delivery import FakeDelivery
from tests.fakes.log import FakeCluster
from tests.fakes.partition import Record
from tests.fakes.producer import FakeProducer
from tests.support.waiting import eventually

OnDoubt = Callable[[], None]
SESSION_MS = 6_000
NOTHING: Final[Mapping[str, str]] = {}
ROUNDS_MAX = 150
_CLOSE_S = 15.0


class FakeLog:
    """What the suite needs of a cluster, from the one in memory."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()

    def topic(
        self,
        partitions: int = 1,
        record_bytes_max: int = 1 << 20,
        settings: Mapping[str, str] = NOTHING,
    ) -> str:
        """Make a topic whose records, of 1970 as they are, stay; returns its name."""
        name = f"topic-{len(self.cluster.logs)}"
        policy = settings.get("cleanup.policy", "delete")
        self.cluster.create_topic(
            name,
            partitions,
            record_bytes_max=record_bytes_max,
            cleanup_policy=policy,
            settings=settings,
        )
        return name

    def now_ms(self) -> int:
        return self.cluster.now_ms

    def time_limits(self) -> list[str]:
        """Return the settings that limit the timestamps of a topic's records."""
        (topic,) = FakeAdmin(self.cluster).topics([self.topic()]).values()
        return list(topic.time_limits)

    def recreate(self, topic: str) -> None:
        """Delete a topic of one partition and create another one of its name."""
        self.cluster.create_topic(topic)

    def write(self, topic: str, values: list[bytes], partition: int = 0) -> None:
        for value in values:
            self.cluster.write(topic, partition, Record(None, value, None, 1))

    def producer(self, transactional_id: str, timeout_ms: int = 10_000) -> Producer:
        return cast("Producer", FakeProducer(self.cluster, transactional_id, timeout_ms))

    def delivery(self) -> Producer:
        return cast("Producer", FakeDelivery(self.cluster, 1))

    def consumer(
        self,
        group: str,
        instance: str | None = None,
        on_commit: OnCommit | None = None,
        on_doubt: OnDoubt | None = None,
    ) -> Consumer:
        logger = None if on_doubt is None else ConsumerLog({"log_level": 0}, on_doubt, LIBRDKAFKA)
        fake = FakeConsumer(self.cluster, group, instance, SESSION_MS, on_commit, logger)
        return cast("Consumer", fake)

    def end(self, topic: str, partition: int = 0) -> int:
        log = self.cluster.log(topic, partition)
        assert log is not None
        return log.end

    def wait(self, seconds: float) -> None:
        self.cluster.wait(seconds)


class RealLog:
    """The same from a real broker."""

    def __init__(self, client_properties: Mapping[str, str]) -> None:
        self._properties: dict[str, Any] = {
            **client_properties,
            "log_level": 0,
        }
        self._admin = AdminClient(self._properties)
        self._run = uuid.uuid4().hex[:8]
        self._consumers: list[Consumer] = []

    def topic(
        self,
        partitions: int = 1,
        record_bytes_max: int = 1 << 20,
        settings: Mapping[str, str] = NOTHING,
    ) -> str:
        """The replication is the broker's default."""
        name = f"log-{uuid.uuid4().hex[:12]}"
        self._create(name, partitions, record_bytes_max, settings)
        return name

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def time_limits(self) -> list[str]:
        name, cluster = self.topic(), KafkaClusterAdmin(lambda: self._admin)
        eventually(lambda: cluster.topics([name]))  # another broker may not know it yet
        return list(cluster.topics([name])[name].time_limits)

    def recreate(self, topic: str) -> None:
        delete_topic(self._properties, topic)
        for _ in range(ROUNDS_MAX):
            if topic not in self._admin.list_topics(timeout=10).topics:
                break
            time.sleep(0.02)  # noqa: TID251 - how often it looks
        self._create(topic, 1, 1 << 20)

    def _create(
        self,
        name: str,
        partitions: int,
        record_bytes_max: int,
        settings: Mapping[str, str] = NOTHING,
    ) -> None:
        limit = {"max.message.bytes": str(record_bytes_max), "retention.ms": "-1"}
        config = {**limit, **settings}
        new = NewTopic(name, partitions, -1, config=config)
        for future in self._admin.create_topics([new]).values():
            future.result(20)

    def write(self, topic: str, values: list[bytes], partition: int = 0) -> None:
        producer = Producer(self._properties)
        for value in values:
            producer.produce(topic, value, partition=partition, timestamp=1)
        assert producer.flush(10) == 0

    def producer(self, transactional_id: str, timeout_ms: int = 10_000) -> Producer:
        return Producer(
            {
                **self._properties,
                "transactional.id": f"{transactional_id}-{self._run}",
                "transaction.timeout.ms": timeout_ms,
                "retry.backoff.ms": PRODUCING["retry.backoff.ms"],
                "connections.max.idle.ms": PRODUCING["connections.max.idle.ms"],
            }
        )

    def delivery(self) -> Producer:
        return Producer(
            {
                **self._properties,
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "message.timeout.ms": 0,
                "delivery.report.only.error": True,
                "batch.num.messages": 1,
            }
        )

    def consumer(
        self,
        group: str,
        instance: str | None = None,
        on_commit: OnCommit | None = None,
        on_doubt: OnDoubt | None = None,
    ) -> Consumer:
        listening: dict[str, Any] = {}
        if on_doubt is not None:
            logger = ConsumerLog(self._properties, on_doubt, LIBRDKAFKA)
            listening = {**logger.properties, "logger": logger}
        static = {} if instance is None else {"group.instance.id": instance}
        answers = {} if on_commit is None else {"on_commit": on_commit}
        consumer = Consumer(
            {
                **self._properties,
                **static,
                **answers,
                **listening,
                "group.id": f"{group}-{self._run}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                "fetch.queue.backoff.ms": 10,
            }
        )
        self._consumers.append(consumer)
        return consumer

    def close(self) -> None:
        """Close every consumer: one that is garbage-collected unclosed can spin forever.

        A client that still has partitions may wait for itself when it is closed while its group
        rebalances, and the binding holds the interpreter's lock meanwhile, so no timeout ends it.
        It leaves the group first, and gives back its partitions.
        """
        while self._consumers:
            consumer = self._consumers.pop()
            with contextlib.suppress(KafkaException, RuntimeError):  # fenced, or closed already
                consumer.unsubscribe()
                for _ in range(3):
                    consumer.consume(1, 0.1)
            closing = threading.Thread(target=consumer.close, daemon=True)
            closing.start()
            closing.join(_CLOSE_S)

    def end(self, topic: str, partition: int = 0) -> int:
        place = Place(topic, partition)
        asked = self._admin.list_offsets({place: OffsetSpec.latest()})  # type: ignore[no-untyped-call]
        return int(asked[place].result(10).offset)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: TID251 - what the suite asks for


Log = FakeLog | RealLog


def until(happened: Callable[[], object], consumers: list[Consumer]) -> list[Message]:
    """Consume in turn until it happened; returns what was read meanwhile."""
    messages: list[Message] = []
    for _ in range(ROUNDS_MAX):
        if happened():
            return messages
        for consumer in consumers:
            messages += consumer.consume(100, 0.1)
    raise AssertionError(f"it did not happen in {ROUNDS_MAX} rounds")


def read(consumer: Consumer, topic: str, start: int, end: int) -> list[bytes | None]:
    """Read one partition from `start` until the position has reached `end`."""
    place = Place(topic, 0, start)
    consumer.assign([place])
    messages = until(lambda: consumer.position([place])[0].offset >= end, [consumer])
    assert all(message.error() is None for message in messages)
    return [message.value() for message in messages]
