"""The topics of a run: their names, their making, where they end, how far the service is.

Every request has a limit, and a refusal becomes one sentence for the user.
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
KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""On a broker of our own: the tables are read from its topics however much later."""

QUIET: Final = {"log_level": 0}
"""Clients do not write between the lines of the screen; what fails is raised and told."""


class Names(NamedTuple):
    """The topics and the group of one run."""

    input: str
    output: str
    dead_letter: str
    group_id: str

    @property
    def topics(self) -> tuple[str, str, str]:
        """All topics that the demo makes."""
        return self.input, self.output, self.dead_letter


def names_for(*, is_shared: bool) -> Names:
    """Plain names on a broker that is ours alone; on a shared one each run has its own."""
    run = uuid.uuid4().hex[:8]
    topic = f"flights.{run}" if is_shared else "flights"
    group_id = f"ringfence-demo-{run}" if is_shared else "ringfence-demo"
    return Names(topic, f"{topic}.unique", f"{topic}.dlq", group_id)


class Topics:
    """The administrator's view of one run on the broker."""

    def __init__(self, kafka: Mapping[str, str], names: Names) -> None:
        self.names = names
        self._admin = AdminClient({**kafka, **QUIET, "client.id": "ringfence-demo-admin"})
        # It joins no group. It reads uncommitted on purpose: else an open transaction would hide
        # the true end of a topic and hold up the answer to "how far is the group?".
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
        """Make the three topics; all must be new."""
        config = TOPIC_CONFIG if is_shared else {**TOPIC_CONFIG, **KEPT_FOR_EVER}
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
        """The high watermark per partition: nothing that was written lies behind it."""
        try:
            return {place.partition: self._end(place) for place in places(topic)}
        except KafkaException as error:
            raise refused(f"did not tell where {topic} ends", error) from error

    def undecided(self) -> int:
        """How many input messages the group has not committed yet."""
        try:
            committed = self._observer.committed(places(self.names.input), REQUEST_TIMEOUT_S)
            return sum(self._end(place) - max(0, place.offset) for place in committed)
        except KafkaException as error:
            raise refused(f"did not tell how far {self.names.group_id} is", error) from error

    def _end(self, place: TopicPartition) -> int:
        answer = self._observer.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S)
        if answer is None:
            raise DemoError(f"the broker did not tell where {place.topic} ends; look at its log")
        return answer[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _failure: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._observer.close()


def places(topic: str) -> list[TopicPartition]:
    """All partitions of a topic."""
    return [TopicPartition(topic, partition) for partition in range(PARTITIONS)]


def refused(what: str, error: Exception) -> DemoError:
    """A failed request as a sentence."""
    why = str(error) or type(error).__name__
    return DemoError(
        f"the broker {what} within {REQUEST_TIMEOUT_S:.0f} s ({why}); "
        "look at its log, then run the demo again"
    )
