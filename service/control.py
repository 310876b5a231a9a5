"""Control: questions that other threads put to the loop, and the bounded inbox that holds them.

The loop alone owns the state; a question waits in the inbox until the loop answers it between
two batches. Invariants: the inbox never holds more than its depth; every question ends, with an
answer, with a reason why there is none, or at its deadline; a question that nobody waits for any
more is not answered.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from queue import Empty, Full, Queue
from typing import NamedTuple, overload


class AddressQuery(NamedTuple):
    """Asks what an address holds, and by which settings."""

    address: str


class IdQuery(NamedTuple):
    """Asks whether an id is remembered at an address."""

    address: str
    identifier: bytes


Query = AddressQuery | IdQuery
Setting = str | int | bool


class EffectiveSetting(NamedTuple):
    """The value of one address setting, and the pattern that it came from."""

    value: Setting
    pattern: str


class RingStatus(NamedTuple):
    """What one deciding partition remembers of an address."""

    topic: str
    partition: int
    ids_held: int
    capacity: int
    bytes: int
    oldest_time_ms: int | None
    newest_time_ms: int | None
    horizon_ms: int | None
    """Time of the newest id less that of the oldest; None until the ring has evicted once."""


class AddressAnswer(NamedTuple):
    """An address as this instance knows it; one that holds nothing has settings all the same."""

    address: str
    settings: Mapping[str, EffectiveSetting]
    partitions: tuple[RingStatus, ...]
    complete: bool = False
    """True when no deciding partition of the address belongs to another instance."""


class Sighting(NamedTuple):
    """An accepted message whose id is remembered: where it stood, and how long it stays."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    slots_to_eviction: int


class IdAnswer(NamedTuple):
    """Whether an id is remembered, and since which messages."""

    known: bool
    sightings: tuple[Sighting, ...]
    complete: bool = False
    """True when no deciding partition of the address belongs to another instance."""


Answer = AddressAnswer | IdAnswer


class Unavailable(Exception):  # noqa: N818 - a state that passes, not a fault
    """There is no answer now; ask again after `retry_after_s`."""

    def __init__(self, sentence: str, retry_after_s: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class Busy(Unavailable):
    """The inbox is full."""


class TimedOut(Unavailable):
    """The loop did not answer before the deadline."""


class NotRestored(Unavailable):
    """The partitions that would answer are not restored on this instance."""


class _Question(NamedTuple):
    query: Query
    reply: Future[Answer]


class Inbox:
    """Questions that wait for the loop."""

    def __init__(self, depth: int) -> None:
        self._questions: Queue[_Question] = Queue(maxsize=depth)
        self._closed = False

    @overload
    async def ask(self, query: AddressQuery, timeout_s: float) -> AddressAnswer: ...
    @overload
    async def ask(self, query: IdQuery, timeout_s: float) -> IdAnswer: ...
    async def ask(self, query: Query, timeout_s: float) -> Answer:
        """Return the loop's answer, or raise `Unavailable`: full, too slow, or no answer now."""
        question = _Question(query, Future())
        self._put(question)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(question.reply), timeout_s)
        except TimeoutError:
            sentence = (
                f"The loop did not answer within {timeout_s:g} s;"
                " ask again, and see /v1/status for what it waits for."
            )
            raise TimedOut(sentence) from None

    def run_pending(self, answer: Callable[[Query], Answer], limit: int) -> int:
        """Answer up to `limit` questions and return how many. The loop calls this.

        What `answer` raises goes to the one who asked: a question never stops the loop.
        """
        for done in range(limit):
            try:
                query, reply = self._questions.get_nowait()
            except Empty:
                return done
            if not reply.set_running_or_notify_cancel():
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
