"""Reply: a record from which a publisher learns how one of its records was decided.

The publisher names a topic in the header `_REPLY_TO` of its record. The reply is written in the
transaction that decides this record, so a reader with `read_committed` sees it once, and only if
the decision is committed.
Invariant: a reply never changes the fate of its record. If the route does not allow the topic, or
the topic does not exist or cannot take the reply, the record is decided without a reply.
"""

import json
from contextlib import suppress
from typing import Final, NamedTuple

from ringfence_client.headers import Headers, Reason
from ringfence_service.dedup.claim import ClaimReader, read_claim
from ringfence_service.dedup.output import OutputResolver
from ringfence_service.dedup.plan import Output
from ringfence_service.dedup.record import Record, RejectedError
from ringfence_service.dedup.route import InputPartition
from ringfence_service.kafka.model import Present
from ringfence_state.model import NO_CLAIM, Claim, Origin, PartitionId, Rejection

_CAUSE_CHARS_MAX: Final = 300
"""How much of a cause a reply has: a cause may quote the record.

A reply that is too large for its topic would not be sent at all.
"""


class Decision(NamedTuple):
    """How a record was decided."""

    record: Record
    headers: Headers
    claim: Claim
    address: str | None
    """None if the record has no address."""
    at: Origin
    why: Rejection | None
    """Why it was not accepted, also if it is a duplicate that is forwarded; None if it was."""


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
        self, topic: bytes, decision: Decision, now_ms: int, blamed: tuple[PartitionId, int]
    ) -> Output | None:
        """Return the reply to a record that names this topic; None if no reply can be sent.

        `blamed` is the position of the record at fault if the broker refuses the reply.
        """
        if self._output_resolver.is_unanswerable(blamed):
            return None
        name = topic.decode(errors="replace")
        resolver, key, value = self._output_resolver, self._id(decision), _payload(decision)
        target = resolver.reply(self._input_partition, name)
        if target is None:
            return None
        try:
            resolver.check_fits(target, key, value, (), now_ms, Present.at(now_ms))
        except RejectedError:
            return None
        return (target.topic, value, key, target.partition(key), None, None, now_ms, [])

    def _id(self, decision: Decision) -> bytes | None:
        """Return the id. It is read here if the record was rejected before its id was read."""
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
