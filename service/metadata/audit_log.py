"""Audit log: the audit entries on the metadata topic, written by any instance and read by all.

An entry is written by a plain producer and acknowledged by all replicas, which takes a few
milliseconds. The transactional writer of settings would fence the writers of other instances, and
entries need no compare-and-set, since no other instance has their key. The writer deletes the
oldest entries when there are too many.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from service.clock import Clock
from service.metadata.audit import AuditHistory, AuditPage, AuditQuery, AuditRecord, removal
from service.metadata.record import MetadataRecord
from service.queries.errors import Unavailable
from state.model import PartitionId

_PATIENCE_S: Final = 5.0
_POLL_S: Final = 0.01
SURPLUS_MIN: Final = 100
"""So many too many are taken away at once."""
_AT_ONCE_MAX: Final = 1_000


class AuditTopic:
    """Writes records, and holds what was written. Safe on any thread."""

    def __init__(
        self,
        producer: Callable[[], Producer],
        topic: str,
        clock: Clock,
        records_max: int,
        is_level: Callable[[], bool],
    ) -> None:
        """`is_level` tells whether all that is written was taken."""
        self._make_producer = producer
        self._producer: Producer | None = None
        self._place = PartitionId(topic, 0)
        self._clock = clock
        self._records_max = records_max
        self._is_level = is_level
        self._trail = AuditHistory()
        self._lock = threading.Lock()

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """One record of the topic."""
        with self._lock:
            self._trail.take(key, value)

    def write(self, record: AuditRecord) -> None:
        """Write a record, and return when no broker can lose it; else Unavailable."""
        written = record.written
        self._send([written])
        self.take(*written)
        with contextlib.suppress(Unavailable):  # it is tried again with the next record
            self._take_away()

    def page(self, query: AuditQuery, size: int, before: str | None) -> AuditPage:
        """Records below an id, the newest first."""
        with self._lock:
            return self._trail.page(query, size, before)._replace(complete=self._is_level())

    def _send(self, records: Sequence[MetadataRecord]) -> None:
        try:
            self._deliver(records)
        except Unavailable:
            with self._lock:
                self._producer = None  # it may have lost its brokers; another finds them
            raise

    def _deliver(self, records: Sequence[MetadataRecord]) -> None:
        outcomes: list[KafkaError | None] = []

        def note(error: KafkaError | None, _message: Message) -> None:
            outcomes.append(error)

        try:
            producer = self._ready()
            for key, value in records:
                producer.produce(
                    self._place.topic,
                    value=value,
                    key=key,
                    partition=self._place.partition,
                    on_delivery=note,
                )
        except (KafkaException, BufferError) as error:
            raise _unavailable(str(error)) from error
        deadline_s = self._clock.monotonic_s() + _PATIENCE_S
        while len(outcomes) < len(records):
            if self._clock.monotonic_s() > deadline_s:
                raise _unavailable("it did not answer in time")
            producer.poll(_POLL_S)
        for failed in filter(None, outcomes):
            raise _unavailable(failed.str())

    def _ready(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = self._make_producer()
            return self._producer

    def _take_away(self) -> None:
        """What is too old. Only who writes does, so that of many few try; twice is no harm."""
        if not self._is_level():
            return
        with self._lock:
            surplus = len(self._trail) - self._records_max
            if surplus < SURPLUS_MIN:
                return
            oldest = self._trail.oldest(min(surplus, _AT_ONCE_MAX))
        removals = [removal(each) for each in oldest]
        self._send(removals)
        for each in removals:
            self.take(*each)


def _unavailable(reason: str) -> Unavailable:
    sentence = f"The change was not begun: its audit record cannot be written ({reason}); ask again"
    return Unavailable(f"{sentence} when the broker takes it.")
