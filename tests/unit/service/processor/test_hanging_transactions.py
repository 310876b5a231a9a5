"""A transaction that never ends is reported, on an input and on a changelog, and then read past."""

import pytest

from ringfence_service.processor.stuck_inputs import HangingTransactions, describe_held
from ringfence_state.model import PartitionId
from tests.fakes.partition import Record
from tests.fakes.producer import FakeProducer
from tests.support.helpers import some
from tests.support.living import (
    LOG,
    ORDERS,
    Living,
    gone,
    turn_until_running,
    turns,
    waiting_for,
)
from tests.unit.service.processor.test_restore import run_of

pytestmark = pytest.mark.row(21)


def hanging(living: Living, topic: str, record: Record) -> FakeProducer:
    """Somebody's open transaction, with nobody who would end it."""
    producer = FakeProducer(living.cluster, "hanging", timeout_ms=900_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, record.value, record.key, partition=0)
    producer.flush()
    return producer


def test_an_input_that_is_held_back_is_counted_and_the_service_stays_ready() -> None:
    living = Living()
    loop = living.loop()
    turn_until_running(loop)
    producer = hanging(living, "orders", Record(None, b"open"))
    living.send("behind")
    for _ in range(5):
        living.cluster.wait(11)
        loop.turn()
    assert b"ringfence_held_back_partitions 1.0" in loop.reporter.metrics.exposition()
    assert waiting_for(living) is None
    producer.abort_transaction()
    living.cluster.wait(11)
    turns(loop)
    assert living.values("orders.unique") == ["behind"]
    assert b"ringfence_held_back_partitions 0.0" in loop.reporter.metrics.exposition()


def test_a_changelog_that_is_held_back_is_waited_for_with_what_to_do() -> None:
    living = Living()
    living.cluster.create_topic(LOG.topic, cleanup_policy="compact")
    producer = hanging(living, LOG.topic, run_of(0))
    living.send("a")
    loop = living.loop()
    for _ in range(6):
        living.cluster.wait(11)
        loop.turn()
    told = some(waiting_for(living))
    assert f"{LOG.topic}-0 to be readable from offset 0 on" in told
    assert "describe-producers" in told
    producer.abort_transaction()
    turn_until_running(loop)
    turns(loop)
    assert living.values("orders.unique") == ["a"]
    assert waiting_for(living) is None


def test_an_input_at_which_nothing_happens_is_not_held_back() -> None:
    living = Living()
    living.send("a")
    loop = living.loop()
    for _ in range(6):
        living.cluster.wait(11)
        loop.turn()
    assert loop.assignment.held == {}


def test_a_log_is_checked_after_twenty_seconds_without_progress_and_then_every_five() -> None:
    living, checked = Living(), list[int]()
    living.send("a")
    hanging = HangingTransactions(living.clients().cluster, living.clock, lambda _: 0)
    for _ in range(40):
        living.clock.sleep(1)
        hanging.poll(lambda: {ORDERS: 0})
        checked.append(living.faults.passed["ends"])
    assert [checked.index(count) + 1 for count in (1, 2, 3)] == [5 + 20, 30, 35]


@pytest.mark.parametrize(
    ("held", "named"),
    [
        ({ORDERS: 5}, "orders-0 to be readable from offset 5 on"),
        ({PartitionId("z", 0): 1, ORDERS: 5}, "orders-0 and 1 more to be readable from offset 5"),
    ],
)
def test_the_first_log_that_is_held_back_is_named_and_the_others_are_counted(
    held: dict[PartitionId, int], named: str
) -> None:
    assert some(describe_held(held)).startswith(named)


def test_a_cluster_that_does_not_answer_is_asked_later_and_nothing_is_disturbed() -> None:
    living = Living()
    loop = living.loop()
    turn_until_running(loop)
    hanging(living, "orders", Record(None, b"open"))
    for _ in range(4):
        living.cluster.wait(11)
        living.faults.at["ends"] = iter([gone()])
        loop.turn()
    assert waiting_for(living) is None
    assert loop.assignment.held == {}
    living.cluster.wait(11)
    loop.turn()
    assert loop.assignment.held == {ORDERS: 0}
