"""Query inbox: a bounded queue of queries from other threads to the loop.

Only the loop accesses the state; a query waits until the loop answers it between two batches, in
steps if that takes long. Invariants: the inbox never holds more queries than its depth, including
those being answered; every query ends with an answer, with an error, or at its deadline; a query
whose caller has gone is not answered.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import Final, NamedTuple, TypeVar, cast

from ringfence_service.queries.errors import Busy, TimedOut, Unavailable
from ringfence_service.queries.registry import OF_ALL, OF_ONE, A, Answer, Query, QueryFor
from ringfence_service.queries.settings import EvictionQuery

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Computes an answer in steps of a few milliseconds, between which the loop may process records."""

_CHANGES: Final = (*OF_ONE, *OF_ALL, EvictionQuery)
"""Changes by an administrator, and the query that precedes a change of settings."""

_AGAIN: Final = " try again, and see /v1/status for what it waits for."


class PendingQuery(NamedTuple):
    """A query that waits for its turn; its reply is due by a time of the monotonic clock."""

    query: Query
    reply: Future[Answer]
    deadline_s: float


class QueryService(ABC):
    """Answers queries; implemented by the inbox of a loop, and by the routers to many loops."""

    async def ask(self, query: QueryFor[A], timeout_s: float) -> A:
        """Return the answer; `Unavailable` if the inbox is full, or there is no answer in time."""
        return cast("A", await self.ask_any(cast("Query", query), timeout_s))

    async def ask_any(self, query: Query, timeout_s: float) -> Answer:
        """Return the answer to a query of any type, as `ask` does."""
        try:
            return await asyncio.wait_for(self._answered(query, timeout_s), timeout_s)
        except TimeoutError:
            sentence = f"The loop did not answer within {timeout_s:g} s;{_AGAIN}"
            raise TimedOut(sentence) from None

    @abstractmethod
    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        """Return the answer, however long it takes; `ask` stops waiting after the timeout."""
        ...


class QueryInbox(QueryService):
    """The queries that wait for a loop, and those that it is answering."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._lock = threading.Lock()
        """Serialises the callers; the loop takes queries without it."""
        self._reads: deque[PendingQuery] = deque()
        self._changes: deque[PendingQuery] = deque()
        self._running: deque[_RunningQuery] = deque()
        self._took_new = False
        """Whether the last step was the first one of a query."""
        self._closed = False

    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        return asyncio.wrap_future(self.put(query, time.monotonic() + timeout_s))

    def put(self, query: Query, deadline_s: float) -> Future[Answer]:
        """Queue a query that must be answered before a time of the monotonic clock.

        Raise `Busy` if the inbox is full, and `Unavailable` if it is closed.
        """
        pending = PendingQuery(query, Future(), deadline_s)
        self.add(pending)
        return pending.reply

    def change(self, answer: Callable[[Query], Answer | Steps[Answer]], limit: int) -> None:
        """Make up to `limit` changes. The loop calls this.

        An exception of `answer` goes to the caller of the query: a query never stops the loop.
        """
        for _ in range(min(limit, len(self._changes))):
            running = _started(self._changes.popleft(), answer)
            while running is not None and running.step():
                pass

    def answer(
        self, answer: Callable[[Query], Answer | Steps[Answer]], has_time: Callable[[], bool]
    ) -> None:
        """Answer queries step by step while `has_time` returns True. The loop calls this.

        A query of one step does not wait for those of many. Those run one after the other, because
        all of them in turn would all be late. Exceptions of `answer` go to the caller of the query.
        """
        while (self._reads or self._running) and has_time():
            self._took_new = bool(self._reads) and not (self._took_new and self._running)
            if not self._took_new:
                if not self._running[0].step():
                    self._running.popleft()
                continue
            running = _started(self._reads.popleft(), answer)
            if running is not None and running.step():
                self._running.append(running)

    def abort_running(self) -> None:
        """Abort the queries that are being answered. Called when a loop ends."""
        while self._running:
            self._running.popleft().abort(Unavailable(f"The loop was restarted;{_AGAIN}"))

    def close(self) -> None:
        """Refuse all queries, waiting and new. Called when the last loop has ended."""
        with self._lock:
            self._closed = True
        self.abort_running()
        self.change(_refuse, len(self._changes))
        self.answer(_refuse, lambda: True)

    def add(self, pending: PendingQuery) -> None:
        """Queue a query, or refuse it if the inbox is closed."""
        is_change = isinstance(pending.query, _CHANGES)
        with self._lock:
            if self._closed:
                _refuse(pending.query)
            if len(self._reads) + len(self._changes) + len(self._running) >= self._depth:
                raise Busy(f"{self._depth} queries already wait for the loop; try again.")
            (self._changes if is_change else self._reads).append(pending)


class _RunningQuery:
    """A query that is being answered."""

    def __init__(self, pending: PendingQuery, steps: Steps[Answer]) -> None:
        self._pending = pending
        self._steps = steps

    def step(self) -> bool:
        """Take a step; return False once the query has ended."""
        reply = self._pending.reply
        if time.monotonic() > self._pending.deadline_s:
            self.abort(TimedOut(f"The loop did not answer in time;{_AGAIN}"))
            return False
        try:
            next(self._steps)
        except StopIteration as end:
            reply.set_result(end.value)
        except Exception as error:  # noqa: BLE001 - raised again in the caller
            reply.set_exception(error)
        else:
            return True
        return False

    def abort(self, reason: Unavailable) -> None:
        """End the query with an error."""
        self._steps.close()
        self._pending.reply.set_exception(reason)


def _started(
    pending: PendingQuery, answer: Callable[[Query], Answer | Steps[Answer]]
) -> _RunningQuery | None:
    """Start to answer a query; None if its caller has stopped waiting."""
    if not pending.reply.set_running_or_notify_cancel():
        return None
    return _RunningQuery(pending, _steps(pending.query, answer))


def _steps(query: Query, answer: Callable[[Query], Answer | Steps[Answer]]) -> Steps[Answer]:
    result = answer(query)
    return (yield from result) if isinstance(result, Generator) else result


def at_once(steps: Steps[T]) -> T:
    """Take all steps; return their result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


def _refuse(_query: Query) -> Answer:
    raise Unavailable("The service is stopping; try again when it has restarted.", retry_after_s=5)
