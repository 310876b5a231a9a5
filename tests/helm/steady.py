"""Steady: a load that does not stop for anything, and how long each partition stood still in it.

A pause is the time between two fates of one input partition that came one after the other, as a
consumer of outputs and dead letters sees them.
"""

import time
from itertools import pairwise
from typing import Final, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from tests.broker.meanwhile import Meanwhile
from tests.broker.recorder import Recorder
from tests.broker.workload import PARTITIONS
from tests.broker.world import World

TICK_S: Final = 0.1


class Load(Meanwhile):
    """Sends a world's records at a rate, on a thread of its own, from entering to leaving."""

    def __init__(self, world: World, recorder: Recorder, records_per_s: int) -> None:
        super().__init__(self._send)
        self._world = world
        self._recorder = recorder
        self._count = round(records_per_s * TICK_S)

    def _send(self) -> None:
        while not self._ends.is_set():
            next_s = time.monotonic() + TICK_S
            self._world.send(self._count, self._recorder.note)
            self._ends.wait(max(0.0, next_s - time.monotonic()))


class Pause(NamedTuple):
    """How long a partition brought nothing."""

    seconds: float
    partition: int

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s (partition {self.partition})"


class Pauses(Meanwhile):
    """Reads a world's outputs and dead letters as they come, on a thread; a context manager."""

    def __init__(self, world: World) -> None:
        super().__init__(self._read)
        self._times_s: dict[int, list[float]] = {number: [] for number in range(PARTITIONS)}
        settings = {"group.id": "nobody", "enable.auto.commit": False}
        levels = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**world.client, **settings, **levels})
        topics = (world.output, world.letters)
        self._consumer.assign([TopicPartition(t, n, 0) for t in topics for n in range(PARTITIONS)])

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._consumer.close()

    def longest(self, since_s: float) -> Pause:
        """The longest of any partition from then to now."""
        now_s, found = time.monotonic(), []
        for partition, all_s in self._times_s.items():
            times_s = [since_s, *(at_s for at_s in all_s if at_s > since_s), now_s]
            gaps_s = [after_s - at_s for at_s, after_s in pairwise(times_s)]
            found.append(Pause(max(gaps_s), partition))
        return max(found)

    def _read(self) -> None:
        while not self._ends.is_set():
            messages, now_s = self._consumer.consume(1000, 0.05), time.monotonic()
            for number in {message.partition() or 0 for message in messages}:
                self._times_s[number].append(now_s)
