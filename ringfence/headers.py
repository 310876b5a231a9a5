"""The wire contract: names of headers, reasons and the dead-letter envelope.

Standard library only, so that producers, consumers and Spark jobs can import it alone.
Header values are bytes and compared byte by byte; of several headers with one name the first
counts; a null value counts as absent; the aliases of the duplicate id must agree.
"""

from enum import StrEnum
from typing import Final

DUPLICATE_ID: Final = "_DUPL_ID"
DUPLICATE_ID_ALIASES: Final = frozenset({DUPLICATE_ID, "_AMQ_DUPL_ID", "_HQ_DUPL_ID"})
EXPIRES_AT: Final = "_EXPIRES_AT"

ID_BYTES_MAX: Final = 64 * 1024
"""A longer duplicate id is an invalid claim."""

DEAD_LETTER_PREFIX: Final = "ringfence."
"""Headers below it are ours; of several sets the last is ours."""


class DeadLetter(StrEnum):
    """Text headers that a dead letter carries after the original headers."""

    REASON = "ringfence.reason"
    CAUSE = "ringfence.cause"
    TOPIC = "ringfence.topic"
    PARTITION = "ringfence.partition"
    OFFSET = "ringfence.offset"
    TIMESTAMP = "ringfence.timestamp"
    ADDRESS = "ringfence.address"
    STRATEGY = "ringfence.strategy"
    ID = "ringfence.id"
    ORIGINAL = "ringfence.original"
    REDRIVES = "ringfence.redrives"


class Reason(StrEnum):
    """Why a record was not accepted. Only an error of the record itself is a reason."""

    DUPLICATE = "duplicate"
    EXPIRED = "expired"
    MISSING_ID = "missing-id"
    INVALID_CLAIM = "invalid-claim"
    NO_ADDRESS = "no-address"
    TOO_MANY_ADDRESSES = "too-many-addresses"
    NO_OUTPUT = "no-output"
    UNREADABLE_HEADERS = "unreadable-headers"
    TOO_LARGE = "too-large"


def id_text(identifier: bytes) -> str:
    """An id in the notation of REST and of dead letters: text where it is text, else `hex:`."""
    try:
        text = identifier.decode("utf-8")
    except UnicodeDecodeError:
        return "hex:" + identifier.hex()
    if text.isprintable() and not text.startswith(("hex:", "base64:")):
        return text
    return "hex:" + identifier.hex()
