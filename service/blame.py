"""Blame: which exceptions, raised while records are decided, are caused by one of the records.

Every exception that nobody foresaw is. It aborts the transaction, and the batch is halved until
the record is found (`refusals.py`), as for a record that the broker refuses.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from confluent_kafka import KafkaException

from service.faults import Fault, FaultError, Remedy, without_frames
from service.redecide import Misdirected
from service.target import TargetMissingError
from state.cache import TooMuchAtOnceError
from state.keys import UnknownFormatError
from state.store import StoreCorruptError, StoreFailedError

_CAUSE_CHARS_MAX: Final = 300
_OF_NO_RECORD: Final = (
    # The machine, the broker and the store.
    MemoryError,
    OSError,
    KafkaException,
    StoreCorruptError,
    StoreFailedError,
    UnknownFormatError,
    # A failed assert means that memory and store are not what they must be. A process that starts
    # again reads both from the changelog; this one would dead-letter record after record.
    AssertionError,
    # Raised on purpose: the loop knows what to do.
    FaultError,
    Misdirected,
    TargetMissingError,
    TooMuchAtOnceError,
)


_log = structlog.stdlib.get_logger(__name__)


class UndecidedError(FaultError):
    """A record could not be decided; which one is not known yet."""


@contextmanager
def blaming_records() -> Iterator[None]:
    """Raise UndecidedError for whatever nobody foresaw."""
    try:
        yield
    except _OF_NO_RECORD:
        raise
    except Exception as error:  # noqa: BLE001 - what a record holds may raise any
        raised = error
    else:
        return
    text = f"{type(raised).__name__}: {str(raised)[:_CAUSE_CHARS_MAX]}"
    cause = text.encode(errors="backslashreplace").decode()
    _log.error("record_not_decided", cause=cause, exc_info=raised)
    without_frames(raised)  # the client is called while it is kept
    fault = Fault(Remedy.ABORT, of_record=True, fenced=False, cause=cause, raised=raised)
    raise UndecidedError(fault)
