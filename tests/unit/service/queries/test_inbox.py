"""The inbox: bounded, and every question ends."""

import asyncio
import math
import threading
import time
from collections.abc import Callable

import pytest

from ringfence_service.queries.addresses import AddressAnswer, AddressQuery
from ringfence_service.queries.errors import Busy, NotRestored, TimedOut, Unavailable
from ringfence_service.queries.ids import ChangeAnswer, ClearAddress, IdAnswer, IdQuery
from ringfence_service.queries.inbox import QueryInbox, Steps
from ringfence_service.queries.registry import Answer, Query
from tests.support.waiting import LIMIT_S

UNKNOWN = IdAnswer(known=False, sightings=())
ALL: Callable[[], bool] = lambda: True  # noqa: E731


def answer_with(answer: Answer) -> Callable[[Query], Answer]:
    return lambda _: answer


def test_a_question_gets_the_loops_answer_from_another_thread() -> None:
    inbox = QueryInbox(depth=1)
    heard: list[Query] = []
    asked = threading.Event()

    def loop() -> None:
        def answer(query: Query) -> Answer:
            heard.append(query)
            return AddressAnswer("a", {}, ())

        while not asked.wait(0.001):
            inbox.answer(answer, ALL)

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
        inbox = QueryInbox(depth=1)
        waiting = asyncio.create_task(inbox.ask(AddressQuery("a"), LIMIT_S))
        await asyncio.sleep(0)  # noqa: TID251 - none, it is asked now
        with pytest.raises(Busy) as refused:
            await inbox.ask(AddressQuery("b"), LIMIT_S)
        assert refused.value.retry_after_s >= 1
        inbox.answer(answer_with(AddressAnswer("a", {}, ())), ALL)
        assert (await waiting).address == "a"

    asyncio.run(scenario())


def test_a_question_past_its_deadline_is_not_answered_any_more() -> None:
    inbox = QueryInbox(depth=2)
    answered: list[Query] = []

    def answer(query: Query) -> Answer:
        answered.append(query)
        return UNKNOWN

    with pytest.raises(TimedOut):
        asyncio.run(inbox.ask(IdQuery("a", b"1"), 0.01))
    inbox.answer(answer, ALL)
    assert answered == []


def test_a_client_that_sees_the_deadline_after_the_loop_gets_a_timeout() -> None:
    inbox = QueryInbox(depth=1)
    reply = inbox.put(IdQuery("a", b"1"), float("-inf"))
    inbox.answer(answer_with(UNKNOWN), ALL)
    with pytest.raises(TimedOut):
        reply.result()


def steps(count: int) -> Callable[[], bool]:
    """There is time for so many."""
    return iter([*[True] * count, False]).__next__


def test_what_takes_long_is_answered_in_steps_and_keeps_nothing_short_waiting() -> None:
    inbox, taken = QueryInbox(depth=5), list[str]()

    def answer(query: Query) -> Answer | Steps[Answer]:
        assert isinstance(query, AddressQuery | IdQuery)
        return long(query.address) if isinstance(query, AddressQuery) else UNKNOWN

    def long(address: str) -> Steps[Answer]:
        for _ in range(3):
            taken.append(address)
            yield
        return AddressAnswer(address, {}, ())

    first, second = (inbox.put(AddressQuery(name), math.inf) for name in "ab")
    inbox.answer(answer, steps(4))
    assert (taken, first.done(), second.done()) == (["a", "a", "b", "a"], False, False)
    short = inbox.put(IdQuery("a", b"1"), math.inf)
    inbox.answer(answer, steps(1))
    assert short.result(0) == UNKNOWN
    inbox.answer(answer, steps(1))
    assert (first.done(), second.done()) == (True, False)
    inbox.answer(answer, ALL)
    assert second.result(0) == AddressAnswer("b", {}, ())
    assert taken == ["a", "a", "b", "a", "b", "b"]


def never_done(_query: Query) -> Steps[Answer]:
    while True:
        yield


def test_what_is_being_answered_counts_for_the_depth_and_ends_with_the_loops_life() -> None:
    inbox = QueryInbox(depth=1)
    begun = inbox.put(AddressQuery("a"), math.inf)
    inbox.answer(never_done, steps(2))
    with pytest.raises(Busy):
        inbox.put(AddressQuery("b"), math.inf)
    inbox.abort_running()
    with pytest.raises(Unavailable, match="was restarted"):
        begun.result(0)


def test_what_is_not_answered_by_its_deadline_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inbox = QueryInbox(depth=1)
    begun = inbox.put(AddressQuery("a"), time.monotonic() + 60)
    inbox.answer(never_done, steps(2))
    late_s = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: late_s)
    inbox.answer(never_done, ALL)
    with pytest.raises(TimedOut):
        begun.result(0)


def test_a_change_waits_for_no_question_and_needs_no_time_that_questions_have() -> None:
    inbox = QueryInbox(depth=2)
    question, change = (
        inbox.put(AddressQuery("a"), math.inf),
        inbox.put(ClearAddress("a"), math.inf),
    )
    inbox.change(answer_with(ChangeAnswer(1)), 1)
    assert change.result(0) == ChangeAnswer(1)
    assert not question.done()


@pytest.mark.parametrize("error", [NotRestored("orders-3 is being restored."), ZeroDivisionError()])
def test_what_answering_raises_goes_to_the_one_who_asked(error: Exception) -> None:
    def answer(_query: Query) -> Answer:
        raise error

    async def scenario() -> None:
        inbox = QueryInbox(depth=1)
        ask = asyncio.create_task(inbox.ask(IdQuery("a", b"1"), LIMIT_S))
        await asyncio.sleep(0)  # noqa: TID251 - none, it is asked now
        inbox.answer(answer, ALL)
        with pytest.raises(type(error)):
            await ask

    asyncio.run(scenario())


def test_a_closed_inbox_refuses_what_waits_and_what_comes() -> None:
    async def scenario() -> None:
        inbox = QueryInbox(depth=2)
        waiting = asyncio.create_task(inbox.ask(IdQuery("a", b"1"), LIMIT_S))
        await asyncio.sleep(0)  # noqa: TID251 - none, it is asked now
        inbox.close()
        for ask in (waiting, inbox.ask(IdQuery("a", b"2"), LIMIT_S)):
            with pytest.raises(Unavailable, match="stopping"):
                await ask

    asyncio.run(scenario())
