"""Reading: all that a topic holds, how far a group is, and whether a transaction is still open."""

import time
from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import Any

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


def follow(
    client: Mapping[str, str], places: Sequence[TopicPartition], over: Event
) -> Iterator[Message]:
    """What is committed from these places on, as it comes, until it is over."""
    # A broker that stands still never says that its partitions have other leaders by now.
    patience = {"reconnect.backoff.max.ms": 100, "topic.metadata.refresh.interval.ms": 2_000}
    quick = {**patience, "socket.timeout.ms": 10_000, "log_level": 0}
    consumer = _reader({**client, **quick}, "read_committed", "earliest")
    consumer.assign(list(places))
    while not over.is_set():
        for message in consumer.consume(5000, 0.1):
            if message.error() is None:
                yield message
    consumer.close()


def committed(
    client: Mapping[str, str], group: str, topic: str, partitions: int, limit_s: float = 2.0
) -> dict[int, int]:
    """How far a group is by its offsets; KafkaException while a transaction is open."""
    consumer = Consumer({**client, "group.id": group, "socket.timeout.ms": 10_000})
    try:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        found = consumer.committed(places, timeout=limit_s)
        return {place.partition: max(0, place.offset) for place in found}
    finally:
        consumer.close()


def still_open(client: Mapping[str, str], topic: str) -> bool:
    """Whether some transaction on a topic has not ended."""
    return ends(client, topic, "read_committed") != ends(client, topic, "read_uncommitted")


def _reader(client: Mapping[str, Any], level: str, reset: str = "error") -> Consumer:
    return Consumer(
        {
            **client,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
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
