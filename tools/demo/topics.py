"""Topics of a run: their names, their creation, their end offsets, and the service's progress.

Every request has a time limit, and a failure becomes a DemoError.
"""

import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tools.demo.errors import DemoError

PARTITIONS: Final = 4
REQUEST_TIMEOUT_S: Final = 30.0

TOPIC_CONFIG: Final = {
    "cleanup.policy": "delete",
    # The reader compares timestamps: the broker must keep those of the publisher.
    "message.timestamp.type": "CreateTime",
}
UNLIMITED_RETENTION: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""On an embedded broker: the tables may be read from its topics much later."""

QUIET: Final = {"log_level": 0}
"""Keeps clients from writing to the screen; failures are raised and reported."""


class Names(NamedTuple):
    """The topics and the group of one run."""

    input: str
    output: str
    dead_letter: str
    group_id: str

    @property
    def topics(self) -> tuple[str, str, str]:
        """All topics that the demo creates."""
        return self.input, self.output, self.dead_letter


def names_for(*, is_shared: bool) -> Names:
    """Return plain names for an embedded broker, and unique names per run on a shared one."""
    run = uuid.uuid4().hex[:8]
    topic = f"flights.{run}" if is_shared else "flights"
    group_id = f"ringfence-demo-{run}" if is_shared else "ringfence-demo"
    return Names(topic, f"{topic}.unique", f"{topic}.dlq", group_id)


class Topics:
    """Administers and observes the topics of one run."""

    def __init__(self, kafka: Mapping[str, str], names: Names) -> None:
        self.names = names
        self._admin = AdminClient({**kafka, **QUIET, "client.id": "ringfence-demo-admin"})
        # It joins no group. It reads uncommitted on purpose: otherwise an open transaction would
        # hide the true end of a topic and delay the request for committed offsets.
        self._observer = Consumer(
            {
                **kafka,
                **QUIET,
                "client.id": "ringfence-demo-observer",
                "group.id": names.group_id,
                "isolation.level": "read_uncommitted",
                "enable.auto.commit": False,
            }
        )

    def create(self, *, is_shared: bool) -> None:
        """Create the three topics; raise DemoError if one exists."""
        config = TOPIC_CONFIG if is_shared else {**TOPIC_CONFIG, **UNLIMITED_RETENTION}
        topics = [
            NewTopic(name, num_partitions=PARTITIONS, replication_factor=-1, config=config)
            for name in self.names.topics
        ]
        created = self._admin.create_topics(topics, request_timeout=REQUEST_TIMEOUT_S)
        for name, future in created.items():
            try:
                future.result(timeout=REQUEST_TIMEOUT_S)
            except (KafkaException, TimeoutError) as error:
                raise refused(f"did not create the topic {name}", error) from error

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the high watermark of each partition."""
        try:
            return {each.partition: self._end(each) for each in partitions_of(topic)}
        except KafkaException as error:
            raise refused(f"did not return the end offsets of {topic}", error) from error

    def undecided(self) -> int:
        """Return how many input messages the group has not committed yet."""
        try:
            partitions = partitions_of(self.names.input)
            committed = self._observer.committed(partitions, REQUEST_TIMEOUT_S)
            return sum(self._end(each) - max(0, each.offset) for each in committed)
        except KafkaException as error:
            raise refused(f"did not return the offsets of {self.names.group_id}", error) from error

    def _end(self, partition: TopicPartition) -> int:
        watermarks = self._observer.get_watermark_offsets(partition, timeout=REQUEST_TIMEOUT_S)
        if watermarks is None:
            raise DemoError(
                f"the broker did not return the end offset of {partition.topic}; look at its log"
            )
        return watermarks[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _failure: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._observer.close()


def partitions_of(topic: str) -> list[TopicPartition]:
    """Return all partitions of a topic."""
    return [TopicPartition(topic, partition) for partition in range(PARTITIONS)]


def refused(failure: str, error: Exception) -> DemoError:
    """Return the error of a failed request; `failure` continues the sentence "the broker …"."""
    cause = str(error) or type(error).__name__
    return DemoError(
        f"the broker {failure} within {REQUEST_TIMEOUT_S:.0f} s ({cause}); "
        "look at its log, then run the demo again"
    )
