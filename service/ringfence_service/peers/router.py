"""Peer router: answers queries from this instance's workers and, if needed, the other instances.

Each instance is asked once and answers only from its own workers, so that no query circulates.
A read may be partial, and says so. A change is made by all instances concerned, or fails with an
error.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from ringfence_service.config.model import Config
from ringfence_service.metadata.instances import Registration
from ringfence_service.peers.client import PeerClient, PeerReply
from ringfence_service.peers.protocol import (
    InstanceStatus,
    PeerFailure,
    QueryRefusal,
    QueryReply,
    StatusReply,
    StatusRequest,
    owned_by,
    reason_of,
)
from ringfence_service.queries.errors import Unavailable
from ringfence_service.queries.ids import ImportIds
from ringfence_service.queries.inbox import QueryService
from ringfence_service.queries.publisher_numbers import (
    check_change,
    deciding_inputs,
    written_partition,
)
from ringfence_service.queries.publishers import PublisherAnswer, PublisherQuery, SetSequence
from ringfence_service.queries.registry import OF_ALL, OF_ONE, Answer, Query, merged
from ringfence_service.queries.status import ServiceStatus
from ringfence_service.supervisor.router import gravest
from ringfence_state.model import PartitionId

_SHARE: Final = 0.8
"""Of the time left: a peer that hangs must not prevent the answer from the others."""


class PeerRouter(QueryService):
    """Answers queries from all instances of the group."""

    def __init__(
        self,
        config: Callable[[], Config],
        workers: QueryService,
        status_reply: Callable[[], StatusReply],
        peers: PeerClient,
        registration: Callable[[], Registration],
    ) -> None:
        """`workers`, `status_reply` and `registration` are those of this instance."""
        self._config = config
        self._workers = workers
        self._status_reply = status_reply
        self._peers = peers
        self._registration = registration

    async def instance_statuses(self, timeout_s: float) -> tuple[InstanceStatus, ...]:
        """Return the status of every instance, sorted by name."""
        own = InstanceStatus(
            self._registration(), is_own=True, status_reply=self._status_reply(), trouble=None
        )
        replies = await self._peers.ask(StatusRequest(), timeout_s)
        return tuple(
            sorted([own, *map(_instance_status, replies)], key=lambda each: each.announced.name)
        )

    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        deadline_s = time.monotonic() + timeout_s
        if isinstance(query, SetSequence):
            return self._set_sequence(query, deadline_s)
        return self._asked(query, deadline_s)

    @property
    def _status(self) -> ServiceStatus:
        return self._status_reply().status

    async def _asked(self, query: Query, deadline_s: float) -> Answer:
        if isinstance(query, OF_ALL) and not self._status.complete:
            await self._check_all_owners(deadline_s)
        own = await _outcome(self._workers.ask_any(query, _left_s(deadline_s)))
        if isinstance(own, Answer) and (own.complete or _is_done(query, [own])):
            return own._replace(complete=True)
        if isinstance(own, Exception) and not self._others_may_answer(query, own):
            raise own
        replies = await self._peers.ask(query, _left_s(deadline_s) * _SHARE)
        return self._merged(query, own, replies)

    def _others_may_answer(self, query: Query, reason: Exception) -> bool:
        """Return whether other instances may answer a query that this one has refused."""
        if self._status.complete:
            return False
        return isinstance(reason, Unavailable) or isinstance(query, OF_ONE)

    def _merged(
        self, query: Query, own: Answer | Exception, peer_replies: Sequence[PeerReply]
    ) -> Answer:
        replies = [each.reply for each in peer_replies if each.reply is not None]
        outcomes = [own, *(_outcome_of(reply) for reply in replies)]
        answers = [each for each in outcomes if isinstance(each, Answer)]
        errors = [each for each in outcomes if isinstance(each, Exception)]
        if isinstance(query, OF_ONE):
            temporary = [
                *(each for each in errors if isinstance(each, Unavailable)),
                *_silent(peer_replies),
            ]
            if answers and (_is_done(query, answers) or not temporary):
                return merged(query, answers, complete=True)
            raise gravest([*_partly(answers), *temporary, *errors])
        permanent = [each for each in errors if not isinstance(each, Unavailable)]
        if permanent or not answers:
            raise gravest(permanent or errors)
        answering = [reply for reply in replies if not isinstance(reply.outcome, QueryRefusal)]
        if isinstance(own, Answer):
            answering.append(self._own_reply(own))
        is_whole = _is_whole(answering)
        if isinstance(query, OF_ALL) and not is_whole:
            problems = [*_partly(answers), *errors, *_silent(peer_replies)]
            raise Unavailable(" ".join(map(str, problems)))
        return merged(query, answers, complete=is_whole)

    async def _check_all_owners(self, deadline_s: float) -> None:
        """Raise Unavailable unless every partition has an owner; before a change to all of them."""
        peer_replies = await self._peers.ask(StatusRequest(), _left_s(deadline_s) * _SHARE / 2)
        replies = [each.reply for each in peer_replies if each.reply is not None]
        if not _is_whole([*replies, self._own_reply(self._status_reply())]):
            sentence = "Not every partition has an owner that answers; nothing was changed."
            silent = map(str, _silent(peer_replies))
            raise Unavailable(" ".join([sentence, *silent]), retry_after_s=2)

    async def _set_sequence(self, change: SetSequence, deadline_s: float) -> PublisherAnswer:
        """Find the partition, change the number there, and return the publisher's new state."""
        check_change(change, self._config().addresses)
        query = PublisherQuery(change.publisher)
        if change.topic is None or change.partition is None:
            before = await self._asked(query, deadline_s)
            assert isinstance(before, PublisherAnswer)  # the answer type of the query
            if not before.complete:
                sentence = "Not every partition has an owner that answers; try again, or name one."
                raise Unavailable(sentence)
            target = written_partition(change, before.positions, await self._deciding(deadline_s))
            change = change._replace(topic=target.topic, partition=target.partition)
        changed = await self._asked(change, deadline_s)
        after = await self._asked(query, deadline_s)
        assert isinstance(changed, PublisherAnswer)  # from the owner of the partition
        assert isinstance(after, PublisherAnswer)  # the answer type of the query
        return query.merge([after, changed]) if change.dry_run else after

    async def _deciding(self, deadline_s: float) -> list[PartitionId]:
        """Return the deciding input partitions of all instances."""
        replies = await self._peers.ask(StatusRequest(), _left_s(deadline_s) * _SHARE / 2)
        outcomes = [each.reply.outcome for each in replies if each.reply is not None]
        others = [each.status for each in outcomes if isinstance(each, StatusReply)]
        return deciding_inputs([self._status, *others], self._config().service.group_id)

    def _own_reply(self, outcome: Answer | StatusReply) -> QueryReply:
        status = self._status
        return QueryReply(status.instance, outcome, owned_by(status), status.partitions_total)


def _is_done(query: Query, answers: Sequence[Answer]) -> bool:
    """Return whether a change that only its owners make is complete with these answers.

    Imported ids may belong to several owners.
    """
    if isinstance(query, ImportIds):
        return sum(getattr(each, "ids", 0) for each in answers) >= len(query.ids) > 0
    return isinstance(query, OF_ONE) and bool(answers)


def _partly(answers: Sequence[Answer]) -> list[Exception]:
    sentence = "The change was made on a part of the partitions; try again for the rest."
    return [Unavailable(sentence)] if answers else []


def _is_whole(replies: Iterable[QueryReply]) -> bool:
    """Return whether the senders of these replies together own every partition."""
    owned: set[PartitionId] = set()
    total = 0
    for reply in replies:
        owned.update(reply.owned)
        total = max(total, reply.partitions_total)
    return total > 0 and len(owned) >= total


async def _outcome(answer: Awaitable[Answer]) -> Answer | Exception:
    """Return the answer or its error."""
    try:
        return await answer
    except Exception as error:  # noqa: BLE001 - raised again if no other instance answers
        return error


def _outcome_of(reply: QueryReply) -> Answer | Exception:
    outcome = reply.outcome
    if isinstance(outcome, StatusReply):
        return Unavailable(f"Instance {reply.instance} answered a different query.")
    return reason_of(outcome) if isinstance(outcome, QueryRefusal) else outcome


def _silent(replies: Iterable[PeerReply]) -> list[Exception]:
    return [
        Unavailable(f"Instance {each.peer.name} does not answer: {_why(each)}.", retry_after_s=2)
        for each in replies
        if each.reply is None
    ]


def _why(reply: PeerReply) -> str:
    return "" if reply.trouble is None else reply.trouble.sentence


def _instance_status(peer_reply: PeerReply) -> InstanceStatus:
    reply, trouble = peer_reply.reply, peer_reply.trouble
    outcome = None if reply is None else reply.outcome
    if isinstance(outcome, QueryRefusal):
        trouble = PeerFailure("unavailable", outcome.sentence)
    return InstanceStatus(
        peer_reply.peer,
        is_own=False,
        status_reply=outcome if isinstance(outcome, StatusReply) else None,
        trouble=trouble,
    )


def _left_s(deadline_s: float) -> float:
    return max(0.0, deadline_s - time.monotonic())
