"""Desk: puts a question to all processes that may own a part of the answer, and merges.

Every process is asked, since partitions move; who does not own what is meant says so. A process
that hangs makes the question end at its deadline, and nothing else.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from service.config import Config
from service.control import Desk, NotPossible, NotRestored
from service.crew.member import Member
from service.numbers import check_change, deciding_inputs, written_partition
from service.queries.publishers import (
    NumberChange,
    PublisherAnswer,
    PublisherQuery,
    merged_publisher,
)
from service.queries.table import OF_ONE, Answer, Query, merged
from service.status import Status


class CrewDesk(Desk):
    """See the module."""

    def __init__(
        self, config: Callable[[], Config], members: Sequence[Member], status: Callable[[], Status]
    ) -> None:
        """`config` is the one that holds now."""
        self._config = config
        self._members = members
        self._status = status

    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        deadline_s = time.monotonic() + timeout_s
        if isinstance(query, NumberChange) and len(self._members) > 1:
            return self._number_changed(query, deadline_s)
        return self._asked(query, deadline_s)

    async def _asked(self, query: Query, deadline_s: float) -> Answer:
        up = [member for member in self._members if member.is_up]
        if len(up) < len(self._members) and not self._status().complete:
            sentence = "A worker is being replaced, and its partitions answer nothing; see /readyz."
            raise NotRestored(sentence, retry_after_s=2)
        replies = [asyncio.wrap_future(member.ask(query, deadline_s)) for member in up]
        told = await asyncio.gather(*replies, return_exceptions=True)
        answers = [each for each in told if isinstance(each, Answer)]
        refusals = [each for each in told if isinstance(each, BaseException)]
        if refusals and not (answers and isinstance(query, OF_ONE)):
            raise gravest(refusals)
        if len(self._members) == 1:
            return answers[0]
        return merged(query, answers, complete=self._status().complete)

    async def _number_changed(self, change: NumberChange, deadline_s: float) -> PublisherAnswer:
        """As one loop does it: find the partition, change it there, tell how it stands after it."""
        check_change(change, self._config().addresses)
        question = PublisherQuery(change.publisher)
        before = await self._asked(question, deadline_s)
        assert isinstance(before, PublisherAnswer)  # that was the question
        deciding = deciding_inputs([self._status()], self._config().service.group_id)
        place = written_partition(change, before.places, deciding)
        named = change._replace(topic=place.topic, partition=place.partition)
        told = await self._asked(named, deadline_s)
        after = await self._asked(question, deadline_s)
        assert isinstance(told, PublisherAnswer)  # of the one that decides
        assert isinstance(after, PublisherAnswer)  # that was the question
        return merged_publisher(question, [after, told]) if change.dry_run else after


def gravest(refusals: Sequence[BaseException]) -> BaseException:
    """What may pass goes before what a process says that owns nothing; errors of ours go first."""
    return min(refusals, key=lambda error: isinstance(error, NotPossible))
