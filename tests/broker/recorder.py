"""Recorder: a history as it happens, from producers' acknowledgements and readers beside them."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from tests.broker.meanwhile import Meanwhile
from tests.broker.reading import drained
from tests.broker.workload import MARK, PARTITIONS, Record, Seen, seen
from tests.broker.world import World
from tests.histories.history import History, Log, Polled, Sent

LAST: Final = "the last reader"


class Recorder(Meanwhile):
    """Readers of all that a world's records pass, each from the beginning; a context manager."""

    def __init__(self, world: World, readers: int = 2) -> None:
        super().__init__(*(partial(self._read, f"reader {number}") for number in range(readers)))
        self._world = world
        self._topics = (world.input, world.output, world.letters)
        self._sends: list[Sent] = []
        self._polls: list[Polled] = []  # appending is atomic, and each reader keeps its own order

    def note(self, place: TopicPartition | None, record: Record) -> None:
        """See `World.send`."""
        log = Log(self._world.input, place.partition if place else -1)
        self._sends.append(Sent("producer", log, _mark(record), place.offset if place else None))

    def history(self) -> History:
        """Everything so far, and all that lasts: to be called when nothing goes on any more."""
        lasting = [
            _polled(LAST, topic, each)
            for topic in self._topics
            for each in drained(self._world.client, topic, PARTITIONS)
        ]
        return History(
            sends=tuple(self._sends),
            polls=(*self._polls, *lasting),
            committed={Log(self._world.input, n): at for n, at in self._committed().items()},
            fates=frozenset({self._world.output, self._world.letters}),
            reads_all=LAST,
        )

    def _committed(self) -> Mapping[int, int]:
        consumer = Consumer({**self._world.client, "group.id": self._world.group})
        try:
            places = [TopicPartition(self._world.input, number) for number in range(PARTITIONS)]
            return {at.partition: at.offset for at in consumer.committed(places, timeout=30)}
        finally:
            consumer.close()

    def _read(self, name: str) -> None:
        consumer = Consumer(
            {
                **self._world.client,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(t, n, 0) for t in self._topics for n in range(PARTITIONS)])
        while not self._ends.is_set():
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    self._polls.append(_polled(name, message.topic() or "", seen(message)))
        consumer.close()


def _polled(reader: str, topic: str, each: Seen) -> Polled:
    return Polled(reader, Log(topic, each.partition), each.offset, _mark(each.record))


def _mark(record: Record) -> bytes:
    return dict(record.headers).get(MARK) or b""
