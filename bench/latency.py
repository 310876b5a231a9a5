"""Latency from `produce` to a read_committed consumer of the output, at a steady rate."""

import math
import struct
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.arms import Arm, running
from bench.venue import Venue
from ringfence_client.headers import DUPLICATE_ID

PARTITIONS: Final = 4
_STAMP: Final = struct.Struct("<q")
_WARM_UP_S: Final = 4.0
_TICK_S: Final = 0.001


class Latency(NamedTuple):
    """Milliseconds from produce to visibility, and the number of measured records."""

    p50: float
    p99: float
    p99_9: float
    records: int


def latency(
    venue: Venue, arm: Arm, rate: int, duration_s: float, scope: str = "partition"
) -> Latency:
    """Measure one arm at `rate` records per second; its first seconds do not count."""
    source = f"steady-{uuid.uuid4().hex[:8]}"
    venue.create(source, PARTITIONS)
    staged = venue.stage(arm, source, PARTITIONS, scope=scope)
    with staged as stage, running(arm, stage) as one:
        reader = Reader(venue, stage.output)
        reader.start()
        send(venue, source, rate, _WARM_UP_S + duration_s, one.check)
        reader.stop()
    return reader.summary()


def send(
    venue: Venue,
    topic: str,
    rate: int,
    duration_s: float,
    check: Callable[[], None],
    prefix: bytes = b"",
) -> None:
    """Send at the mean rate, whatever the ticks take; every tenth record repeats the id before.

    Ids begin with `prefix`: those of another call with the same one are duplicates.
    """
    producer = Producer({**venue.client, "linger.ms": 0})
    started_s, sent, value = time.monotonic(), 0, bytes(192)
    while (now_s := time.monotonic()) - started_s < duration_s:
        while sent < (now_s - started_s) * rate:
            number = sent - 1 if sent % 10 == 9 else sent
            producer.produce(
                topic,
                _STAMP.pack(time.monotonic_ns()) + value,
                key=b"%d" % number,
                partition=number % PARTITIONS,
                headers=[(DUPLICATE_ID, b"%s%036d" % (prefix, number))],
            )
            sent += 1
        producer.poll(0)
        check()
        time.sleep(_TICK_S)
    producer.flush(10)


class Seen(NamedTuple):
    """A record that has become visible."""

    partition: int
    at_s: float
    age_ms: float

    @property
    def sent_s(self) -> float:
        """When it was sent."""
        return self.at_s - self.age_ms / 1000


class Reader(threading.Thread):
    """Reads the output as a downstream consumer would, and notes the age of each record."""

    def __init__(self, venue: Venue, topic: str) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                **venue.client,
                "group.id": "latency",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self.seen: list[Seen] = []
        self._is_over = threading.Event()

    def run(self) -> None:
        """Read until `stop` is called."""
        while not self._is_over.is_set():
            message = self._consumer.poll(0.1)
            value = (message.value() or b"") if message is not None else b""
            if message is not None and message.error() is None and len(value) > _STAMP.size:
                (sent_ns,) = _STAMP.unpack_from(value)
                now_ns = time.monotonic_ns()
                age_ms = (now_ns - sent_ns) / 1e6
                self.seen.append(Seen(message.partition() or 0, now_ns / 1e9, age_ms))
        self._consumer.close()

    def stop(self) -> None:
        """Wait for records in transit, then stop."""
        time.sleep(1)
        self._is_over.set()
        self.join(timeout=10)

    def summary(self) -> Latency:
        """Return the percentiles of the ages after the warm-up."""
        if not self.seen:
            raise RuntimeError("nothing came out")
        first_s = self.seen[0].at_s + _WARM_UP_S
        ages_ms = sorted(each.age_ms for each in self.seen if each.at_s > first_s)
        p50, p99, p99_9 = (percentile(ages_ms, share) for share in (0.5, 0.99, 0.999))
        return Latency(p50, p99, p99_9, len(ages_ms))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the least of the ordered values that at least `share` of them do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
