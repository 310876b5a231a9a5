"""Progress: how far an arm has come, seen from outside by the offsets that its group commits."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

POLL_S = 0.02
STALL_S = 120.0


class Point(NamedTuple):
    """So many records were done at this moment."""

    at_s: float
    records: int


class Pace(NamedTuple):
    """How fast an arm was: over the whole run, and over its second half, when it is warm."""

    whole: float
    second_half: float


def follow(
    client: Mapping[str, str | int | float | bool],
    group: str,
    topic: str,
    partitions: int,
    total: int,
    check: Callable[[], None],
) -> Iterator[Point]:
    """Each point when it is seen, until so many are committed; `check` raises when the arm died."""
    # Not the admin client: librdkafka 2.16 crashes when its answer is that the coordinator moved.
    # And uncommitted, or an open transaction would keep the answer back.
    watcher = Consumer({**client, "group.id": group, "isolation.level": "read_uncommitted"})
    places = [TopicPartition(topic, number) for number in range(partitions)]
    last = Point(time.monotonic(), 0)
    try:
        while last.records < total:
            check()
            done = _committed(watcher, places)
            now_s = time.monotonic()
            if done > last.records:
                last = Point(now_s, done)
                yield last
            elif now_s - last.at_s > STALL_S:
                raise TimeoutError(f"{group} did not move for {STALL_S:.0f} s, at {last}")
            time.sleep(POLL_S)
    finally:
        watcher.close()


def pace(points: list[Point]) -> Pace:
    """Records a second; a run that is over in two commits has no second half to speak of."""
    return Pace(_rate(points[0], points[-1]), pace_from(points, points[-1].records / 2))


def pace_from(points: list[Point], records: float) -> float:
    """Records a second once so many were done."""
    return _rate(next(p for p in points if p.records >= records), points[-1])


def _rate(first: Point, last: Point) -> float:
    return (last.records - first.records) / max(last.at_s - first.at_s, 1e-9)


def _committed(watcher: Consumer, places: list[TopicPartition]) -> int:
    try:
        return sum(max(0, place.offset) for place in watcher.committed(places, timeout=5))
    except KafkaException:
        return 0
