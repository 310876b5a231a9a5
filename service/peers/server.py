"""Peer server: answers the queries of other instances from the own workers alone."""

from collections.abc import Callable
from typing import Final

from service.peers.protocol import (
    Question,
    Refusal,
    Reply,
    Roll,
    RollCall,
    owned_by,
    refusal_of,
    reply_text,
)
from service.peers.signing import PeerKey
from service.queries.inbox import Desk
from service.queries.registry import OF_ALL, OF_ONE, Answer, Query
from service.queries.status import Status

_NO_CHANGE: Final = Refusal(
    "NotPossible",
    "Instances on other machines make a change for each other only where they share a secret: set "
    "api.peer_token_file on all of them, or ask the instance that owns it.",
)


def is_change(query: Query | RollCall) -> bool:
    """Whether it may change something."""
    return isinstance(query, OF_ONE + OF_ALL) and not getattr(query, "dry_run", False)


class Hearing:
    """See the module."""

    def __init__(
        self,
        crew: Desk,
        roll: Callable[[], Roll],
        check: Callable[[Status], None],
        key: PeerKey | None,
    ) -> None:
        """`check` raises where the state is not whole.

        Without a `key` nothing tells a peer from others: who may ask, the caller has to know.
        """
        self._crew = crew
        self._roll = roll
        self._check = check
        self.key = key

    async def reply(self, question: Question, *, may_change: bool) -> bytes:
        """Answer a question; what changes something is refused to who may not."""
        told: Answer | Roll | Refusal = _NO_CHANGE
        if may_change or not is_change(question.query):
            told = await self._told(question)
        status = self._roll().status
        return reply_text(Reply(status.instance, told, owned_by(status), status.partitions_total))

    async def _told(self, question: Question) -> Answer | Roll | Refusal:
        roll = self._roll()
        if question.to != roll.status.instance:
            return Refusal("Unavailable", f"This is instance {roll.status.instance}.")
        if isinstance(question.query, RollCall):
            return roll
        try:
            self._check(roll.status)
            answer: Answer = await self._crew.ask(question.query, question.timeout_ms / 1000)
        except Exception as reason:
            refusal = refusal_of(reason)
            if refusal is None:
                raise
            return refusal
        return answer
