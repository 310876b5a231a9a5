"""Audit strategy: which newest numbers of a publisher were seen, as in ActiveMQ's message audit.

There is a bit for each number of (highest - depth, highest]; the window slides by one. Publishers
that were idle longest are evicted. The floor, below which nothing is held, never goes back, so when
the depth is raised a window grows only from what it held. Where ActiveMQ leaks or loses, this does
not: depth n holds n numbers (ActiveMQ's bins keep 1 to n + 64), a number below the window is a
duplicate unless `below_window = "accept"` (in ActiveMQ it is always new), and a jump beyond
`audit_jump_max` is rejected (in ActiveMQ it wipes the window).
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from ringfence_client.headers import NUMBER, PUBLISHER, Reason
from ringfence_state.model import Claim, Origin, PartitionId, Rejection
from ringfence_state.strategies.base import PublisherPosition, StrategySettings
from ringfence_state.strategies.per_publisher import NUMBER_HEADERS, required

_ENDS: Final = struct.Struct("<QQ")


class AuditWindow(NamedTuple):
    """The window of one publisher; bit i is set if the number `highest - i` was accepted."""

    highest: int
    floor: int
    bits: int


class AuditRule:
    """The rule of `audit`: a number is a duplicate if its bit is set."""

    kind = b"a"
    size_key = "audit_producers"
    publisher_headers = NUMBER_HEADERS
    required_headers: tuple[str, ...] = (PUBLISHER, NUMBER)
    identity = None  # a number below the window is a duplicate too
    evicts = True
    is_cumulative = False
    has_streams = False
    has_bookmarks = False

    def claims(self, claim: Claim) -> bool:
        """Return whether the claim has what the rule needs."""
        return claim.publisher is not None and bool(claim.number)

    def verdict(
        self,
        known: AuditWindow | None,
        claim: Claim,
        _source: PartitionId,
        settings: StrategySettings,
    ) -> Rejection | None:
        """Return why the claim is rejected, or None."""
        if known is None:
            return None
        number = required(claim.number)
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
        """Return the entry after the record was accepted."""
        number, depth = required(claim.number), settings.audit_depth
        last, floor, bits = known or AuditWindow(number, 0, 0)
        highest = max(number, last)
        # Numbers that are the depth or more behind are cut off.
        bits = bits << min(highest - last, depth) | 1 << min(highest - number, depth)
        return AuditWindow(highest, max(floor, highest - depth + 1), bits & ((1 << depth) - 1))

    def entry_at(
        self, claim: Claim, _origin: Origin, settings: StrategySettings, missing: Iterable[int]
    ) -> AuditWindow:
        """Return the entry of a publisher that an administrator set to this number."""
        number, depth = required(claim.number), settings.audit_depth
        bits = (1 << depth) - 1
        for gap in missing:
            if gap <= number:
                bits &= ~(1 << min(number - gap, depth))
        return AuditWindow(number, max(0, number - depth + 1), bits)

    def missing(self, entry: AuditWindow, settings: StrategySettings) -> list[int]:
        """Return the numbers of its window that a publisher has skipped."""
        lowest = max(1, entry.highest - settings.audit_depth + 1)
        if settings.below_window == "duplicate":
            lowest = max(lowest, entry.floor)
        bits = entry.bits
        return [n for n in range(lowest, entry.highest) if not bits >> entry.highest - n & 1]

    def standing(self, entry: AuditWindow) -> PublisherPosition:
        """Return the position of the publisher."""
        return PublisherPosition(entry.highest)

    def pack(self, entry: AuditWindow) -> bytes:
        """Return the entry as bytes."""
        length = (entry.bits.bit_length() + 7) // 8
        return _ENDS.pack(entry.highest, entry.floor) + entry.bits.to_bytes(length, "little")

    def unpack(self, value: bytes) -> AuditWindow:
        """Return the entry that `pack` wrote."""
        highest, floor = _ENDS.unpack_from(value)
        if floor > highest:
            raise ValueError(f"a floor of {floor} above {highest}")
        return AuditWindow(highest, floor, int.from_bytes(value[_ENDS.size :], "little"))


def _below(known: AuditWindow, number: int, depth: int) -> str | None:
    """Return the bound that a number is below, as text; None if it is in or above the window."""
    if known.highest - number >= depth:
        return f"the last {depth} up to {known.highest}"
    return f"{known.floor}, the lowest one that is held" if number < known.floor else None
