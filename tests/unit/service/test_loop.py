"""The loop: what comes in gets through once, and what goes wrong is waited for or ends the life."""

from dataclasses import replace
from itertools import repeat
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from service.commit import OutcomeUnknownError
from service.errors import ExitCode, ExitError
from state.edit import Edit, Source
from state.run import key
from state.store import StoreFailedError
from tests.fakes.consumer import FakeConsumer
from tests.fakes.errors import fenced, plain
from tests.fakes.group import Committed
from tests.fakes.log import Chance
from tests.unit.service.living import (
    GROUP,
    LOG,
    ORDERS,
    ROUTE,
    Living,
    gone,
    late,
    refused,
    turn_until_running,
    turns,
)


def waiting_for(living: Living) -> str | None:
    return living.board.read().waiting_for


def test_the_first_of_an_id_goes_on_and_the_second_to_the_dead_letters() -> None:
    living = Living()
    living.send("a", "b", "a")
    living.running()
    assert living.values("orders.unique") == ["a", "b"]
    assert (living.values("orders.dlq"), living.reasons("orders.dlq")) == (["a"], ["duplicate"])
    assert living.committed() == 3


def test_a_batch_is_one_transaction() -> None:
    living = Living(partitions=2)
    living.send("a", "b", partition=0)
    living.send("c", partition=1)
    living.running()
    assert living.faults.passed["begin_transaction"] == 1
    assert (living.committed(), living.committed(Source("orders", 1))) == (2, 1)


def test_a_batch_is_cut_into_transactions_of_the_configured_size() -> None:
    living = Living(batch_records_max=2)
    living.send("a", "b", "c")
    turns(living.running())
    assert living.faults.passed["begin_transaction"] == 2
    assert living.committed() == 3


def test_a_batch_is_cut_by_its_bytes_too() -> None:
    living = Living(batch_bytes_max=1000)
    living.send("a", "b", size=1000)
    living.running()
    assert living.faults.passed["begin_transaction"] == 2


def test_what_was_accepted_in_an_earlier_life_is_a_duplicate_in_the_next() -> None:
    living = Living()
    living.send("a")
    living.running().close()
    living.send("a", "b")
    living.running()
    assert living.values("orders.unique") == ["a", "b"]


def test_every_turn_is_a_heartbeat() -> None:
    living = Living()
    loop = living.running()
    living.clock.sleep(100)
    loop.turn()
    assert living.board.heartbeat_age_ms() < 100


# What aborts.


@pytest.mark.parametrize("step", ["send", "send_offsets_to_transaction", "commit_transaction"])
def test_after_an_abort_the_same_records_are_read_again_and_get_through_once(step: str) -> None:
    living = Living()
    living.faults.at[step] = iter([refused()])
    living.send("a", "b", "a")
    turns(living.running())
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values("orders.dlq") == ["a"]
    assert living.board.read().transactions_aborted == 1


def test_an_abort_changes_neither_store_nor_memory() -> None:
    living = Living()
    loop = living.running()
    living.faults.at["commit_transaction"] = iter(refused, None)
    living.send("a")
    turns(loop, 3)
    partition = loop.assignment.running[ORDERS]
    assert partition.store is not None
    assert partition.store.position() is None
    assert (partition.next_offset, partition.addresses) == (0, set())
    assert loop.cache.memory_bytes == 0


def test_a_fault_of_the_broker_is_waited_for_and_dead_letters_nothing() -> None:
    living = Living()
    living.faults.at["commit_transaction"] = iter(refused, None)
    living.send("a")
    loop = living.running()
    turns(loop)
    assert "NOT_ENOUGH_REPLICAS" in (waiting_for(living) or "")
    del living.faults.at["commit_transaction"]
    turns(loop)
    assert living.board.read().phase == "running"
    assert (living.values("orders.unique"), living.values("orders.dlq")) == (["a"], [])


def test_the_backoff_grows_to_five_seconds_and_starts_anew_after_a_success() -> None:
    living = Living()
    loop = living.running()

    def paused_s() -> float:
        before_ms = living.cluster.now_ms
        loop.turn()
        return round((living.cluster.now_ms - before_ms) / 1000, 1)

    for _ in range(2):
        living.faults.at["commit_transaction"] = iter([refused() for _ in range(7)])
        living.send("a")
        assert [paused_s() for _ in range(7)] == [0.1, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0]
        turns(loop)


def test_a_broker_that_refuses_for_too_long_ends_the_process_with_exit_code_3() -> None:
    living = Living()
    loop = living.running()
    living.send("a")
    living.faults.at["commit_transaction"] = iter(refused, None)
    begun_s = living.clock.monotonic_s()
    with pytest.raises(ExitError, match="NOT_ENOUGH_REPLICAS") as caught:
        turns(loop, 100)
    assert caught.value.exit_code is ExitCode.BROKER
    assert 0 <= living.clock.monotonic_s() - begun_s - 300 < 10


def test_who_is_no_member_of_the_group_commits_nothing() -> None:
    living = Living()
    loop = living.running()
    living.send("a")
    consumer = cast("FakeConsumer", loop.assignment.consumer)
    member, consumer._member = consumer._member, None
    loop.turn()
    assert "no member" in (waiting_for(living) or "")
    assert living.committed() is None
    consumer._member = member
    turns(loop)
    assert living.values("orders.unique") == ["a"]


# What ends a life.


@pytest.mark.parametrize("step", ["send", "commit_transaction", "commit_transaction.done"])
def test_being_fenced_ends_the_life_and_the_next_one_goes_on_exactly_once(step: str) -> None:
    living = Living()
    loop = living.running()
    living.send("a", "b", "a")
    living.faults.at[step] = iter([fenced()])
    with pytest.raises(OutcomeUnknownError) as caught:
        turns(loop)
    assert caught.value.fault.fenced
    turns(living.running())
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values("orders.dlq") == ["a"]


def test_another_process_of_the_same_name_ends_the_life() -> None:
    living = Living()
    loop = living.running()
    living.loop()
    with pytest.raises(OutcomeUnknownError) as caught:
        turns(loop)
    assert caught.value.fault.fenced


def test_a_rewind_that_fails_ends_the_life() -> None:
    living = Living()
    loop = living.running()
    living.send("a")
    living.faults.at["commit_transaction"] = iter([refused()])
    living.faults.at["incremental_unassign"] = iter([gone()])
    with pytest.raises(OutcomeUnknownError):
        loop.turn()


def test_a_full_disk_ends_the_life_and_what_was_committed_is_restored() -> None:
    living = Living()
    loop = living.running()
    living.send("a")
    living.faults.at["store.apply"] = iter([StoreFailedError("no space left on device")])
    with pytest.raises(StoreFailedError):
        loop.turn()
    loop.close()
    living.send("a")
    living.running()
    assert living.values("orders.unique") == ["a"]
    assert living.values("orders.dlq") == ["a"]


# Records that the broker refuses.


def without_output(chance: Chance | None = None) -> Living:
    living = Living(chance=chance)
    del living.cluster.logs["orders.unique"]
    return living


def test_a_missing_output_topic_is_named_waited_for_and_written_when_it_is_there() -> None:
    living = without_output()
    living.send("a", "b")
    loop = living.loop()
    turns(loop, 5)
    assert "orders.unique" in (waiting_for(living) or "")
    assert living.committed() is None
    living.cluster.create_topic("orders.unique")
    turns(loop)
    assert living.board.read().phase == "running"
    assert living.values("orders.unique") == ["a", "b"]


class Sluggish(Chance):
    """Fetches nothing every other time."""

    calls = 0

    def fetched(self, records_max: int) -> int:
        self.calls += 1
        return records_max if self.calls % 2 else 0


def test_a_round_that_brings_nothing_does_not_end_the_wait_for_a_topic() -> None:
    living = without_output(Sluggish())
    living.send("a")
    loop = living.loop()
    turns(loop, 5)
    for _ in range(10):
        loop.turn()
        assert living.board.read().phase == "waiting"
    living.cluster.create_topic("orders.unique")
    turns(loop)
    assert living.board.read().phase == "running"


@pytest.mark.parametrize("chance", [Chance(), Sluggish()], ids=["each round", "now and then"])
def test_a_topic_that_stays_missing_ends_the_process_with_exit_code_3(chance: Chance) -> None:
    living = without_output(chance)
    living.send("a")
    loop = living.loop()
    begun_s = living.clock.monotonic_s()
    with pytest.raises(ExitError, match=r"orders\.unique") as caught:
        turns(loop, 200)
    assert caught.value.exit_code is ExitCode.BROKER
    assert 0 <= living.clock.monotonic_s() - begun_s - 300 < 10


def test_a_broker_that_is_gone_while_nothing_comes_in_ends_the_process_with_exit_code_3() -> None:
    living = Living()
    loop = living.running()
    living.faults.at["names"] = repeat(gone())
    with pytest.raises(ExitError) as caught:
        turns(loop, 5_000)
    assert caught.value.exit_code is ExitCode.BROKER


class Telling(Chance):
    """The client tells of errors beside the records."""

    def __init__(self) -> None:
        self.errors: list[KafkaError] = []

    def message_error(self) -> KafkaError | None:
        return self.errors.pop() if self.errors else None


def test_a_missing_right_to_read_is_waited_for() -> None:
    chance = Telling()
    living = Living(chance=chance)
    loop = living.running()
    chance.errors = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no")]
    living.send("a")
    loop.turn()
    assert "TOPIC_AUTHORIZATION_FAILED" in (waiting_for(living) or "")
    turns(loop)
    assert waiting_for(living) is None
    assert living.values("orders.unique") == ["a"]


def test_an_error_that_the_client_mends_itself_is_passed_over() -> None:
    chance = Telling()
    living = Living(chance=chance)
    loop = living.running()
    chance.errors = [KafkaError(KafkaError._ALL_BROKERS_DOWN, "gone")]
    living.send("a")
    loop.turn()
    assert waiting_for(living) is None
    assert living.values("orders.unique") == ["a"]


@pytest.mark.parametrize(("policy", "read"), [("earliest", ["d", "e"]), ("latest", [])])
def test_an_offset_that_the_log_has_lost_is_left_to_the_policy(
    policy: str, read: list[str]
) -> None:
    living = Living(on_lost_offset=policy)
    living.send("a")
    loop = living.running()
    living.send("b", "c", "d", "e")
    log = living.cluster.log(*ORDERS)
    assert log is not None
    log.delete_before(3)
    turns(loop)
    assert living.values("orders.unique") == ["a", *read]


def test_an_offset_that_the_log_has_lost_ends_the_process_where_no_policy_says_otherwise() -> None:
    living = Living()
    living.send("a")
    loop = living.running()
    living.send("b", "c")
    log = living.cluster.log(*ORDERS)
    assert log is not None
    log.delete_before(2)
    with pytest.raises(ExitError, match="on_lost_offset") as caught:
        turns(loop)
    assert caught.value.exit_code is ExitCode.CONTRADICTION


def test_records_that_come_with_the_loss_of_their_offset_are_decided_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living(on_lost_offset="earliest")
    loop = living.running()
    living.send("a")
    consumer = loop.assignment.consumer
    genuine = consumer.consume
    lost = Message(
        topic="orders",
        partition=0,
        error=KafkaError(KafkaError._AUTO_OFFSET_RESET, "Broker: Offset out of range"),
    )
    monkeypatch.setattr(consumer, "consume", lambda *rest: [*genuine(*rest), lost])
    loop.turn()
    monkeypatch.undo()
    turns(loop)
    assert living.values("orders.unique") == ["a"]


def test_a_damaged_store_is_wiped_and_restored_and_remembers_what_it_did() -> None:
    living = Living(replace(ROUTE, address="{header:_DUPL_ID}"))
    living.send("a")
    loop = living.running()
    store = loop.assignment.running[ORDERS].store
    assert store is not None
    position = store.position()
    assert position is not None
    store.apply([Edit(key("a", 0), b"torn")], position)
    loop.cache.drop(ORDERS)
    living.send("a", "b")
    turns(loop)
    assert living.faults.passed["store.wipe"] == 1
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values("orders.dlq") == ["a"]


# State and inputs that change.


def reset(living: Living) -> None:
    """As somebody does with Kafka's tools: an offset without our metadata."""
    living.cluster.group(GROUP).store(ORDERS, Committed(0, ""))


def test_after_a_reset_that_clears_every_id_is_new_and_the_changelog_says_so() -> None:
    living = Living(on_reset_offset="clear_state")
    living.send("a", "b")
    living.running().close()
    reset(living)
    loop = living.running()
    turns(loop)
    assert living.values("orders.unique") == ["a", "b", "a", "b"]
    assert [record.value is None for record in living.cluster.records(*LOG)] == [False, True, False]


def test_after_a_reset_that_keeps_the_state_every_id_is_a_duplicate() -> None:
    living = Living(on_reset_offset="keep_state")
    living.send("a", "b")
    living.running().close()
    reset(living)
    living.running()
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values("orders.dlq") == ["a", "b"]


def test_questions_that_the_broker_does_not_answer_are_asked_again() -> None:
    living = Living()
    living.faults.at["committed"] = iter([gone(), gone()])
    living.faults.at["ends"] = iter([late()])
    living.send("a")
    loop = living.loop()
    loop.turn()
    loop.turn()
    assert "_TRANSPORT" in (waiting_for(living) or "")
    turn_until_running(loop)
    turns(loop)
    assert living.values("orders.unique") == ["a"]


def test_a_life_does_not_begin_while_the_broker_does_not_answer() -> None:
    living = Living()
    living.faults.at["names"] = iter([plain(KafkaError._ALL_BROKERS_DOWN, "gone")])
    with pytest.raises(KafkaException):
        living.loop()
    living.running()


def test_whether_everything_is_owned_counts_every_partition_of_every_input() -> None:
    living = Living(partitions=2)
    loop = living.loop()
    before = loop.assignment.has_all
    turn_until_running(loop)
    assert (before, loop.assignment.has_all) == (False, True)
    assert living.board.read().complete


def test_closing_leaves_the_group_and_no_transaction_open() -> None:
    living = Living()
    living.send("a")
    loop = living.running()
    loop.close()
    assert all(producing.open is None for producing in living.cluster.producing.values())
    with pytest.raises(RuntimeError, match="closed"):
        loop.assignment.consumer.consume(1, 0)
