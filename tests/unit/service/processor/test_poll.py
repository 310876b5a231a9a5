"""What one transaction reads: pieces that follow each other, and nothing that it may not commit."""

from collections.abc import Callable, Collection, Iterator
from itertools import pairwise

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from ringfence_service.dedup.plan import Plan
from ringfence_service.kafka.errors import fault_of
from ringfence_service.native.records import Records
from ringfence_service.processor import poll as poller
from ringfence_service.processor.fetcher import topic_partition_of
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.transaction import OutcomeUnknownError
from ringfence_service.queries.addresses import AddressQuery
from ringfence_state.model import PartitionId
from tests.fakes.log import Chance
from tests.support.living import GROUP, Living, refused, turn_until_running, turns

OTHER = PartitionId("orders", 1)


@pytest.fixture(autouse=True)
def _two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "_AT_ONCE", 2)


class Errors(Chance):
    """Errors that come before the messages, one for each call of the client."""

    errors: Iterator[KafkaError | None] = iter(())
    told = False

    def message_error(self, topics: Collection[str]) -> KafkaError | None:
        error = next(self.errors, None) if "orders" in topics else None
        self.told = self.told or error is not None
        return error


def at_read(number: int, do: Callable[[], object]) -> Iterator[None]:
    """As a fault: something that happens when the client is asked for the n-th time."""
    for _ in range(number - 1):
        yield None
    do()


def asked_for(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records the client is asked for, from now on."""
    asked: list[int] = []
    consumer = loop.assignment.consumer
    consume = consumer.consume

    def consumed(most: int, timeout: float) -> list[Message]:
        asked.append(most)
        return consume(most, timeout)

    monkeypatch.setattr(consumer, "consume", consumed)
    return asked


def test_what_comes_in_many_pieces_is_one_transaction_with_every_record_once() -> None:
    living = Living(partitions=2)
    living.send(*"abcbad")
    living.send("e", partition=1)
    living.running()
    assert living.faults.passed["begin_transaction"] == 1
    assert living.values("orders.unique") == ["a", "b", "c", "d"]
    assert living.values("orders.dlq") == ["b", "a"]
    assert (living.committed(), living.committed(OTHER)) == (6, 1)


def test_a_partition_taken_away_in_the_middle_of_a_transaction_aborts_it() -> None:
    living = Living(partitions=2)
    loop = living.loop()
    turn_until_running(loop)
    group = living.cluster.group(GROUP)
    living.faults.at["consume"] = at_read(
        2, lambda: group.join("9", frozenset({"orders"}), 10**9, living.cluster.now_ms)
    )
    for partition in (0, 1):
        living.send(*"abc", partition=partition)
    loop.turn()
    assert living.faults.passed["abort_transaction"] == 1
    (kept,) = loop.assignment.running
    assert living.committed(kept) is None
    turns(loop, 3)
    (gone,) = {PartitionId("orders", 0), OTHER} - {kept}
    assert (living.committed(kept), living.committed(gone)) == (3, None)
    assert living.values("orders.unique", kept.partition) == ["a", "b", "c"]
    assert living.values("orders.unique", gone.partition) == []


def test_whatever_the_group_says_in_the_middle_of_a_transaction_aborts_it() -> None:
    living = Living()
    loop = living.running()
    living.send(*"abc")
    assignment = loop.assignment
    living.faults.at["consume"] = at_read(3, lambda: assignment.on_assign(assignment.consumer, []))
    loop.turn()
    assert living.values("orders.unique") == []
    assert living.faults.passed["abort_transaction"] == 1
    turns(loop, 3)
    assert living.values("orders.unique") == ["a", "b", "c"]


def test_an_error_in_the_middle_waits_until_nothing_is_open() -> None:
    chance = Errors()
    living = Living(chance=chance)
    loop = living.loop()
    turn_until_running(loop)
    living.send(*"abcdef")
    chance.errors = iter([None, KafkaError(KafkaError._TRANSPORT)])
    loop.turn()
    assert living.values("orders.unique") == ["a", "b"]
    assert chance.told
    turns(loop, 3)
    assert living.values("orders.unique") == list("abcdef")
    assert living.faults.passed["abort_transaction"] == 0


def test_a_consumer_that_is_fenced_while_the_group_rebalances_ends_its_life() -> None:
    living = Living()
    loop = living.running()
    living.send(*"abc")
    assignment, group = loop.assignment, living.cluster.group(GROUP)
    (instance,) = (member.instance for member in group.members.values())

    held = [topic_partition_of(partition) for partition in assignment.running.values()]

    def revoke_and_fence() -> None:
        assignment.on_revoke(assignment.consumer, held)
        group.join(instance, frozenset({"orders"}), 10**9, living.cluster.now_ms)

    living.faults.at["consume"] = at_read(3, revoke_and_fence)
    loop.turn()
    assert living.faults.passed["abort_transaction"] == 1
    with pytest.raises(OutcomeUnknownError, match="fenced"):
        loop.turn()


def test_an_error_behind_one_that_ends_the_turn_is_handled_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living()
    loop = living.running()
    codes = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._FATAL)
    answers = iter([[Message(error=KafkaError(code)) for code in codes]])
    monkeypatch.setattr(loop.assignment.consumer, "consume", lambda *_: next(answers))
    loop.turn()
    with pytest.raises(OutcomeUnknownError):
        loop.turn()  # and reads nothing before


def test_an_error_among_records_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    living = Living()
    loop = living.running()
    living.send(*"ab")
    consumer = loop.assignment.consumer
    consume, seen = consumer.consume, list[KafkaError]()

    def consumed(most: int, timeout: float) -> list[Message]:
        error = Message("orders", 0, 1, error=KafkaError(KafkaError._TRANSPORT))
        found = consume(most, timeout)
        return [*found[:1], error, *found[1:]] if found else found

    monkeypatch.setattr(consumer, "consume", consumed)
    monkeypatch.setattr(loop.failures, "on_client_error", lambda error, _: seen.append(error))
    loop.turn()
    assert living.values("orders.unique") == ["a", "b"]
    assert [error.code() for error in seen] == [KafkaError._TRANSPORT]


def test_errors_beside_a_compiled_piece_are_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    living = Living()
    loop = living.running()
    errors = [(KafkaError(KafkaError._FATAL), None)]
    monkeypatch.setattr(loop.assignment.consumer, "consume", lambda *_: Records.of([], errors))
    with pytest.raises(OutcomeUnknownError):
        loop.turn()


def test_kept_records_are_taken_in_pieces_too() -> None:
    living = Living(batch_bytes_max=1000)
    loop = living.running()
    living.send("a", "b", size=1000)
    loop.turn()  # b is kept
    living.send("c")
    loop.poller.run_callbacks()  # which reads c
    loop.poller.records_at_once = 1
    batch = loop.poller.poll(9)
    read = [record.value() or b"" for each in batch.slices for record in each.messages]
    assert [value[:1] for value in read] == [b"b"]


def test_a_record_larger_than_a_piece_may_be_is_read_nonetheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poller, "_PIECE_BYTES", 100)
    living = Living()
    loop = living.running()
    living.send("a", "b", size=1000)
    turns(loop, 3)
    assert living.committed() == 2


@pytest.mark.parametrize(
    ("batch_wait_ms", "expected"),
    [
        (20, [0.020, 0.012, 0.004]),
        (200, [0.2, 0.042, 0.034]),  # a transaction is open then
    ],
)
def test_the_pieces_of_a_batch_wait_together_as_long_as_a_batch_may_wait_to_fill(
    batch_wait_ms: int, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Living(batch_wait_ms=batch_wait_ms)
    loop = living.running()
    living.send(*"abc")
    waits: list[float] = []
    consumer = loop.assignment.consumer
    consume = consumer.consume

    def consumed(most: int, timeout: float) -> list[Message]:
        waits.append(timeout)
        living.clock.sleep(0.008)
        return consume(most, 0)

    monkeypatch.setattr(consumer, "consume", consumed)
    loop.turn()
    assert waits == pytest.approx(expected, abs=1e-6)
    assert living.values("orders.unique") == ["a", "b", "c"]


def fills(batch_wait_ms: int, monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> Living:
    """A service whose batches fill for so long, with pieces as large as they are."""
    monkeypatch.undo()
    return Living(batch_wait_ms=batch_wait_ms, partitions=partitions)


@pytest.mark.parametrize("batch_wait_ms", [20, 1_000, 4_000, 10_000])
@pytest.mark.parametrize("per_turn", [0, 1])
def test_however_long_a_batch_fills_the_loop_beats_and_answers_queries(
    batch_wait_ms: int, per_turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = fills(batch_wait_ms, monkeypatch)
    living.faults.steps_max = 1_000_000
    loop, worker, beats = living.running(), living.worker(), list[float]()
    beat = living.watch.beat

    def noted() -> None:
        beats.append(living.clock.monotonic_s())
        beat()

    monkeypatch.setattr(living.watch, "beat", noted)
    until_s = living.clock.monotonic_s() + 30
    while living.clock.monotonic_s() < until_s:
        living.send(*("a" * per_turn))
        reply = living.inbox.put(AddressQuery("orders"), float("inf"))
        worker.turn(loop)
        assert reply.done()
    gaps_s = [later - earlier for earlier, later in pairwise(beats)]
    assert max(gaps_s) <= 0.25 + 1e-6


def test_what_comes_while_a_batch_fills_is_one_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = fills(10_000, monkeypatch)
    loop = living.running()
    turns(loop, 50)  # what is left of the batch before
    passed = living.faults.passed
    commits, begun_s = passed["commit_transaction"], living.clock.monotonic_s()
    for name in "abcde":
        living.send(name)
        loop.turn()
    assert (living.values("orders.unique"), passed["commit_transaction"]) == ([], commits)
    while not living.values("orders.unique"):
        loop.turn()
    assert living.values("orders.unique") == list("abcde")
    assert passed["commit_transaction"] == commits + 1
    assert living.clock.monotonic_s() - begun_s <= 10


def test_a_batch_that_has_a_full_piece_does_not_wait_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = fills(10_000, monkeypatch)
    loop = living.running()
    loop.poller.records_at_once = 3
    for name in "abc":
        living.send(name)
        loop.turn()
    assert living.values("orders.unique") == ["a", "b", "c"]


def test_what_a_partition_had_when_it_was_taken_away_is_not_decided_once_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = fills(10_000, monkeypatch, partitions=2)
    loop = living.running()
    living.send("a", "b")
    living.send("x", "y", partition=1)
    loop.turn()
    consumer, gone = loop.assignment.consumer, [TopicPartition(*OTHER)]
    assert loop.poller._held == 4

    def consumed(_most: int, _timeout: float) -> list[Message]:
        loop.assignment.on_revoke(consumer, gone)
        loop.assignment.on_assign(consumer, gone)
        return []

    with monkeypatch.context() as patched:
        patched.setattr(consumer, "consume", consumed)
        loop.turn()
    assert loop.poller._held == 2
    turns(loop, 90)
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values("orders.unique", 1) == ["x", "y"]


@pytest.mark.parametrize(
    ("commit_s", "expected"), [(0.0, 0.020), (0.006, 0.014), (0.018, 0.010), (9.0, 0.010)]
)
def test_a_batch_fills_while_the_one_before_is_committed(
    commit_s: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = Living(batch_wait_ms=20)
    loop = living.running()
    living.send("a")
    loop.turn()
    living.clock.sleep(commit_s)
    waits: list[float] = []

    def consumed(_most: int, timeout: float) -> list[Message]:
        waits.append(timeout)
        return []

    monkeypatch.setattr(loop.assignment.consumer, "consume", consumed)
    loop.turn()
    assert waits == pytest.approx([expected], abs=1e-6)


def test_what_was_kept_is_forgotten_when_its_predecessors_are_read_again() -> None:
    living = Living(batch_bytes_max=1000)
    loop = living.loop()
    turn_until_running(loop)
    living.faults.at["commit_transaction"] = iter([refused()])
    living.send("a", "b", size=1000)  # a has a transaction of its own; b is kept meanwhile
    turns(loop, 4)
    assert living.values("orders.unique") == ["a", "b"]
    assert living.committed() == 2


@pytest.mark.parametrize(
    "headers",
    [
        [("a", b"." * 500_000), ("b", None)],
        [("", b"")] * 1_700,  # each takes memory of its own
    ],
    ids=["large", "many"],
)
def test_headers_count_for_what_a_transaction_takes_at_most(
    headers: list[tuple[str, bytes | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    living = Living(batch_bytes_max=1_200_000)
    loop = living.loop()
    turn_until_running(loop)
    for _ in range(9):
        living.write(b"", *headers)
    turns(loop, 1)
    assert living.committed() == 3, "the third has crossed the line"
    turns(loop, 2)
    assert living.committed() == 9


def test_after_large_records_the_client_is_asked_for_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    living = Living()
    loop = living.loop()
    turn_until_running(loop)
    asked = asked_for(loop, monkeypatch)
    living.write(b"." * 5 * 1024 * 1024)
    turns(loop, 2)
    assert asked[0] > 1
    assert set(asked[1:]) == {1}, "two would be more than eight megabytes"


@pytest.mark.parametrize(
    ("at_once", "records", "took_s", "then"),
    [
        (2, 0, 10.0, 2),  # what ends a transaction says nothing
        (64, 64, 0.1, 80),
        (1_000, 64, 0.1, 1_024),
        (1, 1, 0.1, 2),
        (64, 64, 0.5, 32),
        (8, 64, 0.5, 8),
        (8, 1, 9.0, 1),
    ],
)
def test_a_piece_has_as_many_records_as_are_decided_in_a_quarter_of_a_second(
    at_once: int, records: int, took_s: float, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    reading = Living().running().poller
    reading.records_at_once = at_once
    reading.decided(records, took_s)
    assert reading.records_at_once == then


@pytest.mark.parametrize(
    ("at_once", "records", "then"), [(64, 10, 5), (8, 10, 4), (2, 2, 1), (1, 1, 1)]
)
def test_after_a_transaction_that_was_too_much_the_next_has_half_a_piece_and_no_more(
    at_once: int, records: int, then: int
) -> None:
    living = Living()
    loop = living.running()
    loop.poller.records_at_once = at_once
    loop.poller.narrow(records)
    assert loop.poller.is_narrowest == (then == 1)
    living.send(*map(str, range(20)))
    loop.turn()
    assert living.committed() == then
    loop.turn()
    assert living.committed() == 20, "and after it, what fits"


def test_while_a_quota_is_in_force_transactions_stay_as_small_as_an_abort_has_made_them() -> None:
    living = Living()
    loop = living.running()
    living.send(*map(str, range(20)))
    living.watch.throttled(5.0)
    plan = Plan()
    plan.tally.records_read = 2
    loop.failures.aborted(fault_of(KafkaError(KafkaError._MSG_TIMED_OUT)), plan)
    for count in (1, 2, 3):
        loop.turn()
        assert living.committed() == count, "one record for each transaction"
    living.clock.sleep(60)
    turns(loop, 3)
    assert living.committed() == 20


def test_of_a_transaction_that_is_full_nothing_more_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living(batch_records_max=3)
    loop = living.running()
    asked = asked_for(loop, monkeypatch)
    living.send(*"abcd")
    loop.turn()
    assert (asked, living.committed()) == ([2, 1], 3)
    loop.turn()
    assert (asked, living.committed()) == ([2, 1, 2, 2], 4)


def test_of_a_transaction_that_is_full_of_bytes_nothing_more_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living(batch_bytes_max=1000)
    loop = living.running()
    asked = asked_for(loop, monkeypatch)
    living.send("a", size=2000)
    loop.turn()
    assert (asked, living.committed()) == ([2], 1)


def test_the_pieces_of_a_transaction_count_together_for_its_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poller, "_AT_ONCE", 1)
    living = Living(batch_bytes_max=1000)
    loop = living.running()
    living.send(*"abcd", size=600)
    loop.turn()
    assert living.committed() == 2, "the second has crossed the line"


def test_a_transaction_is_narrowest_only_with_one_piece_of_one_record() -> None:
    reading = Living().running().poller
    reading.records_at_once = 1
    found = [reading.is_narrowest]
    reading.narrow(1)
    found.append(reading.is_narrowest)
    reading.committed()
    found.append(reading.is_narrowest)
    assert found == [False, True, False]
