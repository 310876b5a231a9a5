"""What the loop relies on in Kafka, asked of the real one and of the fake in the same words."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Place

from ringfence_service.kafka.io import assign_anew
from tests.broker.conftest import shared_broker
from tests.contract.logs import ROUNDS_MAX, FakeLog, Log, RealLog, read, until

STARTING: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


@pytest.fixture(scope="module")
def real_log(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> RealLog:
    return RealLog(shared_broker(pytestconfig, tmp_path_factory).client_properties)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.broker)])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    if request.param == "fake":
        yield FakeLog()
        return
    real: RealLog = request.getfixturevalue("real_log")
    yield real
    real.close()


def ready(log: Log, name: str, timeout_ms: int = 10_000) -> Producer:
    producer = log.producer(name, timeout_ms)
    producer.init_transactions(30)
    return producer


def send(producer: Producer, topic: str, *values: bytes) -> None:
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(10)


def flush_patiently(producer: Producer) -> None:
    for _ in range(40):
        producer.flush(0.25)


def refused(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        call()
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def flags(error: KafkaError) -> tuple[int, bool, bool]:
    return error.code(), error.fatal(), error.txn_requires_abort()


def committed(consumer: Consumer, topic: str, partition: int = 0) -> tuple[int, str | None]:
    """Return offset and metadata; the client does not ask a coordinator again that is starting."""
    for _ in range(ROUNDS_MAX):
        try:
            found = consumer.committed([Place(topic, partition)], 10)[0]
        except KafkaException as error:
            if error.args[0].code() not in STARTING:
                raise
            time.sleep(0.1)  # noqa: TID251 - how often it asks
        else:
            return found.offset, found.metadata
    raise AssertionError(f"no coordinator tells what is committed in {ROUNDS_MAX} rounds")


def ends_at(log: Log, topic: str, end: int) -> None:
    """Wait for the markers, which the broker writes after it has answered."""
    for _ in range(50):
        if log.end(topic) == end:
            return
        log.wait(0.1)
    assert log.end(topic) == end


def joined(log: Log, group: str, topic: str, instance: str | None = None) -> Consumer:
    """Return a member that owns partitions and reads none of them."""
    consumer = log.consumer(group, instance)
    join(consumer, topic)
    return consumer


def join(consumer: Consumer, topic: str) -> None:
    """Until it owns partitions."""
    granted = list[Place]()

    def on_assign(_: Consumer, places: list[Place]) -> None:
        granted.extend(places)
        consumer.incremental_assign([])

    def on_revoke(_: Consumer, _places: list[Place]) -> None:
        consumer.incremental_unassign([])

    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    until(lambda: granted, [consumer])


def heard(log: Log, consumer: Consumer, place: Place) -> Message:
    """Return what comes first of a partition.

    A coordinator that is just starting refuses the group, not the partition, and the client, which
    says so, does not ask it again for an assignment that stays as it is.
    """
    for _ in range(ROUNDS_MAX):
        consumer.assign([place])
        found = consumer.poll(10)
        assert found is not None
        if found.topic() is not None:
            return found
        log.wait(0.1)
    raise AssertionError(f"nothing was heard of {place} in {ROUNDS_MAX} rounds")


# Transactions.


def test_records_of_two_topics_become_visible_together(log: Log) -> None:
    one, two = log.topic(), log.topic()
    producer, reader = ready(log, "atomic"), log.consumer("reader")
    producer.begin_transaction()
    send(producer, one, b"a")
    send(producer, two, b"b")
    reader.assign([Place(one, 0, 0), Place(two, 0, 0)])
    assert reader.consume(2, 1) == []
    producer.commit_transaction(10)
    messages = until(lambda: reader.position([Place(one, 0)])[0].offset == 2, [reader])
    messages += until(lambda: reader.position([Place(two, 0)])[0].offset == 2, [reader])
    assert {message.value() for message in messages} == {b"a", b"b"}


def test_an_aborted_record_is_never_seen_and_keeps_its_offset(log: Log) -> None:
    topic, producer = log.topic(), ready(log, "aborts")
    producer.begin_transaction()
    send(producer, topic, b"lost")
    producer.abort_transaction(10)
    producer.begin_transaction()
    send(producer, topic, b"kept")
    producer.commit_transaction(10)
    ends_at(log, topic, 4)
    assert read(log.consumer("reader"), topic, 0, 4) == [b"kept"]


def test_the_position_reaches_the_end_past_aborted_records_and_markers(log: Log) -> None:
    topic, producer = log.topic(), ready(log, "markers")
    producer.begin_transaction()
    send(producer, topic, b"a")
    producer.commit_transaction(10)
    producer.begin_transaction()
    send(producer, topic, b"b", b"c")
    producer.abort_transaction(10)
    ends_at(log, topic, 5)
    assert read(log.consumer("reader"), topic, 0, 5) == [b"a"]
    assert read(log.consumer("reader"), topic, 2, 5) == []


def test_a_new_assignment_reports_no_position_of_an_earlier_one(log: Log) -> None:
    topic, reader = log.topic(), log.consumer("reader")
    log.write(topic, [b"a", b"b", b"c"])
    for _ in range(20):
        assert read(reader, topic, 0, 3) == [b"a", b"b", b"c"]
        assign_anew(reader, [Place(topic, 0, 1)])
        assert reader.position([Place(topic, 0)])[0].offset == -1001


def test_an_open_transaction_holds_back_all_that_follows_it_but_not_the_end(log: Log) -> None:
    topic, producer, reader = log.topic(), ready(log, "open"), log.consumer("reader")
    producer.begin_transaction()
    send(producer, topic, b"a")
    log.write(topic, [b"b"])
    assert log.end(topic) == 2
    reader.assign([Place(topic, 0, 0)])
    assert reader.consume(2, 1) == []
    producer.commit_transaction(10)
    assert read(reader, topic, 0, 3) == [b"a", b"b"]


def test_the_report_of_a_record_names_its_offset(log: Log) -> None:
    topic, producer = log.topic(), ready(log, "reports")
    offsets = list[int | None]()
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.produce(
        topic, b"b", partition=0, on_delivery=lambda _, message: offsets.append(message.offset())
    )
    assert producer.flush(10) == 0
    assert offsets == [1]
    producer.commit_transaction(10)


def test_arguments_of_produce_may_be_given_by_their_positions(log: Log) -> None:
    topic, producer, reader = log.topic(), ready(log, "places"), log.consumer("reader")
    offsets = list[int | None]()
    produce = cast("Callable[..., None]", producer.produce)
    producer.begin_transaction()
    produce(topic, b"a", b"key", 0, lambda _, message: offsets.append(message.offset()))
    produce(topic, b"b", None, 0, None, None, 5, [("c", b"d")])
    producer.commit_transaction(10)
    assert offsets == [0]
    reader.assign([Place(topic, 0, 0)])
    first, second = until(lambda: reader.position([Place(topic, 0)])[0].offset >= 2, [reader])
    assert (first.key(), first.value()) == (b"key", b"a")
    assert (second.value(), second.timestamp()[1], second.headers()) == (b"b", 5, [("c", b"d")])


def test_headers_key_and_time_come_back_as_they_were(log: Log) -> None:
    topic, producer, reader = log.topic(), ready(log, "content"), log.consumer("reader")
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("b", None), ("a", b"")]
    producer.begin_transaction()
    producer.produce(topic, None, b"key", 0, timestamp=5, headers=headers)
    producer.produce(topic, b"", None, 0, timestamp=6)
    producer.commit_transaction(10)
    reader.assign([Place(topic, 0, 0)])
    first, second = until(lambda: reader.position([Place(topic, 0)])[0].offset >= 2, [reader])
    assert (first.key(), first.value(), first.headers()) == (b"key", None, headers)
    assert (second.key(), second.value(), second.headers()) == (None, b"", None)
    assert (first.timestamp()[1], second.timestamp()[1]) == (5, 6)


def test_a_call_in_the_wrong_state_is_refused(log: Log) -> None:
    topic, producer = log.topic(), log.producer("states")
    assert refused(producer.begin_transaction).code() == KafkaError._STATE
    producer.init_transactions(30)
    assert refused(lambda: producer.produce(topic, b"a")).code() == KafkaError._STATE
    assert refused(lambda: producer.commit_transaction(10)).code() == KafkaError._STATE
    assert refused(lambda: producer.abort_transaction(10)).code() == KafkaError._STATE
    producer.begin_transaction()
    assert refused(producer.begin_transaction).code() == KafkaError._STATE
    producer.commit_transaction(10)


HOUR_MS: Final = 3_600_000
BEYOND: Final[Mapping[str, tuple[Mapping[str, str], int, int]]] = {
    "too large": ({}, 0, KafkaError.MSG_SIZE_TOO_LARGE),
    "no key": ({"cleanup.policy": "compact"}, 0, KafkaError.INVALID_RECORD),
    "no key, with retention": ({"cleanup.policy": "compact,delete"}, 0, KafkaError.INVALID_RECORD),
    "too old": ({}, -2 * HOUR_MS, KafkaError.INVALID_TIMESTAMP),
    "too new": ({}, 2 * HOUR_MS, KafkaError.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("kind", BEYOND)
def test_a_record_beyond_the_topics_limits_makes_the_transaction_abortable(
    log: Log, kind: str
) -> None:
    settings, later_ms, code = BEYOND[kind]
    limits = {name: str(HOUR_MS) for name in log.time_limits()}
    topic = log.topic(record_bytes_max=1000, settings={**limits, **settings})
    producer = ready(log, "beyond")
    value, key = b"x" * (5000 if kind == "too large" else 5), None if "no key" in kind else b"k"
    producer.begin_transaction()
    producer.produce(topic, value, key, 0, timestamp=log.now_ms() + later_ms)
    producer.flush(10)
    told = (code, False, True)
    assert flags(refused(lambda: producer.commit_transaction(10))) == told
    assert refused(lambda: producer.produce(topic, b"b")).code() == KafkaError._STATE
    assert flags(refused(producer.begin_transaction)) == told
    producer.abort_transaction(10)
    # The refused record took a sequence number with it: the next transaction fails once more.
    producer.begin_transaction()
    producer.produce(topic, b"small", b"k", 0)
    producer.flush(10)
    gap = (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, False, True)
    assert flags(refused(lambda: producer.commit_transaction(10))) == gap
    producer.abort_transaction(10)


@pytest.mark.parametrize("later_ms", [-HOUR_MS // 2, HOUR_MS // 2, None])
def test_a_record_within_the_topics_limits_is_taken(log: Log, later_ms: int | None) -> None:
    limits = {name: str(HOUR_MS) for name in log.time_limits()}
    topic = log.topic(settings={**limits, "cleanup.policy": "compact"})
    producer = ready(log, "within")
    producer.begin_transaction()
    timestamp_ms = 0 if later_ms is None else log.now_ms() + later_ms
    producer.produce(topic, None, b"k", 0, timestamp=timestamp_ms)
    producer.commit_transaction(10)
    assert log.end(topic) >= 1


def test_a_topic_that_sets_the_time_itself_takes_any(log: Log) -> None:
    limits = {name: str(HOUR_MS) for name in log.time_limits()}
    topic = log.topic(settings={**limits, "message.timestamp.type": "LogAppendTime"})
    producer = ready(log, "any")
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0, timestamp=1)
    producer.commit_transaction(10)
    assert log.end(topic) >= 1
    producer.begin_transaction()
    send(producer, topic, b"small")
    producer.commit_transaction(10)


def test_a_batch_with_bad_records_is_refused_whole_and_the_bad_ones_are_named(log: Log) -> None:
    topic, producer = log.topic(settings={"cleanup.policy": "compact"}), ready(log, "named")
    codes: dict[int, int] = {}

    def note(row: int, error: KafkaError | None, _message: Message) -> None:
        codes[row] = 0 if error is None else error.code()

    producer.begin_transaction()
    for row, key in enumerate([b"a", None, b"b", None]):
        producer.produce(topic, b"value", key, 0, partial(note, row))
    flush_patiently(producer)
    bad, other = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert codes == {0: other, 1: bad, 2: other, 3: bad}
    assert flags(refused(lambda: producer.commit_transaction(10))) == (bad, False, True)
    producer.abort_transaction(10)


# Fencing.


def test_a_second_producer_of_one_id_fences_the_first(log: Log) -> None:
    topic, first = log.topic(), ready(log, "zombie")
    first.begin_transaction()
    send(first, topic, b"lost")
    second = ready(log, "zombie")
    fenced = (KafkaError._FENCED, True, False)
    assert flags(refused(lambda: first.commit_transaction(10))) == fenced
    assert flags(refused(lambda: first.abort_transaction(10))) == fenced
    assert flags(refused(first.begin_transaction)) == fenced
    second.begin_transaction()
    send(second, topic, b"kept")
    second.commit_transaction(10)
    ends_at(log, topic, 4)
    assert read(log.consumer("reader"), topic, 0, 4) == [b"kept"]


def test_a_fenced_producer_fails_at_its_flush_and_in_every_call_after(log: Log) -> None:
    topic, first = log.topic(), ready(log, "flush")
    first.begin_transaction()
    ready(log, "flush")
    first.produce(topic, b"lost", partition=0)
    assert flags(refused(lambda: first.flush(10)))[:2] == (KafkaError._FENCED, True)
    assert refused(lambda: first.produce(topic, b"lost")).code() == KafkaError._FATAL
    assert refused(lambda: first.commit_transaction(10)).code() == KafkaError._FENCED


def test_a_report_that_asks_nothing_of_a_failure_lets_the_fencing_through(log: Log) -> None:
    # The binding has the exception pending while it calls back: a call in there is a SystemError.
    topic, first, offsets = log.topic(), ready(log, "report"), list[int | None]()
    first.begin_transaction()
    ready(log, "report")

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets.append(message.offset())

    first.produce(topic, b"a", partition=0, on_delivery=on_delivery)
    assert refused(lambda: first.flush(10)).code() == KafkaError._FENCED
    assert offsets == []


def test_a_report_that_asks_for_the_offset_of_a_failure_hides_the_fencing(log: Log) -> None:
    topic, first = log.topic(), ready(log, "hidden")
    first.begin_transaction()
    ready(log, "hidden")
    offsets = list[int | None]()

    def on_delivery(_: KafkaError | None, message: Message) -> None:
        offsets.append(message.offset())

    first.produce(topic, b"a", partition=0, on_delivery=on_delivery)
    with pytest.raises(SystemError):
        first.flush(10)
    assert refused(lambda: first.commit_transaction(10)).code() == KafkaError._FENCED


def test_a_fenced_producer_with_nothing_to_say_does_not_notice(log: Log) -> None:
    first = ready(log, "idle")
    first.begin_transaction()
    ready(log, "idle")
    first.commit_transaction(10)


def test_a_transaction_past_its_timeout_looks_like_one_of_a_zombie(log: Log) -> None:
    topic, producer = log.topic(), ready(log, "slow", 5_000)
    producer.begin_transaction()
    send(producer, topic, b"late")
    for _ in range(30):  # The broker looks for such transactions only now and then.
        log.wait(1)
        if log.end(topic) == 2:
            break
    assert flags(refused(lambda: producer.commit_transaction(10)))[:2] == (KafkaError._FENCED, True)


# Offsets.


def test_offsets_and_metadata_are_committed_with_the_transaction_or_not_at_all(log: Log) -> None:
    topic, producer, consumer = log.topic(), ready(log, "offsets"), log.consumer("offsets")
    who = consumer.consumer_group_metadata()
    assert committed(consumer, topic) == (-1001, None)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([Place(topic, 0, 5, "lost")], who, 10)
    producer.abort_transaction(10)
    assert committed(consumer, topic) == (-1001, None)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([Place(topic, 0, 7, "kept")], who, 10)
    producer.commit_transaction(10)
    assert committed(consumer, topic) == (7, "kept")


def test_committed_waits_for_an_open_transaction_and_then_gives_up(log: Log) -> None:
    topic, producer, consumer = log.topic(2), ready(log, "blocks"), log.consumer("blocks")
    producer.begin_transaction()
    who = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([Place(topic, 0, 3)], who, 10)
    error = refused(lambda: consumer.committed([Place(topic, 0)], 1))
    assert (error.code(), error.retriable()) == (KafkaError._TIMED_OUT, False)
    assert committed(consumer, topic, 1)[0] == -1001
    producer.commit_transaction(10)
    assert committed(consumer, topic) == (3, None)


def test_a_new_producer_of_the_id_releases_offsets_and_records(log: Log) -> None:
    topic, dead, consumer = log.topic(), ready(log, "takeover"), log.consumer("takeover")
    dead.begin_transaction()
    send(dead, topic, b"lost")
    who = consumer.consumer_group_metadata()
    dead.send_offsets_to_transaction([Place(topic, 0, 3)], who, 10)
    ready(log, "takeover")
    assert committed(consumer, topic) == (-1001, None)
    assert read(consumer, topic, 0, 2) == []


def test_no_offsets_are_no_request(log: Log) -> None:
    first, consumer = ready(log, "none"), log.consumer("none")
    first.begin_transaction()
    ready(log, "none")
    first.send_offsets_to_transaction([], consumer.consumer_group_metadata(), 10)


def test_metadata_beyond_4096_bytes_is_refused(log: Log) -> None:
    topic, producer, consumer = log.topic(), ready(log, "metadata"), log.consumer("metadata")
    who = consumer.consumer_group_metadata()
    producer.begin_transaction()
    place = Place(topic, 0, 1, "m" * 5000)
    error = refused(lambda: producer.send_offsets_to_transaction([place], who, 10))
    assert flags(error) == (KafkaError.OFFSET_METADATA_TOO_LARGE, False, True)
    producer.abort_transaction(10)


# The group.


def test_offsets_of_one_who_never_joined_are_accepted(log: Log) -> None:
    topic = log.topic()
    joined(log, "stranger", topic)
    stranger = log.consumer("stranger")
    producer = ready(log, "stranger")
    producer.begin_transaction()
    who = stranger.consumer_group_metadata()
    producer.send_offsets_to_transaction([Place(topic, 0, 1)], who, 10)
    producer.commit_transaction(10)
    assert committed(stranger, topic) == (1, None)


def test_offsets_of_an_older_generation_are_refused(log: Log) -> None:
    topic, producer = log.topic(2), ready(log, "generation")
    first = joined(log, "generation", topic, "first")
    old = first.consumer_group_metadata()
    second = log.consumer("generation", "second")
    granted = list[Place]()
    second.subscribe([topic], on_assign=lambda _, places: granted.extend(places))
    until(lambda: granted, [first, second])
    producer.begin_transaction()
    error = refused(lambda: producer.send_offsets_to_transaction([Place(topic, 0, 1)], old, 10))
    assert flags(error) == (KafkaError.ILLEGAL_GENERATION, False, True)
    assert flags(refused(lambda: producer.commit_transaction(10))) == flags(error)
    producer.abort_transaction(10)
    # Ownership, on the other hand, is not asked.
    producer.begin_transaction()
    who, foreign = second.consumer_group_metadata(), 1 - granted[0].partition
    producer.send_offsets_to_transaction([Place(topic, foreign, 1)], who, 10)
    producer.commit_transaction(10)


def test_a_static_member_that_returns_replaces_and_fences_itself(log: Log) -> None:
    topic, producer = log.topic(), ready(log, "static")
    first = joined(log, "static", topic, "one")
    old = first.consumer_group_metadata()
    second = joined(log, "static", topic, "one")
    producer.begin_transaction()
    error = refused(lambda: producer.send_offsets_to_transaction([Place(topic, 0, 1)], old, 10))
    assert flags(error) == (KafkaError.FENCED_INSTANCE_ID, False, True)
    producer.abort_transaction(10)
    errors = [message.error() for message in first.consume(10, 3)]
    assert [error and error.code() for error in errors] == [KafkaError._FATAL]
    producer.begin_transaction()
    who = second.consumer_group_metadata()
    producer.send_offsets_to_transaction([Place(topic, 0, 1)], who, 10)
    producer.commit_transaction(10)


def test_the_first_offset_at_or_after_a_time_is_told_and_minus_one_behind_all(log: Log) -> None:
    topic, producer, reader = log.topic(), ready(log, "times"), log.consumer("times")
    began_ms = log.now_ms()
    producer.begin_transaction()
    for after_ms in (0, 2_000, 1_000, 3_000):
        producer.produce(topic, b"v", partition=0, timestamp=began_ms + after_ms)
    producer.commit_transaction(10)
    assert len(read(reader, topic, 0, 4)) == 4  # it may take a moment until they can be read

    def first(after_ms: int) -> int:
        (found,) = reader.offsets_for_times([Place(topic, 0, began_ms + after_ms)], timeout=10)
        return found.offset

    assert [first(after_ms) for after_ms in (-1, 1, 2_001, 3_001)] == [0, 1, 3, -1]
    with pytest.raises(KafkaException) as caught:
        reader.offsets_for_times([], timeout=10)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG


def test_to_consume_no_message_runs_no_callback(log: Log) -> None:
    consumer, granted = log.consumer("none"), list[Place]()
    consumer.subscribe([log.topic()], on_assign=lambda _, places: granted.extend(places))
    for _ in range(20):
        log.wait(0.1)
        assert consumer.consume(0, 0.1) == []
    assert granted == []
    until(lambda: granted, [consumer])


def test_a_static_member_that_unsubscribes_leaves_at_once(log: Log) -> None:
    topic = log.topic()
    first, granted = joined(log, "leaving", topic, "one"), list[Place]()
    second = log.consumer("leaving", "two")
    first.unsubscribe()
    first.consume(1, 0.5)
    first.close()
    second.subscribe([topic], on_assign=lambda _, places: granted.extend(places))
    for _ in range(40):  # less than the session of the first
        second.consume(1, 0.1)
    assert granted == [Place(topic, 0)]


def test_a_static_member_that_closes_keeps_its_place_until_its_session_ends(log: Log) -> None:
    topic = log.topic()
    first, granted = joined(log, "leaves", topic, "one"), list[Place]()
    second = log.consumer("leaves", "two")
    first.close()
    second.subscribe([topic], on_assign=lambda _, places: granted.extend(places))
    for _ in range(20):
        second.consume(1, 0.1)
    assert granted == []
    until(lambda: granted, [second])


def test_a_plain_member_that_closes_is_followed_at_once(log: Log) -> None:
    topic = log.topic()
    first, granted = joined(log, "hands-over", topic), list[Place]()
    who, producer = first.consumer_group_metadata(), ready(log, "hands-over")
    second = log.consumer("hands-over")
    first.close()
    second.subscribe([topic], on_assign=lambda _, places: granted.extend(places))
    until(lambda: granted, [second])
    producer.begin_transaction()
    error = refused(lambda: producer.send_offsets_to_transaction([Place(topic, 0, 1)], who, 10))
    assert flags(error) == (KafkaError.UNKNOWN_MEMBER_ID, False, True)
    producer.abort_transaction(10)


def test_nobody_is_a_member_before_joining(log: Log) -> None:
    assert log.consumer("nobody").memberid() is None


# Reading.


def test_partitions_may_be_assigned_long_after_the_callback(log: Log) -> None:
    topic = log.topic()
    log.write(topic, [b"a", b"b", b"c"])
    consumer = joined(log, "late", topic)
    assert consumer.consume(3, 0.5) == []
    consumer.incremental_assign([Place(topic, 0, 1)])
    messages = until(lambda: consumer.position([Place(topic, 0)])[0].offset == 3, [consumer])
    assert [message.value() for message in messages] == [b"b", b"c"]


def test_only_what_is_assigned_can_be_taken_away(log: Log) -> None:
    consumer, topic = log.consumer("take"), log.topic()
    error = refused(lambda: consumer.incremental_unassign([Place(topic, 0)]))
    assert error.code() == KafkaError._INVALID_ARG
    refused(lambda: consumer.seek(Place(topic, 0, 0)))
    consumer.incremental_assign([Place(topic, 0, 0)])
    error = refused(lambda: consumer.incremental_assign([Place(topic, 0, 0)]))
    assert error.code() == KafkaError._CONFLICT


def test_an_abort_does_not_rewind_the_reader_and_a_seek_does(log: Log) -> None:
    topic, producer, consumer = log.topic(), ready(log, "rewind"), log.consumer("rewind")
    log.write(topic, [b"a", b"b"])
    assert read(consumer, topic, 0, 2) == [b"a", b"b"]
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [Place(topic, 0, 2)], consumer.consumer_group_metadata(), 10
    )
    producer.abort_transaction(10)
    assert consumer.consume(2, 1) == []
    consumer.seek(Place(topic, 0, 0))
    assert consumer.position([Place(topic, 0)])[0].offset == -1001
    messages = until(lambda: consumer.position([Place(topic, 0)])[0].offset == 2, [consumer])
    assert [message.offset() for message in messages] == [0, 1]


@pytest.mark.parametrize("start", [99, -1000], ids=["beyond the end", "never committed"])
def test_without_a_valid_offset_one_error_comes_and_then_nothing(log: Log, start: int) -> None:
    topic, consumer = log.topic(), log.consumer("reset")
    found = heard(log, consumer, Place(topic, 0, start))
    error = found.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert (found.topic(), found.partition()) == (topic, 0)
    assert consumer.consume(1, 1) == []


@pytest.mark.row(31)
def test_a_topic_that_is_created_again_is_read_on_and_the_client_reports_it_before_any_record(
    log: Log,
) -> None:
    topic, doubts = log.topic(), list[int]()
    log.write(topic, [b"old"] * 3)
    consumer = log.consumer("recreated", on_doubt=lambda: doubts.append(1))
    assert read(consumer, topic, 0, 3) == [b"old"] * 3
    assert consumer.consume(1, 1) == []
    doubts.clear()
    log.recreate(topic)
    log.write(topic, [b"0", b"1", b"2", b"3", b"4"])
    for _ in range(ROUNDS_MAX):
        messages = consumer.consume(1, 0.1)
        if messages:
            break
    assert [message.value() for message in messages] == [b"3"]
    assert doubts


def test_what_a_member_commits_is_answered_and_is_where_the_next_one_goes_on(log: Log) -> None:
    topic, answers = log.topic(), list[tuple[KafkaError | None, list[Place]]]()
    member = log.consumer("committing", None, lambda *answer: answers.append(answer))
    join(member, topic)
    member.commit(offsets=[Place(topic, 0, 7)], asynchronous=True)
    until(lambda: answers, [member])
    ((error, (place,)),) = answers
    assert error is None
    assert (place.topic, place.partition, place.offset, place.error) == (topic, 0, 7, None)
    member.close()
    assert committed(log.consumer("committing"), topic)[0] == 7


# Delivery without transactions.


def test_after_a_refused_record_a_producer_without_gaps_sends_nothing(log: Log) -> None:
    topic, producer = log.topic(record_bytes_max=1000), log.delivery()
    failed: dict[int, KafkaError] = {}

    def note(row: int, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed[row] = error

    for row, value in enumerate([b"a", b"x" * 2000, b"b"]):
        producer.produce(topic, value, None, 0, partial(note, row), None, 1, [])
    with pytest.raises((KafkaException, SystemError)):
        flush_patiently(producer)
    with suppress(KafkaException, SystemError):
        while producer.poll(1):
            pass
    assert failed.pop(1).code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert 0 not in failed
    assert log.end(topic) == 1
    assert refused(lambda: producer.produce(topic, b"c", None, 0, partial(note, 3), None, 1, []))


def test_a_closed_consumer_says_so(log: Log) -> None:
    consumer = log.consumer("closed")
    consumer.close()
    consumer.close()
    with pytest.raises(RuntimeError):
        consumer.consume(1, 0)
