"""Ordered strategy: each message of a stream once and in order, as MSMQ's transactional queues do.

A message names its stream, its number and the number of its predecessor, so a publisher that skips
numbers links across the gap. A message is next iff it is above the last one of its stream and its
predecessor is not missing, or if it begins a later stream. (MS-MQQB 3.1.5.8.6)
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from ringfence_client.headers import NUMBER, PREVIOUS, PUBLISHER, STREAM, Reason
from ringfence_state.model import Claim, Origin, PartitionId, Rejection
from ringfence_state.strategies.base import DuplicateKey, PublisherPosition, StrategySettings
from ringfence_state.strategies.per_publisher import (
    NUMBER_HEADERS,
    accepted_at,
    pack_origin,
    required,
    second_partition,
    unpack_origin,
)

_NUMBERS: Final = struct.Struct("<QQ")


class LastAccepted(NamedTuple):
    """The last accepted record of a publisher."""

    stream: int
    number: int
    origin: Origin


class OrderedRule:
    """The rule of `ordered`: a record is accepted if it follows the last one."""

    kind = b"o"
    size_key = "publishers_max"
    publisher_headers = NUMBER_HEADERS
    required_headers: tuple[str, ...] = (PUBLISHER, NUMBER, STREAM, PREVIOUS)
    identity = DuplicateKey(("publisher", "number"), ("stream",))
    evicts = False
    is_cumulative = True
    has_streams = True
    has_bookmarks = False
    missing = None

    def claims(self, claim: Claim) -> bool:
        """Return whether the claim has what the rule needs."""
        needed = (claim.publisher, claim.stream, claim.previous)
        return bool(claim.number) and None not in needed

    def verdict(
        self,
        known: LastAccepted | None,
        claim: Claim,
        source: PartitionId,
        _settings: StrategySettings,
    ) -> Rejection | None:
        """Return why the claim is rejected, or None."""
        if known is not None and source != (known.origin.topic, known.origin.partition):
            return second_partition(known.origin, source)
        stream, previous = required(claim.stream), required(claim.previous)
        if known is None or stream > known.stream:
            begins = f"the first of stream {stream}, with 0 before it, is expected"
            return (
                _out_of_order(f"it follows number {previous}, and {begins}") if previous else None
            )
        if stream < known.stream:
            begun = f"its publisher has begun stream {known.stream}"
            return _out_of_order(f"it is of stream {stream}, and {begun}")
        return _within(known, required(claim.number), previous)

    def accepted(
        self, _known: LastAccepted | None, claim: Claim, origin: Origin, _settings: StrategySettings
    ) -> LastAccepted:
        """Return the entry after the record was accepted."""
        return LastAccepted(required(claim.stream), required(claim.number), origin)

    def entry_at(
        self, claim: Claim, origin: Origin, settings: StrategySettings, _missing: Iterable[int]
    ) -> LastAccepted:
        """Return the entry of a publisher set to this number, which covers all before it."""
        return self.accepted(None, claim, origin, settings)

    def standing(self, entry: LastAccepted) -> PublisherPosition:
        """Return the position of the publisher."""
        source = PartitionId(entry.origin.topic, entry.origin.partition)
        return PublisherPosition(entry.number, entry.stream, source)

    def pack(self, entry: LastAccepted) -> bytes:
        """Return the entry as bytes."""
        return _NUMBERS.pack(entry.stream, entry.number) + pack_origin(entry.origin)

    def unpack(self, value: bytes) -> LastAccepted:
        """Return the entry that `pack` wrote."""
        stream, number = _NUMBERS.unpack_from(value)
        return LastAccepted(stream, number, unpack_origin(value[_NUMBERS.size :]))


def _within(last: LastAccepted, number: int, previous: int) -> Rejection | None:
    """Return why a record of the current stream is rejected, or None."""
    if number <= last.number:
        where, original = accepted_at(last.origin)
        known = f"number {last.number} of stream {last.stream} {where}"
        is_last = number == last.number
        cause = f"its number is {number}, and {known}"
        return Rejection(Reason.DUPLICATE, cause, original if is_last else None)
    if previous > last.number:
        expected = f"the one after {last.number} is expected"
        return _out_of_order(f"it follows number {previous}, and {expected}")
    return None


def _out_of_order(cause: str) -> Rejection:
    return Rejection(Reason.OUT_OF_ORDER, cause)
