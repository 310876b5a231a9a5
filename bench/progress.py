"""Progress: how far an arm has come, seen from outside by the offsets that its group commits."""

import time
from collections.abc import Callable, Mapping
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
) -> list[Point]:
    """Watch until all is committed; `check` raises when the arm has died."""
    # Not the admin client: librdkafka 2.16 crashes when its answer is that the coordinator moved.
    # And uncommitted, or an open transaction would keep the answer back.
    watcher = Consumer({**client, "group.id": group, "isolation.level": "read_uncommitted"})
    places = [TopicPartition(topic, number) for number in range(partitions)]
    points: list[Point] = []
    moved_s = time.monotonic()
    while not points or points[-1].records < total:
        check()
        done = _committed(watcher, places)
        now_s = time.monotonic()
        if done and (not points or done > points[-1].records):
            points.append(Point(now_s, done))
            moved_s = now_s
        elif now_s - moved_s > STALL_S:
            raise TimeoutError(f"{group} did not move for {STALL_S:.0f} s, at {points[-1:]}")
        time.sleep(POLL_S)
    watcher.close()
    return points


def pace(points: list[Point]) -> Pace:
    """Records a second; a run that is over in two commits has no second half to speak of."""
    first, last = points[0], points[-1]
    middle = next(p for p in points if p.records >= last.records / 2)
    return Pace(_rate(first, last), _rate(middle, last))


def _rate(first: Point, last: Point) -> float:
    return (last.records - first.records) / max(last.at_s - first.at_s, 1e-9)


def _committed(watcher: Consumer, places: list[TopicPartition]) -> int:
    try:
        return sum(max(0, place.offset) for place in watcher.committed(places, timeout=5))
    except KafkaException:
        return 0
