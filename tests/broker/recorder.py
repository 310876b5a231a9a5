"""Recorder: a history as it happens, from producers' acknowledgements and readers beside them."""

from functools import partial
from typing import Final

from confluent_kafka import TopicPartition

from tests.broker.meanwhile import Meanwhile
from tests.broker.reading import committed, drained, follow
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
        world = self._world
        offsets = committed(world.client, world.group, world.input, PARTITIONS, limit_s=30)
        return History(
            sends=tuple(self._sends),
            polls=(*self._polls, *lasting),
            committed={Log(world.input, n): at for n, at in offsets.items()},
            fates=frozenset({world.output, world.letters}),
            reads_all=LAST,
        )

    def _read(self, name: str) -> None:
        places = [TopicPartition(t, n, 0) for t in self._topics for n in range(PARTITIONS)]
        for message in follow(self._world.client, places, self._ends):
            self._polls.append(_polled(name, message.topic() or "", seen(message)))


def _polled(reader: str, topic: str, each: Seen) -> Polled:
    return Polled(reader, Log(topic, each.partition), each.offset, _mark(each.record))


def _mark(record: Record) -> bytes:
    return dict(record.headers).get(MARK) or b""
