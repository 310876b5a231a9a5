"""Peer server: answers the queries of other instances from the own workers alone."""

from collections.abc import Callable
from typing import Final

from service.peers.protocol import (
    PeerQuery,
    QueryRefusal,
    QueryReply,
    StatusReply,
    StatusRequest,
    owned_by,
    refusal_of,
    reply_text,
)
from service.peers.signing import PeerKey
from service.queries.inbox import QueryService
from service.queries.registry import OF_ALL, OF_ONE, Answer, Query
from service.queries.status import ServiceStatus

_NO_CHANGE: Final = QueryRefusal(
    "NotPossible",
    "Instances on other machines make a change for each other only where they share a secret: set "
    "api.peer_token_file on all of them, or ask the instance that owns it.",
)


def is_change(query: Query | StatusRequest) -> bool:
    """Whether it may change something."""
    return isinstance(query, OF_ONE + OF_ALL) and not getattr(query, "dry_run", False)


class PeerServer:
    """See the module."""

    def __init__(
        self,
        workers: QueryService,
        status_reply: Callable[[], StatusReply],
        check: Callable[[ServiceStatus], None],
        key: PeerKey | None,
    ) -> None:
        """`check` raises where the state is not whole.

        Without a `key` nothing tells a peer from others: who may ask, the caller has to know.
        """
        self._workers = workers
        self._status_reply = status_reply
        self._check = check
        self.key = key

    async def reply(self, question: PeerQuery, *, may_change: bool) -> bytes:
        """Answer a question; what changes something is refused to who may not."""
        told: Answer | StatusReply | QueryRefusal = _NO_CHANGE
        if may_change or not is_change(question.query):
            told = await self._told(question)
        status = self._status_reply().status
        return reply_text(
            QueryReply(status.instance, told, owned_by(status), status.partitions_total)
        )

    async def _told(self, question: PeerQuery) -> Answer | StatusReply | QueryRefusal:
        status_reply = self._status_reply()
        if question.to != status_reply.status.instance:
            return QueryRefusal("Unavailable", f"This is instance {status_reply.status.instance}.")
        if isinstance(question.query, StatusRequest):
            return status_reply
        try:
            self._check(status_reply.status)
            answer: Answer = await self._workers.ask(question.query, question.timeout_ms / 1000)
        except Exception as reason:
            refusal = refusal_of(reason)
            if refusal is None:
                raise
            return refusal
        return answer
