"""The config topic: what is set while the service runs, the same for all of its instances.

One partition, compacted. A writer fences every other, reads to the end, looks, and writes: a
compare-and-set with Kafka alone. Readers follow. A revision is the offset after a record, so it
only grows.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from service.audit import is_audit
from service.clock import Clock
from service.cluster import Cluster, finds_a_broker
from service.config_record import ConfigRecord
from service.faults import REFUSALS, fault_of
from service.kafka import Clients
from service.send import send
from service.settings import Settings
from state.assign import assign_anew
from state.edit import Source

_RECORDS_MAX: Final = 1_000
_SLICE_S: Final = 0.05
_PATIENCE_S: Final = 10.0
_HELD_UP_S: Final = 1.0
_SILENT_S: Final = 30.0
_PAUSES_S: Final = (0.05, 0.15, 0.4, 1.0)
"""After being fenced by another writer; soon longer than a write takes, so one gets through."""
_ONE_OF_THIS_PROCESS: Final = threading.Lock()
"""Several parts that serve REST write, and they need not fence each other."""


Hear = Callable[[bytes | None, bytes | None], None]
"""Told a key and its value."""


def _pass_over(_key: bytes | None, _value: bytes | None) -> None:
    pass


class Follower:
    """Reads the topic from its beginning, and goes on reading."""

    def __init__(
        self, clients: Clients, topic: str, clock: Clock, audit: Hear = _pass_over
    ) -> None:
        """`audit` is told the records of the audit, which are no part of the settings."""
        self._clients = clients
        self._cluster: Cluster = clients.cluster
        self._clock = clock
        self._audit = audit
        self._place = Source(topic, 0)
        self.settings = Settings()
        # Asked before there is a consumer, which nobody would close where the topic is missing.
        self._start = self._first()
        self._consumer: Consumer = clients.restorer()
        self._heard_s = clock.monotonic_s()
        self._begin()

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take what has come. Raises KafkaException for what the broker answers."""
        messages = self._consumer.consume(_RECORDS_MAX, timeout_s)
        for message in messages:
            if message.error() is None:
                key, value = message.key(), message.value()
                if is_audit(key):
                    self._audit(key, value)
                else:
                    self.settings.take(message.offset() or 0, key, value)
        # After the records: the client has passed them, whatever came with them.
        for error in filter(None, map(Message.error, messages)):
            self._heard(error)
        self._see_to_the_client(is_silent=not messages)

    def catch_up(self) -> None:
        """Read to what is the end now; KafkaException when it is not reached in time.

        A writer that died may have left a transaction open; who asks for its name ends it.
        """
        end = self._cluster.ends([self._place])[self._place]
        started_s, has_asked = self._clock.monotonic_s(), False
        while self._reached() < end:
            waited_s = self._clock.monotonic_s() - started_s
            if waited_s > _PATIENCE_S:
                reason = f"{self._place.topic} is not readable to its end"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, reason))  # noqa: SLF001
            if waited_s > _HELD_UP_S and not has_asked:
                self._clients.settings_producer().init_transactions(_PATIENCE_S)
                has_asked = True
            self.poll(_SLICE_S)

    def is_level(self) -> bool:
        """Whether all that is written now was read. Raises KafkaException as the others do."""
        return self._reached() >= self._cluster.ends([self._place])[self._place]

    def close(self) -> None:
        """Let the consumer go."""
        self._consumer.close()

    def _see_to_the_client(self, *, is_silent: bool) -> None:
        """Nothing comes to one that has forgotten its brokers, nor any error: replace it."""
        now_s = self._clock.monotonic_s()
        if is_silent and now_s - self._heard_s < _SILENT_S:
            return
        self._heard_s = now_s
        if is_silent and not finds_a_broker(self._consumer, self._place.topic):
            self._start = self._reached()
            self._consumer.close()
            self._consumer = self._clients.restorer()
            self._begin()

    def _first(self) -> int:
        return self._cluster.starts([self._place])[self._place]

    def _begin(self) -> None:
        assign_anew(self._consumer, [TopicPartition(*self._place, self._start)])

    def _reached(self) -> int:
        (place,) = self._consumer.position([TopicPartition(*self._place)])
        return max(int(place.offset), self._start)

    def _heard(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its name
            self._start = self._first()  # the topic was made anew
            self._begin()
        elif error.code() in REFUSALS:
            raise KafkaException(error)


class Writer:
    """Changes the topic, one change at a time over all instances."""

    def __init__(self, clients: Callable[[], Clients], topic: str, clock: Clock) -> None:
        self._clients = clients
        self._topic = topic
        self._clock = clock

    def write(self, change: Callable[[Settings], ConfigRecord | Sequence[ConfigRecord]]) -> int:
        """Write what `change` makes of the newest state; gives the revision of the last record.

        What `change` raises comes through, and nothing is written then. Where another writer came
        between, it is asked again. KafkaException where the broker refuses, or others always do.
        """
        for pause_s in _PAUSES_S:
            try:
                return self._write_in_turn(change)
            except KafkaException as error:
                if not fault_of(error.args[0]).fenced:
                    raise
            self._clock.sleep(pause_s)
        return self._write_in_turn(change)

    def write_once(
        self, change: Callable[[Settings], ConfigRecord | Sequence[ConfigRecord]]
    ) -> int:
        """For who beats between attempts; KafkaException also where another came between."""
        clients = self._clients()
        producer = clients.settings_producer()
        producer.init_transactions(_PATIENCE_S)
        follower = Follower(clients, self._topic, self._clock)
        try:
            follower.catch_up()
            changed = change(follower.settings)
        finally:
            follower.close()
        written: list[int] = []

        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                written.append(message.offset() or 0)

        records = [changed] if isinstance(changed, ConfigRecord) else changed
        producer.begin_transaction()
        send(producer, [(self._topic, each.value, each.key, 0, note) for each in records])
        producer.flush(_PATIENCE_S)
        producer.commit_transaction(_PATIENCE_S)
        return max(written) + 1

    def _write_in_turn(
        self, change: Callable[[Settings], ConfigRecord | Sequence[ConfigRecord]]
    ) -> int:
        with _ONE_OF_THIS_PROCESS:
            return self.write_once(change)
