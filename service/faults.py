"""Faults: what a Kafka error means for the transaction it stands in. One table.

A fault of the record itself ends in the dead letters; a fault of the broker is waited for and
never dead-letters anything; fencing ends this producer, and the truth is asked from the broker.
"""

from enum import Enum
from typing import Final, NamedTuple

from confluent_kafka import KafkaError


class Remedy(Enum):
    """What to do about a fault."""

    RETRY = "call the same again"
    ABORT = "abort, drop the draft, read the batch again"
    REBUILD = "the outcome is unknown: new producer and consumer, state from the broker"


class Fault(NamedTuple):
    """An error in the middle of a transaction."""

    remedy: Remedy
    of_record: bool
    fenced: bool
    cause: str


_RECORD_ERRORS: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
    }
)
_FENCED_ERRORS: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - the binding's own name for it
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
    }
)


# The broker's own reason for not storing records never reaches the client's caller.
_HINTS: Final = {
    KafkaError._MSG_TIMED_OUT: "; are enough replicas in sync?",  # noqa: SLF001
    KafkaError.CONCURRENT_TRANSACTIONS: "; if it stays so, are enough replicas in sync?",
}


def fault_of(error: KafkaError) -> Fault:
    """What an error of begin, send, flush, commit or abort means."""
    code = error.code()
    # A static member that was replaced hears of it once, as a fatal error without its own code.
    is_fatal = error.fatal() or code == KafkaError._FATAL  # noqa: SLF001 - the binding's name
    fenced = code in _FENCED_ERRORS or (is_fatal and "fenced" in error.str().lower())
    if is_fatal or fenced:
        remedy = Remedy.REBUILD
    elif error.txn_requires_abort():
        remedy = Remedy.ABORT
    elif error.retriable() or code == KafkaError._TIMED_OUT:  # noqa: SLF001 - as above
        remedy = Remedy.RETRY
    else:
        remedy = Remedy.ABORT
    cause = f"{error.name()}: {error.str()}{_HINTS.get(code, '')}"
    return Fault(remedy, code in _RECORD_ERRORS, fenced, cause)
