"""Flow: a process that writes a topic without an end, always some records ahead of a group.

The group has work all the time, so its rate is what it can do. The records are those of a workload
over and over; after each pass the ids are new again for rings that hold fewer.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Final

from confluent_kafka import Producer, TopicPartition

from bench.progress import committed, watcher_of
from bench.workload import FOR_BULK, Client, Workload, messages, produce

_PIECE: Final = 10_000
_PAUSE_S: Final = 0.05


@contextmanager
def flowing(
    workload: Workload, client: Client, topic: str, group: str, ahead: int
) -> Iterator[Callable[[], None]]:
    """Write while the block runs; yield a check that raises if the process has ended."""
    process = multiprocessing.get_context("spawn").Process(
        target=_flow, args=(workload, client, topic, group, ahead), daemon=True
    )
    process.start()

    def check() -> None:
        if not process.is_alive():
            raise RuntimeError(f"the writer of {topic} ended with {process.exitcode}")

    try:
        yield check
    finally:
        process.kill()
        process.join()


def _flow(workload: Workload, client: Client, topic: str, group: str, ahead: int) -> None:
    producer, watcher = Producer({**client, **FOR_BULK}), watcher_of(client, group)
    watched = [TopicPartition(topic, number) for number in range(workload.partitions)]
    endless = cycle(messages(workload))
    written = 0
    while True:
        room = ahead - (written - committed(watcher, watched))
        if room <= 0:
            time.sleep(_PAUSE_S)
            continue
        producer.poll(0)
        piece = min(room, _PIECE)
        produce(producer, workload, topic, islice(endless, piece))
        written += piece
