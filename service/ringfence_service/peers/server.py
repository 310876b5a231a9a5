"""Peer server: answers queries of other instances, from the workers of this instance only."""

from collections.abc import Callable
from typing import Final

from ringfence_service.peers.protocol import (
    PeerQuery,
    QueryRefusal,
    QueryReply,
    StatusReply,
    StatusRequest,
    encode_reply,
    owned_by,
    refusal_of,
)
from ringfence_service.peers.signing import PeerKey
from ringfence_service.queries.inbox import QueryService
from ringfence_service.queries.registry import OF_ALL, OF_ONE, Answer, Query
from ringfence_service.queries.status import ServiceStatus

_NO_CHANGE: Final = QueryRefusal(
    "NotPossible",
    "Instances on different machines forward changes only if they share a secret: set "
    "api.peer_token_file on all of them, or send the request to the instance that owns it.",
)


def is_change(query: Query | StatusRequest) -> bool:
    """Return whether a query may change something."""
    return isinstance(query, OF_ONE + OF_ALL) and not getattr(query, "dry_run", False)


class PeerServer:
    """Answers queries of other instances."""

    def __init__(
        self,
        workers: QueryService,
        status_reply: Callable[[], StatusReply],
        check: Callable[[ServiceStatus], None],
        key: PeerKey | None,
    ) -> None:
        """`check` raises if the state is not restored.

        Without a `key` a peer cannot be distinguished from other clients, so the caller decides who
        may send queries.
        """
        self._workers = workers
        self._status_reply = status_reply
        self._check = check
        self.key = key

    async def reply(self, question: PeerQuery, *, may_change: bool) -> bytes:
        """Return the encoded reply to a query; without `may_change` a change is refused."""
        outcome: Answer | StatusReply | QueryRefusal = _NO_CHANGE
        if may_change or not is_change(question.query):
            outcome = await self._outcome(question)
        status = self._status_reply().status
        return encode_reply(
            QueryReply(status.instance, outcome, owned_by(status), status.partitions_total)
        )

    async def _outcome(self, question: PeerQuery) -> Answer | StatusReply | QueryRefusal:
        status_reply = self._status_reply()
        if question.to != status_reply.status.instance:
            return QueryRefusal("Unavailable", f"This is instance {status_reply.status.instance}.")
        if isinstance(question.query, StatusRequest):
            return status_reply
        try:
            self._check(status_reply.status)
            answer: Answer = await self._workers.ask_any(question.query, question.timeout_ms / 1000)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            return refusal
        return answer
