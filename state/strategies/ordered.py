"""Ordered strategy: every message of a stream once and in order, as MSMQ's transactional queues.

A message names its stream, its number and the number of the one before; a publisher that skipped
some links across the gap. It is the next one iff it is above the last of its stream and its
predecessor is not missing, or it begins a later stream. (MS-MQQB 3.1.5.8.6)
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from ringfence.headers import Reason
from state.model import Claim, Origin, PartitionId, Rejection
from state.strategies.base import StrategySettings
from state.strategies.per_publisher import (
    PublisherPosition,
    accepted_at,
    elsewhere,
    pack_origin,
    told,
    unpack_origin,
)

_NUMBERS: Final = struct.Struct("<QQ")


class LastAccepted(NamedTuple):
    """The last record that was accepted of a publisher."""

    stream: int
    number: int
    origin: Origin


class OrderedRule:
    """See `Rule`."""

    kind = b"o"
    forgets = False
    covers = True

    def claims(self, claim: Claim) -> bool:
        """See `Rule.claims`."""
        needed = (claim.publisher, claim.stream, claim.previous)
        return bool(claim.number) and None not in needed

    def room(self, settings: StrategySettings) -> int:
        """See `Rule.room`."""
        return settings.publishers_max

    def verdict(
        self,
        known: LastAccepted | None,
        claim: Claim,
        source: PartitionId,
        _settings: StrategySettings,
    ) -> Rejection | None:
        """See `Rule.verdict`."""
        if known is not None and source != (known.origin.topic, known.origin.partition):
            return elsewhere(known.origin, source)
        stream, previous = told(claim.stream), told(claim.previous)
        if known is None or stream > known.stream:
            begins = f"expected is the first of stream {stream}, with 0 before it"
            return (
                _out_of_order(f"it follows number {previous}, and {begins}") if previous else None
            )
        if stream < known.stream:
            begun = f"its publisher has begun stream {known.stream}"
            return _out_of_order(f"it is of stream {stream}, and {begun}")
        return _within(known, told(claim.number), previous)

    def accepted(
        self, _known: LastAccepted | None, claim: Claim, origin: Origin, _settings: StrategySettings
    ) -> LastAccepted:
        """See `Rule.accepted`."""
        return LastAccepted(told(claim.stream), told(claim.number), origin)

    def placed(
        self, claim: Claim, origin: Origin, settings: StrategySettings, _missing: Iterable[int]
    ) -> LastAccepted:
        """See `Rule.placed`: a number covers all before it."""
        return self.accepted(None, claim, origin, settings)

    def standing(self, entry: LastAccepted) -> PublisherPosition:
        """See `Rule.standing`."""
        source = PartitionId(entry.origin.topic, entry.origin.partition)
        return PublisherPosition(entry.number, entry.stream, source)

    def pack(self, entry: LastAccepted) -> bytes:
        """See `Rule.pack`."""
        return _NUMBERS.pack(entry.stream, entry.number) + pack_origin(entry.origin)

    def unpack(self, value: bytes) -> LastAccepted:
        """See `Rule.unpack`."""
        stream, number = _NUMBERS.unpack_from(value)
        return LastAccepted(stream, number, unpack_origin(value[_NUMBERS.size :]))


def _within(last: LastAccepted, number: int, previous: int) -> Rejection | None:
    """The rule within a stream."""
    if number <= last.number:
        where, original = accepted_at(last.origin)
        known = f"number {last.number} of stream {last.stream} {where}"
        is_last = number == last.number
        cause = f"its number is {number}, and {known}"
        return Rejection(Reason.DUPLICATE, cause, original if is_last else None)
    if previous > last.number:
        expected = f"expected is the one that follows {last.number}"
        return _out_of_order(f"it follows number {previous}, and {expected}")
    return None


def _out_of_order(cause: str) -> Rejection:
    return Rejection(Reason.OUT_OF_ORDER, cause)
