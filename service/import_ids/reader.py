"""Topic reader: reads a live topic between two positions once, in the order of the timestamps.

A ring evicts by order, so the order across the partitions of a topic matters; within a partition
it is the order of the offsets. Reading ends where the topic ended when it began.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from service.errors import ExitCode, ExitError
from state.model import PartitionId

_AT_ONCE: Final = 2_000
_POLL_S: Final = 0.2
_QUEUED_MAX: Final = 10_000
"""Of one partition; while others are behind, no more of it is fetched."""
_PATIENCE_S: Final = 60.0


class OffsetRange(NamedTuple):
    """From an offset up to, not including, another."""

    start: int
    end: int


class _PartitionReader:
    """One partition that is read."""

    def __init__(self, source: PartitionId, span: OffsetRange) -> None:
        self.place = TopicPartition(source.topic, source.partition)
        self.end = span.end
        self.queue: deque[Message] = deque()
        self.is_over = span.start >= span.end
        self.is_paused = False


class TopicReader:
    """Records of several partitions as one stream."""

    def __init__(
        self,
        consumer: Consumer,
        spans: Mapping[PartitionId, OffsetRange],
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._consumer = consumer
        self._patience_s = patience_s
        self._lanes = {source: _PartitionReader(source, span) for source, span in spans.items()}
        consumer.assign(
            [
                TopicPartition(source.topic, source.partition, span.start)
                for source, span in spans.items()
                if not self._lanes[source].is_over
            ]
        )

    def __iter__(self) -> Iterator[Message]:
        """The records, the earliest first; ExitError when nothing comes any more."""
        lanes, heard_s = self._lanes, time.monotonic()
        while True:
            while all(lane.queue or lane.is_over for lane in lanes.values()):
                queues = [lane.queue for lane in lanes.values() if lane.queue]
                if not queues:
                    return
                yield min(queues, key=lambda queue: queue[0].timestamp()[1]).popleft()
            if self._fetch():
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > self._patience_s:
                raise self._stalled()

    def _fetch(self) -> bool:
        """Read on; whether anything has come, or an end was reached."""
        self._hold_back()
        messages = self._consumer.consume(_AT_ONCE, _POLL_S)
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            lane = self._lanes[PartitionId(message.topic() or "", message.partition() or 0)]
            if (message.offset() or 0) < lane.end:
                lane.queue.append(message)
        reached = [lane for lane in self._lanes.values() if not lane.is_over]
        for place in self._consumer.position([lane.place for lane in reached]):
            lane = self._lanes[PartitionId(place.topic, place.partition)]
            lane.is_over = place.offset >= lane.end
        ended = [lane.place for lane in reached if lane.is_over]
        if ended:
            self._consumer.incremental_unassign(ended)
        return bool(messages or ended)

    def _hold_back(self) -> None:
        """Fetch no more of what has run ahead."""
        for lane in self._lanes.values():
            is_full = len(lane.queue) >= _QUEUED_MAX
            if is_full == lane.is_paused or lane.is_over:
                continue
            (self._consumer.pause if is_full else self._consumer.resume)([lane.place])
            lane.is_paused = is_full

    def _stalled(self) -> ExitError:
        open_ = [lane.place for lane in self._lanes.values() if not lane.is_over]
        names = ", ".join(f"{place.topic}-{place.partition}" for place in open_[:5])
        sentence = (
            f"Nothing was read of {names} for {self._patience_s:g} s; see whether the broker is "
            "well and a retention deletes it meanwhile, and adopt again."
        )
        return ExitError(ExitCode.BROKER, sentence)
