"""Forwarding: computes the records to send for the records of one partition. No I/O.

Key, value, timestamp, and order and repeats of headers stay unchanged. The target partition is the
same on every attempt. A record without an id gets a stamp (`ringfence_service.dedup.claim`). A
record that cannot be sent to its target is replaced by a dead letter.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, Message, murmur2

from ringfence_client.headers import (
    DUPLICATE_ID,
    DUPLICATE_ID_ALIASES,
    NUMBER,
    PUBLISHER,
    Headers,
    Reason,
)
from ringfence_service.bridge.consumer import SourcePartition
from ringfence_service.dedup.claim import stamp_prefix
from ringfence_service.dedup.dead_letter import DeadLetterEnvelope
from ringfence_service.dedup.output import size_bytes
from ringfence_service.kafka.io import offsets_of, read_headers
from ringfence_service.kafka.model import UNREADABLE
from ringfence_state.model import PartitionId, Rejection


def has_claim(headers: Headers) -> bool:
    """Whether a record has an id, or a publisher with a sequence number.

    Of several headers with one name the first counts. A null counts as absent, and so does the
    number 0.
    """
    publisher = number = None
    for name, value in headers:
        if value is None:
            continue
        if name in DUPLICATE_ID_ALIASES:
            return True
        if name == PUBLISHER:
            publisher = value
        elif name == NUMBER and number is None:
            number = value
    return publisher is not None and number is not None and not _is_zero(number)


def stamped(
    column: Sequence[Headers | None], offsets: Sequence[int], prefix: bytes
) -> list[Headers]:
    """Return the headers to send for records of one partition; a record without id is stamped."""
    return [
        headers
        if headers and (headers is UNREADABLE or has_claim(headers))
        else [*(headers or ()), (DUPLICATE_ID, b"%b%d" % (prefix, offset))]
        for headers, offset in zip(column, offsets, strict=True)
    ]


def _is_zero(number: bytes) -> bool:
    return number != b"" and not number.strip(b"0")


_HEADERS_BYTES: Final = 64 * 1024
"""Room for key and headers: if the largest value leaves it, no record's size is computed.

Longer ones are left for the broker to refuse, which costs a resend.
"""

_UNREADABLE: Final = Rejection(
    Reason.UNREADABLE_HEADERS,
    "a header name is not UTF-8 text; the record is kept here without its headers",
)

Report = Callable[[KafkaError | None, Message], None]

Sending = tuple[str, bytes | None, bytes | None, int, Report, None, int, Headers]
"""Positional arguments of `Producer.produce`: topic, value, key, partition, delivery report, no
partitioner, timestamp in ms since the epoch (0: now), headers."""

Failed = Callable[[PartitionId, int, KafkaError | None, Message], None]
"""Delivery report of a record, by its partition and offset in the source."""


@dataclass(frozen=True, slots=True)
class ForwardContext:
    """Everything that forwarding depends on beside the records."""

    cluster_id: str
    """Cluster id of the source."""
    stamping: bool
    keep_partition: bool
    compressing: bool
    """Whether batches are compressed: then only the broker knows if a record is too large."""
    dead_letter: str
    refused: Mapping[tuple[PartitionId, int], Rejection] = field(default_factory=dict)
    """Records that the target's broker refused when sent alone, by partition and offset."""


class Shipment(NamedTuple):
    """The records to send for records of one partition, in order."""

    records: list[Sending]
    stamped: int
    dead_letters: list[Reason]


def forward(
    position: SourcePartition, messages: Sequence[Message], rules: ForwardContext, failed: Failed
) -> Shipment:
    """Return what to send for these records.

    Fields are read in columns, with callers written in C.
    """
    source, mapping = position.source, position.mapping
    offsets = offsets_of(messages)
    column: Sequence[Headers | None] = read_headers(messages)
    outgoing: Sequence[Headers] = [headers or [] for headers in column]
    if rules.stamping:
        outgoing = stamped(column, offsets, stamp_prefix(rules.cluster_id, source))
    keys = list(map(Message.key, messages))
    times_ms = [max(timestamp, 0) for _, timestamp in map(Message.timestamp, messages)]
    reports = map(partial, repeat(failed), repeat(source), offsets)
    records: list[Sending] = list(
        zip(
            repeat(mapping.target),
            map(Message.value, messages),
            keys,
            _partitions(position, keys, rules),
            reports,
            repeat(None),
            times_ms,
            outgoing,
            strict=False,
        )
    )
    rejected = dict(_rejected(position, messages, offsets, records, rules))
    for row, why in rejected.items():
        records[row] = _dead_letter(source, messages[row], column[row], records[row], why, rules)
    stamps = sum(new is not old for new, old in zip(outgoing, column, strict=True))
    return Shipment(records, stamps if rules.stamping else 0, [w.reason for w in rejected.values()])


def _partitions(
    position: SourcePartition, keys: Sequence[bytes | None], rules: ForwardContext
) -> Iterator[int]:
    """Yield target partitions: the source's number, or by key as in Java (no key: by source)."""
    number, count = position.source.partition, position.mapping.partitions
    if rules.keep_partition:
        return repeat(number)
    unkeyed = number % count
    return iter([unkeyed if key is None else murmur2(key, count) for key in keys])


def _rejected(
    position: SourcePartition,
    messages: Sequence[Message],
    offsets: Sequence[int],
    records: Sequence[Sending],
    rules: ForwardContext,
) -> Iterator[tuple[int, Rejection]]:
    """Yield the rows of records that cannot be forwarded, and why; usually none."""
    source, limit = position.source, position.mapping.record_bytes_max
    if any(record[-1] is UNREADABLE for record in records):
        yield from ((n, _UNREADABLE) for n, r in enumerate(records) if r[-1] is UNREADABLE)
    if rules.refused:
        positions = [(source, offset) for offset in offsets]
        yield from ((n, rules.refused[p]) for n, p in enumerate(positions) if p in rules.refused)
    if not rules.compressing and max(map(len, messages)) + _HEADERS_BYTES > limit:
        for row, (topic, value, key, *_, headers) in enumerate(records):
            size = size_bytes(key, value, headers)
            if size > limit:
                cause = f"{size} bytes with its headers; {topic} takes {limit}"
                yield row, Rejection(Reason.TOO_LARGE, cause)


def _dead_letter(
    source: PartitionId,
    message: Message,
    headers: Headers | None,
    record: Sending,
    why: Rejection,
    rules: ForwardContext,
) -> Sending:
    """Return the dead letter of a record, with the record's original headers."""
    _, value, key, _, report, _, _, _ = record
    readable = () if headers is None or headers is UNREADABLE else headers
    letter_headers = DeadLetterEnvelope(source, None).letter(message, readable, None, why)
    return (rules.dead_letter, value, key, 0, report, None, 0, letter_headers)
