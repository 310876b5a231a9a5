"""Publisher of the demo: sends the plan, at least once, and records exactly what it sent.

Only planned sends reach the log: the client is idempotent, so its own retries add none.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tools.demo.books import Books
from tools.demo.errors import DemoError
from tools.demo.plan import Plan
from tools.demo.topics import QUIET

SLICE: Final = 500
"""Sends between two checks for delivery reports and signals."""

AHEAD_MAX: Final = 60_000
"""Sends that may wait for a verdict: enough to keep the service busy, and few enough that
the publisher is still at work when the service is killed."""

FLUSH_TIMEOUT_S: Final = 60.0
FLUSH_SLICE_S: Final = 0.5
STOP_TIMEOUT_S: Final = 10.0
PAUSE_S: Final = 0.02


class Publisher:
    """Sends on its own thread until the plan is empty and the resends after the kill are sent."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        topic: str,
        books: Books,
        plan: Plan,
        decided: Callable[[], int],
    ) -> None:
        self.books = books
        self._topic = topic
        self._plan = plan
        self._decided = decided
        self._producer = Producer(producer_config(kafka, self._delivered))
        self._killed = threading.Event()
        self._stopped = threading.Event()
        self._finished = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def doubt(self) -> None:
        """Have the publisher resend, because the service was killed."""
        self._killed.set()

    def stop(self) -> None:
        """Stop early and drop what is queued."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_TIMEOUT_S)

    def is_finished(self) -> bool:
        """Return whether everything is sent and acknowledged; raise DemoError if sending failed."""
        if self._failure is not None:
            raise DemoError(f"the publisher gave up: {self._failure}; look at the broker's log")
        return self._finished.is_set()

    def _run(self) -> None:
        try:
            self._send_all()
        except (KafkaException, BufferError, DemoError) as error:
            self._failure = str(error)
        if self._stopped.is_set():
            self._producer.purge(in_queue=True, in_flight=True, blocking=False)

    def _send_all(self) -> None:
        has_doubted = False
        while not self._stopped.is_set() and self._failure is None:
            if self._killed.is_set() and not has_doubted:
                self._plan.doubt()
                has_doubted = True
            is_ahead = self.books.sent - self._decided() >= AHEAD_MAX
            sent = 0 if is_ahead else self._send_slice()
            self._producer.poll(0)
            if sent:
                continue
            if has_doubted and not is_ahead:
                self._flush()
                return
            self._stopped.wait(PAUSE_S)

    def _send_slice(self) -> int:
        sent = 0
        for send in self._plan.sends(SLICE):
            flight = self.books.flights[send.flight]
            now_ms = time.time_ns() // 1_000_000
            self.books.enter(send, now_ms)
            self._producer.produce(
                self._topic,
                key=flight.key,
                value=flight.value,
                headers=flight.headers,
                timestamp=now_ms,
            )
            sent += 1
        return sent

    def _flush(self) -> None:
        deadline_s = time.monotonic() + FLUSH_TIMEOUT_S
        while waiting := self._producer.flush(FLUSH_SLICE_S):
            if self._stopped.is_set():
                return
            if time.monotonic() > deadline_s:
                raise DemoError(f"{waiting:,} messages not acknowledged in {FLUSH_TIMEOUT_S:.0f} s")
        if self._failure is None:
            self._finished.set()

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        # Called for failures only; the purge when a run is stopped is not one.
        if error is not None and not self._stopped.is_set():
            self._failure = error.str()


def producer_config(
    kafka: Mapping[str, str], delivered: Callable[[KafkaError | None, Message], None]
) -> dict[str, object]:
    """Return the properties of the publisher's client."""
    return {
        **kafka,
        **QUIET,
        "client.id": "ringfence-demo-publisher",
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": 20,
        "batch.size": 262_144,
        # Never full: no more than AHEAD_MAX messages wait for a verdict.
        "queue.buffering.max.messages": 2 * AHEAD_MAX,
        "message.timeout.ms": 120_000,
        "delivery.report.only.error": True,
        "on_delivery": delivered,
    }
