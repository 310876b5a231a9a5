"""A batch that the client cannot unpack blocks its partition alone, and its offsets are named."""

from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, TopicPartition
from structlog.testing import capture_logs

from ringfence_client.headers import DeadLetter
from ringfence_service.kafka.topics import fallback
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.transaction import TransactionAbortedError
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_service.queries.partitions import SkipBatch, SkippedBatch
from ringfence_service.queries.status import PartitionStatus
from ringfence_state.model import PartitionId
from tests.fakes.clients import FakeClients
from tests.fakes.consumer import FakeConsumer
from tests.fakes.partition import Fate, Record, Transaction
from tests.loop.test_two_hops import Hops
from tests.support.helpers import answer, some
from tests.support.living import (
    GROUP,
    LOG,
    ORDERS,
    ROUTE,
    Living,
    late,
    refused,
    turn_until_running,
    turns,
)

OTHER = replace(ROUTE, name="payments", inputs=("payments",))
PAYMENTS = PartitionId("payments", 0)


def with_batch(records: int = 150, before: int = 2, behind: int = 10) -> Living:
    """Records before a batch that cannot be unpacked, and behind it."""
    living = Living(others=(OTHER,), batch_wait_ms=1, on_lost_offset="earliest")
    write_batch(living, records, before, behind)
    return living


def write_batch(living: Living, records: int, before: int = 0, behind: int = 0) -> None:
    log = some(living.cluster.log(*ORDERS))
    living.send(*(f"b{log.end + number}" for number in range(before)))
    first = log.end
    living.send(*(f"x{first + number}" for number in range(records)))
    log.unreadable.append((first, log.end - 1))
    living.send(*(f"a{log.end + number}" for number in range(behind)))


def write_transaction(living: Living, records: int) -> None:
    """Some records, and the marker that ends their transaction."""
    log, transaction = some(living.cluster.log(*ORDERS)), Transaction(0, fate=Fate.COMMITTED)
    for number in range(records):
        log.append(Record(None, b"%d" % number, None, living.cluster.now_ms), transaction)
    log.mark(transaction)


def of(living: Living, source: PartitionId = ORDERS) -> PartitionStatus:
    (found,) = [each for each in living.board.read().partitions if each.source == source]
    return found


def settled(living: Living, loop: Loop) -> None:
    for _ in range(60):
        loop.turn()
        living.cluster.wait(0.3)
    loop.turn()


def test_its_partition_waits_and_names_it_while_others_go_on() -> None:
    living = with_batch()
    loop = living.running()
    for number in range(50):
        living.send(f"p{number}", topic="payments")
        loop.turn()
    settled(living, loop)
    assert living.values("payments.unique") == [f"p{number}" for number in range(50)]
    assert (living.values("orders.unique"), living.committed()) == (["b0", "b1"], 2)
    status = of(living)
    assert status.waiting_for is not None
    for part in ("orders-0", "offset 2 ", "349 bytes", '"receive.message.max.bytes"', "skip"):
        assert part in status.waiting_for
    assert (status.lag_records, of(living, PAYMENTS).waiting_for) == (160, None)
    assert living.board.read().phase == "running"
    assert living.board.read().counts.transactions_aborted == 0
    assert b"\nringfence_blocked_partitions 1.0" in living.metrics.exposition()


def test_the_client_does_not_fetch_it_again_and_again() -> None:
    living = with_batch()
    loop = living.running()
    with capture_logs() as logged:
        for _ in range(600):
            living.cluster.wait(1)
            loop.turn()
    assert sum(each["event"] == "client_error" for each in logged) <= 1
    assert sum(each["event"] == "blocked" for each in logged) == 1


class Observing(FakeClients):
    """Notes the consumers outside the group, the first of which is the metadata topic's."""

    def __init__(self, living: Living) -> None:
        super().__init__(living.cluster, GROUP, "0")
        self.observers: list[FakeConsumer] = []

    def observer(self) -> Consumer:
        self.observers.append(cast("FakeConsumer", super().observer()))
        return cast("Consumer", self.observers[-1])

    def loop(self, living: Living) -> Loop:
        return Loop(
            living.config, self, living.stores, living.clock, living.watch, living.retry_policy
        )


def test_the_consumer_that_searches_fetches_only_while_it_does() -> None:
    living = with_batch()
    clients = Observing(living)
    loop = clients.loop(living)
    assert clients.observers == []
    settled(living, loop)
    (observer,) = clients.observers
    assert (observer.assignment(), observer.closed) == ([], False)
    ask(loop, 2)
    settled(living, loop)
    assert observer.closed


def test_a_broker_that_does_not_answer_the_search_is_asked_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request may take two seconds, and the loop does nothing else meanwhile."""
    living, asked = with_batch(), list[float]()
    clients = Observing(living)
    answer_of = FakeConsumer.get_watermark_offsets

    def silent(consumer: FakeConsumer, place: TopicPartition, **how: Any) -> tuple[int, int]:
        if consumer not in clients.observers:
            return answer_of(consumer, place, **how)
        asked.append(living.clock.monotonic_s())
        raise late()

    monkeypatch.setattr(FakeConsumer, "get_watermark_offsets", silent)
    loop = clients.loop(living)
    for _ in range(1_000):
        loop.turn()
        living.cluster.wait(0.03)
    assert 1 < len(asked) <= 5
    monkeypatch.undo()
    living.cluster.wait(10)
    settled(living, loop)
    assert some(loop.assignment.unreadable.blocking(ORDERS)).end == 152


@pytest.mark.parametrize(("records", "behind"), [(1, 0), (1, 1), (7, 100), (150, 0), (4_000, 3)])
def test_its_last_offset_is_found(records: int, behind: int) -> None:
    living = with_batch(records, 3, behind)
    loop = living.running()
    settled(living, loop)
    batch = some(loop.assignment.unreadable.blocking(ORDERS))
    assert (batch.first, batch.end) == (3, 3 + records)


def test_markers_before_and_behind_it_are_no_records() -> None:
    living = Living(others=(OTHER,), batch_wait_ms=1)
    write_transaction(living, 3)
    write_batch(living, 10)
    write_transaction(living, 0)
    loop = living.running()
    settled(living, loop)
    batch = some(loop.assignment.unreadable.blocking(ORDERS))
    assert (living.committed(), batch.first, batch.end) == (3, 4, 14)
    since = of(living).waiting_since
    for _ in range(5):
        living.cluster.wait(60)
        turns(loop, 20)
    assert (some(since), living.committed()) == (of(living).waiting_since, 3)


def test_the_next_such_batch_is_another_one() -> None:
    living = with_batch(10, 1, 0)
    write_batch(living, 20, behind=1)
    loop = living.running()
    settled(living, loop)
    assert some(loop.assignment.unreadable.blocking(ORDERS)).end == 11


def test_what_precedes_it_is_decided_first_even_after_an_abort() -> None:
    living = with_batch(before=5)
    living.faults.at["commit_transaction"] = iter([refused()])
    loop = living.loop()
    turn_until_running(loop)
    assert living.committed() is None
    settled(living, loop)
    assert living.board.read().counts.transactions_aborted == 1
    assert (living.values("orders.unique"), living.committed()) == ([f"b{n}" for n in range(5)], 5)
    assert some(loop.assignment.unreadable.blocking(ORDERS)).first == 5


def test_a_partition_whose_batch_was_deleted_goes_on() -> None:
    living = with_batch()
    loop = living.running()
    settled(living, loop)
    log = some(living.cluster.log(*ORDERS))
    log.delete_before(152)
    log.unreadable.clear()
    for _ in range(4):
        living.cluster.wait(20)
        turns(loop, 20)
    assert living.values("orders.unique") == ["b0", "b1", *(f"a{152 + n}" for n in range(10))]
    assert of(living).waiting_for is None


def test_a_partition_that_moves_is_blocked_where_it_is_then() -> None:
    living = with_batch()
    first = living.running()
    settled(living, first)
    first.close(leaves=True)
    second = living.loop("1")
    turn_until_running(second)
    settled(living, second)
    assert some(second.assignment.unreadable.blocking(ORDERS)).end == 152
    assert living.values("orders.unique") == ["b0", "b1"]


def test_a_restore_that_meets_one_says_so_and_others_are_decided() -> None:
    living = Living(others=(OTHER,))
    living.send("a", "b")
    first = living.running()
    turns(first)
    first.close(leaves=True)
    some(living.cluster.log(*LOG)).unreadable.append((0, 0))
    living.stores.wipe(ORDERS)
    second = living.loop()
    for number in range(40):
        living.send(f"p{number}", topic="payments")
        second.turn()
    assert living.values("payments.unique") == [f"p{number}" for number in range(40)]
    waiting = some(living.board.read().waiting_for)
    assert "g.changelog.orders-0" in waiting
    assert "skip" not in waiting


def ask(loop: Loop, offset: int, *, dry_run: bool = False, topic: str = "orders") -> SkippedBatch:
    change = SkipBatch(topic, 0, offset, dry_run=dry_run)
    found = answer(change, loop)
    assert isinstance(found, SkippedBatch)
    return found


def test_an_operator_goes_on_behind_it_with_a_dead_letter_that_has_its_offsets() -> None:
    living = with_batch()
    loop = living.running()
    settled(living, loop)
    expected = SkippedBatch("orders", 0, 2, 151, 349, complete=True)
    assert ask(loop, 2, dry_run=True) == expected
    assert (living.committed(), living.reasons("orders.dlq")) == (2, [])
    assert ask(loop, 2) == expected
    assert living.committed() == 152
    (letter,) = living.cluster.records("orders.dlq")
    headers = dict(letter.headers or [])
    assert (letter.key, letter.value) == (None, None)
    assert headers[DeadLetter.REASON] == b"unreadable-batch"
    assert b"offsets 2 to 151 are in a batch" in (headers[DeadLetter.CAUSE] or b"")
    place = [headers[each] for each in (DeadLetter.TOPIC, DeadLetter.PARTITION, DeadLetter.OFFSET)]
    assert place == [b"orders", b"0", b"2"]
    settled(living, loop)
    assert living.values("orders.unique") == ["b0", "b1", *(f"a{152 + n}" for n in range(10))]
    status = living.board.read()
    assert (of(living).waiting_for, status.counts.refused, status.counts.records_consumed) == (
        None,
        1,
        13,
    )
    assert (
        status.counts.records_accepted + status.counts.duplicates + status.counts.refused
        == status.counts.records_consumed
    )


def test_it_is_skipped_once_however_often_that_is_asked_for() -> None:
    living = with_batch(10, 1, 0)
    write_batch(living, 10, behind=1)
    loop = living.running()
    settled(living, loop)
    ask(loop, 1)
    for _ in range(2):
        with pytest.raises(NotPossible):
            ask(loop, 1)
        settled(living, loop)
    assert (living.committed(), living.reasons("orders.dlq")) == (11, ["unreadable-batch"])
    ask(loop, 11)
    settled(living, loop)
    assert (living.committed(), living.values("orders.unique")) == (22, ["b0", "a21"])


@pytest.mark.parametrize(
    ("topic", "offset"), [("orders", 1), ("orders", 3), ("payments", 2), ("none", 2)]
)
def test_nothing_else_is_skipped(topic: str, offset: int) -> None:
    living = with_batch()
    loop = living.running()
    settled(living, loop)
    with pytest.raises(NotPossible, match=f"{topic}-0"):
        ask(loop, offset, topic=topic)
    assert (living.committed(), living.reasons("orders.dlq")) == (2, [])


def test_a_batch_whose_end_is_not_known_yet_is_not_skipped() -> None:
    living = with_batch()
    loop = living.loop()
    turn_until_running(loop)
    while loop.assignment.unreadable.blocking(ORDERS) is None:
        loop.turn()
    with pytest.raises(Unavailable, match="ask again"):
        ask(loop, 2)


def test_a_skip_that_is_aborted_changes_nothing() -> None:
    living = with_batch()
    loop = living.running()
    settled(living, loop)
    living.faults.at["commit_transaction"] = iter([refused()])
    with pytest.raises(TransactionAbortedError):
        ask(loop, 2)
    loop.failures.rewind()
    settled(living, loop)
    assert (living.committed(), living.reasons("orders.dlq")) == (2, [])
    ask(loop, 2)
    settled(living, loop)
    assert (living.committed(), living.reasons("orders.dlq")) == (162, ["unreadable-batch"])


def test_a_dead_letter_topic_that_is_missing_is_named() -> None:
    living = with_batch()
    loop = living.running()
    settled(living, loop)
    del living.cluster.logs["orders.dlq"]
    loop.active_settings.doubt_targets()
    turns(loop)
    with pytest.raises(Unavailable, match=r"orders\.dlq"):
        ask(loop, 2)
    assert living.committed() == 2


@pytest.mark.parametrize("topic", ["orders", "g.by-address"])
def test_both_hops_go_on_behind_one(topic: str) -> None:
    hops = Hops()
    hops.send(0, b"k", b"1")
    hops.turns()
    before = PartitionId(topic, 0)
    log = some(hops.living.cluster.log(*before))
    first = log.end
    for number in range(3):
        hops.living.cluster.write(*before, Record(b"k", b"x%d" % number, None, 1))
    log.unreadable.append((first, log.end - 1))
    loop = hops.carrying if topic == "orders" else hops.deciding
    for _ in range(40):
        hops.turns(1)
        hops.living.cluster.wait(0.3)
    change = SkipBatch(topic, 0, first)
    assert answer(change, loop) == SkippedBatch(topic, 0, first, first + 2, 202, complete=True)
    hops.send(0, b"k", b"2")
    hops.turns(8)
    assert [record.value for record in hops.out("orders.unique")] == [b"1", b"2"]
    letters = hops.out("orders.dlq") + hops.living.cluster.records(fallback(GROUP))
    (told,) = [dict(record.headers or []) for record in letters]
    assert told[DeadLetter.TOPIC] == topic.encode()
