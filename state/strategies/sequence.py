"""Sequence strategy: the highest number of each publisher, as AMPS does.

A number that is not above it is a duplicate; gaps are legal. A publisher writes one partition of an
input: numbers from two could overtake each other, so the second partition is refused.
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

_NUMBER: Final = struct.Struct("<Q")


class HighestNumber(NamedTuple):
    """The record with the highest number."""

    number: int
    origin: Origin


class SequenceRule:
    """See `Rule`."""

    kind = b"s"
    forgets = False
    covers = True

    def claims(self, claim: Claim) -> bool:
        """See `Rule.claims`."""
        return claim.publisher is not None and bool(claim.number)

    def room(self, settings: StrategySettings) -> int:
        """See `Rule.room`."""
        return settings.publishers_max

    def verdict(
        self,
        known: HighestNumber | None,
        claim: Claim,
        source: PartitionId,
        _settings: StrategySettings,
    ) -> Rejection | None:
        """See `Rule.verdict`."""
        number = told(claim.number)
        if known is None:
            return None
        if source != (known.origin.topic, known.origin.partition):
            return elsewhere(known.origin, source)
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
        """See `Rule.accepted`."""
        return HighestNumber(told(claim.number), origin)

    def placed(
        self, claim: Claim, origin: Origin, settings: StrategySettings, _missing: Iterable[int]
    ) -> HighestNumber:
        """See `Rule.placed`: a number covers all before it."""
        return self.accepted(None, claim, origin, settings)

    def standing(self, entry: HighestNumber) -> PublisherPosition:
        """See `Rule.standing`."""
        return PublisherPosition(
            entry.number, None, PartitionId(entry.origin.topic, entry.origin.partition)
        )

    def pack(self, entry: HighestNumber) -> bytes:
        """See `Rule.pack`."""
        return _NUMBER.pack(entry.number) + pack_origin(entry.origin)

    def unpack(self, value: bytes) -> HighestNumber:
        """See `Rule.unpack`."""
        (number,) = _NUMBER.unpack_from(value)
        return HighestNumber(number, unpack_origin(value[_NUMBER.size :]))
