"""The fake's `kafka.clients.Clients`: what the loop gets in place of librdkafka."""

from collections.abc import Callable
from typing import cast

from confluent_kafka import Consumer, KafkaError, Producer

from ringfence_service.config.tasks import ONLY, Task, consumer_group
from ringfence_service.kafka.client_log import ConsumerLog
from ringfence_service.kafka.clients import LIBRDKAFKA
from ringfence_service.kafka.compression import Codec
from ringfence_service.native import ring
from ringfence_state.strategies.ring_memory import RingStrategy
from tests.fakes.admin import FakeAdmin
from tests.fakes.consumer import FakeConsumer
from tests.fakes.log import FakeCluster
from tests.fakes.native import NativeConsumer, NativeProducer
from tests.fakes.producer import FakeProducer


class FakeClients:
    """The clients of one process; `freeze`, `thaw` and `kill` are its signals."""

    def __init__(
        self,
        log: FakeCluster,
        group_id: str,
        instance: str,
        by: str = "",
        part: Task = ONLY,
    ) -> None:
        self.cluster = FakeAdmin(log)
        self.part = part
        self.group_id = consumer_group(group_id, part.hop)
        self._by = by
        self._log = log
        self._config_id = f"{group_id}.config"
        self.member_id = part.member_id(group_id, instance)
        self._identity = part.transactional_id(group_id, instance)
        self._consumers: list[FakeConsumer] = []
        self._producers: list[FakeProducer] = []

    def consumer(self, on_doubt: Callable[[], None] = lambda: None) -> Consumer:
        logger = ConsumerLog({"log_level": 3}, on_doubt, LIBRDKAFKA)
        kind = NativeConsumer if RingStrategy.forms is ring.FORMS else FakeConsumer
        self._consumers.append(kind(self._log, self.group_id, self.member_id, logger=logger))
        return cast("Consumer", self._consumers[-1])

    def restorer(self) -> Consumer:
        self._consumers.append(FakeConsumer(self._log, self.group_id))
        return cast("Consumer", self._consumers[-1])

    observer = restorer

    def producer(
        self,
        batch_bytes_max: int,
        on_error: Callable[[KafkaError], None],
        *,
        waits_for_flush: bool = False,
        codec: Codec | None = None,
    ) -> Producer:
        """See `Clients.producer`; the fake sends one record at a time and has no background."""
        del batch_bytes_max, waits_for_flush
        kind = NativeProducer if RingStrategy.forms is ring.FORMS else FakeProducer
        made = kind(self._log, self._identity, by=self._by, on_error=on_error, codec=codec)
        self._producers.append(made)
        return cast("Producer", made)

    def settings_producer(self) -> Producer:
        self._producers.append(FakeProducer(self._log, self._config_id, by=self._by))
        return cast("Producer", self._producers[-1])

    def freeze(self) -> None:
        """Stop all heartbeats, as SIGSTOP does."""
        for consumer in self._consumers:
            consumer.freeze()

    def thaw(self) -> None:
        """Go on as after SIGCONT."""
        for consumer in self._consumers:
            consumer.thaw()

    def kill(self) -> None:
        """Lose everything that had not left the process."""
        self.freeze()
        for producer in self._producers:
            producer.kill()
