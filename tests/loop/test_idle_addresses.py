"""Idle addresses in the loop: they expire in transactions, whatever ends the process meanwhile."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import pytest

from ringfence_client.headers import DUPLICATE_ID
from ringfence_service.dedup.partition import addresses_of
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.occupancy import PERIOD_S
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Edit
from tests.support.living import LOG, ORDERS, ROUTE, Living, refused, turn_until_running, turns
from tests.support.native import native_rings, needs_native

BY_KEY = replace(ROUTE, address="{key}")
IDLE_S = 600
BOTH_PATHS = pytest.mark.parametrize("path", ["python", pytest.param("native", marks=needs_native)])


def living(addresses_max: int = 2, **settings: object) -> Living:
    own = {"address_idle_ms": IDLE_S * 1000, "addresses_max": addresses_max, **settings}
    return Living(BY_KEY, {"#": own})


def send(here: Living, *addresses: str) -> None:
    for address in addresses:
        here.write(address.encode(), (DUPLICATE_ID, b"a"), key=address.encode())


def held(loop: Loop) -> set[str]:
    return loop.assignment.running[ORDERS].addresses


def folded(here: Living) -> dict[bytes, bytes]:
    """What the changelog says of the state."""
    store = MemoryStore()
    for record in here.cluster.records(*LOG):
        store.keep([Edit(record.key or b"", record.value)])
    return dict(store.scan(b""))


class Killed(BaseException):
    """The process ends at once."""


class KilledAt(dict[str, Iterator[Exception | None]]):
    """Ends the process at one step, whichever that is."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.left = step

    def get(self, _step: str, _default: object = None) -> Iterator[Exception | None]:
        self.left -= 1
        if not self.left:
            raise Killed
        return iter(())


def expired_after_a_kill(step: int, *, is_lost: bool) -> bool:
    """Whether the process was killed at this step, in a run in which two addresses expire."""
    here = living()
    send(here, "x", "z")
    loop = here.running()
    turns(loop, 5)
    assert held(loop) == {"x", "z"}
    here.cluster.wait(IDLE_S + 1)
    send(here, "y")
    here.faults.at = kill = KilledAt(step)
    is_killed = False
    try:
        turns(loop, 4)
    except Killed:
        is_killed = True
    kill.left = 0  # none follows
    if is_killed:
        here.cluster.wait(60)
        if is_lost:
            here.stores.lose()  # type: ignore[attr-defined]
        loop = here.loop()
        turn_until_running(loop)
        turns(loop, 8)
    assert held(loop) == {"y"}
    send(here, "x", "x")
    turns(loop, 5)
    assert held(loop) == {"x", "y"}
    assert here.values("orders.unique") == ["x", "z", "y", "x"]
    assert here.reasons("orders.dlq") == ["duplicate"]
    assert here.committed() == 5
    state = folded(here)
    assert state == dict(loop.assignment.running[ORDERS].kept_store.scan(b""))
    store = MemoryStore()
    store.keep([Edit(key, value) for key, value in state.items()])
    assert addresses_of(store) == {"x", "y"}
    return is_killed


@pytest.mark.parametrize("is_lost", [False, True], ids=["disk kept", "disk lost"])
@BOTH_PATHS
def test_addresses_expire_exactly_once_whenever_the_process_is_killed(
    path: str, *, is_lost: bool
) -> None:
    with native_rings() if path == "native" else nullcontext():
        steps = 1
        while expired_after_a_kill(steps, is_lost=is_lost):
            steps += 1
        assert steps > 20, steps


@BOTH_PATHS
def test_a_new_address_gets_in_where_the_partition_is_full_of_idle_ones(path: str) -> None:
    with native_rings() if path == "native" else nullcontext():
        here = living(addresses_max=3)
        send(here, "a", "b", "c", "d")
        loop = here.running()
        turns(loop, 5)
        assert here.reasons("orders.dlq") == ["too-many-addresses"]
        here.cluster.wait(IDLE_S + 1)
        send(here, "d", "e", "f", "d")
        loop.turn()
        assert here.values("orders.unique") == ["a", "b", "c", "d", "e", "f"]
        assert here.reasons("orders.dlq") == ["too-many-addresses", "duplicate"]
        assert held(loop) == {"d", "e", "f"}
        send(here, "g")
        turns(loop, 3)
        assert here.reasons("orders.dlq")[2:] == ["too-many-addresses"]


def test_an_expiry_that_is_aborted_is_tried_again() -> None:
    here = living(addresses_max=10)
    send(here, "x")
    loop = here.running()
    here.cluster.wait(IDLE_S + 1)
    send(here, "y")
    loop.turn()
    assert held(loop) == {"x", "y"}
    here.faults.at["commit_transaction"] = iter([refused()])
    loop.turn()
    assert held(loop) == {"x", "y"}
    turns(loop, 10)
    assert held(loop) == {"y"}
    assert here.board.read().counts.transactions_aborted == 1


def test_an_idle_address_leaves_no_trace_in_the_metrics_and_the_list() -> None:
    here = living(addresses_max=10)
    send(here, "x", "x")
    loop = here.running()
    turns(loop, 5)
    assert 'address="x"' in here.metrics.exposition().decode()
    assert "x" in loop.address_counters
    here.cluster.wait(IDLE_S + 1)
    send(here, "y")
    turns(loop, 5)
    here.cluster.wait(PERIOD_S)
    turns(loop, 2)
    shown = here.metrics.exposition().decode()
    assert 'address="x"' not in shown
    assert 'ringfence_records_forwarded_total{address="y"' in shown
    assert "ringfence_addresses_expired_total 1.0" in shown
    assert "x" not in loop.address_counters
    assert here.metrics.labelled_addresses == {"y"}


def test_an_address_that_another_partition_holds_keeps_its_series() -> None:
    here = Living(BY_KEY, {"#": {"address_idle_ms": IDLE_S * 1000}}, partitions=2)
    for partition in (0, 1):
        here.write(b"x", (DUPLICATE_ID, b"a"), key=b"x", partition=partition)
    loop = here.running()
    turns(loop, 5)
    here.cluster.wait(IDLE_S + 1)
    here.write(b"y", (DUPLICATE_ID, b"a"), key=b"y", partition=0)
    turns(loop, 5)
    # Time is that of a partition: nothing has happened on the other one.
    assert {s.partition: p.addresses for s, p in loop.assignment.running.items()} == {
        0: {"y"},
        1: {"x"},
    }
    assert 'address="x"' in here.metrics.exposition().decode()
    assert "x" in loop.address_counters
