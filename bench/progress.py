"""Progress of an arm, observed from outside by the offsets that its group commits."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

POLL_S = 0.02
STALL_S = 120.0


class Point(NamedTuple):
    """The number of records committed at a moment."""

    at_s: float
    records: int


class Pace(NamedTuple):
    """Records per second: over the whole run, and over its second half, when the arm is warm."""

    whole: float
    second_half: float
    cpu_us: float = 0.0
    """CPU time of the arm's processes for a record of the second half, in microseconds."""
    others_us: float = 0.0
    """The same of all other processes: the broker, and the benchmark that watches."""


class CpuTime(NamedTuple):
    """CPU seconds that were used up to a moment."""

    arm: float
    machine: float
    """Of all processes, the arm's included."""


def follow(
    client: Mapping[str, str | int | float | bool],
    group: str,
    topic: str,
    partitions: int,
    total: int,
    check: Callable[[], None],
) -> Generator[Point]:
    """Yield each change until `total` records are committed; `check` raises if the arm has died."""
    watcher = watcher_of(client, group)
    watched = [TopicPartition(topic, number) for number in range(partitions)]
    last = Point(time.monotonic(), 0)
    try:
        while last.records < total:
            check()
            done = committed(watcher, watched)
            now_s = time.monotonic()
            if done > last.records:
                last = Point(now_s, done)
                yield last
            elif now_s - last.at_s > STALL_S:
                raise TimeoutError(f"{group} did not move for {STALL_S:.0f} s, at {last}")
            time.sleep(POLL_S)
    finally:
        watcher.close()


def watcher_of(client: Mapping[str, str | int | float | bool], group: str) -> Consumer:
    """Return a client that asks for the offsets of a group without joining it."""
    # Not the admin client: librdkafka 2.16 crashes if the response is that the coordinator moved.
    # And read_uncommitted, since an open transaction would delay the response.
    return Consumer({**client, "group.id": group, "isolation.level": "read_uncommitted"})


def pace(points: list[Point], used: Sequence[CpuTime] = ()) -> Pace:
    """Return records per second; the second half means little in a run of few commits.

    The second half ends before the last commit if it has an earlier one: an arm that commits rarely
    may commit long after its last record. `used` has the CPU time of each point.
    """
    half = points[-1].records / 2
    first = next(number for number, each in enumerate(points) if each.records >= half)
    last = max(len(points) - 2, min(first + 1, len(points) - 1))
    rates = _rate(points[0], points[-1]), _rate(points[first], points[last])
    if not used:
        return Pace(*rates)
    arm_s, machine_s = (end - begin for begin, end in zip(used[first], used[last], strict=True))
    records = max(1, points[last].records - points[first].records)
    return Pace(*rates, arm_s * 1e6 / records, (machine_s - arm_s) * 1e6 / records)


def pace_from(points: list[Point], records: float) -> float:
    """Return records per second from the point at which `records` were committed."""
    return _rate(next(p for p in points if p.records >= records), points[-1])


def _rate(first: Point, last: Point) -> float:
    return (last.records - first.records) / max(last.at_s - first.at_s, 1e-9)


def committed(watcher: Consumer, partitions: list[TopicPartition]) -> int:
    """Return how many records are committed; 0 if the broker does not answer."""
    try:
        return sum(max(0, each.offset) for each in watcher.committed(partitions, timeout=5))
    except KafkaException:
        return 0
