"""Consume: Kafka messages into batches, and each record's headers into what it claims.

Headers are read here and nowhere else, once for each record: the binding raises on a header name
that is not UTF-8 and crashes the process when the same message is asked again.
"""

import re
from collections.abc import Iterable, Mapping
from operator import methodcaller
from typing import Final, NamedTuple, cast

from confluent_kafka import KafkaError, Message

from ringfence.headers import DUPLICATE_ID_ALIASES, EXPIRES_AT, ID_BYTES_MAX, Reason
from service.partition import Partition
from service.rejection import RejectedError
from service.route import Headers
from state.edit import Source

_READ: Final = DUPLICATE_ID_ALIASES | {EXPIRES_AT}
# Python's quickened calls do not look whether a C method left an exception behind, and the binding
# does so instead of raising: it would surface anywhere later. A caller written in C looks.
_HEADERS: Final = methodcaller("headers")
_MILLISECONDS: Final = re.compile(rb"[0-9]{1,18}")


class Slice(NamedTuple):
    """One partition's part of a batch, in order and never empty."""

    partition: Partition
    messages: list[Message]


class Batch(NamedTuple):
    """What one `consume` brought: slices, errors that came as messages, wall time of arrival."""

    slices: tuple[Slice, ...]
    errors: tuple[tuple[KafkaError, Source | None], ...]
    now_ms: int


class Claim(NamedTuple):
    """What a record says of itself; an id of None means that it names none."""

    identifier: bytes | None
    expires_at_ms: int | None


NO_CLAIM: Final = Claim(None, None)


def batch_of(
    messages: Iterable[Message], running: Mapping[Source, Partition], now_ms: int
) -> Batch:
    """Sort messages by partition; drop those of partitions we lost and those seen before.

    librdkafka has delivered again after a seek, and offsets have gaps: so a record is new iff its
    offset is not below the one that the partition expects.
    """
    slices: dict[Source, Slice] = {}
    errors: list[tuple[KafkaError, Source | None]] = []
    for message in messages:
        source = Source(message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is not None:
            errors.append((error, source if source.topic else None))
            continue
        partition = running.get(source)
        if partition is None or (message.offset() or 0) < partition.next_offset:
            continue
        part = slices.get(source)
        if part is None:
            part = slices[source] = Slice(partition, [])
        part.messages.append(message)
    return Batch(tuple(slices.values()), tuple(errors), now_ms)


def read_headers(message: Message) -> Headers:
    """The headers in order, repeats and nulls kept; the message must not be asked again."""
    try:
        # The binding types values as text too; what it hands over is always bytes or None.
        return cast("Headers", _HEADERS(message) or ())
    except (SystemError, UnicodeDecodeError):
        cause = "a header name is not UTF-8 text; the record is kept here without its headers"
        raise RejectedError(Reason.UNREADABLE_HEADERS, cause) from None


def read_claim(headers: Headers) -> Claim:
    """What the headers claim. Of several with one name the first counts, null is absent."""
    found: dict[str, bytes] = {}
    for name, value in headers:
        if name in _READ and value is not None:
            found.setdefault(name, value)
    if not found:
        return NO_CLAIM
    expires = found.pop(EXPIRES_AT, None)
    if expires is not None and not _MILLISECONDS.fullmatch(expires):
        raise RejectedError(Reason.INVALID_CLAIM, f"{EXPIRES_AT} is no number of milliseconds")
    ids = set(found.values())
    if len(ids) > 1:
        raise RejectedError(Reason.INVALID_CLAIM, f"{' and '.join(sorted(found))} differ")
    identifier = ids.pop() if ids else None
    if identifier is not None and len(identifier) > ID_BYTES_MAX:
        cause = f"the id has {len(identifier)} bytes; at most {ID_BYTES_MAX} are allowed"
        raise RejectedError(Reason.INVALID_CLAIM, cause)
    return Claim(identifier, None if expires is None else int(expires))
