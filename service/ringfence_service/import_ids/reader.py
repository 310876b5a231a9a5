"""Topic reader: reads a live topic between two positions once, in the order of the timestamps.

A ring evicts in order of arrival, so the order across the partitions of a topic matters; within a
partition it is that of the offsets. Reading stops at the end offsets of the time when it started.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.io import BoundedReads, memory_bytes
from ringfence_state.model import PartitionId

_AT_ONCE: Final = 2_000
"""Records of one read, if they are small: `BoundedReads` limits large ones by their bytes."""
_POLL_S: Final = 0.2
"""How long one read waits: then ends are noticed, and partitions paused or resumed."""
_QUEUED_MAX: Final = 10_000
"""Maximum queue of one partition; it is paused while other partitions are behind."""
_QUEUED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Limit of all queues together, of which each has an equal share: a record may have a megabyte."""
_PATIENCE_S: Final = 60.0
"""How long nothing may arrive before the import fails; its user waits.

A broker that restarts must not end the import.
"""


class OffsetRange(NamedTuple):
    """Offsets from `start` up to, but not including, `end`."""

    start: int
    end: int


class _PartitionReader:
    """Read state of one partition."""

    def __init__(self, source: PartitionId, span: OffsetRange) -> None:
        self.partition = TopicPartition(source.topic, source.partition)
        self.end = span.end
        self.queue: deque[Message] = deque()
        self.queued_bytes = 0
        self.is_over = span.start >= span.end
        self.is_paused = False

    def add(self, message: Message) -> None:
        """Queue the next record."""
        self.queue.append(message)
        self.queued_bytes += memory_bytes(message)

    def take(self) -> Message:
        """Return the first record of the queue, and remove it."""
        message = self.queue.popleft()
        self.queued_bytes -= memory_bytes(message)
        return message


class TopicReader:
    """Merges the records of several partitions into one stream."""

    def __init__(
        self,
        consumer: Consumer,
        spans: Mapping[PartitionId, OffsetRange],
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._consumer = consumer
        self._patience_s = patience_s
        self._readers = {source: _PartitionReader(source, span) for source, span in spans.items()}
        self._reads = BoundedReads(_AT_ONCE)
        consumer.assign(
            [
                TopicPartition(source.topic, source.partition, span.start)
                for source, span in spans.items()
                if not self._readers[source].is_over
            ]
        )

    def __iter__(self) -> Iterator[Message]:
        """Yield the records, the earliest first; raise ExitError if no more arrive in time."""
        readers, progress_s = self._readers, time.monotonic()
        while True:
            while all(reader.queue or reader.is_over for reader in readers.values()):
                waiting = [reader for reader in readers.values() if reader.queue]
                if not waiting:
                    return
                yield min(waiting, key=lambda reader: reader.queue[0].timestamp()[1]).take()
            if self._fetch():
                progress_s = time.monotonic()
            elif time.monotonic() - progress_s > self._patience_s:
                raise self._stalled()

    def _fetch(self) -> bool:
        """Fetch more records; return whether any arrived or a partition's end was reached."""
        self._pause_or_resume()
        messages = self._reads.consume(self._consumer, _POLL_S)
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            reader = self._readers[PartitionId(message.topic() or "", message.partition() or 0)]
            if (message.offset() or 0) < reader.end:
                reader.add(message)
        open_ = [reader for reader in self._readers.values() if not reader.is_over]
        for position in self._consumer.position([reader.partition for reader in open_]):
            reader = self._readers[PartitionId(position.topic, position.partition)]
            reader.is_over = position.offset >= reader.end
        ended = [reader.partition for reader in open_ if reader.is_over]
        if ended:
            self._consumer.incremental_unassign(ended)
        return bool(messages or ended)

    def _pause_or_resume(self) -> None:
        """Pause partitions with a full queue, and resume them when it is not full any more."""
        share_bytes = _QUEUED_BYTES_MAX // len(self._readers)
        for reader in self._readers.values():
            is_full = len(reader.queue) >= _QUEUED_MAX or reader.queued_bytes >= share_bytes
            if is_full == reader.is_paused or reader.is_over:
                continue
            (self._consumer.pause if is_full else self._consumer.resume)([reader.partition])
            reader.is_paused = is_full

    def _stalled(self) -> ExitError:
        open_ = [reader.partition for reader in self._readers.values() if not reader.is_over]
        names = ", ".join(f"{each.topic}-{each.partition}" for each in open_[:5])
        sentence = (
            f"No record of {names} arrived for {self._patience_s:g} s; check the broker, and "
            "whether retention deletes records in the meantime, then adopt again."
        )
        return ExitError(ExitCode.BROKER, sentence)
