"""The loop: what comes in gets through once, whatever aborts, ends a life or is set meanwhile."""

import gc
import re
from itertools import pairwise

import pytest
from confluent_kafka import KafkaError, KafkaException

from ringfence_client import headers
from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT, GROUP_POSITION, GROUP_SIZE
from ringfence_service.errors import ExitCode
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.transaction import OutcomeUnknownError
from ringfence_service.queries.status import StatusBoard
from ringfence_state.model import PartitionId
from ringfence_state.offset_metadata import decode
from ringfence_state.store import StoreFailedError
from tests.fakes.errors import abortable, fenced, plain
from tests.fakes.group import Committed
from tests.fakes.partition import Record
from tests.fakes.producer import FakeProducer
from tests.loop.test_bounded import with_slow_loads
from tests.support.helpers import ending, some
from tests.support.living import (
    GROUP,
    LOG,
    ORDERS,
    Living,
    gone,
    late,
    refused,
    turn_until_running,
    turns,
    waiting_for,
)


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
    assert (living.committed(), living.committed(PartitionId("orders", 1))) == (2, 1)


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


def test_what_a_transaction_held_is_freed_without_a_search_for_cycles() -> None:
    living = Living()
    living.send("a")
    loop = living.running()
    gc.collect()
    gc.disable()
    try:
        living.send("a", "b")
        whole = [(headers.GROUP, b"g"), (GROUP_SIZE, b"1"), (GROUP_POSITION, b"1")]
        for claims in (
            [(DUPLICATE_ID, b"c"), *whole],
            [(DUPLICATE_ID, b"d"), (EXPIRES_AT, b"no time")],
        ):
            living.write(b"", *claims)
        turns(loop)
        assert living.values("orders.unique") == ["a", "b", ""]
        assert living.reasons("orders.dlq") == ["duplicate", "invalid-claim"]
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_partitions_own_time_goes_on_in_the_next_life() -> None:
    living = Living()
    living.send("a")
    time_ms = living.cluster.now_ms
    living.running().close()
    living.cluster.write("orders", 0, Record(None, b"late", [], time_ms - 5_000))
    loop = living.running()
    assert loop.assignment.running[ORDERS].time_ms == time_ms > 0


def test_a_committed_offset_tells_the_last_record_of_the_changelog_with_it() -> None:
    living = Living()
    loop = living.running()
    for ids in (["a", "b"], ["a"], ["c"]):  # a duplicate alone writes nothing
        living.send(*ids)
        loop.turn()
        metadata = decode(living.cluster.group(GROUP).committed[ORDERS].metadata)
        written = [
            entry.offset
            for entry in living.cluster.logs[LOG.topic].partitions[LOG.partition].archive
            if entry.record is not None
        ]
        assert metadata is not None
        assert metadata.last_offset == written[-1]
    assert len(written) == 2


def test_offsets_are_sent_again_only_where_the_changelog_did_not_go_on_as_expected() -> None:
    living = Living()
    loop = living.running()
    requests = []
    for name, answer in (("a", None), ("b", None), ("c", refused()), ("d", None)):
        before = living.faults.passed["send_offsets_to_transaction"]
        living.faults.at["commit_transaction"] = iter([answer])
        living.send(name)
        turns(loop, 3)
        requests.append(living.faults.passed["send_offsets_to_transaction"] - before)
    assert requests == [2, 1, 1 + 2, 1]
    assert living.values("orders.unique") == ["a", "b", "c", "d"]


def test_what_a_changelog_had_lost_before_anything_was_committed_is_not_missed() -> None:
    living = Living()
    living.cluster.create_topic(LOG.topic, cleanup_policy="compact")
    living.cluster.write(*LOG, Record(b"old", None, None, 1))
    log = some(living.cluster.log(*LOG))
    log.delete_before(1)
    living.send("a")
    living.running().close()
    living.running().close()
    log.delete_before(2)
    with ending(ExitCode.CONTRADICTION, "below offset 2 were deleted"):
        living.running()


def test_every_turn_is_a_heartbeat() -> None:
    living = Living()
    loop = living.running()
    living.clock.sleep(100)
    loop.turn()
    assert living.board.heartbeat_age_ms() < 100


def test_how_long_each_stage_of_a_batch_takes_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    living = Living(transaction_timeout_ms=60_000, batch_wait_ms=0)
    loop = living.running()
    living.send("a")
    with_slow_loads(living, monkeypatch, 4)
    follower_s = 0.0
    waits_s: dict[str, list[float]] = {
        "consume": [follower_s, 1, 0.5],
        "produce": [2],
        "commit_transaction": [3],
        "store.apply": [32],
    }
    living.faults.at |= {step: map(living.cluster.wait, each) for step, each in waits_s.items()}
    loop.turn()
    told = loop.reporter.metrics.exposition().decode()
    assert "\nringfence_cache_memory_bytes " in told, "what is held is sampled too"
    found = re.findall(r'batch_duration_seconds_sum{stage="(\w+)"} (\S+)', told)
    assert {stage: float(seconds) for stage, seconds in found} == pytest.approx(
        {"poll": 1, "lookup": 4, "produce": 2, "commit": 4 + 2 + 0.5 + 3, "apply": 32}
    )


def test_no_row_of_questions_to_a_slow_broker_is_a_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    living = Living()
    beats_s = [living.clock.monotonic_s()]
    monkeypatch.setattr(StatusBoard, "beat", lambda _: beats_s.append(living.clock.monotonic_s()))

    def is_slow(_step: str) -> None:
        living.cluster.now_ms += 1000

    living.cluster.on_step = is_slow
    turns(living.loop(), 9)
    silences_s = [later - sooner for sooner, later in pairwise(beats_s)]
    assert max(silences_s) < 12.5


# What aborts.


@pytest.mark.parametrize("step", ["send", "send_offsets_to_transaction", "commit_transaction"])
def test_after_an_abort_the_same_records_are_read_again_and_get_through_once(step: str) -> None:
    living = Living()
    living.faults.at[step] = iter([refused()])
    living.send("a", "b", "a")
    turns(living.running())
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values("orders.dlq") == ["a"]
    assert living.board.read().counts.transactions_aborted == 1


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


def test_the_backoff_grows_to_two_seconds_and_starts_over_after_a_success() -> None:
    living = Living()
    loop = living.running()

    def paused_s() -> float:
        before_ms = living.cluster.now_ms
        loop.turn()
        return round((living.cluster.now_ms - before_ms) / 1000, 1)

    for _ in range(2):
        living.faults.at["commit_transaction"] = iter([refused() for _ in range(7)])
        living.send("a")
        assert [paused_s() for _ in range(7)] == [0.1, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0]
        turns(loop)


def test_a_broker_that_refuses_for_too_long_ends_the_process_with_exit_code_3() -> None:
    living = Living()
    loop = living.running()
    living.send("a")
    living.faults.at["commit_transaction"] = iter(refused, None)
    begun_s = living.clock.monotonic_s()
    with ending(ExitCode.BROKER, "NOT_ENOUGH_REPLICAS"):
        turns(loop, 200)
    assert 0 <= living.clock.monotonic_s() - begun_s - 300 < 10


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


# State and inputs that change.


def test_an_end_that_a_policy_chose_is_committed_and_not_chosen_again() -> None:
    living = Living(on_missing_offset="latest")
    living.send("before")
    living.running().close()
    living.send("between")
    turns(living.running())
    assert living.values("orders.unique") == ["between"]


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


def test_that_a_state_was_cleared_is_committed_where_nothing_more_is_read() -> None:
    living = Living(on_reset_offset="clear_state")
    living.send("a")
    living.running().close()
    living.cluster.group(GROUP).store(ORDERS, Committed(1, ""))
    living.running()
    assert decode(living.cluster.group(GROUP).committed[ORDERS].metadata) is not None


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
    living.send("a")
    loop = living.loop()
    living.faults.at["committed"] = iter([gone(), gone()])
    living.faults.at["ends"] = iter([late()])
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


def test_the_first_pause_of_a_life_is_short_whatever_failed_in_the_one_before() -> None:
    living = Living()
    for _ in range(4):
        living.retry_policy.back_off("the broker")
    living.loop()
    before_ms = living.cluster.now_ms
    living.retry_policy.back_off("the broker")
    assert living.cluster.now_ms - before_ms == 100


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
    assert loop.transaction_manager._producer is None, "it would keep its threads"
    assert living.faults.passed["close"] == 2, (
        "the consumers of the group and of the metadata topic"
    )
    assert all(producing.open is None for producing in living.cluster.producing.values())
    with pytest.raises(RuntimeError, match="closed"):
        loop.assignment.consumer.consume(1, 0)


@pytest.mark.row(26)
@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
@pytest.mark.parametrize("strategy", ["ring", "window"])
def test_a_clock_that_is_set_changes_no_verdict(strategy: str, ahead_ms: int) -> None:
    settings = {"strategy": strategy, "window_ms": 1_800_000}
    living = Living(addresses={"#": settings})
    loop = living.running()
    living.send("a")
    loop.turn()
    living.clock.set_ahead_ms = ahead_ms
    living.send("a", "b")
    loop.turn()
    living.clock.set_ahead_ms = 0
    living.send("a", "b", "c")
    turns(loop)
    assert living.values("orders.unique") == ["a", "b", "c"]
    assert living.values("orders.dlq") == ["a", "a", "b"]


def between_generations(living: Living, loop: Loop) -> None:
    """A record whose transaction meets a generation that we do not know of yet."""
    refusal = abortable(KafkaError.ILLEGAL_GENERATION, "generation id is not valid")
    living.faults.at["send_offsets_to_transaction"] = iter([refusal])
    living.send("a")
    loop.turn()


def test_a_generation_on_its_way_is_no_fault_and_one_that_never_comes_is() -> None:
    living = Living()
    loop = living.running()
    between_generations(living, loop)
    assert waiting_for(living) is None
    living.clock.sleep(2 * living.config.service.session_timeout_ms / 1000 + 1)
    between_generations(living, loop)
    assert "ILLEGAL_GENERATION" in (waiting_for(living) or "")


@pytest.mark.parametrize("is_ours", [False, True])
def test_the_time_limit_for_a_generation_restarts_after_it_has_arrived(*, is_ours: bool) -> None:
    living = Living()
    loop = living.running()
    between_generations(living, loop)
    if is_ours:
        loop.turn()
    else:
        loop.assignment.rebalances += 1  # and what was to be read is somebody else's
    living.clock.sleep(3600)
    between_generations(living, loop)
    assert waiting_for(living) is None


def test_the_marker_of_a_transaction_is_no_lag() -> None:
    living = Living()
    application = FakeProducer(living.cluster, "application")
    application.init_transactions()
    application.begin_transaction()
    application.produce("orders", b"a", partition=0)
    application.commit_transaction()
    loop = living.running()
    living.clock.sleep(1)
    turns(loop, 3)
    (partition,) = living.board.read().partitions
    assert living.values("orders.unique") == ["a"]
    assert (partition.next_offset, partition.lag_records) == (1, 0)


@pytest.mark.parametrize(
    ("step", "closed"),
    [("consume", 1), ("subscribe", 2)],
    ids=["the metadata topic is read", "the group is about to be joined"],
)
def test_a_life_that_could_not_begin_leaves_no_client_behind(step: str, closed: int) -> None:
    living = Living()
    living.faults.at[step] = iter([gone()])
    with pytest.raises(KafkaException):
        living.loop()
    assert living.faults.passed["close"] == closed
