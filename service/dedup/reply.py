"""Reply: a record that says how another was decided, on the topic which that record names.

A publisher asks for it with the header `_REPLY_TO`. The reply is written in the transaction that
decides the record: a reader with `read_committed` sees it once, and only if the decision counts.
Invariant: a reply never changes the fate of its record. Without a topic that the route allows, that
exists and that takes the reply, the record is decided all the same.
"""

import json
from contextlib import suppress
from typing import Final, NamedTuple

from ringfence.headers import Headers, Reason
from service.dedup.claim import ClaimReader, read_claim, reply_topic
from service.dedup.output import OutputResolver, size_bytes
from service.dedup.plan import Output
from service.dedup.record import Record, RejectedError
from service.dedup.route import InputPartition
from state.model import NO_CLAIM, Claim, Origin, PartitionId, Rejection

_CAUSE_CHARS_MAX: Final = 300


class Decision(NamedTuple):
    """How a record was decided."""

    record: Record
    headers: Headers
    claim: Claim
    address: str | None
    """None if the record has no address."""
    at: Origin
    why: Rejection | None
    """None for an accepted record; not None for a duplicate, even if it is forwarded."""


class Replies:
    """Builds the replies to records of one input partition."""

    def __init__(
        self,
        input_partition: InputPartition,
        identifier: ClaimReader | None,
        output_resolver: OutputResolver,
    ) -> None:
        self._input_partition = input_partition
        self._identifier = identifier
        self._output_resolver = output_resolver

    def reply(
        self, decision: Decision, now_ms: int, blamed: tuple[PartitionId, int]
    ) -> Output | None:
        """Return the reply to a record that asks for one; None if its topic cannot take it.

        `blamed` is the position of the record at fault if the broker refuses the reply.
        """
        if self._output_resolver.is_unanswerable(blamed):
            return None
        name = (reply_topic(decision.headers) or b"").decode(errors="replace")
        target = self._output_resolver.reply(self._input_partition, name)
        if target is None:
            return None
        key, value = self._id(decision), _payload(decision)
        if size_bytes(key, value, ()) > target.record_bytes_max:
            return None
        return (target.topic, value, key, target.partition(key), None, None, now_ms, [])

    def _id(self, decision: Decision) -> bytes | None:
        """Return the id; that of a record that was rejected early is still to be read."""
        if decision.claim is not NO_CLAIM:
            return decision.claim.identifier
        with suppress(RejectedError):
            if self._identifier is None:
                return read_claim(decision.headers).identifier
            return self._identifier.of(decision.record, decision.headers)
        return None


def _payload(decision: Decision) -> bytes:
    why = decision.why
    payload: dict[str, str | None] = {
        "outcome": "accepted",
        "record": str(decision.at),
        "address": decision.address,
    }
    if why is not None and why.reason is Reason.DUPLICATE:
        payload |= {"outcome": "duplicate", "original": why.original}
    elif why is not None:
        cause = why.cause[:_CAUSE_CHARS_MAX]
        payload |= {"outcome": "refused", "reason": why.reason.value, "cause": cause}
    return json.dumps(payload, separators=(",", ":")).encode()
