"""Message audit: which of a producer's newest numbers were seen, as ActiveMQ's message audit does.

A bit for each number of (highest - depth, highest], sliding by one; producers that were idle
longest are evicted. The floor, below which nothing is held, never goes back, so a deeper window
counts only from what the shallower one held. Where ActiveMQ leaks or loses, this does not: depth n
holds n numbers (its bins keep 1 to n + 64), a number below the window is a duplicate unless
`below_window = "accept"` (there it is new every time), and a jump beyond `audit_jump_max` is
refused (there it wipes all).
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from ringfence.headers import Reason
from state.model import Claim, Origin, PartitionId, Rejection
from state.strategies.base import StrategySettings
from state.strategies.per_publisher import PublisherPosition, told

_ENDS: Final = struct.Struct("<QQ")


class AuditWindow(NamedTuple):
    """Bit i tells of the number `highest - i`."""

    highest: int
    floor: int
    bits: int


class AuditRule:
    """See `Rule`."""

    kind = b"a"
    forgets = True
    covers = False

    def claims(self, claim: Claim) -> bool:
        """See `Rule.claims`."""
        return claim.publisher is not None and bool(claim.number)

    def room(self, settings: StrategySettings) -> int:
        """See `Rule.room`."""
        return settings.audit_producers

    def verdict(
        self,
        known: AuditWindow | None,
        claim: Claim,
        _source: PartitionId,
        settings: StrategySettings,
    ) -> Rejection | None:
        """See `Rule.verdict`."""
        if known is None:
            return None
        number = told(claim.number)
        behind = known.highest - number
        if behind < -settings.audit_jump_max:
            cause = f"its number {number} is {-behind} above the last, {known.highest}"
            most = f"audit_jump_max is {settings.audit_jump_max}"
            return Rejection(Reason.INVALID_CLAIM, f"{cause}; {most}")
        below = _below(known, number, settings.audit_depth)
        if below is not None and settings.below_window == "duplicate":
            return Rejection(Reason.DUPLICATE, f"its number {number} is below {below}")
        if 0 <= behind < settings.audit_depth and known.bits >> behind & 1:
            return Rejection(Reason.DUPLICATE, f"its number {number} was accepted already")
        return None

    def accepted(
        self, known: AuditWindow | None, claim: Claim, _origin: Origin, settings: StrategySettings
    ) -> AuditWindow:
        """See `Rule.accepted`."""
        number, depth = told(claim.number), settings.audit_depth
        last, floor, bits = known or AuditWindow(number, 0, 0)
        highest = max(number, last)
        # What lies the depth behind, or further, is cut off.
        bits = bits << min(highest - last, depth) | 1 << min(highest - number, depth)
        return AuditWindow(highest, max(floor, highest - depth + 1), bits & ((1 << depth) - 1))

    def placed(
        self, claim: Claim, _origin: Origin, settings: StrategySettings, missing: Iterable[int]
    ) -> AuditWindow:
        """See `Rule.placed`."""
        number, depth = told(claim.number), settings.audit_depth
        bits = (1 << depth) - 1
        for lacking in missing:
            if lacking <= number:
                bits &= ~(1 << min(number - lacking, depth))
        return AuditWindow(number, max(0, number - depth + 1), bits)

    def missing(self, entry: AuditWindow, settings: StrategySettings) -> list[int]:
        """Which numbers of its window a producer has left out."""
        lowest = max(1, entry.highest - settings.audit_depth + 1)
        if settings.below_window == "duplicate":
            lowest = max(lowest, entry.floor)
        bits = entry.bits
        return [n for n in range(lowest, entry.highest) if not bits >> entry.highest - n & 1]

    def standing(self, entry: AuditWindow) -> PublisherPosition:
        """See `Rule.standing`."""
        return PublisherPosition(entry.highest)

    def pack(self, entry: AuditWindow) -> bytes:
        """See `Rule.pack`."""
        length = (entry.bits.bit_length() + 7) // 8
        return _ENDS.pack(entry.highest, entry.floor) + entry.bits.to_bytes(length, "little")

    def unpack(self, value: bytes) -> AuditWindow:
        """See `Rule.unpack`."""
        highest, floor = _ENDS.unpack_from(value)
        if floor > highest:
            raise ValueError(f"a floor of {floor} above {highest}")
        return AuditWindow(highest, floor, int.from_bytes(value[_ENDS.size :], "little"))


def _below(known: AuditWindow, number: int, depth: int) -> str | None:
    """Below what a number lies, if it does."""
    if known.highest - number >= depth:
        return f"the last {depth} up to {known.highest}"
    return f"{known.floor}, the lowest one that is held" if number < known.floor else None
