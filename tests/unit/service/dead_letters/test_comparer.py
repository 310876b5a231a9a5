"""The comparer of duplicates: what it finds, how often it looks, and what it survives."""

from typing import cast

import pytest
from confluent_kafka import KafkaError

from ringfence_service.dead_letters.comparer import (
    EVERY_S,
    PATIENCE_S,
    SHARE,
    WAITING_MAX,
    DuplicateComparer,
)
from ringfence_service.dedup.duplicate_samples import (
    PER_ROUTE,
    VALUE_BYTES_MAX,
    ComparedDuplicate,
    Comparison,
    DuplicateSample,
    DuplicateSamples,
)
from ringfence_service.kafka.clients import Clients
from ringfence_state.model import IMPORTED, Origin, PartitionId
from tests.fakes.admin import FakeAdmin
from tests.fakes.clients import FakeClients
from tests.fakes.errors import plain
from tests.fakes.log import Chance, FakeCluster
from tests.fakes.partition import Record
from tests.simulation.instance import FakeClock
from tests.support.waiting import eventually

ORDERS = PartitionId("orders", 0)


class World:
    """An input with originals, and a comparer on it."""

    def __init__(self, chance: Chance | None = None) -> None:
        self.faults: list[Exception] = []
        self.cluster = FakeCluster(chance, self._step)
        self.cluster.create_topic("orders", 1)
        self.clock = FakeClock(self.cluster)
        self.clients: list[FakeClients] = []
        self.comparer = DuplicateComparer(self._clients, self.clock)

    def _step(self, step: str) -> None:
        if step == "consume" and self.faults:
            raise self.faults.pop()

    def _clients(self) -> Clients:
        self.clients.append(FakeClients(self.cluster, "g", "0"))
        return self.clients[-1]

    def original(self, value: bytes | None) -> int:
        """The offset of a new record of the input."""
        self.cluster.write("orders", 0, Record(None, value, None, 1))
        return len(self.cluster.records("orders")) - 1

    def offer(self, *values: bytes | None, at: int = 0, route: str = "r") -> None:
        """Offer duplicates of the record at an offset, of one transaction."""
        samples = DuplicateSamples()
        for value in values:
            origin = Origin(*ORDERS, at, 0)
            samples.add(DuplicateSample.of(route, ORDERS, 99, value, origin, ()))
        self.comparer.offer(samples)

    def compared(self) -> list[str]:
        """What is found of all that waits."""
        while self.comparer.compare_next():
            pass
        return [each.result.value for each in self.comparer.take()]

    def result(self, value: bytes | None, at: int) -> str:
        """What is found of a duplicate of the record at an offset."""
        self.offer(value, at=at)
        (found,) = self.compared()
        return found


@pytest.mark.parametrize(
    ("value", "original", "found"),
    [
        (b"text", b"text", Comparison.SAME),
        (b'{"a":1,"b":2}', b'{"b": 2, "a": 1}', Comparison.SAME),
        (b'{"a":1,"b":2}', b'{"b": 3, "a": 1}', Comparison.DIFFERENT),
        (b"\xff\x00", b"\xff\x01", Comparison.DIFFERENT),
        (None, None, Comparison.SAME),
        (None, b"", Comparison.DIFFERENT),
        (b"", None, Comparison.DIFFERENT),
    ],
)
def test_a_duplicate_is_the_same_or_different(
    value: bytes | None, original: bytes | None, found: Comparison
) -> None:
    world = World()
    world.original(b"another")
    assert world.result(value, world.original(original)) == found


def test_an_original_that_is_gone_or_not_there_is_not_compared_and_the_next_one_is() -> None:
    world = World()
    for _ in range(2):
        world.original(b"text")
    FakeAdmin(world.cluster).delete_before({ORDERS: 1})
    assert world.result(b"text", 0) == Comparison.NOT_COMPARED
    assert world.result(b"text", 1) == Comparison.SAME
    assert world.result(b"text", 2) == Comparison.NOT_COMPARED
    assert world.result(b"text", 1) == Comparison.SAME


def test_originals_that_are_gone_are_looked_for_by_one_consumer() -> None:
    world = World()
    for _ in range(2):
        world.original(b"text")
    FakeAdmin(world.cluster).delete_before({ORDERS: 1})
    assert [world.result(b"text", 0) for _ in range(3)] == [Comparison.NOT_COMPARED] * 3
    assert world.result(b"text", 1) == Comparison.SAME
    (clients,) = world.clients
    (consumer,) = clients._consumers
    assert not consumer.closed


def test_a_topic_that_is_gone_costs_the_patience_of_one_read() -> None:
    world = World()
    samples = DuplicateSamples()
    samples.add(DuplicateSample.of("r", ORDERS, 9, b"v", Origin("gone", 0, 0, 0), ()))
    world.comparer.offer(samples)
    before_s = world.clock.monotonic_s()
    assert world.compared() == [Comparison.NOT_COMPARED]
    assert world.clock.monotonic_s() - before_s <= PATIENCE_S + 1


@pytest.mark.parametrize("is_duplicate", [True, False])
def test_a_value_that_is_too_large_is_not_compared(*, is_duplicate: bool) -> None:
    world, large = World(), b"v" * (VALUE_BYTES_MAX + 1)
    assert world.result(large[1:], world.original(large[1:])) == Comparison.SAME
    small, original = (large, b"v") if is_duplicate else (b"v", large)
    assert world.result(small, world.original(original)) == Comparison.NOT_COMPARED


def test_a_large_value_is_not_kept() -> None:
    sample = DuplicateSample.of("r", ORDERS, 1, b"v" * 100_000, Origin(*ORDERS, 0, 0), ())
    assert sample.value is None
    assert sample.is_oversized


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_an_error_of_the_broker_costs_one_sample_and_the_consumer(code: int) -> None:
    world = World()
    world.original(b"text")
    world.faults.append(plain(code, "no"))
    assert world.result(b"text", 0) == Comparison.NOT_COMPARED
    assert world.result(b"text", 0) == Comparison.SAME
    assert world.result(b"text", 0) == Comparison.SAME
    first, second = world.clients
    assert all(each.closed for each in first._consumers)
    assert not any(each.closed for each in second._consumers)


def test_a_consumer_reads_nothing_between_two_samples() -> None:
    world = World()
    world.original(b"text")
    assert world.result(b"text", 0) == Comparison.SAME
    (consumer,) = world.clients[0]._consumers
    assert consumer.assignment() == []


def test_samples_wait_up_to_a_limit_for_each_route_and_all() -> None:
    world = World()
    world.original(b"text")
    world.offer(*[b"text"] * (PER_ROUTE + 3))
    world.offer(b"text")
    assert len(world.compared()) == PER_ROUTE
    for number in range(WAITING_MAX):
        world.offer(b"text", b"other", route=f"r{number}")
    assert len(world.compared()) == WAITING_MAX
    world.offer(b"text")
    assert world.compared() == [Comparison.SAME]


def test_results_that_nobody_takes_are_bounded() -> None:
    world = World()
    world.original(b"text")
    for _ in range(WAITING_MAX + 10):
        world.offer(b"text")
        world.comparer.compare_next()
    assert len(world.comparer.take()) == WAITING_MAX
    assert world.comparer.take() == []


def test_comparisons_keep_their_distance() -> None:
    world = World()
    world.original(b"text")
    began_s = world.clock.monotonic_s()
    for number in range(11):
        world.offer(b"text", route=f"r{number}")
    assert len(world.compared()) == 11
    assert world.clock.monotonic_s() - began_s >= 10 * EVERY_S - 0.01


def test_a_comparison_that_takes_long_is_followed_by_a_long_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.original(b"text")

    def slow(*_values: object) -> bool:
        world.cluster.wait(1)
        return True

    monkeypatch.setattr("ringfence_service.dead_letters.comparer.is_same_content", slow)
    began_s = world.clock.monotonic_s()
    world.offer(b"text", b"text")
    assert len(world.compared()) == 2
    assert world.clock.monotonic_s() - began_s >= 1 / SHARE


def test_routes_take_turns() -> None:
    world = World()
    world.original(b"text")
    for _ in range(3):
        world.offer(b"text", b"text", route="loud")
    world.offer(b"text", route="quiet")
    found = []
    while world.comparer.compare_next():
        world.offer(b"text", b"text", route="loud")
        found += [each.sample.route for each in world.comparer.take()]
        if "quiet" in found:
            break
    assert found == ["loud", "loud", "quiet"]


def test_an_imported_id_has_no_original_to_compare_with() -> None:
    samples = DuplicateSamples()
    samples.add(DuplicateSample.of("r", ORDERS, 1, b"v", Origin("", 0, IMPORTED, 0), ()))
    assert list(samples) == []
    assert samples.wants("r")


def test_the_thread_goes_on_after_an_error_that_nobody_expects() -> None:
    world = World()
    world.original(b"text")
    samples = DuplicateSamples()
    broken = DuplicateSample("r", ORDERS, 1, cast("bytes", 7), Origin(*ORDERS, 0, 0), (), False)  # noqa: FBT003 - as it is stored
    samples.add(broken)
    world.comparer.offer(samples)
    world.comparer.start()
    world.offer(b"text")
    found: list[ComparedDuplicate] = []

    def is_compared() -> bool:
        found.extend(world.comparer.take())
        return bool(found)

    eventually(is_compared)
    assert [each.result for each in found] == [Comparison.SAME]
