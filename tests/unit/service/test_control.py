"""The inbox: bounded, and every question ends."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from service.control import Busy, Inbox, NotRestored, TimedOut, Unavailable
from service.queries.addresses import AddressAnswer, AddressQuery
from service.queries.ids import IdAnswer, IdQuery
from service.queries.table import Answer, Query
from tests.waiting import LIMIT_S

UNKNOWN = IdAnswer(known=False, sightings=())


def answer_with(answer: Answer) -> Callable[[Query], Answer]:
    return lambda _: answer


def test_a_question_gets_the_loops_answer_from_another_thread() -> None:
    inbox = Inbox(depth=1)
    heard: list[Query] = []
    asked = threading.Event()

    def loop() -> None:
        def answer(query: Query) -> Answer:
            heard.append(query)
            return AddressAnswer("a", {}, ())

        while not asked.wait(0.001):
            inbox.run_pending(answer, limit=1)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        assert asyncio.run(inbox.ask(AddressQuery("a"), LIMIT_S)) == AddressAnswer("a", {}, ())
    finally:
        asked.set()
        thread.join(LIMIT_S)
    assert heard == [AddressQuery("a")]


def test_a_full_inbox_is_busy_and_asks_for_patience() -> None:
    async def scenario() -> None:
        inbox = Inbox(depth=1)
        waiting = asyncio.create_task(inbox.ask(AddressQuery("a"), LIMIT_S))
        await asyncio.sleep(0)  # noqa: TID251 - none, it is asked now
        with pytest.raises(Busy) as refused:
            await inbox.ask(AddressQuery("b"), LIMIT_S)
        assert refused.value.retry_after_s >= 1
        inbox.run_pending(answer_with(AddressAnswer("a", {}, ())), limit=1)
        assert (await waiting).address == "a"

    asyncio.run(scenario())


def test_a_question_past_its_deadline_is_not_answered_any_more() -> None:
    inbox = Inbox(depth=2)
    answered: list[Query] = []

    def answer(query: Query) -> Answer:
        answered.append(query)
        return UNKNOWN

    with pytest.raises(TimedOut):
        asyncio.run(inbox.ask(IdQuery("a", b"1"), 0.01))
    inbox.run_pending(answer, limit=10)
    assert answered == []


def test_one_who_hears_of_the_deadline_after_the_loop_is_told_that_it_has_passed() -> None:
    inbox = Inbox(depth=1)
    reply = inbox.put(IdQuery("a", b"1"), float("-inf"))
    inbox.run_pending(answer_with(UNKNOWN), limit=1)
    with pytest.raises(TimedOut):
        reply.result()


def test_the_loop_answers_no_more_than_its_limit() -> None:
    async def scenario() -> None:
        inbox = Inbox(depth=5)
        asks = [asyncio.create_task(inbox.ask(IdQuery("a", b"1"), LIMIT_S)) for _ in range(3)]
        await asyncio.sleep(0)  # noqa: TID251 - none, it is asked now
        assert inbox.run_pending(answer_with(UNKNOWN), limit=2) == 2
        assert inbox.run_pending(answer_with(UNKNOWN), limit=2) == 1
        assert inbox.run_pending(answer_with(UNKNOWN), limit=2) == 0
        assert await asyncio.gather(*asks) == [UNKNOWN] * 3

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [NotRestored("orders-3 is being restored."), ZeroDivisionError()])
def test_what_answering_raises_goes_to_the_one_who_asked(error: Exception) -> None:
    def answer(_query: Query) -> Answer:
        raise error

    async def scenario() -> None:
        inbox = Inbox(depth=1)
        ask = asyncio.create_task(inbox.ask(IdQuery("a", b"1"), LIMIT_S))
        await asyncio.sleep(0)  # noqa: TID251 - none, it is asked now
        inbox.run_pending(answer, limit=1)
        with pytest.raises(type(error)):
            await ask

    asyncio.run(scenario())


def test_a_closed_inbox_refuses_what_waits_and_what_comes() -> None:
    async def scenario() -> None:
        inbox = Inbox(depth=2)
        waiting = asyncio.create_task(inbox.ask(IdQuery("a", b"1"), LIMIT_S))
        await asyncio.sleep(0)  # noqa: TID251 - none, it is asked now
        inbox.close()
        for ask in (waiting, inbox.ask(IdQuery("a", b"2"), LIMIT_S)):
            with pytest.raises(Unavailable, match="stopping"):
                await ask

    asyncio.run(scenario())
