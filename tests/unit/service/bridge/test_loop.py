"""The loop of a bridge: an offset is committed after delivery, and never before."""

from collections.abc import Iterator
from itertools import repeat

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from structlog.testing import capture_logs

from ringfence_service.errors import ExitCode, ExitError
from ringfence_state.model import PartitionId
from tests.fakes.consumer import FakeConsumer
from tests.fakes.errors import plain, retriable
from tests.fakes.partition import Record
from tests.fakes.producer import FakeProducer
from tests.support.helpers import ending, some
from tests.unit.service.bridge.crossing_over import GROUP, ORDERS, Bridging


def silent() -> Exception:
    return retriable(KafkaError._TIMED_OUT, "no answer")


def gone() -> Exception:
    return plain(KafkaError._TRANSPORT, "the connection is gone")


def test_what_is_there_and_what_comes_is_forwarded_and_committed() -> None:
    bridging = Bridging(partitions=2)
    bridging.send(b"1", b"2")
    bridging.send(b"3", partition=1)
    bridging.turns()
    bridging.send(b"4")
    bridging.turns()
    assert bridging.arrived(0) == [b"1", b"2", b"4"]
    assert bridging.arrived(1) == [b"3"]
    assert bridging.committed() == 3
    assert bridging.committed(PartitionId("orders", 1)) == 1
    assert bridging.board.read().counts.records_accepted == 4


def test_another_life_goes_on_where_the_last_one_committed() -> None:
    bridging = Bridging()
    bridging.send(b"1")
    bridging.turns()
    bridging.loop.consumer.close()
    bridging.send(b"2")
    bridging.begin()
    bridging.turns()
    assert bridging.arrived() == [b"1", b"2"]


def test_a_bridge_that_died_between_delivery_and_commit_sends_the_same_again() -> None:
    bridging = Bridging()
    bridging.send(b"1", b"2")
    bridging.faults.at["commit"] = iter([RuntimeError("killed")])
    with pytest.raises(RuntimeError):
        bridging.turns()
    bridging.loop.consumer.close()
    bridging.begin()
    bridging.turns()
    records = bridging.cluster.records("far.orders")
    assert [record.value for record in records] == [b"1", b"2", b"1", b"2"]
    assert records[0] == records[2]
    assert records[1] == records[3]
    assert bridging.committed() == 2


def test_nothing_is_committed_while_the_target_does_not_answer() -> None:
    bridging = Bridging()
    bridging.send(b"1")
    bridging.faults.at["flush"] = repeat(silent(), 40)
    bridging.turns()
    assert bridging.faults.passed["commit"] == 1, "once, after all was delivered"
    assert bridging.arrived() == [b"1"]
    assert bridging.committed() == 1


def test_what_is_not_delivered_within_a_session_is_taken_back_and_read_again() -> None:
    bridging = Bridging()
    bridging.turns()
    bridging.send(b"1")
    made = bridging.clients.producers
    bridging.faults.at["flush"] = repeat(silent(), 50)
    bridging.turns(1)
    assert bridging.clients.producers == made
    assert bridging.arrived() == []
    assert "the target's broker" in (bridging.board.read().waiting_for or "")
    bridging.turns()
    assert bridging.clients.producers == made + 1
    assert bridging.arrived() == [b"1"]
    assert bridging.board.read().phase == "running"


def test_a_target_that_does_not_answer_is_reported_and_finally_ends_the_bridge() -> None:
    bridging = Bridging()
    bridging.send(b"1")
    bridging.faults.at["flush"] = repeat(silent())
    with ending(ExitCode.BROKER, "the target's broker at b:1"):
        bridging.turns(100)
    assert bridging.board.read().phase == "waiting"
    assert bridging.committed() is None


def test_a_commit_that_fails_is_followed_by_the_same_records_again() -> None:
    bridging = Bridging()
    bridging.send(b"1", b"2")
    bridging.faults.at["commit"] = iter([gone()])
    bridging.turns()
    assert bridging.arrived() == [b"1", b"2", b"1", b"2"]
    assert bridging.committed() == 2
    assert bridging.board.read().phase == "running"


def test_what_comes_while_a_commit_is_answered_is_read_next() -> None:
    bridging = Bridging()
    bridging.turns()
    bridging.send(b"1")

    def more() -> Iterator[None]:
        bridging.send(b"2", b"3")
        yield None

    bridging.faults.at["commit"] = more()
    bridging.turns(1)
    assert bridging.committed() == 1
    assert bridging.arrived() == [b"1"]
    bridging.turns()
    assert bridging.arrived() == [b"1", b"2", b"3"]
    assert bridging.committed() == 3


def test_buffered_records_of_a_partition_that_is_revoked_and_reassigned_are_read_again() -> None:
    bridging = Bridging()
    bridging.turns()
    bridging.send(b"1", b"2")
    consumer = bridging.loop.consumer
    consumer.buffered = consumer.consumed(10, 0)
    assert consumer.buffered
    places = consumer.consumer.assignment()
    consumer.on_revoke(consumer.consumer, places)
    consumer.on_assign(consumer.consumer, places)
    bridging.turns()
    assert bridging.arrived() == [b"1", b"2"]


def test_an_unanswered_commit_is_reported_and_retried() -> None:
    bridging = Bridging()
    bridging.turns()
    answer = bridging.loop.consumer.note_commit
    bridging.send(b"1")
    bridging.clients.answers = lambda *_answer: None
    bridging.turns(1)
    assert "the source's broker" in (bridging.board.read().waiting_for or "")
    bridging.clients.answers = answer
    bridging.turns()
    assert bridging.board.read().phase == "running"
    assert bridging.arrived() == [b"1", b"1"]


def test_what_the_broker_refuses_is_a_dead_letter_and_order_is_kept() -> None:
    bridging = Bridging()
    large = b"x" * 200
    bridging.send(b"1", large, b"2", large, b"3")
    bridging.turns(20)
    assert list(dict.fromkeys(bridging.arrived())) == [b"1", b"2", b"3"]
    assert set(bridging.letters()) == {(large, b"too-large")}
    assert bridging.committed() == 5


def test_of_records_that_share_a_request_only_the_guilty_one_is_a_dead_letter() -> None:
    bridging = Bridging()
    bridging.cluster.create_topic("far.orders", 1, cleanup_policy="compact")
    bridging.send(b"1", b"2")
    bridging.send(b"no key", key=None)
    bridging.send(b"3")
    bridging.turns(20)
    assert list(dict.fromkeys(bridging.arrived())) == [b"1", b"2", b"3"]
    assert bridging.letters() == [(b"no key", b"refused")]
    made = bridging.clients.producers
    bridging.send(b"4", b"5")
    bridging.turns()
    assert bridging.arrived()[-2:] == [b"4", b"5"]
    assert bridging.clients.producers == made, "requests are shared again"


def test_a_dead_letter_that_is_refused_as_well_ends_it_with_5() -> None:
    bridging = Bridging()
    bridging.cluster.create_topic("g.dead-letters", 1, limit_bytes=100)
    bridging.send(b"x" * 200)
    with ending(ExitCode.CONTRADICTION, r"orders-0@0.*g\.dead-letters"):
        bridging.turns()
    assert bridging.committed() is None


def test_records_that_the_client_delivers_again_are_left_out() -> None:
    bridging = Bridging()
    bridging.send(b"1", b"2", b"3")
    bridging.turns()
    consumer = bridging.loop.consumer
    consumer.consumer.seek(TopicPartition("orders", 0, 1))
    bridging.send(b"4")
    bridging.turns()
    assert bridging.arrived() == [b"1", b"2", b"3", b"4"]


def test_a_partition_that_was_taken_away_is_not_committed() -> None:
    bridging = Bridging()
    bridging.turns()
    bridging.send(b"1")
    consumer = bridging.loop.consumer
    bridging.loop.prepare()
    assert bridging.loop.send()
    bridging.loop.producer.settle(lambda _waited_s: None)
    consumer.on_revoke(consumer.consumer, consumer.consumer.assignment())
    consumer.commit(lambda _waited_s: None)
    assert bridging.arrived() == [b"1"]
    assert bridging.committed() is None


def test_a_topic_that_is_missing_at_the_target_is_waited_for() -> None:
    bridging = Bridging(initializer=0)
    bridging.send(b"1")
    bridging.turns()
    status = bridging.board.read()
    assert status.phase == "waiting"
    assert "the target topic far.orders" in (status.waiting_for or "")
    bridging.cluster.create_topic("far.orders", 1)
    bridging.turns(60)
    assert bridging.arrived() == [b"1"]
    assert bridging.board.read().phase == "running"


def test_a_target_topic_that_goes_is_waited_for_and_nothing_is_passed_over() -> None:
    bridging = Bridging()
    bridging.turns()
    del bridging.cluster.logs["far.orders"]
    bridging.send(b"1")
    bridging.turns()
    assert "the target topic far.orders" in (bridging.board.read().waiting_for or "")
    bridging.cluster.create_topic("far.orders", 1)
    bridging.turns(60)
    assert bridging.arrived() == [b"1"]


def test_too_few_partitions_at_the_target_end_it_with_5() -> None:
    with ending(ExitCode.CONTRADICTION, "add partitions"):
        Bridging(partitions=3, initializer=2).turns()


def test_by_key_fewer_partitions_are_enough() -> None:
    bridging = Bridging(partitions=3, initializer=2, keep_partition=False)
    bridging.send(b"1", partition=2, key=None)
    bridging.turns()
    assert bridging.arrived(0) == [b"1"]


def test_a_topic_is_never_forwarded_into_itself() -> None:
    with pytest.raises(ExitError, match="read and written"):
        Bridging(target_topic="{topic}").turns()


def test_an_offset_that_is_gone_from_the_source_ends_it_with_5() -> None:
    bridging = Bridging()
    bridging.send(b"1")
    bridging.turns()
    bridging.loop.consumer.close()
    bridging.send(b"2", b"3")
    log = some(bridging.cluster.log("orders", 0))
    log.delete_before(2)
    bridging.begin()
    with ending(ExitCode.CONTRADICTION, "1 is not within 2 to 3"):
        bridging.turns()


def test_what_is_known_to_be_wrong_with_the_way_is_what_a_bridge_waits_for() -> None:
    bridging = Bridging()
    known = "the source's broker at a:1, which refuses connections; start it"
    bridging.cluster.known_cause = known
    bridging.faults.at["names"] = repeat(silent())
    with ending(ExitCode.BROKER, f"Cannot work with {known}."):
        bridging.turns(1000)
    assert bridging.board.read().waiting_for == known


def test_a_source_that_never_answers_ends_the_start_within_half_a_minute() -> None:
    bridging = Bridging()
    bridging.faults.at["names"] = repeat(silent())
    began_s = bridging.clock.monotonic_s()
    with ending(ExitCode.BROKER, "the source's broker at a:1"):
        bridging.turns(1000)
    assert bridging.clock.monotonic_s() - began_s < 30


def test_a_source_that_goes_while_nothing_comes_is_noticed() -> None:
    bridging = Bridging()
    bridging.turns()
    bridging.faults.at["cluster_id"] = repeat(silent())
    bridging.turns()
    assert bridging.board.read().phase == "running", "nobody has said anything"
    bridging.clients.shake(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    bridging.turns(1)
    assert "the source's broker" in (bridging.board.read().waiting_for or "")


def test_a_stop_finishes_the_batch_and_commits_it() -> None:
    bridging = Bridging()
    bridging.turns()
    bridging.send(b"1")
    bridging.faults.at["produce"] = bridging.stopping()
    bridging.loop.run()
    assert bridging.arrived() == [b"1"]
    assert bridging.committed() == 1
    assert bridging.board.read().phase == "stopping"


def test_a_stop_does_not_wait_for_a_silent_target_and_commits_nothing() -> None:
    bridging = Bridging()
    bridging.turns()
    bridging.send(b"1")
    bridging.faults.at["flush"] = repeat(silent())
    bridging.faults.at["produce"] = bridging.stopping()
    began_s = bridging.clock.monotonic_s()
    bridging.loop.run()
    assert bridging.clock.monotonic_s() - began_s < 10
    assert bridging.committed() is None


def test_what_a_transaction_left_out_is_not_forwarded_and_no_lag() -> None:
    bridging = Bridging()
    producer = FakeProducer(bridging.cluster, "upstream")
    producer.init_transactions()
    for value, end in ((b"lost", producer.abort_transaction), (b"1", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("orders", value, b"k", 0)
        producer.flush()
        end()
    bridging.turns(20)
    assert bridging.arrived() == [b"1"]
    assert [each.lag_records for each in bridging.board.read().partitions] == [0]
    assert bridging.loop.consumer.caught_up


def test_a_header_of_another_s_record_is_as_it_came() -> None:
    bridging = Bridging()
    bridging.cluster.write("orders", 0, Record(None, None, [("_DUPL_ID", b"1"), ("a", None)], 7))
    bridging.turns()
    (record,) = bridging.cluster.records("far.orders")
    assert record == Record(None, None, [("_DUPL_ID", b"1"), ("a", None)], 7)


def test_the_group_is_left_at_the_end() -> None:
    bridging = Bridging()
    bridging.turns()
    assert bridging.cluster.group(GROUP).members
    bridging.loop.stop()
    bridging.loop.run()
    assert not bridging.cluster.group(GROUP).members
    assert ORDERS not in bridging.loop.consumer.running


def test_a_batch_that_the_client_cannot_unpack_holds_up_its_partition_alone_and_is_named() -> None:
    bridging = Bridging(partitions=2)
    bridging.send(b"1", b"2", b"3")
    log = some(bridging.cluster.log(*ORDERS))
    log.unreadable.append((1, 1))
    with capture_logs() as logged:
        bridging.turns()
        bridging.send(b"4", partition=1)
        bridging.turns()
    assert (bridging.arrived(0), bridging.arrived(1)) == ([b"1"], [b"4"])
    waiting = [each.waiting_for for each in bridging.board.read().partitions]
    assert "orders-0" in some(waiting[0])
    assert "[bridge.source]" in some(waiting[0])
    assert waiting[1] is None
    assert sum(each["event"] == "blocked" for each in logged) == 1
    log.unreadable.clear()
    bridging.turns()
    assert bridging.arrived(0) == [b"1", b"2", b"3"]
    assert bridging.board.read().partitions[0].waiting_for is None


def test_large_records_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, consume = list[int](), FakeConsumer.consume

    def counted(consumer: FakeConsumer, records_max: int = 1, timeout: float = -1) -> list[Message]:
        messages = consume(consumer, records_max, timeout)
        sizes.append(sum(map(len, messages)))
        return messages

    monkeypatch.setattr(FakeConsumer, "consume", counted)
    bridging = Bridging()
    bridging.cluster.create_topic("far.orders")  # it takes large ones
    bridging.send(*[bytes(200_000)] * 500)
    bridging.turns()
    assert sum(sizes) == 500 * 200_000
    assert max(sizes) == 64 * 200_000, "nothing predicts the size of the first"
