"""Wire contract: the names of headers, the reasons, and the dead-letter envelope.

It needs only the standard library, so producers, consumers and Spark jobs can import it alone.
Header values are bytes and are compared byte by byte. Of several headers with the same name the
first counts; a null value counts as absent. The aliases of the duplicate id must have equal values.
"""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

DUPLICATE_ID: Final = "_DUPL_ID"

DUPLICATE_ID_ALIASES: Final = frozenset({DUPLICATE_ID, "_AMQ_DUPL_ID", "_HQ_DUPL_ID"})

EXPIRES_AT: Final = "_EXPIRES_AT"
"""When the record expires, in milliseconds since 1970, as digits."""

PUBLISHER: Final = "_PUBLISHER"
"""Name of the publisher that numbers the message, in UTF-8."""

NUMBER: Final = "_SEQ"
"""Number of the message, in decimal, from 1 to 2^63 - 1; 0 counts as absent."""

EPOCH: Final = "_PUBLISHER_EPOCH"
"""Epoch of the publisher's session, in decimal."""

STREAM: Final = "_SEQ_ID"

PREVIOUS: Final = "_PREV"

BOOKMARK: Final = "_BOOKMARK"
"""On outputs of the strategy `sequence`: `<publisher hash>|<number>|`, as AMPS writes it."""

GROUP: Final = "_TX_ID"
"""Name of the record's transaction group; a group is accepted as a whole or not at all."""

GROUP_SIZE: Final = "_TX_SIZE"

GROUP_POSITION: Final = "_TX_SEQ"
"""Position in the group, from 1 to `GROUP_SIZE`."""

REPLY_TO: Final = "_REPLY_TO"
"""Name of the topic for a reply, which says how the record was decided."""

ID_BYTES_MAX: Final = 64 * 1024
"""A longer duplicate id is an invalid claim."""

PUBLISHER_BYTES_MAX: Final = 1024
"""Longest name of a publisher: an address holds the names of up to `publishers_max` of them.

A name is also in the key of each acknowledgement and in paths of the API.
"""

GROUP_BYTES_MAX: Final = 1024
"""Longest name of a group."""

NUMBER_MAX: Final = 2**63 - 1
"""The largest signed 64-bit integer, as Java's `long` and SQLite's INTEGER (the outbox) have it."""

DEAD_LETTER_PREFIX: Final = "ringfence."
"""Prefix of Ringfence's own headers; of several sets on one record, the last set counts."""

MARK: Final = "ringfence.duplicate"
"""On a duplicate that is forwarded with a mark: `topic-partition@offset` of the accepted record."""

ORIGIN: Final = "ringfence.origin"
"""Last header of a record on the topic by-address: `topic-partition@offset` in the input."""


class DeadLetter(StrEnum):
    """Text headers of a dead letter, after the headers of the record."""

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
    """Why a record was not accepted. Only a fault of the record itself is a reason."""

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
    MISSING_KEY = "missing-key"
    INVALID_TIMESTAMP = "invalid-timestamp"
    TOO_LARGE = "too-large"
    REFUSED = "refused"
    FAILED_CHECK = "failed-check"
    UNREADABLE_BATCH = "unreadable-batch"


REPEATED: Final = frozenset({Reason.DUPLICATE, Reason.DUPLICATE_IN_GROUP})
"""The reasons to which the setting `on_duplicate` applies."""


def id_text(identifier: bytes) -> str:
    """Return an id as REST and dead letters write it: printable text unchanged, else `hex:…`."""
    try:
        text = identifier.decode("utf-8")
    except UnicodeDecodeError:
        return "hex:" + identifier.hex()
    if text.isprintable() and not text.startswith(("hex:", "base64:")):
        return text
    return "hex:" + identifier.hex()


def bookmark(publisher: str, number: int) -> bytes:
    """Return a publisher's bookmark: the first 8 bytes of its name's SHA-256, and the number."""
    digest = hashlib.sha256(publisher.encode()).digest()
    return b"%d|%d|" % (int.from_bytes(digest[:8], "big"), number)


NAME_LENGTH_MAX: Final = 249
"""Kafka's limit for the name of a topic, in characters."""


def internal(group_id: str, kind: str) -> str:
    """Return the internal topic `<group_id>.<kind>`; a longer name is cut and ends in its hash.

    The longest name has `NAME_LENGTH_MAX` characters.
    """
    name = f"{group_id}.{kind}"
    if len(name) <= NAME_LENGTH_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: NAME_LENGTH_MAX - len(digest) - 1]}-{digest}"


def acknowledgements(group_id: str) -> str:
    """Return the topic on which the service acknowledges the numbers of publishers.

    Key: JSON `["address","publisher"]`; value: JSON `{"sequence":…,"bookmark":…}`. `sequence` is
    the highest committed number and covers all before it. Read it with `read_committed`.
    """
    return internal(group_id, "acks")


Headers = Sequence[tuple[str, bytes | None]]
