"""What a Kafka error means in the middle of a transaction."""

import weakref

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from ringfence_service.kafka.errors import UNREADABLE_BATCH, Recovery, fault_of, without_frames

R, A, B = Recovery.RETRY, Recovery.ABORT, Recovery.REBUILD


@pytest.mark.parametrize(
    ("error", "remedy", "of_record", "fenced"),
    [
        (KafkaError(KafkaError._TIMED_OUT), R, False, False),
        (KafkaError(KafkaError._TRANSPORT, retriable=True), R, False, False),
        (
            KafkaError(KafkaError._TIMED_OUT, retriable=True, txn_requires_abort=True),
            A,
            False,
            False,
        ),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), A, False, False),
        (
            KafkaError(KafkaError.NOT_ENOUGH_REPLICAS, retriable=True, txn_requires_abort=True),
            A,
            False,
            False,
        ),
        (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), A, True, False),
        (KafkaError(KafkaError.INVALID_RECORD, txn_requires_abort=True), A, True, False),
        (KafkaError(KafkaError.INVALID_TIMESTAMP), A, True, False),
        (KafkaError(KafkaError._FENCED), B, False, True),
        (KafkaError(KafkaError.PRODUCER_FENCED, txn_requires_abort=True), B, False, True),
        (KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, retriable=True), B, False, True),
        (KafkaError(KafkaError.FENCED_INSTANCE_ID), B, False, True),
        (KafkaError(KafkaError._FATAL, fatal=True), B, False, False),
    ],
    ids=lambda value: value.name() if isinstance(value, KafkaError) else None,
)
def test_the_remedy_is(
    error: KafkaError, remedy: Recovery, *, of_record: bool, fenced: bool
) -> None:
    fault = fault_of(error)
    assert fault[:3] == (remedy, of_record, fenced)
    assert error.name() in fault.cause


def test_an_error_about_a_batch_names_the_property_to_raise() -> None:
    cause = fault_of(KafkaError(UNREADABLE_BATCH, "message at 3 of 7 bytes failed")).cause
    assert cause.startswith("_BAD_COMPRESSION: ")
    assert '"receive.message.max.bytes"' in cause


@pytest.mark.parametrize(
    ("error", "asks"),
    [
        (KafkaError(KafkaError._MSG_TIMED_OUT), True),
        (KafkaError(KafkaError._TIMED_OUT, txn_requires_abort=True), True),
        (KafkaError(KafkaError._TIMED_OUT, retriable=True), False),
    ],
    ids=["not delivered", "not delivered, and the transaction is lost", "not answered"],
)
def test_of_records_that_were_not_delivered_the_replicas_are_to_be_looked_at(
    error: KafkaError, *, asks: bool
) -> None:
    assert ("are enough replicas in sync?" in fault_of(error).cause) == asks


class Held:
    """Stands for what a frame knows."""


def failing(kept: "list[weakref.ref[Held]]") -> None:
    held = Held()
    kept.append(weakref.ref(held))
    try:
        raise ValueError("first")
    except ValueError as first:
        raise RuntimeError("second") from first


def test_what_the_client_keeps_of_an_exception_knows_of_nothing_else() -> None:
    producer = Producer({"transactional.id": "x", "log_level": 0})
    kept: list[weakref.ref[Held]] = []
    try:
        failing(kept)
    except RuntimeError as error:
        without_frames(error)
        with pytest.raises(KafkaException):
            producer.begin_transaction()  # it was not initialised
    (held,) = kept
    assert held() is None
