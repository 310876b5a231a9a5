"""One route that lacks something waits alone: what others see of it, and how it goes on."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from ringfence_service.metadata.settings import SettingsOverlay
from ringfence_service.queries.status import PartitionStatus
from ringfence_state.model import PartitionId
from tests.support.helpers import some
from tests.support.living import ORDERS, ROUTE, Living, in_group, turn_until_running, turns
from tests.unit.service.processor.test_active_settings import put

OTHER = replace(ROUTE, name="payments", inputs=("payments",))
PAYMENTS = PartitionId("payments", 0)
SENTENCE = "topic orders.unique: it does not exist; create it"


def without_a_target(*, partitions: int = 1) -> Living:
    """Two routes, the first of which lacks its output."""
    living = Living(others=(OTHER,), partitions=partitions)
    del living.cluster.logs["orders.unique"]
    return living


def repaired(living: Living, partitions: int = 1) -> None:
    living.cluster.create_topic("orders.unique", partitions)
    living.cluster.wait(3)


def of(living: Living, source: PartitionId) -> PartitionStatus:
    (found,) = [each for each in living.board.read().partitions if each.source == source]
    return found


def test_a_route_without_its_output_waits_and_the_other_goes_on() -> None:
    living = without_a_target()
    living.send("a", "b")
    loop = living.running()
    aborts = living.board.read().counts.transactions_aborted
    for number in range(50):
        living.send(f"p{number}", topic="payments")
        loop.turn()
    assert living.values("payments.unique") == [f"p{number}" for number in range(50)]
    assert (living.committed(PAYMENTS), living.committed()) == (50, None)
    living.cluster.wait(1)
    loop.turn()
    status = living.board.read()
    assert (status.phase, status.waiting_for) == ("running", None)
    assert of(living, ORDERS).waiting_for == SENTENCE
    assert of(living, ORDERS).lag_records == 2
    assert of(living, PAYMENTS).waiting_for is None
    assert status.counts.transactions_aborted == aborts, "the route costs the other no transaction"
    assert b"\nringfence_blocked_partitions 1.0" in living.metrics.exposition()
    repaired(living)
    turns(loop)
    assert (living.values("orders.unique"), living.committed()) == (["a", "b"], 2)
    now = of(living, ORDERS)
    assert (now.waiting_for, now.waiting_since) == (None, None)


@pytest.mark.parametrize("right", ["WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"])
def test_a_route_that_may_not_write_its_output_waits_and_the_other_goes_on(right: str) -> None:
    living = Living(others=(OTHER,))
    living.cluster.denied.add(("orders.unique", right))
    living.send("a", "b")
    loop = living.running()
    for number in range(50):
        living.cluster.wait(1_000)
        living.send(f"p{number}", topic="payments")
        loop.turn()
    assert living.values("payments.unique") == [f"p{number}" for number in range(50)]
    status = living.board.read()
    assert (status.phase, status.waiting_for, status.counts.transactions_aborted) == (
        "running",
        None,
        0,
    )
    assert "grant WRITE, DESCRIBE" in some(of(living, ORDERS).waiting_for)
    living.cluster.denied.clear()
    living.cluster.wait(3)
    turns(loop)
    assert living.values("orders.unique") == ["a", "b"]


def test_a_right_to_write_that_is_revoked_costs_one_transaction() -> None:
    living = Living(others=(OTHER,))
    loop = living.running()
    turns(loop)
    living.cluster.denied.add(("orders.unique", "WRITE"))
    living.send("a")
    for number in range(50):
        living.cluster.wait(10_000)
        living.send(f"p{number}", topic="payments")
        loop.turn()
    turns(loop)
    assert living.board.read().counts.transactions_aborted == 1
    assert living.committed(PAYMENTS) == 50
    assert living.values("orders.unique") == []


@pytest.mark.parametrize("right", ["READ", "DESCRIBE", "DESCRIBE_CONFIGS"])
def test_a_route_that_may_not_read_its_input_waits_and_the_other_goes_on(right: str) -> None:
    living = Living(others=(OTHER,))
    living.send("a")
    living.cluster.denied.add(("orders", right))
    loop = living.running()
    for number in range(50):
        living.cluster.wait(1_000)
        living.send(f"p{number}", topic="payments")
        turns(loop, 2)
    assert living.committed(PAYMENTS) == 50
    status = living.board.read()
    assert (status.phase, status.inputs_missing) == ("running", ("orders",))
    living.cluster.denied.clear()
    living.cluster.wait(3_000)
    turns(loop, 50)
    assert living.values("orders.unique") == ["a"]


def test_a_wait_lasts_from_its_first_record_on_and_does_not_end_the_process() -> None:
    living = without_a_target()
    living.send("a")
    loop = living.running()
    since = datetime.fromtimestamp(living.clock.wall_ms() / 1000, UTC)
    for _ in range(20):
        living.cluster.wait(100)
        living.send("p", topic="payments")
        turns(loop, 2)
        assert (since - some(of(living, ORDERS).waiting_since)).total_seconds() < 1
    repaired(living)
    turns(loop)
    assert living.values("orders.unique") == ["a"]


def test_all_routes_that_wait_are_a_wait_of_the_instance() -> None:
    living = Living()
    del living.cluster.logs["orders.unique"]
    living.send("a")
    loop = living.running()
    turns(loop)
    assert (living.board.read().phase, living.board.read().waiting_for) == ("waiting", SENTENCE)
    repaired(living)
    turns(loop)
    assert (living.board.read().phase, living.values("orders.unique")) == ("running", ["a"])


def test_partitions_of_the_route_whose_records_need_nothing_go_on() -> None:
    """A record without an id needs no output here."""
    living = Living(replace(ROUTE, missing_id="dead_letter"), partitions=2)
    del living.cluster.logs["orders.unique"]
    living.write(b"no id", partition=1)
    living.send("b")
    loop = living.running()
    living.cluster.wait(1)
    turns(loop)
    assert len(living.cluster.records("orders.dlq", 1)) == 1
    assert [of(living, PartitionId("orders", n)).waiting_for for n in range(2)] == [SENTENCE, None]


def test_a_blocked_partition_that_moves_waits_where_it_is_then() -> None:
    living = without_a_target()
    living.send("a", "b")
    first = living.running()
    turns(first)
    first.close(leaves=True)
    second = living.loop("1")
    turn_until_running(second)
    living.cluster.wait(1)
    turns(second)
    assert of(living, ORDERS).waiting_for == SENTENCE
    repaired(living)
    turns(second)
    assert living.values("orders.unique") == ["a", "b"]


def test_a_blocked_partition_that_is_revoked_leaves_nothing_behind() -> None:
    living = without_a_target(partitions=2)
    for partition in range(2):
        living.send("a", "b", partition=partition)
    first = living.running()
    turns(first)
    assert len(first.assignment.fetching.blocks) == 2
    second = living.loop("1")
    for _ in range(50):
        first.turn()
        second.turn()
    blocks = [each.assignment.fetching.blocks.keys() for each in (first, second)]
    owned = [each.assignment.running.keys() for each in (first, second)]
    assert blocks == [{s for s in each if s.topic == "orders"} for each in owned]
    assert blocks[0] | blocks[1] == {PartitionId("orders", 0), PartitionId("orders", 1)}
    repaired(living, 2)
    for _ in range(20):
        first.turn()
        second.turn()
    assert [living.values("orders.unique", n) for n in range(2)] == [["a", "b"]] * 2


def test_new_settings_that_need_it_no_more_end_the_wait() -> None:
    living = without_a_target()
    living.cluster.create_topic("elsewhere")
    living.send("a")
    loop = living.running()
    turns(loop)
    keys = {"inputs": ["orders"], "scope": "partition", "output": "elsewhere"}
    put(living, SettingsOverlay(routes={"orders": keys}))
    turns(loop)
    assert (living.values("elsewhere"), of(living, ORDERS).waiting_for) == (["a"], None)


def test_a_blocked_route_can_be_paused_and_resumed() -> None:
    living = without_a_target()
    living.send("a")
    loop = living.running()
    turns(loop)
    put(living, SettingsOverlay(paused=("orders",)))
    repaired(living)
    turns(loop)
    assert (of(living, ORDERS).paused, living.values("orders.unique")) == (True, [])
    put(living, SettingsOverlay())
    turns(loop)
    assert living.values("orders.unique") == ["a"]


def test_a_group_whose_time_is_over_waits_with_its_partition_for_the_dead_letter_topic() -> None:
    living = Living(
        others=(OTHER,), addresses={"orders": {"group_timeout_ms": 1_000}}, batch_wait_ms=1
    )
    loop = living.running()
    living.write(b"a", *in_group("g", 1, 2))
    turns(loop)
    del living.cluster.logs["orders.dlq"]
    loop.active_settings.doubt_targets()
    living.cluster.wait(2)
    for number in range(20):
        living.send(f"p{number}", topic="payments")
        loop.turn()
    assert living.committed(PAYMENTS) == 20
    assert "orders.dlq" in (of(living, ORDERS).waiting_for or "")
    living.cluster.create_topic("orders.dlq")
    living.cluster.wait(3)
    turns(loop)
    assert living.reasons("orders.dlq") == ["group-incomplete"]


def test_an_input_that_is_missing_is_reported_while_others_are_read() -> None:
    living = Living(others=(OTHER,))
    del living.cluster.logs["orders"]
    loop = living.running()
    for number in range(5):
        living.cluster.wait(300)
        living.send(f"p{number}", topic="payments")
        turns(loop, 2)
        status = living.board.read()
        assert (status.phase, status.inputs_missing) == ("running", ("orders",))
    assert living.committed(PAYMENTS) == 5
    assert b"\nringfence_missing_inputs 1.0" in living.metrics.exposition()
    living.cluster.create_topic("orders")
    living.send("a")
    living.cluster.wait(6)
    turns(loop)
    assert (living.values("orders.unique"), living.board.read().inputs_missing) == (["a"], ())


def test_a_wait_that_lasts_is_logged_once_for_all_its_partitions() -> None:
    living = without_a_target(partitions=3)
    for partition in range(3):
        living.send("a", partition=partition)
    loop = living.running()
    with capture_logs() as logged:
        turns(loop)
        for _ in range(10):
            living.cluster.wait(5)
            turns(loop, 2)
        repaired(living, 3)
        turns(loop)
    told = [each for each in logged if each["event"] in {"blocked", "unblocked"}]
    assert [(each["event"], each["reason"]) for each in told] == [
        ("blocked", SENTENCE),
        ("unblocked", SENTENCE),
    ]
    assert told[0]["partitions"] == ["orders-0", "orders-1", "orders-2"]
