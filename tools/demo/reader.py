"""Independent reader: passes every committed message of two topics to the audit.

It shares no code with the service and reads each topic from its first offset, read_committed,
during the run. After `finish`, every message before the given ends was passed exactly once.
"""

import threading
import time
from collections.abc import Mapping
from typing import Final, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tools.demo.audit import Audit
from tools.demo.errors import DemoError
from tools.demo.flights import Headers
from tools.demo.topics import PARTITIONS, QUIET, Names

BATCH: Final = 2_000
WAIT_S: Final = 0.1
FINISH_TIMEOUT_S: Final = 60.0
CLOSE_TIMEOUT_S: Final = 15.0

END_OF_PARTITION: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - its only name

PartitionKey = tuple[str, int]


class Reader:
    """Reads on its own thread until `finish` gives it the end offsets and it has reached them."""

    def __init__(self, kafka: Mapping[str, str], names: Names, audit: Audit) -> None:
        self._audit = audit
        self._output = names.output
        self._consumer = Consumer(consumer_config(kafka, names))
        self._consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_BEGINNING)
                for topic in (names.output, names.dead_letter)
                for partition in range(PARTITIONS)
            ]
        )
        self._reached: dict[PartitionKey, int] = {}
        self._ends: dict[PartitionKey, int] | None = None
        self._stopped = threading.Event()
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self.last_taken_s = time.monotonic()

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def check(self) -> None:
        """Raise DemoError if reading failed."""
        if self._failure is not None:
            raise DemoError(f"the reader gave up: {self._failure}; look at the broker's log")

    def finish(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Read up to these end offsets, and stop."""
        self._ends = {
            (topic, partition): end
            for topic, offsets in ends.items()
            for partition, end in offsets.items()
        }
        self._thread.join(timeout=FINISH_TIMEOUT_S)
        self.check()
        if self._thread.is_alive():
            raise DemoError(
                f"the reader waited {FINISH_TIMEOUT_S:.0f} s for the ends of {self._ends} and is "
                f"at {self._reached}: a transaction hangs; look at the service's log"
            )

    def stop(self) -> None:
        """Stop early."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set() and not self._is_at_the_ends():
                for message in self._consumer.consume(BATCH, WAIT_S):
                    self._take(message)
        except (KafkaException, DemoError) as error:
            self._failure = str(error)
        finally:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error is not None and error.code() != END_OF_PARTITION:
            raise KafkaException(error)
        if topic is None or partition is None or offset is None:
            raise DemoError("the client delivered a message without topic, partition or offset")
        if error is not None:
            # Only an end-of-partition event shows that just transaction markers are left before it.
            self._reached[topic, partition] = offset
            return
        self._hand_over(topic, message)
        self.last_taken_s = time.monotonic()

    def _hand_over(self, topic: str, message: Message) -> None:
        key, value = message.key(), message.value()
        headers = cast("Headers", message.headers() or [])  # only headers to send may be a dict
        if topic == self._output:
            self._audit.take_output(key, value, headers, message.timestamp()[1])
        else:
            self._audit.take_dead_letter(key, value, headers)

    def _is_at_the_ends(self) -> bool:
        ends = self._ends
        return ends is not None and all(
            self._reached.get(partition, 0) >= end for partition, end in ends.items()
        )


def consumer_config(kafka: Mapping[str, str], names: Names) -> dict[str, object]:
    """Return the properties of the reader's client, which joins no group and commits nothing."""
    return {
        **kafka,
        **QUIET,
        "client.id": "ringfence-demo-reader",
        "group.id": f"{names.group_id}-reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 100,
        # The default of 1000 ms would idle between bursts of a full queue.
        "fetch.queue.backoff.ms": 10,
        "queued.max.messages.kbytes": 32_768,
    }
