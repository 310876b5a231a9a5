"""What a Kafka error means in the middle of a transaction."""

import pytest
from confluent_kafka import KafkaError

from service.faults import Remedy, fault_of

R, A, B = Remedy.RETRY, Remedy.ABORT, Remedy.REBUILD


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
def test_the_remedy_is(error: KafkaError, remedy: Remedy, *, of_record: bool, fenced: bool) -> None:
    fault = fault_of(error)
    assert fault[:3] == (remedy, of_record, fenced)
    assert error.name() in fault.cause
