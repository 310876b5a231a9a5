"""Audit log: the audit entries on the metadata topic, written by any instance and read by all.

An entry is written by a plain producer and acknowledged by all replicas, which takes a few
milliseconds. The transactional writer of settings would fence the writers of other instances, and
entries need no compare-and-set, since no other instance uses their keys. The writer also deletes
the oldest entries once there are too many.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ringfence_service.clock import Clock
from ringfence_service.metadata.audit import (
    AuditHistory,
    AuditPage,
    AuditQuery,
    AuditRecord,
    removal,
)
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.queries.errors import Unavailable
from ringfence_state.model import PartitionId

_PATIENCE_S: Final = 5.0
"""How long a change waits for its audit entry; without the entry it is not made.

More than the producer's `message.timeout.ms` (4 s), so the client reports the cause before.
"""
_POLL_S: Final = 0.01
"""How long one poll waits: a delivery report ends it, and the deadline is checked between two."""
SURPLUS_MIN: Final = 100
"""Entries beyond the limit are deleted only once there are this many of them."""
_AT_ONCE_MAX: Final = 1_000
"""Most entries that one change deletes, for which its caller waits.

More than `SURPLUS_MIN`; a lower limit of entries is reached over several changes.
"""


class AuditTopic:
    """Writes audit entries and keeps those of all instances in memory. Safe on any thread."""

    def __init__(
        self,
        producer: Callable[[], Producer],
        topic: str,
        clock: Clock,
        records_max: int,
        has_caught_up: Callable[[], bool],
    ) -> None:
        """`has_caught_up` returns whether the topic was read to its end."""
        self._make_producer = producer
        self._producer: Producer | None = None
        self._partition = PartitionId(topic, 0)
        self._clock = clock
        self._records_max = records_max
        self._has_caught_up = has_caught_up
        self._history = AuditHistory()
        self._lock = threading.Lock()

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the topic."""
        with self._lock:
            self._history.take(key, value)

    def write(self, record: AuditRecord) -> None:
        """Write an entry and wait until all replicas have it; Unavailable if that fails."""
        written = record.record
        self._send([written])
        self.take(*written)
        with contextlib.suppress(Unavailable):  # tried again with the next entry
            self._delete_oldest()

    def page(self, query: AuditQuery, size: int, before: str | None) -> AuditPage:
        """Return up to `size` matching entries with ids below `before`, the newest first."""
        with self._lock:
            return self._history.page(query, size, before)._replace(complete=self._has_caught_up())

    def _send(self, records: Sequence[MetadataRecord]) -> None:
        try:
            self._deliver(records)
        except Unavailable:
            with self._lock:
                self._producer = None  # it may have lost all brokers; a new one finds them
            raise

    def _deliver(self, records: Sequence[MetadataRecord]) -> None:
        outcomes: list[KafkaError | None] = []

        def note(error: KafkaError | None, _message: Message) -> None:
            outcomes.append(error)

        try:
            producer = self._ready()
            for key, value in records:
                producer.produce(
                    self._partition.topic,
                    value=value,
                    key=key,
                    partition=self._partition.partition,
                    on_delivery=note,
                )
        except (KafkaException, BufferError) as error:
            raise _unavailable(str(error)) from error
        deadline_s = self._clock.monotonic_s() + _PATIENCE_S
        while len(outcomes) < len(records):
            if self._clock.monotonic_s() > deadline_s:
                raise _unavailable("the broker did not respond in time")
            producer.poll(_POLL_S)
        for failed in filter(None, outcomes):
            raise _unavailable(failed.str())

    def _ready(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = self._make_producer()
            return self._producer

    def _delete_oldest(self) -> None:
        """Delete the oldest entries once there are too many.

        Only an instance that writes does this, so few try at once; deleting twice does no harm.
        """
        if not self._has_caught_up():
            return
        with self._lock:
            surplus = len(self._history) - self._records_max
            if surplus < SURPLUS_MIN:
                return
            oldest = self._history.oldest(min(surplus, _AT_ONCE_MAX))
        removals = [removal(each) for each in oldest]
        self._send(removals)
        for each in removals:
            self.take(*each)


def _unavailable(reason: str) -> Unavailable:
    return Unavailable(
        f"Nothing was changed: the audit entry cannot be written ({reason}); try again when the "
        "broker accepts it."
    )
