"""What the tests of a running loop share: a cluster that fails on demand, and a loop on it."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

from confluent_kafka import KafkaError, KafkaException

from ringfence_client.headers import DUPLICATE_ID, GROUP_POSITION, GROUP_SIZE, DeadLetter
from ringfence_client.headers import GROUP as GROUP_NAME
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import ApiSettings, Config, RouteSettings, ServiceSettings
from ringfence_service.dead_letters.comparer import DuplicateComparer
from ringfence_service.dedup.partition import PartitionPhase
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.file_routes import InstanceFileRoutes
from ringfence_service.metadata.layout import Topology
from ringfence_service.metadata.session_service import SessionService
from ringfence_service.processor.assignment import Assignment
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.reporter import Reporter
from ringfence_service.processor.retry import RetryPolicy
from ringfence_service.queries.inbox import QueryInbox
from ringfence_service.queries.status import ServiceStatus, StatusBoard
from ringfence_service.supervisor.loop_runner import LoopRunner
from ringfence_service.telemetry.metrics import Metrics
from ringfence_state.model import PartitionId
from ringfence_state.store import Stores
from tests.fakes.admin import FakeAdmin
from tests.fakes.clients import FakeClients
from tests.fakes.errors import abortable, plain, retriable
from tests.fakes.log import Chance, FakeCluster
from tests.fakes.partition import Record
from tests.simulation.disk import Disk
from tests.simulation.instance import FakeClock

GROUP = "g"
ORDERS = PartitionId("orders", 0)
LOG = PartitionId("g.changelog.orders", 0)
Headers = list[tuple[str, bytes | None]]
ROUTE = RouteSettings(name="orders", inputs=("orders",), scope="partition")
_START = datetime.fromtimestamp(0, UTC)
_NOTHING = ServiceStatus.starting("0", GROUP, _START)
_STEPS_MAX = 20_000
NOTHING_PACKED: Mapping[str, str] = {"compression.type": "none"}
"""Records are as large as they look; a test of compression leaves it out."""


def in_group(name: str, position: int, size: int) -> Headers:
    """What a member of a transaction group says of its place."""
    told = ((GROUP_NAME, name), (GROUP_POSITION, str(position)), (GROUP_SIZE, str(size)))
    return [(header, text.encode()) for header, text in told]


def late() -> KafkaException:
    return retriable(KafkaError._TIMED_OUT, "no answer in time")


def gone() -> KafkaException:
    return plain(KafkaError._TRANSPORT, "the connection is gone")


def refused() -> KafkaException:
    return abortable(KafkaError.NOT_ENOUGH_REPLICAS, "too few replicas")


class Telling(Chance):
    """A client that reports errors beside the records of a topic, each once."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.errors: list[KafkaError] = []

    def message_error(self, topics: Collection[str]) -> KafkaError | None:
        return self.errors.pop() if self.errors and self._topic in topics else None


class Faults:
    """Counts the steps of a cluster's clients; `at` holds what each one answers next."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.at: dict[str, Iterator[Exception | None]] = {}
        self.steps_max = _STEPS_MAX

    def __call__(self, step: str) -> None:
        self.passed[step] += 1
        assert self.passed.total() < self.steps_max, "it does not come to an end"
        fault = next(self.at.get(step, iter(())), None)
        try:
            if fault is not None:
                raise fault
        finally:
            del fault  # its traceback refers to this frame


class Living:
    """One instance on a cluster of its own; topics are `orders` and where its records go."""

    def __init__(
        self,
        route: RouteSettings = ROUTE,
        addresses: Mapping[str, Mapping[str, object]] | None = None,
        stores: Stores | None = None,
        chance: Chance | None = None,
        *,
        others: tuple[RouteSettings, ...] = (),
        partitions: int = 1,
        producer: Mapping[str, str] = NOTHING_PACKED,
        **settings: object,
    ) -> None:
        """`others` are further routes, each of one input with targets of the usual names."""
        self.faults = Faults()
        self.cluster = FakeCluster(chance, self.faults)
        self.clock = FakeClock(self.cluster)
        self.stores: Stores = stores or Disk(self.cluster.step)
        self.config = Config(
            KafkaSettings({"bootstrap.servers": "kafka:9092"}, {}, producer, {}),
            ServiceSettings(group_id=GROUP, **settings),  # type: ignore[arg-type]  # by name
            ApiSettings(),
            (route, *others),
            AddressBook.of(addresses or {}),
        )
        self.board = StatusBoard(_NOTHING, self.clock.monotonic_s)
        self.metrics = Metrics(self.board, {"version": "0"}, addresses_max=10)
        self.comparer = DuplicateComparer(lambda: self.clients("comparer"), self.clock)
        self.watch = Reporter(
            self.config.service, self.clock, self.board, self.metrics, comparer=self.comparer
        )
        session_ms = self.config.service.session_timeout_ms
        self.retry_policy = RetryPolicy(self.watch, self.clock, session_ms)
        self.inbox = QueryInbox(10)
        for name in ("orders", *(name for other in others for name in other.inputs)):
            for end in ("", ".unique", ".dlq"):
                self.cluster.create_topic(name + end, partitions)
        self._start_before()

    def _start_before(self) -> None:
        """It is not the first start: that one writes to the metadata topic."""
        topics = FakeAdmin(self.cluster).topics(
            [name for route in self.config.routes for name in route.inputs]
        )
        self.cluster.create_topic(config_topic(GROUP), 1, cleanup_policy="compact")
        layout, routes = Topology.of(self.config, topics), InstanceFileRoutes.of(self.config)
        for key, value in (layout.record, routes.record(is_first=True)):
            self.cluster.write(config_topic(GROUP), 0, Record(key, value, None, 1))
        self.faults.passed.clear()

    # What stands in the topics.

    def write(
        self,
        value: bytes | None,
        *headers: tuple[str, bytes | None],
        key: bytes | None = None,
        partition: int = 0,
        topic: str = "orders",
    ) -> None:
        """One record, of this time."""
        record = Record(key, value, list(headers), self.cluster.now_ms)
        self.cluster.write(topic, partition, record)

    def send(self, *ids: str, partition: int = 0, size: int = 0, topic: str = "orders") -> None:
        """Each id is the record's value too, padded to a size."""
        for name in ids:
            value = name.encode().ljust(size, b".")
            self.write(value, (DUPLICATE_ID, name.encode()), partition=partition, topic=topic)

    def values(self, topic: str, partition: int = 0) -> list[str]:
        """What stands in a topic, padding left out."""
        records = self.cluster.records(topic, partition)
        return [(record.value or b"").rstrip(b".").decode() for record in records]

    def reasons(self, topic: str) -> list[str]:
        """Why each dead letter was not accepted."""
        told = [dict(record.headers or []) for record in self.cluster.records(topic)]
        return [(headers[DeadLetter.REASON] or b"").decode() for headers in told]

    def committed(self, source: PartitionId = ORDERS) -> int | None:
        """The group's offset."""
        found = self.cluster.group(GROUP).committed.get(source)
        return None if found is None else found.offset

    # Who works on them.

    def clients(self, instance: str = "0") -> FakeClients:
        return FakeClients(self.cluster, GROUP, instance)

    def loop(
        self, instance: str = "0", stores: Stores | None = None, *, tests_broker: bool = False
    ) -> Loop:
        """A loop that has not turned yet."""
        clients = self.clients(instance)
        return Loop(
            self.config,
            clients,
            stores or self.stores,
            self.clock,
            self.watch,
            self.retry_policy,
            tests_broker=tests_broker,
        )

    def running(self) -> Loop:
        """A loop that owns and has restored every partition, and has read what there was."""
        loop = self.loop()
        turn_until_running(loop)
        loop.turn()
        return loop

    def worker(self, *, tests_broker: bool = False) -> LoopRunner:
        return LoopRunner(
            self.config,
            self.clients,
            self.stores,
            self.clock,
            self.watch,
            self.inbox,
            tests_broker=tests_broker,
        )


class Turning:
    """A clock whose waits give a loop its turns: both are on this thread."""

    def __init__(self, living: Living, loop: Loop | None) -> None:
        self._living = living
        self._loop = loop

    def monotonic_s(self) -> float:
        return self._living.clock.monotonic_s()

    def wall_ms(self) -> int:
        return self._living.clock.wall_ms()

    def sleep(self, seconds: float) -> None:
        self._living.cluster.wait(seconds)
        if self._loop is not None:
            self._loop.turn()


def registry_of(living: Living, loop: Loop | None) -> SessionService:
    """Who gives out names, while this loop turns."""
    clients = FakeClients(living.cluster, GROUP, "admin")
    return SessionService(living.config, lambda _hop: clients, Turning(living, loop))


def turn_until_running(loop: Loop) -> None:
    for _ in range(50):
        loop.turn()
        if loop.assignment.running and loop.assignment.settled:
            return
    raise AssertionError("its partitions do not come to run")


def phases(assignment: Assignment) -> list[PartitionPhase]:
    return [partition.phase for partition in assignment.partitions.values()]


def turns(loop: Loop, count: int = 10) -> None:
    for _ in range(count):
        loop.turn()


def waiting_for(living: Living) -> str | None:
    return living.board.read().waiting_for
