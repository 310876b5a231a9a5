"""Latest strategy: an id is a duplicate only of the last record that its publisher got through.

It suits publishers that resend one record until it is acknowledged, as a bridge with one record in
flight does, and needs one entry for each publisher however many ids there are.
"""

from typing import NamedTuple

from ringfence.headers import PUBLISHER, Reason
from state.model import Claim, Origin, PartitionId, Rejection
from state.segment import remembered
from state.strategies.base import StrategySettings
from state.strategies.per_publisher import accepted_at, pack_origin, unpack_origin


class LatestId(NamedTuple):
    """The last accepted record of a publisher."""

    identifier: bytes
    """In stored form: hashed if it is long."""
    origin: Origin


class LatestRule:
    """The rule of `latest`: an id is accepted unless it is the last one."""

    kind = b"l"
    size_key = "publishers_max"
    publisher_headers = frozenset({PUBLISHER})
    identity = None  # only the last record counts, not all that were accepted
    evicts = True

    def claims(self, claim: Claim) -> bool:
        """Return whether the claim has what the rule needs."""
        return claim.identifier is not None and claim.publisher is not None

    def verdict(
        self,
        known: LatestId | None,
        claim: Claim,
        _source: PartitionId,
        _settings: StrategySettings,
    ) -> Rejection | None:
        """Return why the claim is rejected, or None."""
        if known is None or known.identifier != remembered(claim.identifier or b""):
            return None
        where, original = accepted_at(known.origin)
        return Rejection(Reason.DUPLICATE, f"the last record of its publisher {where}", original)

    def accepted(
        self,
        _known: LatestId | None,
        claim: Claim,
        origin: Origin,
        _settings: StrategySettings,
    ) -> LatestId:
        """Return the entry after the record was accepted."""
        return LatestId(remembered(claim.identifier or b""), origin)

    def pack(self, entry: LatestId) -> bytes:
        """Return the entry as bytes."""
        return bytes([len(entry.identifier)]) + entry.identifier + pack_origin(entry.origin)

    def unpack(self, value: bytes) -> LatestId:
        """Return the entry that `pack` wrote."""
        end = 1 + value[0]
        return LatestId(value[1:end], unpack_origin(value[end:]))
