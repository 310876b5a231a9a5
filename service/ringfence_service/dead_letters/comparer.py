"""Comparer: reads the originals of some duplicates, and compares their contents.

It is a daemon thread of a worker, with a consumer of its own outside every group.
Invariants: the loop never waits for it. The samples that wait are bounded, and so are those that
are compared in a second. Whatever fails here costs samples and nothing else.
"""

import contextvars
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from ringfence_service.clock import Clock
from ringfence_service.dead_letters.reader import OffsetScan
from ringfence_service.dedup.duplicate_samples import (
    PER_ROUTE,
    VALUE_BYTES_MAX,
    ComparedDuplicate,
    Comparison,
    DuplicateSample,
    DuplicateSamples,
)
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.errors import without_frames
from ringfence_service.schemas.content import is_same_content
from ringfence_state.model import PartitionId

EVERY_S: Final = 0.2
"""The least time from one comparison to the next: five in a second show within a minute what one
duplicate in a hundred has.
"""
SHARE: Final = 1 / 20
"""The share of the time that goes into comparing, whatever the documents are: the loop waits for
the interpreter meanwhile.
"""
WAITING_MAX: Final = 256
"""How many samples wait at most: 8 MiB, and all routes of most configurations have room."""
PATIENCE_S: Final = 2.0
"""How long an original may take to be read."""

_log = structlog.stdlib.get_logger(__name__)


class DuplicateComparer:
    """Compares duplicates with their originals, a few in a second, in turn over the routes."""

    def __init__(self, clients: Callable[[], Clients], clock: Clock) -> None:
        self._clients, self._clock = clients, clock
        self._changed = threading.Condition()
        """Guards what waits, and is notified of it."""
        self._waiting: deque[DuplicateSample] = deque()
        self._by_route: Counter[str] = Counter()
        """How many wait of each route."""
        self._compared: deque[ComparedDuplicate] = deque(maxlen=WAITING_MAX)
        self._consumer: Consumer | None = None
        self._next_s = float("-inf")
        self._thread = threading.Thread(
            target=contextvars.copy_context().run,
            args=(self._run,),
            name="ringfence-comparer",
            daemon=True,
        )

    def start(self) -> None:
        """Start to compare."""
        self._thread.start()

    def offer(self, samples: DuplicateSamples) -> None:
        """Take over samples; drop those of a route that has enough, and all that have no room."""
        for sample in samples:
            with self._changed:
                has_room = len(self._waiting) < WAITING_MAX
                if has_room and self._by_route[sample.route] < PER_ROUTE:
                    self._waiting.append(sample)
                    self._by_route[sample.route] += 1
                    self._changed.notify()

    def take(self) -> list[ComparedDuplicate]:
        """Return what was compared since the last call."""
        return [self._compared.popleft() for _ in range(len(self._compared))]

    def compare_next(self) -> bool:
        """Compare the sample that has waited longest, when its time has come; False without one."""
        with self._changed:
            if not self._waiting:
                return False
            sample = self._waiting.popleft()
            self._by_route[sample.route] -= 1
        self._clock.sleep(max(0.0, self._next_s - self._clock.monotonic_s()))
        self._next_s = self._clock.monotonic_s() + EVERY_S
        self._compared.append(ComparedDuplicate(sample, self._result(sample)))
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
            try:
                self.compare_next()
            except Exception:  # noqa: BLE001 - logged; the thread goes on with the next sample
                _log.exception("comparison_failed")

    def _result(self, sample: DuplicateSample) -> Comparison:
        message = None if sample.is_oversized else self._original(sample)
        if message is None:
            return Comparison.NOT_COMPARED
        value = message.value()
        if value is not None and len(value) > VALUE_BYTES_MAX:
            return Comparison.NOT_COMPARED
        began_s = self._clock.monotonic_s()
        is_same = is_same_content(sample.value, value, sample.without)
        took_s = self._clock.monotonic_s() - began_s
        self._next_s = max(self._next_s, began_s + took_s / SHARE)
        return Comparison.SAME if is_same else Comparison.DIFFERENT

    def _original(self, sample: DuplicateSample) -> Message | None:
        """Return the original of a sample; None if it is gone or cannot be read.

        After a read that failed the next one has another consumer: this one may have forgotten its
        brokers. One that has found nothing is kept, since an input may keep no original at all.
        """
        topic, partition, offset, _ = sample.original
        fault = message = None
        try:
            message = self._read(PartitionId(topic, partition), offset)
        except KafkaException as error:
            fault = without_frames(error)
        if message is None:
            _log.debug("original_not_read", original=str(sample.original), cause=str(fault))
        if fault is not None and fault.args[0].code() != KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            self._drop_consumer()
        return message

    def _read(self, source: PartitionId, offset: int) -> Message | None:
        if self._consumer is None:
            self._consumer = self._clients().observer()
        deadline_s = self._clock.monotonic_s() + PATIENCE_S
        scan = OffsetScan(
            self._consumer,
            {source: offset},
            {source: offset + 1},
            1,
            lambda: self._clock.monotonic_s() >= deadline_s,
        )
        message = next(iter(scan), None)
        self._consumer.unassign()  # else it would go on reading from there
        if message is None and not scan.is_done:
            self._drop_consumer()
        return message

    def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
