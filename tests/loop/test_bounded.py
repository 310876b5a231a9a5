"""What one transaction takes in is bounded: by its age, by memory, and by the groups that end."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import structlog
from confluent_kafka import Message

from ringfence_client.headers import DUPLICATE_ID
from ringfence_service.config.addresses import AddressBook
from ringfence_service.dedup.plan import Plan
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.transaction import TransactionManager
from ringfence_service.queries.status import StatusBoard
from ringfence_service.supervisor.loop_runner import LoopRunner
from ringfence_state.cache import BatchTooLargeError, Cache
from ringfence_state.model import PartitionId
from ringfence_state.store import Store
from ringfence_state.strategies.base import CommittedState, Strategy
from tests.fakes.consumer import FakeConsumer
from tests.fakes.group import Committed
from tests.fakes.log import Chance
from tests.support.living import GROUP as CONSUMERS
from tests.support.living import (
    LOG,
    ORDERS,
    ROUTE,
    Living,
    in_group,
    turn_until_running,
    turns,
)
from tests.support.native import native_rings, needs_native

BY_KEY = replace(ROUTE, address="{key}")


class Prompt(Chance):
    """A client that sends each record at once, so that its transaction begins at the broker."""

    def sends_now(self) -> bool:
        return True


def send(living: Living, identifier: bytes, *addresses: str, partition: int = 0) -> None:
    for address in addresses:
        value = address.encode() + b":" + identifier
        name = (DUPLICATE_ID, identifier)
        living.write(value, name, key=address.encode(), partition=partition)


def join(living: Living, group: str, *positions: int, size: int, value: bytes = b"") -> None:
    for position in positions:
        living.write(value, *in_group(group, position, size))


def with_slow_loads(
    living: Living, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> list[tuple[PartitionId, str]]:
    """Loading what an address remembers takes time; which were loaded."""
    genuine, loads = Cache._loaded, list[tuple[PartitionId, str]]()

    def slow(
        cache: Cache, source: PartitionId, store: Store, address: str, strategy: Strategy
    ) -> CommittedState:
        living.cluster.wait(seconds)
        loads.append((source, address))
        return genuine(cache, source, store, address, strategy)

    monkeypatch.setattr(Cache, "_loaded", slow)
    return loads


def lived(living: Living, is_done: Callable[[], bool]) -> int:
    """How many lives a worker takes for it."""
    worker = living.worker()
    genuine = LoopRunner.turn

    def turn(loop: Loop) -> None:
        genuine(worker, loop)
        if is_done():
            worker.stop()

    worker.turn = turn  # type: ignore[method-assign]  # it has no other end
    worker.run()
    return living.faults.passed["subscribe"]


@pytest.mark.row(30)
@pytest.mark.parametrize("seconds", [1.0, 11.0])
def test_addresses_that_load_for_longer_than_a_transaction_may_take_get_through(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Living(BY_KEY, chance=Prompt(), partitions=2, transaction_timeout_ms=10_000)
    addresses = [f"a{number}" for number in range(40)]
    for partition in (0, 1):
        send(living, b"old", *addresses, partition=partition)
    living.running().close()
    living.faults.passed.clear()
    living.faults.steps_max = 200_000
    for partition in (0, 1):
        send(living, b"new", *addresses, partition=partition)
        send(living, b"old", *addresses, partition=partition)
    loads = with_slow_loads(living, monkeypatch, seconds)

    def is_done() -> bool:
        return [living.committed(PartitionId("orders", n)) for n in (0, 1)] == [120, 120]

    assert lived(living, is_done) == 1
    assert len(living.values("orders.unique", 0)) == len(living.values("orders.unique", 1)) == 80
    assert len(loads) == 80, "what was loaded for a transaction that was aborted is still there"


@pytest.mark.row(30)
@pytest.mark.parametrize("seconds", [0.02, 0.5, 2.0])
def test_while_addresses_are_loaded_the_loop_is_alive_and_its_group_is_served(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Living(BY_KEY, chance=Prompt(), transaction_timeout_ms=10_000)
    addresses = [f"a{number}" for number in range(300)]
    send(living, b"old", *addresses)
    living.running().close()
    living.faults.passed.clear()
    living.faults.steps_max = 200_000
    send(living, b"new", *addresses)
    loads = with_slow_loads(living, monkeypatch, seconds)
    beats, served = [living.clock.monotonic_s()], list[float]()
    consume = FakeConsumer.consume

    def beat(_board: StatusBoard) -> None:
        beats.append(living.clock.monotonic_s())

    def consumed(consumer: FakeConsumer, *given: Any) -> list[Message]:
        served.append(living.clock.monotonic_s())
        return consume(consumer, *given)

    monkeypatch.setattr(StatusBoard, "beat", beat)
    monkeypatch.setattr(FakeConsumer, "consume", consumed)
    assert lived(living, lambda: living.committed() == 600) == 1
    assert len(loads) == 300
    assert max(later - sooner for sooner, later in pairwise(beats)) <= seconds + 1
    assert max(later - sooner for sooner, later in pairwise(served)) <= seconds + 3
    assert living.board.read().counts.transactions_aborted <= 6, (
        "its first piece, until it is small"
    )


@pytest.mark.row(30)
def test_a_transaction_that_the_broker_ended_keeps_the_partitions_and_what_is_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living(BY_KEY, transaction_timeout_ms=10_000)
    send(living, b"old", "a", "b")
    loop = living.running()
    send(living, b"old", "a", "b")
    loads = with_slow_loads(living, monkeypatch, 0.1)

    def slow() -> Iterator[None]:
        for _ in range(2):
            living.cluster.wait(25)
            yield None

    living.faults.at["flush.done"] = slow()
    turns(loop)
    assert living.values("orders.unique") == ["a:old", "b:old"]
    assert living.values("orders.dlq") == ["a:old", "b:old"]
    assert loads == []
    assert loop.assignment.rebalances == 1


@pytest.mark.row(30)
@pytest.mark.parametrize("at_once", [1, 7, 512])
def test_a_transaction_uses_no_more_memory_than_there_is(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence_service.processor.poll._AT_ONCE", at_once)
    living = Living(BY_KEY)
    addresses = [f"a{number}" for number in range(60)]
    for number in range(20):
        send(living, b"%d" % number, *addresses)
    living.running().close()
    loop = living.loop()
    limit = loop.cache.memory_bytes_max = 60_000
    held: list[int] = []
    genuine = Cache.memory

    def seen(cache: Cache, *rest: object) -> CommittedState:
        try:
            return genuine(cache, *rest)  # type: ignore[arg-type]  # as it was called
        finally:
            held.append(max(cache.memory_bytes, cache.used_bytes))

    monkeypatch.setattr(Cache, "memory", seen)
    turn_until_running(loop)
    send(living, b"19", *addresses)
    send(living, b"new", *addresses)
    for _ in range(2_000):
        loop.turn()
        if living.committed() == 22 * 60:
            break
    assert living.committed() == 22 * 60
    assert len(living.values("orders.dlq")) == 60
    assert limit / 2 < max(held) < limit * 1.25


def test_what_a_transaction_does_not_use_is_evicted_while_it_is_decided() -> None:
    living = Living(BY_KEY)
    send(living, b"x", "a", "b")
    loop = living.running()
    assert loop.cache.look(ORDERS, "a") is not None
    loop.cache.memory_bytes_max = loop.cache.memory_bytes
    send(living, b"x", "b", "c")
    loop.turn()
    assert [loop.cache.look(ORDERS, address) is None for address in "abc"] == [True, False, False]


@pytest.mark.parametrize("path", ["python", pytest.param("native", marks=needs_native)])
@pytest.mark.parametrize("whole_ids_max", [0, 100_000])
def test_a_ring_that_alone_exceeds_the_memory_is_loaded_once_and_its_excess_is_shown(
    path: str, whole_ids_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence_state.cache.WHOLE_IDS_MAX", whole_ids_max)
    living = Living(BY_KEY)
    for number in range(400):
        send(living, b"%d" % number, "large")
    with native_rings() if path == "native" else nullcontext():
        living.running().close()
        loop = living.loop()
        loop.cache.memory_bytes_max = 1_000
        loads = with_slow_loads(living, monkeypatch, 0)
        turn_until_running(loop)
        with structlog.testing.capture_logs() as logs:
            for number in range(400, 500):
                send(living, b"%d" % number, "large")
                send(living, b"%d" % (number - 100), "large")
                send(living, b"same", "small")
                loop.turn()
                living.cluster.wait(1)
        turns(loop, 5)
    assert living.committed() == 700
    assert len(living.values("orders.unique")) == 400 + 100 + 1
    assert living.board.read().counts.transactions_aborted == 0
    assert loads.count((ORDERS, "large")) == 1
    told = [line for line in logs if line["event"] == "cache_exceeded"]
    assert [(line["address"], line["limit_bytes"]) for line in told] == [("large", 1_000)]
    excess_bytes = loop.cache.memory_bytes - 1_000
    shown = loop.reporter.metrics.exposition().decode()
    assert f"ringfence_cache_excess_bytes {float(excess_bytes)}" in shown
    assert excess_bytes > 0


# Groups.


def test_groups_that_are_overdue_go_out_in_transactions_of_the_configured_size() -> None:
    living = Living(
        addresses={"#": {"group_timeout_ms": 5_000}}, batch_records_max=10, batch_bytes_max=1 << 20
    )
    for number in range(30):
        join(living, f"g{number}", 1, 2, 3, size=4)
    loop = living.running()
    turns(loop, 20)
    living.cluster.wait(6)
    sizes = sizes_of(loop)
    turns(loop, 30)
    assert len(living.values("orders.dlq")) == 90
    assert sum(sizes) == 90
    assert max(sizes) <= 10


def test_groups_that_are_overdue_are_cut_by_their_bytes_too() -> None:
    living = Living(addresses={"#": {"group_timeout_ms": 5_000}}, batch_bytes_max=10_000)
    for number in range(6):
        join(living, f"g{number}", 1, size=2, value=b"." * 4_000)
    loop = living.running()
    turns(loop, 20)
    living.cluster.wait(6)
    sizes = sizes_of(loop)
    turns(loop, 20)
    assert [size for size in sizes if size] == [2, 2, 2]


def test_where_fewer_groups_may_wait_than_before_no_record_ends_them_all() -> None:
    living = Living(
        addresses={"#": {"groups_open_max": 100}}, batch_records_max=10, batch_bytes_max=60_000
    )
    for number in range(60):
        join(living, f"g{number}", 1, 2, size=4, value=b"." * 1_000)
    turns(living.running(), 60)
    fewer = AddressBook.of({"#": {"groups_open_max": 5}})
    living.config = replace(living.config, addresses=fewer)
    loop = living.loop()
    turn_until_running(loop)
    sizes = sizes_of(loop)
    for number in range(80):
        join(living, f"h{number}", 1, size=4)
    turns(loop, 80)
    assert len(living.values("orders.dlq")) == 120 + 75
    assert max(sizes) < 60, "some 2,000 bytes each two"
    assert living.board.read().counts.transactions_aborted == 0


def test_a_batch_that_completes_large_groups_is_cut_by_their_bytes() -> None:
    living = Living(batch_bytes_max=10_000)
    for number in range(8):
        join(living, f"g{number}", 1, size=2, value=b"." * 4_000)
    loop = living.running()
    turns(loop, 20)
    for number in range(8):
        join(living, f"g{number}", 2, size=2)
    sizes = sizes_of(loop)
    turns(loop, 40)
    assert len(living.values("orders.unique")) == 16
    assert max(sizes) <= 4


def test_of_groups_that_are_too_large_together_one_may_end_in_a_transaction() -> None:
    bounded, larger, unbounded = Plan(is_bounded=True), Plan(is_bounded=True), Plan()
    assert [bounded.release(size, 10) for size in (4, 1, 5)] == [True, False, False]
    assert [unbounded.release(size, 10) for size in (99, 99)] == [False, False]
    assert not larger.release(99, 10)
    with pytest.raises(BatchTooLargeError):
        larger.release(1, 10)


def sizes_of(loop: Loop) -> list[int]:
    """How many records each transaction that is committed from now on sends."""
    sizes, genuine = list[int](), TransactionManager.commit

    def commit(plan: Plan, outputs: object, build_offsets: object, group: object) -> None:
        sent: list[int] = []

        def counted() -> object:
            for part in outputs:  # type: ignore[attr-defined]  # as it was called
                sent.append(len(part))
                yield part

        genuine(loop.transaction_manager, plan, counted(), build_offsets, group)  # type: ignore[arg-type]
        sizes.append(sum(sent))

    loop.transaction_manager.commit = commit  # type: ignore[method-assign]
    return sizes


# A state that is cleared.


def test_a_state_is_cleared_in_transactions_of_the_configured_size() -> None:
    living = Living(BY_KEY, on_reset_offset="clear_state", batch_records_max=10)
    addresses = [f"a{number}" for number in range(35)]
    send(living, b"x", *addresses)
    loop = living.running()
    turns(loop, 10)
    loop.close()
    living.cluster.group(CONSUMERS).store(ORDERS, Committed(0, ""))
    loop = living.loop()
    sizes = sizes_of(loop)
    turns(loop, 30)
    assert len(living.values("orders.unique")) == 70
    assert [record.value for record in living.cluster.records(*LOG)].count(None) == 35
    assert sizes[:4] == [0] * 4, "four transactions delete 35 keys"
    assert living.faults.passed["store.wipe"] == 1, "it was ahead of the reset offset"


@pytest.mark.row(20)
def test_a_state_whose_clearing_was_interrupted_is_cleared_by_the_next_owner() -> None:
    living = Living(BY_KEY, on_reset_offset="clear_state", batch_records_max=10)
    addresses = [f"a{number}" for number in range(35)]
    send(living, b"x", *addresses)
    loop = living.running()
    turns(loop, 10)
    loop.close()
    living.cluster.group(CONSUMERS).store(ORDERS, Committed(0, ""))

    class Killed(BaseException):
        pass

    def killed() -> Iterator[None]:
        yield from (None, None)
        raise Killed

    living.faults.at["begin_transaction"] = killed()
    with pytest.raises(Killed):
        turn_until_running(living.loop())
    assert [record.value for record in living.cluster.records(*LOG)].count(None) == 20
    living.cluster.wait(60)
    turns(living.running(), 20)
    assert len(living.values("orders.unique")) == 70
