"""What was chosen at the first start stays; a later difference ends the start with exit code 5."""

import heapq
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from ringfence_service.config.model import RouteSettings, Scope
from ringfence_service.config.tasks import Hop, Task
from ringfence_service.config.templates import expanded
from ringfence_service.errors import ExitCode
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.file_routes import InstanceFileRoutes
from ringfence_service.metadata.layout import (
    RouteTopology,
    Topology,
    as_started,
    contradiction,
    layout_of,
)
from ringfence_service.metadata.topic import MetadataReader
from ringfence_service.processor.layout import LayoutContendedError, check_layout
from tests.fakes.clients import FakeClients
from tests.fakes.errors import fenced, plain
from tests.fakes.log import START_MS, FakeCluster
from tests.fakes.partition import Record
from tests.simulation.instance import FakeClock
from tests.support.helpers import ending, some
from tests.support.living import GROUP, ROUTE, Living

TOPIC = config_topic(GROUP)
BY_ADDRESS = RouteSettings(name="orders", inputs=("orders",))
FIRST = Topology({"a": RouteTopology("address", "{key}", "")}, {"in": 12}, 4)


def start(living: Living, now: Topology, beat: Callable[[], None] = lambda: None) -> None:
    check(living.clients(), living.clock, InstanceFileRoutes.of(living.config), now, beat)


def check(
    clients: FakeClients,
    clock: FakeClock,
    own: InstanceFileRoutes,
    now: Topology = FIRST,
    beat: Callable[[], None] = lambda: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> None:
    follower = MetadataReader(clients, TOPIC, clock)
    try:
        follower.catch_up()
        check_layout(lambda _: now, own, follower, clients, TOPIC, clock, beat, is_stopping)
    finally:
        follower.close()


def written(living: Living) -> Topology | None:
    record = living.cluster.records(TOPIC)[-1]
    return layout_of(record.key, record.value)


def test_a_reader_that_does_not_see_what_was_written_ends_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living()
    clients, own = living.clients(), InstanceFileRoutes.of(living.config)
    follower = MetadataReader(clients, TOPIC, living.clock)
    follower.catch_up()

    def consume(*_: object) -> list[Message]:
        living.clock.sleep(1)
        return []

    monkeypatch.setattr(follower._consumer, "consume", consume)
    with pytest.raises(KafkaException, match="cannot be read to its end"):
        check_layout(lambda _: FIRST, own, follower, clients, TOPIC, living.clock, lambda: None)
    assert written(living) == FIRST


def test_the_first_start_writes_it_down_and_the_next_one_finds_it() -> None:
    living = Living()
    start(living, FIRST)
    count = len(living.cluster.records(TOPIC))
    start(living, FIRST)
    assert len(living.cluster.records(TOPIC)) == count
    assert written(living) == FIRST
    assert living.faults.passed["close"] == 3, "of two that follow and one that writes"


@pytest.mark.parametrize(
    ("key", "value"), [("scope", "partition"), ("address", "{topic}"), ("id", "{key}")]
)
def test_a_route_keeps_what_says_where_its_ids_are(key: str, value: str) -> None:
    living = Living()
    start(living, FIRST)
    changed = FIRST._replace(routes={"a": FIRST.routes["a"]._replace(**{key: value})})
    with ending(ExitCode.CONTRADICTION, f'with {key} = "'):
        start(living, changed)
    assert written(living) == FIRST


KEYED = "{key} {json:/source/lsn}"


@pytest.mark.parametrize(
    ("stored", "written", "effective"),
    [
        ("{key}{json:/a}", "{key}{json:/a}", "{plain}{key}{json:/a}"),
        ("{escaped}{key}{json:/a}", "{key}{json:/a}", "{key}{json:/a}"),
        ("{escaped}{key}{json:/a}", "{escaped}{key}{json:/a}", "{escaped}{key}{json:/a}"),
        ("{key}{json:/a}", "{plain}{key}{json:/a}", "{plain}{key}{json:/a}"),
        ("{key}", "{key}", "{key}"),
        (KEYED, "{debezium-postgresql}", "{plain}" + KEYED),
        (f"a:{KEYED}", "a:{debezium-postgresql}", f"{{plain}}a:{KEYED}"),
        (KEYED, KEYED, "{plain}" + KEYED),
    ],
)
def test_a_route_goes_on_with_the_templates_of_its_first_start(
    stored: str, written: str, effective: str
) -> None:
    route = replace(ROUTE, id=expanded(written), address="{key}.{header:a}")
    config = replace(Living().config, routes=(route,))
    first = Topology({"orders": RouteTopology("partition", "{key}.{header:a}", stored)}, {})
    (kept,) = as_started(config, first).routes
    assert (kept.id, kept.address) == (effective, "{plain}{key}.{header:a}")
    assert contradiction(first, Topology.of(as_started(config, first), {})) is None
    assert as_started(as_started(config, first), first) == as_started(config, first)


@pytest.mark.parametrize("now", ["{escaped}{key}{json:/a}", "{key}{json:/b}", "{debezium-mysql}"])
def test_another_template_is_a_contradiction_whatever_its_form(now: str) -> None:
    config = replace(Living().config, routes=(replace(ROUTE, id=expanded(now)),))
    first = Topology({"orders": RouteTopology("partition", "{topic}", "{key}{json:/a}")}, {})
    assert contradiction(first, Topology.of(as_started(config, first), {})) is not None


def test_a_new_route_has_the_form_of_today() -> None:
    config = replace(Living().config, routes=(replace(ROUTE, id="{key}{json:/a}"),))
    for first in (None, Topology({}, {})):
        assert as_started(config, first) == config
    assert Topology.of(config, {}).routes["orders"].id == "{escaped}{key}{json:/a}"


def test_routes_and_inputs_come_and_go() -> None:
    living = Living()
    start(living, FIRST)
    other = Topology({"b": RouteTopology("partition", "{topic}", "")}, {"orders": 3})
    start(living, other)
    start(living, FIRST)
    assert written(living) == FIRST


def test_more_partitions_are_for_the_route_to_allow_and_fewer_are_a_contradiction() -> None:
    more = FIRST._replace(partitions={"in": 13})
    assert contradiction(FIRST, more) is None
    assert "now it has 12" in str(contradiction(more, FIRST))


def test_how_many_partitions_decide_by_address_stays() -> None:
    assert "set 4" in str(contradiction(FIRST, FIRST._replace(by_address=5)))
    assert contradiction(FIRST._replace(by_address=0), FIRST) is None


def test_who_is_fenced_while_writing_looks_again() -> None:
    living = Living()
    living.faults.at["commit_transaction"] = iter([fenced()])
    start(living, FIRST)
    assert written(living) == FIRST


def test_what_another_writes_meanwhile_is_not_contradicted() -> None:
    living, others = Living(), [Record(*FIRST.record, None, 1)]

    def other() -> None:
        while others:
            living.cluster.write(TOPIC, 0, others.pop())

    with ending(ExitCode.CONTRADICTION, "now it is 5"):
        start(living, FIRST._replace(by_address=5), other)
    assert written(living) == FIRST


def test_however_often_it_is_written_nobody_takes_it_for_a_loop_that_hangs() -> None:
    living = Living()
    living.faults.at["commit_transaction"] = iter([fenced() for _ in range(3)])
    commits: list[int] = []
    start(living, FIRST, lambda: commits.append(living.faults.passed["commit_transaction"]))
    assert {0, 1, 2, 3, 4} == set(commits)


def test_who_is_fenced_by_the_others_every_time_has_no_rival_and_is_not_refused() -> None:
    living = Living()
    living.faults.at["begin_transaction"] = iter([fenced() for _ in range(99)])
    living.faults.steps_max = 200_000
    with pytest.raises(LayoutContendedError):
        start(living, FIRST)
    assert living.faults.passed["begin_transaction"] == 12


def test_a_worker_that_is_fenced_at_every_attempt_goes_on_trying_and_does_not_end() -> None:
    living = Living()
    del living.cluster.logs[TOPIC]
    living.faults.at["begin_transaction"] = iter([fenced() for _ in range(60)])
    living.faults.steps_max = 1_000_000
    loop = some(living.worker().open_loop())
    assert living.clock.monotonic_s() * 1000 - START_MS > 300_000, "beyond the broker's patience"
    assert written(living) == loop.active_settings.layout(loop.follower.settings)


def test_a_process_that_stops_ends_its_pause_and_writes_nothing() -> None:
    living = Living()
    living.faults.at["commit_transaction"] = iter([fenced()])
    own = InstanceFileRoutes.of(living.config)
    before = len(living.cluster.records(TOPIC))
    check(living.clients(), living.clock, own, is_stopping=lambda: True)
    assert living.faults.passed["commit_transaction"] == 1
    assert len(living.cluster.records(TOPIC)) == before


class Turns(FakeCluster):
    """A cluster of several processes, each a thread; a wait passes the turn to the one due next."""

    def __init__(self, write_s: float) -> None:
        super().__init__(on_step=self._on_step)
        self.create_topic(TOPIC, 1, cleanup_policy="compact")
        self._write_s = write_s
        self._due: list[tuple[int, int, threading.Semaphore]] = []
        self._numbers = itertools.count()
        self._is_idle = threading.Semaphore(0)
        self._running = 0
        self.attempts: Counter[int] = Counter()
        self.errors: list[BaseException] = []

    def run(self, processes: Sequence[Callable[[], None]]) -> None:
        """Begin all of them at once, and run them to their ends."""
        for process in processes:
            self._running += 1
            threading.Thread(target=self._one, args=(process, self._queued(0)), daemon=True).start()
        while self._running:
            due_ms, _, turn = heapq.heappop(self._due)
            self.now_ms = max(self.now_ms, due_ms)
            turn.release()
            assert self._is_idle.acquire(timeout=60)

    def wait(self, seconds: float) -> None:
        """Give the others their turns until so much time has passed."""
        assert self.now_ms - START_MS < 3_600_000, "it does not come to an end"
        mine = self._queued(seconds)
        self._is_idle.release()
        mine.acquire()
        self.tick()

    def _queued(self, seconds: float) -> threading.Semaphore:
        mine = threading.Semaphore(0)
        due_ms = self.now_ms + max(int(seconds * 1000), 0)
        heapq.heappush(self._due, (due_ms, next(self._numbers), mine))
        return mine

    def _one(self, process: Callable[[], None], turn: threading.Semaphore) -> None:
        turn.acquire()
        try:
            process()
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            self.errors.append(error)
        finally:
            self._running -= 1
            self._is_idle.release()

    def _on_step(self, step: str) -> None:
        if step == "begin_transaction":
            self.attempts[threading.get_ident()] += 1
        elif step == "commit_transaction":
            self.wait(self._write_s)


@pytest.mark.parametrize(
    ("instances", "workers", "write_s", "attempts_max"),
    [(16, 1, 1.0, 10), (1, 16, 0.5, 1), (2, 8, 2.0, 8), (4, 4, 5.0, 8)],
)
def test_processes_that_start_at_once_write_the_layout_within_some_attempts(
    instances: int, workers: int, write_s: float, attempts_max: int
) -> None:
    cluster = Turns(write_s)
    clock = FakeClock(cluster)

    def process(instance: int, task: Task) -> Callable[[], None]:
        clients = FakeClients(cluster, GROUP, f"{instance}", part=task)
        own = InstanceFileRoutes(f"{instance}", {"orders": ("orders",)})
        return lambda: check(clients, clock, own)

    tasks = [Task(worker, Hop.INPUTS) for worker in range(workers)]
    cluster.run([process(number, task) for number in range(instances) for task in tasks])
    assert not cluster.errors
    print(
        instances,
        workers,
        write_s,
        max(cluster.attempts.values()),
        sum(cluster.attempts.values()),
        (cluster.now_ms - START_MS) / 1000,
    )
    assert max(cluster.attempts.values()) <= attempts_max


def test_a_refusal_by_the_broker_is_raised() -> None:
    living = Living()
    refusal = plain(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no right to write")
    living.faults.at["commit_transaction"] = iter([refusal] * 9)
    with pytest.raises(KafkaException):
        start(living, FIRST)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"routes":{"a":{}},"partitions":{}}'])
def test_what_is_no_layout_tells_none(value: bytes) -> None:
    assert layout_of(b'["layout"]', value) is None
    assert layout_of(None, FIRST.record.value) is None


@pytest.mark.parametrize(
    ("scopes", "partitions", "by_address"),
    [
        (["address"], {}, 12),
        (["partition"], {"orders": 1}, 0),
        (["partition", "address"], {"orders": 1}, 12),
    ],
)
def test_a_loop_writes_it_before_it_reads_anything(
    scopes: list[Scope], partitions: Mapping[str, int], by_address: int
) -> None:
    living = Living()
    names = zip(scopes, ("orders", "more"), strict=False)
    routes = [RouteSettings(name=name, inputs=(name,), scope=scope) for scope, name in names]
    living.config = replace(living.config, routes=tuple(routes))
    del living.cluster.logs[TOPIC]
    living.loop()
    found = some(written(living))
    assert found.routes["orders"] == RouteTopology(scopes[0], "{topic}", "")
    assert (found.partitions, found.by_address) == (partitions, by_address)


def test_another_number_of_partitions_than_the_topic_has_is_a_contradiction() -> None:
    living = Living(BY_ADDRESS, by_address_partitions=4)
    living.cluster.create_topic("g.by-address", 5)
    with ending(ExitCode.CONTRADICTION, "write 5"):
        living.loop()


def test_a_loop_whose_route_changed_its_scope_does_not_start() -> None:
    living = Living(ROUTE)
    living.loop().close()
    changed = replace(ROUTE, scope="address")
    living.config = replace(living.config, routes=(changed,))
    with ending(ExitCode.CONTRADICTION, "scope"):
        living.loop()


def test_what_else_is_in_the_config_topic_is_left_alone() -> None:
    living = Living()
    living.cluster.write(TOPIC, 0, Record(b'["later-version"]', b"{}", None, 1))
    start(living, FIRST)
    assert written(living) == FIRST
