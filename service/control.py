"""Control: questions that other threads put to the loop, and the bounded inbox that holds them.

The loop alone owns the state; a question waits in the inbox until the loop answers it between
two batches. Invariants: the inbox never holds more than its depth; every question ends, with an
answer, with a reason why there is none, or at its deadline; a question that nobody waits for any
more is not answered.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from queue import Empty, Full, Queue
from typing import Final, NamedTuple, overload

from service.queries.addresses import (
    AddressAnswer,
    AddressesAnswer,
    AddressesQuery,
    AddressOrder,
    AddressOrderAnswer,
    AddressQuery,
)
from service.queries.ids import (
    ChangeAnswer,
    Clearing,
    IdAnswer,
    IdForgetting,
    IdQuery,
    IdsAnswer,
    IdsImport,
    IdsLookup,
    IdsQuery,
    ImportAnswer,
    LookupAnswer,
)
from service.queries.publishers import (
    NumberChange,
    PublisherAnswer,
    PublisherQuery,
    PublishersAnswer,
    PublishersQuery,
)
from service.queries.redrives import (
    LettersRedrive,
    MarksAnswer,
    MarksQuery,
    MarksRemoval,
    RedriveAnswer,
)
from service.queries.settings import ForgottenAnswer, ForgottenQuery
from service.queries.table import Answer, Query


class Unavailable(Exception):  # noqa: N818 - a state that passes, not a fault
    """There is no answer now; ask again after `retry_after_s`."""

    def __init__(self, sentence: str, retry_after_s: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class NotPossible(Exception):  # noqa: N818 - it is the answer
    """What was asked for cannot be done; the sentence tells why, and what could."""


class NameInUse(Exception):  # noqa: N818 - it is the answer
    """Another user has a session under the name of a publisher."""


class Busy(Unavailable):
    """The inbox is full."""


class TimedOut(Unavailable):
    """The loop did not answer before the deadline."""


class NotRestored(Unavailable):
    """The partitions that would answer are not restored on this instance."""


_AGAIN: Final = " ask again, and see /v1/status for what it waits for."


class _Question(NamedTuple):
    query: Query
    reply: Future[Answer]
    deadline_s: float


class Desk(ABC):
    """Where questions are put."""

    @overload
    async def ask(self, query: AddressQuery, timeout_s: float) -> AddressAnswer: ...
    @overload
    async def ask(self, query: IdQuery, timeout_s: float) -> IdAnswer: ...
    @overload
    async def ask(
        self, query: PublisherQuery | NumberChange, timeout_s: float
    ) -> PublisherAnswer: ...
    @overload
    async def ask(self, query: IdsQuery, timeout_s: float) -> IdsAnswer: ...
    @overload
    async def ask(self, query: IdsImport, timeout_s: float) -> ImportAnswer: ...
    @overload
    async def ask(
        self, query: IdForgetting | Clearing | MarksRemoval, timeout_s: float
    ) -> ChangeAnswer: ...
    @overload
    async def ask(self, query: IdsLookup, timeout_s: float) -> LookupAnswer: ...
    @overload
    async def ask(self, query: AddressOrder, timeout_s: float) -> AddressOrderAnswer: ...
    @overload
    async def ask(self, query: AddressesQuery, timeout_s: float) -> AddressesAnswer: ...
    @overload
    async def ask(self, query: ForgottenQuery, timeout_s: float) -> ForgottenAnswer: ...
    @overload
    async def ask(self, query: MarksQuery, timeout_s: float) -> MarksAnswer: ...
    @overload
    async def ask(self, query: LettersRedrive, timeout_s: float) -> RedriveAnswer: ...
    @overload
    async def ask(self, query: PublishersQuery, timeout_s: float) -> PublishersAnswer: ...
    async def ask(self, query: Query, timeout_s: float) -> Answer:
        """Return the loop's answer, or raise `Unavailable`: full, too slow, or no answer now."""
        try:
            return await asyncio.wait_for(self._answered(query, timeout_s), timeout_s)
        except TimeoutError:
            sentence = f"The loop did not answer within {timeout_s:g} s;{_AGAIN}"
            raise TimedOut(sentence) from None

    @abstractmethod
    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        """The answer, however long it takes; nobody waits for it after the timeout."""
        ...


class Inbox(Desk):
    """Questions that wait for the loop."""

    def __init__(self, depth: int) -> None:
        self._questions: Queue[_Question] = Queue(maxsize=depth)
        self._closed = False

    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        return asyncio.wrap_future(self.put(query, time.monotonic() + timeout_s))

    def put(self, query: Query, deadline_s: float) -> Future[Answer]:
        """Have it answered before a time of the monotonic clock; `Busy`, or `Unavailable`."""
        question = _Question(query, Future(), deadline_s)
        self._put(question)
        return question.reply

    def run_pending(self, answer: Callable[[Query], Answer], limit: int) -> int:
        """Answer up to `limit` questions and return how many. The loop calls this.

        What `answer` raises goes to the one who asked: a question never stops the loop.
        """
        for done in range(limit):
            try:
                query, reply, deadline_s = self._questions.get_nowait()
            except Empty:
                return done
            if not reply.set_running_or_notify_cancel():
                continue
            if time.monotonic() > deadline_s:
                reply.set_exception(TimedOut(f"The loop did not answer in time;{_AGAIN}"))
                continue
            try:
                reply.set_result(answer(query))
            except Exception as error:  # noqa: BLE001 - it is raised again where it was asked
                reply.set_exception(error)
        return limit

    def close(self) -> None:
        """Refuse what waits and what comes. The loop calls this when it ends."""
        self._closed = True
        self.run_pending(_refuse, self._questions.qsize())

    def _put(self, question: _Question) -> None:
        if self._closed:
            _refuse(question.query)
        try:
            self._questions.put_nowait(question)
        except Full:
            sentence = f"{self._questions.maxsize} questions wait for the loop already; ask again."
            raise Busy(sentence) from None


def _refuse(_query: Query) -> Answer:
    raise Unavailable("The service is stopping; ask again when it has started.", retry_after_s=5)
