"""Sequence strategy: the highest number of each publisher, as AMPS does.

A number that is not above it is a duplicate; gaps are legal. A publisher writes one partition of an
input: numbers from two partitions could overtake each other, so the second one is rejected.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from ringfence_client.headers import NUMBER, PUBLISHER, Reason
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

_NUMBER: Final = struct.Struct("<Q")


class HighestNumber(NamedTuple):
    """The record with the highest number."""

    number: int
    origin: Origin


class SequenceRule:
    """The rule of `sequence`: a number is accepted if it is above the highest."""

    kind = b"s"
    size_key = "publishers_max"
    publisher_headers = NUMBER_HEADERS
    required_headers: tuple[str, ...] = (PUBLISHER, NUMBER)
    identity = DuplicateKey(("publisher", "number"))
    evicts = False
    is_cumulative = True
    has_streams = False
    has_bookmarks = True
    missing = None

    def claims(self, claim: Claim) -> bool:
        """Return whether the claim has what the rule needs."""
        return claim.publisher is not None and bool(claim.number)

    def verdict(
        self,
        known: HighestNumber | None,
        claim: Claim,
        source: PartitionId,
        _settings: StrategySettings,
    ) -> Rejection | None:
        """Return why the claim is rejected, or None."""
        number = required(claim.number)
        if known is None:
            return None
        if source != (known.origin.topic, known.origin.partition):
            return second_partition(known.origin, source)
        if number > known.number:
            return None
        last = f"{known.number}, the last one of its publisher"
        if number < known.number:
            return Rejection(Reason.DUPLICATE, f"its number {number} is below {last}")
        where, original = accepted_at(known.origin)
        return Rejection(Reason.DUPLICATE, f"its number is {last}, which {where}", original)

    def accepted(
        self,
        _known: HighestNumber | None,
        claim: Claim,
        origin: Origin,
        _settings: StrategySettings,
    ) -> HighestNumber:
        """Return the entry after the record was accepted."""
        return HighestNumber(required(claim.number), origin)

    def entry_at(
        self, claim: Claim, origin: Origin, settings: StrategySettings, _missing: Iterable[int]
    ) -> HighestNumber:
        """Return the entry of a publisher set to this number, which covers all before it."""
        return self.accepted(None, claim, origin, settings)

    def standing(self, entry: HighestNumber) -> PublisherPosition:
        """Return the position of the publisher."""
        return PublisherPosition(
            entry.number, None, PartitionId(entry.origin.topic, entry.origin.partition)
        )

    def pack(self, entry: HighestNumber) -> bytes:
        """Return the entry as bytes."""
        return _NUMBER.pack(entry.number) + pack_origin(entry.origin)

    def unpack(self, value: bytes) -> HighestNumber:
        """Return the entry that `pack` wrote."""
        (number,) = _NUMBER.unpack_from(value)
        return HighestNumber(number, unpack_origin(value[_NUMBER.size :]))
