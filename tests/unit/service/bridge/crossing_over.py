"""What the tests of a bridge's loop share: one cluster that plays both sides, and a loop on it."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from ringfence_client.headers import DeadLetter
from ringfence_service.bridge.config import BridgeConfig
from ringfence_service.bridge.loop import BridgeLoop
from ringfence_service.bridge.reporter import BridgeReporter
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import ApiSettings, BridgeSettings
from ringfence_service.queries.status import ServiceStatus, StatusBoard
from ringfence_service.telemetry.metrics import Metrics
from ringfence_state.model import PartitionId
from tests.fakes.admin import FakeAdmin
from tests.fakes.consumer import FakeConsumer, OnCommit
from tests.fakes.delivery import FakeDelivery
from tests.fakes.log import FakeCluster
from tests.fakes.partition import Record
from tests.simulation.instance import FakeClock
from tests.support.living import Faults

GROUP = "g"
ORDERS = PartitionId("orders", 0)


class Clients:
    """See `bridge.clients.Clients`."""

    def __init__(self, log: FakeCluster) -> None:
        self.source = self.target = FakeAdmin(log)
        self.producers = 0
        self._log = log

    def consumer(self, on_error: Callable[[KafkaError], None], on_commit: OnCommit) -> Consumer:
        """See `Clients.consumer`."""
        self.shake, self.answers = on_error, on_commit

        def answer(error: KafkaError | None, places: list[TopicPartition]) -> None:
            self.answers(error, places)  # a test may put another in its place

        return cast("Consumer", FakeConsumer(self._log, GROUP, on_commit=answer))

    def producer(
        self, batch_bytes_max: int, batch_records_max: int, on_error: Callable[[KafkaError], None]
    ) -> Producer:
        """See `Clients.producer`."""
        del batch_bytes_max, on_error
        self.producers += 1
        return cast("Producer", FakeDelivery(self._log, batch_records_max))


class Bridging:
    """One bridge on a cluster of its own: `orders` goes to `far.orders`."""

    def __init__(
        self, partitions: int = 1, initializer: int | None = None, **settings: Any
    ) -> None:
        self.faults = Faults()
        self.cluster = FakeCluster(None, self.faults)
        self.clock = FakeClock(self.cluster)
        self.clients = Clients(self.cluster)
        self.cluster.create_topic("orders", partitions)
        if initializer != 0:
            self.cluster.create_topic("far.orders", initializer or partitions, limit_bytes=170)
        bridge = BridgeSettings(
            **{"topics": ("orders",), "target_topic": "far.{topic}", "group_id": GROUP} | settings
        )
        servers = KafkaSettings({"bootstrap.servers": "a:1"}, {}, {}, {})
        # Compressed, so that only the broker knows what fits.
        target = KafkaSettings({"bootstrap.servers": "b:1"}, {}, {"compression.type": "lz4"}, {})
        self.config = BridgeConfig(bridge, servers, target, ApiSettings())
        nothing = ServiceStatus.starting("", GROUP, datetime.fromtimestamp(0, UTC))
        self.board = StatusBoard(nothing, self.clock.monotonic_s)
        metrics = Metrics(self.board, {"version": "0"}, addresses_max=1)
        self.watch = BridgeReporter(GROUP, self.clock, self.board, metrics)
        self.loop = self.begin()

    def begin(self) -> BridgeLoop:
        """A loop that has not turned yet, in place of the one before."""
        self.loop = BridgeLoop(self.config, self.clients, self.clock, self.watch)
        return self.loop

    def send(self, *values: bytes, partition: int = 0, key: bytes | None = b"k") -> None:
        for value in values:
            self.cluster.write("orders", partition, Record(key, value, None, 1))

    def arrived(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.cluster.records("far.orders", partition)]

    def letters(self) -> list[tuple[bytes | None, bytes | None]]:
        """Dead letters with their reasons."""
        return [
            (record.value, dict(record.headers or [])[DeadLetter.REASON])
            for record in self.cluster.records("g.dead-letters")
        ]

    def committed(self, source: PartitionId = ORDERS) -> int | None:
        found = self.cluster.group(GROUP).committed.get(source)
        return None if found is None else found.offset

    def stopping(self) -> Iterator[None]:
        """A step at which the bridge is asked to stop, as by a signal."""
        self.loop.stop()
        yield None

    def turns(self, count: int = 10) -> None:
        for _ in range(count):
            self.loop.turn()
