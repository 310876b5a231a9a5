"""Peer router: sends a query to the own workers and, where they know a part, to other instances.

Each instance is asked once and answers from its own workers alone, so that no query circulates.
A read may be partial, and says so. A change is made by all instances that it concerns, or ends with
a reason.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from service.config.load import Config
from service.metadata.instances import Registration
from service.peers.client import PeerClient, PeerReply
from service.peers.protocol import (
    InstanceStatus,
    OwnedBy,
    PeerFailure,
    QueryRefusal,
    QueryReply,
    StatusReply,
    StatusRequest,
    owned_by,
    reason_of,
)
from service.queries.errors import Unavailable
from service.queries.ids import ImportIds
from service.queries.inbox import QueryService
from service.queries.publisher_numbers import check_change, deciding_inputs, written_partition
from service.queries.publishers import (
    PublisherAnswer,
    PublisherQuery,
    SetSequence,
    merged_publisher,
)
from service.queries.registry import OF_ALL, OF_ONE, Answer, Query, merged
from service.queries.status import ServiceStatus
from service.supervisor.router import gravest
from state.model import PartitionId

_SHARE: Final = 0.8
"""Of the time that is left: one that hangs must not take the answer of the others along."""


class PeerRouter(QueryService):
    """See the module."""

    def __init__(
        self,
        config: Callable[[], Config],
        workers: QueryService,
        status_reply: Callable[[], StatusReply],
        peers: PeerClient,
        announced: Callable[[], Registration],
    ) -> None:
        """`workers`, `status_reply` and `announced` are those of this instance."""
        self._config = config
        self._workers = workers
        self._status_reply = status_reply
        self._peers = peers
        self._announced = announced

    async def roll_call(self, timeout_s: float) -> tuple[InstanceStatus, ...]:
        """How every instance does, by their names."""
        own = InstanceStatus(
            self._announced(), is_own=True, status_reply=self._status_reply(), trouble=None
        )
        heard = await self._peers.ask(StatusRequest(), timeout_s)
        return tuple(
            sorted([own, *map(_instance_status, heard)], key=lambda each: each.announced.name)
        )

    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        deadline_s = time.monotonic() + timeout_s
        if isinstance(query, SetSequence) and not self._status.complete:
            return self._number_changed(query, deadline_s)
        return self._asked(query, deadline_s)

    @property
    def _status(self) -> ServiceStatus:
        return self._status_reply().status

    async def _asked(self, query: Query, deadline_s: float) -> Answer:
        if isinstance(query, OF_ALL) and not self._status.complete:
            await self._check_all_are_there(deadline_s)
        own = await _told(self._workers.ask(query, _left_s(deadline_s)))
        if isinstance(own, Answer) and (own.complete or _is_done(query, [own])):
            return own._replace(complete=True)
        if isinstance(own, Exception) and not self._others_may_answer(query, own):
            raise own
        heard = await self._peers.ask(query, _left_s(deadline_s) * _SHARE)
        return self._merged(query, own, heard)

    def _others_may_answer(self, query: Query, reason: Exception) -> bool:
        """Whether a refusal of ours is no last word."""
        if self._status.complete:
            return False
        return isinstance(reason, Unavailable) or isinstance(query, OF_ONE)

    def _merged(self, query: Query, own: Answer | Exception, heard: Sequence[PeerReply]) -> Answer:
        replies = [each.reply for each in heard if each.reply is not None]
        told = [own, *(_outcome(reply) for reply in replies)]
        answers = [each for each in told if isinstance(each, Answer)]
        reasons = [each for each in told if isinstance(each, Exception)]
        if isinstance(query, OF_ONE):
            passing = [
                *(each for each in reasons if isinstance(each, Unavailable)),
                *_silent(heard),
            ]
            if answers and (_is_done(query, answers) or not passing):
                return merged(query, answers, complete=True)
            raise gravest([*_partly(answers), *passing, *reasons])
        lasting = [each for each in reasons if not isinstance(each, Unavailable)]
        if lasting or not answers:
            raise gravest(lasting or reasons)
        spoke = [reply for reply in replies if not isinstance(reply.told, QueryRefusal)]
        if isinstance(own, Answer):
            spoke.append(self._own_reply(own))
        is_whole = _is_whole(spoke)
        if isinstance(query, OF_ALL) and not is_whole:
            raise Unavailable(" ".join(map(str, [*_partly(answers), *reasons, *_silent(heard)])))
        return merged(query, answers, complete=is_whole)

    async def _check_all_are_there(self, deadline_s: float) -> None:
        """Before a change is begun that is to reach every partition."""
        heard = await self._peers.ask(StatusRequest(), _left_s(deadline_s) * _SHARE / 2)
        replies = [each.reply for each in heard if each.reply is not None]
        if not _is_whole([*replies, self._own_reply(self._status_reply())]):
            sentence = "Not every partition has an owner that answers; nothing was changed."
            raise Unavailable(" ".join([sentence, *map(str, _silent(heard))]), retry_after_s=2)

    async def _number_changed(self, change: SetSequence, deadline_s: float) -> PublisherAnswer:
        """As one loop does it: find the partition, change it there, tell how it stands after it."""
        check_change(change, self._config().addresses)
        question = PublisherQuery(change.publisher)
        if change.topic is None or change.partition is None:
            before = await self._asked(question, deadline_s)
            assert isinstance(before, PublisherAnswer)  # that was the question
            if not before.complete:
                sentence = "Not every partition has an owner that answers; ask again, or name one."
                raise Unavailable(sentence)
            place = written_partition(change, before.places, await self._deciding(deadline_s))
            change = change._replace(topic=place.topic, partition=place.partition)
        told = await self._asked(change, deadline_s)
        after = await self._asked(question, deadline_s)
        assert isinstance(told, PublisherAnswer)  # of the one that decides
        assert isinstance(after, PublisherAnswer)  # that was the question
        return merged_publisher(question, [after, told]) if change.dry_run else after

    async def _deciding(self, deadline_s: float) -> list[PartitionId]:
        """The partitions of inputs that decide, on all instances."""
        heard = await self._peers.ask(StatusRequest(), _left_s(deadline_s) * _SHARE / 2)
        told = [each.reply.told for each in heard if each.reply is not None]
        statuses = [self._status, *(each.status for each in told if isinstance(each, StatusReply))]
        return deciding_inputs(statuses, self._config().service.group_id)

    def _own_reply(self, told: Answer | StatusReply) -> QueryReply:
        status = self._status
        return QueryReply(status.instance, told, owned_by(status), status.partitions_total)


def _is_done(query: Query, answers: Sequence[Answer]) -> bool:
    """Whether these leave nothing to others of what owners do each by itself.

    Ids that are imported may belong to several.
    """
    if isinstance(query, ImportIds):
        return sum(getattr(each, "ids", 0) for each in answers) >= len(query.ids) > 0
    return isinstance(query, OF_ONE) and bool(answers)


def _partly(answers: Sequence[Answer]) -> list[Exception]:
    sentence = "The change was made on a part of the partitions; ask again for the rest."
    return [Unavailable(sentence)] if answers else []


def _is_whole(replies: Iterable[QueryReply]) -> bool:
    """Whether these own every partition together."""
    owned: set[OwnedBy] = set()
    total = 0
    for reply in replies:
        owned.update(reply.owned)
        total = max(total, reply.partitions_total)
    return total > 0 and len(owned) >= total


async def _told(answer: Awaitable[Answer]) -> Answer | Exception:
    """What came of it."""
    try:
        return await answer
    except Exception as reason:  # noqa: BLE001 - it is raised again where nobody else answers
        return reason


def _outcome(reply: QueryReply) -> Answer | Exception:
    if isinstance(reply.told, StatusReply):
        return Unavailable(f"Instance {reply.instance} answered another question.")
    return reason_of(reply.told) if isinstance(reply.told, QueryRefusal) else reply.told


def _silent(heard: Iterable[PeerReply]) -> list[Exception]:
    return [
        Unavailable(f"Instance {each.peer.name} does not answer: {_why(each)}.", retry_after_s=2)
        for each in heard
        if each.reply is None
    ]


def _why(heard: PeerReply) -> str:
    return "" if heard.trouble is None else heard.trouble.sentence


def _instance_status(heard: PeerReply) -> InstanceStatus:
    told = None if heard.reply is None else heard.reply.told
    trouble = heard.trouble
    if isinstance(told, QueryRefusal):
        trouble = PeerFailure("unavailable", told.sentence)
    return InstanceStatus(
        heard.peer,
        is_own=False,
        status_reply=told if isinstance(told, StatusReply) else None,
        trouble=trouble,
    )


def _left_s(deadline_s: float) -> float:
    return max(0.0, deadline_s - time.monotonic())
