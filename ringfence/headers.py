"""Wire contract: the names of headers, reasons and the dead-letter envelope.

Standard library only, so that producers, consumers and Spark jobs can import it alone.
Header values are bytes and compared byte by byte; of several headers with one name the first
counts; a null value counts as absent; the aliases of the duplicate id must agree.
"""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

DUPLICATE_ID: Final = "_DUPL_ID"

DUPLICATE_ID_ALIASES: Final = frozenset({DUPLICATE_ID, "_AMQ_DUPL_ID", "_HQ_DUPL_ID"})

EXPIRES_AT: Final = "_EXPIRES_AT"

PUBLISHER: Final = "_PUBLISHER"
"""Who counts: UTF-8 text."""

NUMBER: Final = "_SEQ"
"""A publisher's number, decimal, up to 2^63 - 1; 0 is none."""

EPOCH: Final = "_PUBLISHER_EPOCH"
"""Of the publisher's session, decimal."""

STREAM: Final = "_SEQ_ID"

PREVIOUS: Final = "_PREV"

BOOKMARK: Final = "_BOOKMARK"
"""On outputs of `sequence`: `<publisher hash>|<number>|`, as AMPS writes it."""

GROUP: Final = "_TX_ID"
"""The transaction group of a record; the whole group is accepted, or none of it."""

GROUP_SIZE: Final = "_TX_SIZE"

GROUP_POSITION: Final = "_TX_SEQ"
"""From 1 to the size."""

ID_BYTES_MAX: Final = 64 * 1024
"""A longer duplicate id is an invalid claim."""

PUBLISHER_BYTES_MAX: Final = 1024

GROUP_BYTES_MAX: Final = 1024
"""Of the name of a group."""

NUMBER_MAX: Final = 2**63 - 1

DEAD_LETTER_PREFIX: Final = "ringfence."
"""Headers below it are ours; of several sets the last is ours."""

MARK: Final = "ringfence.duplicate"
"""On a duplicate that goes out all the same: `topic-partition@offset` of the accepted record."""

ORIGIN: Final = "ringfence.origin"
"""On the way through the topic by-address, the last one: `topic-partition@offset` in the input."""


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
    DUPLICATE_IN_GROUP = "duplicate-in-transaction"
    OUT_OF_ORDER = "out-of-order"
    EXPIRED = "expired"
    NAME_IN_USE = "name-in-use"
    MISSING_ID = "missing-id"
    INVALID_CLAIM = "invalid-claim"
    GROUP_INCOMPLETE = "group-incomplete"
    GROUP_TOO_LARGE = "group-too-large"
    NO_ADDRESS = "no-address"
    TOO_MANY_ADDRESSES = "too-many-addresses"
    NO_OUTPUT = "no-output"
    UNREADABLE_HEADERS = "unreadable-headers"
    TOO_LARGE = "too-large"
    FAILED_CHECK = "failed-check"


REPEATED: Final = frozenset({Reason.DUPLICATE, Reason.DUPLICATE_IN_GROUP})
"""Reasons that `on_duplicate` is about."""


def id_text(identifier: bytes) -> str:
    """An id in the notation of REST and of dead letters: text where it is text, else `hex:`."""
    try:
        text = identifier.decode("utf-8")
    except UnicodeDecodeError:
        return "hex:" + identifier.hex()
    if text.isprintable() and not text.startswith(("hex:", "base64:")):
        return text
    return "hex:" + identifier.hex()


def bookmark(publisher: str, number: int) -> bytes:
    """Where a publisher stands: the first 8 bytes of its name's SHA-256, and the number."""
    digest = hashlib.sha256(publisher.encode()).digest()
    return b"%d|%d|" % (int.from_bytes(digest[:8], "big"), number)


NAME_LENGTH_MAX: Final = 249


def internal(group_id: str, kind: str) -> str:
    """The internal topic `<group_id>.<kind>`; too long a name is cut and ends in its hash."""
    name = f"{group_id}.{kind}"
    if len(name) <= NAME_LENGTH_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: NAME_LENGTH_MAX - len(digest) - 1]}-{digest}"


def acknowledgements(group_id: str) -> str:
    """Where the service says how far it has come with each publisher.

    Key: JSON `["address","publisher"]`; value: JSON `{"sequence":…,"bookmark":…}`, the highest
    number that is persisted, which covers all before it. To be read with read_committed.
    """
    return internal(group_id, "acks")


Headers = Sequence[tuple[str, bytes | None]]
