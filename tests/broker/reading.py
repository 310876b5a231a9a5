"""Reading: all that a topic holds, and whether a transaction is still open on it."""

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.workload import Seen, seen

READ_S = 300.0


def drained(client: Mapping[str, str], topic: str, partitions: int) -> list[Seen]:
    """All that a read_committed consumer is given of a topic."""
    return list(map(seen, messages(client, topic, partitions)))


def messages(
    client: Mapping[str, str], topic: str, partitions: int | None = None
) -> Iterator[Message]:
    """The same as it comes, of all partitions by default."""
    consumer = _reader(client, "read_committed")
    try:
        ends = _watermarks(consumer, topic, partitions or width(client, topic))
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        told: list[str] = []
        deadline = time.monotonic() + READ_S
        while any(
            place.offset < ends[place.partition]
            for place in consumer.position([TopicPartition(topic, n) for n, e in ends.items() if e])
        ):
            assert time.monotonic() < deadline, f"{topic} is not read within {READ_S} s: {told}"
            for message in consumer.consume(5000, 0.1):
                if message.error() is None:
                    yield message
                else:  # what passes by itself is no loss
                    told.append(str(message.error()))
    finally:
        consumer.close()


def still_open(client: Mapping[str, str], topic: str) -> bool:
    """Whether some transaction on a topic has not ended."""
    return ends(client, topic, "read_committed") != ends(client, topic, "read_uncommitted")


def _reader(client: Mapping[str, str], level: str) -> Consumer:
    return Consumer(
        {
            **client,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": level,
            "fetch.wait.max.ms": 50,
        }
    )


def _watermarks(consumer: Consumer, topic: str, partitions: int) -> dict[int, int]:
    """The ends that the reader can reach: the last stable offsets for read_committed."""
    return {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=READ_S)[1]
        for number in range(partitions)
    }


def ends(client: Mapping[str, str], topic: str, level: str) -> dict[int, int]:
    """Where each partition of a topic ends: for read_committed at the last stable offset."""
    consumer = _reader(client, level)
    try:
        return _watermarks(consumer, topic, width(client, topic))
    finally:
        consumer.close()


def width(client: Mapping[str, str], topic: str) -> int:
    """How many partitions a topic has."""
    return len(AdminClient(dict(client)).list_topics(topic).topics[topic].partitions)
