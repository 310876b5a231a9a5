"""Query inbox: a bounded queue of queries from other threads to the loop.

The loop alone owns the state; a query waits until the loop answers it between two batches, in steps
where that takes long. Invariants: the inbox never holds more than its depth, the query being
answered included; every query ends with an answer, with a reason why there is none, or at its
deadline; a query whose caller has gone is not answered.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import Final, NamedTuple, TypeVar, overload

from service.queries.addresses import (
    AddressAnswer,
    AddressesAnswer,
    AddressesQuery,
    AddressQuery,
    DirectoryAnswer,
    DirectoryQuery,
)
from service.queries.errors import Busy, TimedOut, Unavailable
from service.queries.ids import (
    ChangeAnswer,
    ClearAddress,
    ForgetId,
    IdAnswer,
    IdQuery,
    IdsAnswer,
    IdsLookup,
    IdsQuery,
    ImportAnswer,
    ImportIds,
    LookupAnswer,
)
from service.queries.publishers import (
    PublisherAnswer,
    PublisherQuery,
    PublishersAnswer,
    PublishersQuery,
    SetSequence,
)
from service.queries.redrives import (
    CheckpointsAnswer,
    CheckpointsQuery,
    DecideDeadLetters,
    DeleteCheckpoints,
    RedriveAnswer,
)
from service.queries.registry import OF_ALL, OF_ONE, Answer, Query
from service.queries.settings import EvictionAnswer, EvictionQuery

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Returns an answer; between two of its steps, a few milliseconds each, the loop may decide."""

_CHANGES: Final = (*OF_ONE, *OF_ALL, EvictionQuery)
"""What an administrator wants done, and what is asked before settings are written."""

_AGAIN: Final = " ask again, and see /v1/status for what it waits for."


class _PendingQuery(NamedTuple):
    query: Query
    reply: Future[Answer]
    deadline_s: float


class QueryService(ABC):
    """Where questions are put."""

    @overload
    async def ask(self, query: AddressQuery, timeout_s: float) -> AddressAnswer: ...
    @overload
    async def ask(self, query: IdQuery, timeout_s: float) -> IdAnswer: ...
    @overload
    async def ask(
        self, query: PublisherQuery | SetSequence, timeout_s: float
    ) -> PublisherAnswer: ...
    @overload
    async def ask(self, query: IdsQuery, timeout_s: float) -> IdsAnswer: ...
    @overload
    async def ask(self, query: ImportIds, timeout_s: float) -> ImportAnswer: ...
    @overload
    async def ask(
        self, query: ForgetId | ClearAddress | DeleteCheckpoints, timeout_s: float
    ) -> ChangeAnswer: ...
    @overload
    async def ask(self, query: IdsLookup, timeout_s: float) -> LookupAnswer: ...
    @overload
    async def ask(self, query: DirectoryQuery, timeout_s: float) -> DirectoryAnswer: ...
    @overload
    async def ask(self, query: AddressesQuery, timeout_s: float) -> AddressesAnswer: ...
    @overload
    async def ask(self, query: EvictionQuery, timeout_s: float) -> EvictionAnswer: ...
    @overload
    async def ask(self, query: CheckpointsQuery, timeout_s: float) -> CheckpointsAnswer: ...
    @overload
    async def ask(self, query: DecideDeadLetters, timeout_s: float) -> RedriveAnswer: ...
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


class QueryInbox(QueryService):
    """Questions that wait for the loop, and those that it is answering."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._lock = threading.Lock()
        """Of those who ask; the loop takes without it."""
        self._questions: deque[_PendingQuery] = deque()
        self._changes: deque[_PendingQuery] = deque()
        self._begun: deque[_RunningQuery] = deque()
        self._takes_new = False
        """Whether the last step was the first one of a question."""
        self._closed = False

    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        return asyncio.wrap_future(self.put(query, time.monotonic() + timeout_s))

    def put(self, query: Query, deadline_s: float) -> Future[Answer]:
        """Have it answered before a time of the monotonic clock; `Busy`, or `Unavailable`."""
        question = _PendingQuery(query, Future(), deadline_s)
        self._put(question)
        return question.reply

    def change(self, answer: Callable[[Query], Answer | Steps[Answer]], limit: int) -> None:
        """Make up to so many changes. The loop calls this.

        What `answer` raises goes to the one who asked: a question never stops the loop.
        """
        for _ in range(min(limit, len(self._changes))):
            begun = _begun(self._changes.popleft(), answer)
            while begun is not None and begun.goes_on():
                pass

    def answer(
        self, answer: Callable[[Query], Answer | Steps[Answer]], goes_on: Callable[[], bool]
    ) -> None:
        """Answer what waits, step by step for as long as it `goes_on`. The loop calls this.

        What takes one step does not wait for what takes many. Of those, one is done after the
        other: all at once would all be late. As for what `answer` raises, see `change`.
        """
        while (self._questions or self._begun) and goes_on():
            self._takes_new = bool(self._questions) and not (self._takes_new and self._begun)
            if not self._takes_new:
                if not self._begun[0].goes_on():
                    self._begun.popleft()
                continue
            begun = _begun(self._questions.popleft(), answer)
            if begun is not None and begun.goes_on():
                self._begun.append(begun)

    def let_go(self) -> None:
        """End what is being answered. The loop calls this when its life ends."""
        while self._begun:
            self._begun.popleft().end(Unavailable(f"The loop was started again;{_AGAIN}"))

    def close(self) -> None:
        """Refuse what waits and what comes. The loop calls this when it ends."""
        with self._lock:
            self._closed = True
        self.let_go()
        self.change(_refuse, len(self._changes))
        self.answer(_refuse, lambda: True)

    def _put(self, question: _PendingQuery) -> None:
        is_change = isinstance(question.query, _CHANGES)
        with self._lock:
            if self._closed:
                _refuse(question.query)
            if len(self._questions) + len(self._changes) + len(self._begun) >= self._depth:
                sentence = f"{self._depth} questions wait for the loop already; ask again."
                raise Busy(sentence)
            (self._changes if is_change else self._questions).append(question)


class _RunningQuery:
    """A question that is being answered."""

    def __init__(self, question: _PendingQuery, steps: Steps[Answer]) -> None:
        self._question = question
        self._steps = steps

    def goes_on(self) -> bool:
        """Take a step; False once the question has ended."""
        reply = self._question.reply
        if time.monotonic() > self._question.deadline_s:
            self.end(TimedOut(f"The loop did not answer in time;{_AGAIN}"))
            return False
        try:
            next(self._steps)
        except StopIteration as end:
            reply.set_result(end.value)
        except Exception as error:  # noqa: BLE001 - it is raised again where it was asked
            reply.set_exception(error)
        else:
            return True
        return False

    def end(self, reason: Unavailable) -> None:
        """There will be no answer."""
        self._steps.close()
        self._question.reply.set_exception(reason)


def _begun(
    question: _PendingQuery, answer: Callable[[Query], Answer | Steps[Answer]]
) -> _RunningQuery | None:
    """A question to be answered from now on; None where nobody waits for it."""
    if not question.reply.set_running_or_notify_cancel():
        return None
    return _RunningQuery(question, _steps(question.query, answer))


def _steps(query: Query, answer: Callable[[Query], Answer | Steps[Answer]]) -> Steps[Answer]:
    told = answer(query)
    return (yield from told) if isinstance(told, Generator) else told


def at_once(steps: Steps[T]) -> T:
    """What they return, all of them taken."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        told: T = end.value
        return told


def _refuse(_query: Query) -> Answer:
    raise Unavailable("The service is stopping; ask again when it has started.", retry_after_s=5)
