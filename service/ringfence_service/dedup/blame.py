"""Blame: which failures while a record is decided are due to the record, and which are not.

An exception that no check foresaw is blamed on the record, unless the store, the broker or the
machine raised it, or a failed assert. A record that cannot be decided yet is not at fault.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from ringfence_service.dedup.refusal_trace import UndecidedError
from ringfence_service.errors import AwaitedError
from ringfence_service.kafka.compression import UncompressedError
from ringfence_service.kafka.errors import (
    CLIENT_ERROR,
    KafkaFailure,
    KafkaFailureError,
    Recovery,
    without_frames,
)
from ringfence_state.cache import BatchTooLargeError
from ringfence_state.keys import UnknownFormatError
from ringfence_state.model import PartitionId
from ringfence_state.store import StoreCorruptError, StoreFailedError


class WrongPartitionError(Exception):
    """A dead letter was sent to a partition that does not decide it."""


_CAUSE_CHARS_MAX: Final = 300
"""How much of an exception's text is kept: it may quote a value of any size.

It becomes a header of the dead letter, to which headers may add 64 KiB (`ENVELOPE_BYTES`).
"""

_NOT_BLAMED_ON_RECORDS: Final = (
    # The machine, the broker and the store.
    MemoryError,
    OSError,
    CLIENT_ERROR,
    StoreCorruptError,
    StoreFailedError,
    UnknownFormatError,
    # A failed assert means that memory and store are inconsistent. A restarted process reads both
    # from the changelog; this one would dead-letter record after record.
    AssertionError,
    # Raised on purpose: the loop handles these.
    KafkaFailureError,
    UncompressedError,
    WrongPartitionError,
    AwaitedError,
    BatchTooLargeError,
)

_log = structlog.stdlib.get_logger(__name__)


@contextmanager
def naming(source: PartitionId) -> Iterator[None]:
    """Name the partition that waits if a record of it cannot be decided yet."""
    try:
        yield
    except AwaitedError as awaited:
        awaited.source = source
        raise


@contextmanager
def blaming_records(*, is_logged: bool = True) -> Iterator[None]:
    """Turn an unforeseen exception into UndecidedError."""
    try:
        yield
    except _NOT_BLAMED_ON_RECORDS:
        raise
    except Exception as error:  # noqa: BLE001 - the content of a record may raise any
        raised = error
    else:
        return
    text = f"{type(raised).__name__}: {str(raised)[:_CAUSE_CHARS_MAX]}"
    cause = text.encode(errors="backslashreplace").decode()
    if is_logged:
        _log.error("record_not_decided", cause=cause, exc_info=raised)
    without_frames(raised)  # the client is called while the exception is kept
    fault = KafkaFailure(Recovery.ABORT, of_record=True, fenced=False, cause=cause, raised=raised)
    raise UndecidedError(fault)
