"""The errors of librdkafka as the fakes raise them: real classes, the flags seen on a broker."""

import sys

from confluent_kafka import KafkaError, KafkaException

from ringfence_service.errors import ExitError
from ringfence_service.processor.committer import NotAppliedError


def check_nothing_is_handled() -> None:
    """Refuse a call of a client while an exception is handled, which the real one would keep alive.

    If the call fails, the binding never frees its exception, nor those that are handled then, nor
    what their frames hold: all of a transaction. One without frames (`without_frames`) holds
    nothing, and one that ends the process may.
    """
    handled = sys.exception()
    if handled is not None and not isinstance(handled, (ExitError, NotAppliedError)):
        assert handled.__traceback__ is None, f"{handled!r} is still handled"


def plain(code: int, reason: str) -> KafkaException:
    """Return an error with no flag: neither fatal, nor abortable, nor to be retried."""
    return KafkaException(KafkaError(code, reason))


def abortable(code: int, reason: str) -> KafkaException:
    """Return an error after which the transaction can only be aborted."""
    return KafkaException(KafkaError(code, reason, txn_requires_abort=True))


def retriable(code: int, reason: str) -> KafkaException:
    """Return an error after which the same call may be made again."""
    return KafkaException(KafkaError(code, reason, retriable=True))


def fenced(reason: str = "fenced by a newer producer instance") -> KafkaException:
    """Return the fatal error of a producer that another one, or a timeout, has replaced."""
    return KafkaException(KafkaError(KafkaError._FENCED, reason, fatal=True))


def in_no_transaction() -> KafkaException:
    """Return the fatal error of a producer whose transaction was ended by a request of before."""
    reason = "Broker: the transaction is in another state"
    return KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, reason, fatal=True))


def error_of(exception: KafkaException) -> KafkaError:
    """Return the KafkaError inside an exception."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error
