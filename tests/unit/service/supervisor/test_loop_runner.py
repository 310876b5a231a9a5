"""The worker: one life after the other, and with which exit code the last one ends."""

import asyncio
import contextlib
import errno
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import count, repeat

import pytest
from confluent_kafka import KafkaError

from ringfence_service.dedup.plan import Plan
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.processor.committer import NotAppliedError
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.addresses import AddressQuery
from ringfence_service.queries.errors import Busy, Unavailable
from ringfence_service.queries.ids import ForgetId, IdAnswer, IdQuery
from ringfence_service.queries.inbox import PendingQuery, at_once
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.supervisor.loop_runner import LoopRunner
from ringfence_state.store import StoreCorruptError, StoreFailedError
from tests.fakes.errors import abortable, fenced, plain
from tests.fakes.group import Committed
from tests.fakes.partition import Record
from tests.support.helpers import ending
from tests.support.living import GROUP, LOG, ORDERS, Living, gone, refused


def stopping(worker: LoopRunner, after: int) -> Iterator[None]:
    """Stops the worker at a later pass of a step."""
    for _ in range(after):
        yield None
    worker.stop()
    yield None


def run(living: Living, rounds: int = 20) -> None:
    """Until that many rounds were begun."""
    worker = living.worker()
    living.faults.at["consume"] = stopping(worker, rounds)
    worker.run()


def ended(living: Living) -> ExitError:
    """How it ends by itself."""
    with pytest.raises(ExitError) as caught:
        living.worker().run()
    return caught.value


def test_it_processes_until_it_is_stopped_and_leaves_the_group() -> None:
    living = Living()
    living.send("a", "a")
    run(living)
    assert living.values("orders.unique") == ["a"]
    assert living.board.read().phase == "stopping"
    assert living.faults.passed["close"] == 2  # the group's, and that of the metadata topic


def test_a_batch_at_hand_is_finished_before_it_stops() -> None:
    living = Living()
    living.send("a")
    worker = living.worker()
    living.faults.at["begin_transaction"] = stopping(worker, 0)
    worker.run()
    assert living.values("orders.unique") == ["a"]
    assert living.committed() == 1


def test_it_leaves_once_it_is_stopped_and_its_last_transaction_has_ended() -> None:
    living = Living()
    living.send("a")
    worker = living.worker()
    told: list[tuple[str, bool]] = []

    def look(step: str) -> Iterator[None]:
        while True:
            told.append((step, worker.is_leaving))
            yield None

    living.faults.at["begin_transaction"] = stopping(worker, 0)
    living.faults.at["commit_transaction.done"] = look("commit")
    living.faults.at["close"] = look("close")
    assert not worker.is_leaving
    worker.run()
    assert told[:2] == [("commit", False), ("close", True)]


def test_a_worker_that_is_stopped_while_it_starts_only_has_to_leave() -> None:
    living = Living()
    worker = living.worker()
    told: list[bool] = []

    def stop() -> Iterator[None]:
        told.append(worker.is_leaving)
        worker.stop()
        told.append(worker.is_leaving)
        yield None

    living.faults.at["init_transactions"] = stop()
    worker.run()
    assert told == [False, True]
    assert living.faults.passed["begin_transaction"] == 0


def test_after_its_end_questions_are_refused() -> None:
    living = Living()
    run(living)
    with pytest.raises(Unavailable, match="stopping"):
        asyncio.run(living.inbox.ask(AddressQuery("orders"), 1))


@pytest.mark.parametrize(("identifier", "known"), [(b"a", True), (b"b", False)])
def test_questions_are_answered_between_two_batches(identifier: bytes, *, known: bool) -> None:
    living = Living()
    living.send("a")
    reply: Future[Answer] = Future()

    def ask() -> Iterator[None]:
        yield from [None] * 10
        living.inbox.add(PendingQuery(IdQuery("orders", identifier), reply, math.inf))
        yield None

    living.faults.at["consume.done"] = ask()
    run(living)
    told = reply.result(0)
    assert isinstance(told, IdAnswer)
    assert (told.known, told.complete) == (known, True)


@pytest.mark.parametrize("every", [1, 3, 1000])
def test_questions_get_a_sixteenth_of_the_time_while_records_come(
    monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Answers take 3 ms, and more questions wait than there is time for.

    A turn or two without records are no sign that there are no more.
    """
    living = Living()
    worker, loop = living.worker(), living.running()
    asked, turns, began_ms = 0, 200, living.cluster.now_ms

    def slow(_query: Query, _loop: Loop) -> Answer:
        living.cluster.now_ms += 3
        return IdAnswer(known=False, sightings=())

    monkeypatch.setattr("ringfence_service.supervisor.loop_runner.answer", slow)
    for turn in range(1, turns + 1):
        if turn % every == 0:
            living.send("a")
        living.cluster.wait(0.05)
        with contextlib.suppress(Busy):
            while True:
                living.inbox.put(IdQuery("orders", b"a"), math.inf)
                asked += 1
        worker.turn(loop)
    share = 3 * asked / (living.cluster.now_ms - began_ms)
    assert (share > 1 / 4) if every > turns else (1 / 20 < share < 1 / 14)


def test_an_unknown_outcome_begins_a_new_life_that_goes_on_exactly_once() -> None:
    living = Living()
    living.send("a", "b", "a")
    living.faults.at["commit_transaction.done"] = iter([fenced()])
    run(living, 40)
    assert living.faults.passed["subscribe"] == 2
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values("orders.dlq") == ["a"]


def of_the_member() -> Exception:
    return abortable(KafkaError.FENCED_INSTANCE_ID, "static consumer fenced")


@pytest.mark.parametrize(
    ("step", "rival", "times"),
    [("commit_transaction", fenced, 2), ("send_offsets_to_transaction", of_the_member, 4)],
)
def test_being_fenced_repeatedly_ends_with_exit_code_4(
    step: str, rival: Callable[[], Exception], times: int
) -> None:
    living = Living(instance="blue")
    living.send("a")
    living.faults.at[step] = iter(rival, None)
    error = ended(living)
    assert error.exit_code is ExitCode.FENCED
    assert "blue" in error.sentence
    assert living.faults.passed["subscribe"] == times


@pytest.mark.row(11)
def test_whoever_is_fenced_as_a_producer_only_once_stays_so_that_one_of_two_rivals_does() -> None:
    living = Living()
    living.send("a")
    living.faults.at["send_offsets_to_transaction"] = iter([of_the_member() for _ in range(3)])
    living.faults.at["commit_transaction"] = iter([fenced()])
    run(living, 80)
    assert living.faults.passed["subscribe"] == 5
    assert living.values("orders.unique") == ["a"]


def test_rivals_that_fenced_each_other_at_one_moment_come_back_at_different_ones() -> None:
    def pause_s() -> float:
        living = Living()
        living.send("a")
        living.faults.at["commit_transaction"] = iter([fenced()])
        began_s = living.clock.monotonic_s()
        run(living)
        return living.clock.monotonic_s() - began_s

    assert len({round(pause_s(), 1) for _ in range(10)}) > 1


@pytest.mark.parametrize(
    ("step", "rival", "seconds"),
    [
        ("commit_transaction", fenced, 61),
        # A restart of the broker may have a member fenced by what it asked before.
        ("send_offsets_to_transaction", of_the_member, 0),
    ],
)
def test_being_fenced_less_often_than_that_is_survived(
    step: str, rival: Callable[[], Exception], seconds: int
) -> None:
    living = Living()
    living.send("a")

    def now_and_then() -> Iterator[Exception]:
        for _ in range(3):
            living.cluster.wait(seconds)
            yield rival()

    living.faults.at[step] = now_and_then()
    run(living, 60)
    assert living.faults.passed["subscribe"] == 4
    assert living.values("orders.unique") == ["a"]


def test_outcomes_that_are_unknown_for_another_reason_do_not_count_as_fenced() -> None:
    living = Living()
    living.send("a")
    living.faults.at["commit_transaction"] = iter([refused(), refused(), refused()])
    living.faults.at["abort_transaction"] = iter([gone(), gone(), gone()])
    run(living, 60)
    assert living.faults.passed["subscribe"] == 4
    assert living.values("orders.unique") == ["a"]


def test_a_broker_that_is_too_slow_for_the_transaction_is_not_taken_for_a_rival() -> None:
    living = Living(transaction_timeout_ms=10_000)
    living.send("a", "b")

    def slow() -> Iterator[None]:
        for _ in range(4):
            living.cluster.wait(11)
            yield None

    living.faults.at["flush.done"] = slow()
    run(living, 100)
    assert living.values("orders.unique") == ["a", "b"]


def test_outcomes_that_stay_unknown_end_with_exit_code_3() -> None:
    living = Living()
    living.send("a")
    living.faults.at["commit_transaction"] = repeat(refused())
    living.faults.at["abort_transaction"] = repeat(gone())
    assert ended(living).exit_code is ExitCode.BROKER


def test_clients_that_have_forgotten_their_brokers_are_replaced_and_the_work_goes_on() -> None:
    living = Living()

    def forgotten() -> Iterator[Exception | None]:
        while not living.faults.passed["close"]:
            yield gone() if living.committed() else None
        while True:
            yield None

    living.send("a")
    living.faults.at["names"] = forgotten()
    run(living, 1_000)
    living.send("a", "b")
    run(living)
    assert living.values("orders.unique") == ["a", "b"]


def test_a_broker_that_is_gone_for_good_ends_the_process_with_exit_code_3() -> None:
    living = Living()
    living.send("a")
    living.faults.at["names"] = (gone() if living.committed() else None for _ in repeat(0))
    begun_s = living.clock.monotonic_s()
    assert ended(living).exit_code is ExitCode.BROKER
    assert living.clock.monotonic_s() - begun_s > 300


def test_committed_offsets_that_never_arrive_end_with_exit_code_3() -> None:
    living = Living()

    def silent() -> Iterator[Exception]:
        while True:
            living.cluster.wait(5)
            yield plain(KafkaError._TIMED_OUT, "no answer in time")

    living.faults.at["committed"] = silent()
    assert ended(living).exit_code is ExitCode.BROKER


def test_a_second_process_of_the_same_name_ends_the_first_with_exit_code_4() -> None:
    living = Living()

    def join() -> None:
        living.clients().consumer().subscribe(["orders"])

    living.faults.at["consume"] = iter(join, 0)
    error = ended(living)
    assert error.exit_code is ExitCode.FENCED
    assert "stop one" in error.sentence


# The broker does not answer.


# The disk and the changelog.


@pytest.mark.row(17)
def test_a_disk_that_refuses_ends_with_exit_code_5() -> None:
    living = Living()
    living.send("a")
    living.faults.at["store.apply"] = iter([StoreFailedError("no space left on device")])
    error = ended(living)
    assert error.exit_code is ExitCode.CONTRADICTION
    assert "no space left on device" in error.sentence


@pytest.mark.parametrize(
    ("error", "code", "fix"),
    [
        (errno.EMFILE, ExitCode.USAGE, "raise the hard limit of open files"),
        (errno.ENFILE, ExitCode.USAGE, "raise fs.file-max"),
        (errno.ENOMEM, ExitCode.USAGE, "more memory"),
        (errno.ENOSPC, ExitCode.CONTRADICTION, "make the volume larger"),
        (errno.EDQUOT, ExitCode.CONTRADICTION, "raise the user's quota"),
        (errno.EFBIG, ExitCode.CONTRADICTION, "ulimit -f"),
        (errno.EROFS, ExitCode.CONTRADICTION, "mount it for writing"),
        (errno.EACCES, ExitCode.CONTRADICTION, "the right to write there"),
        (errno.EIO, ExitCode.CONTRADICTION, "repair the disk"),
        (errno.EOVERFLOW, ExitCode.CONTRADICTION, "repair the disk"),
    ],
)
def test_what_a_disk_refuses_ends_with_what_helps(error: int, code: ExitCode, fix: str) -> None:
    living = Living()
    living.send("a")
    living.faults.at["store.apply"] = iter([StoreFailedError(f"/state: {os.strerror(error)}")])
    found = ended(living)
    assert (found.exit_code, fix in found.sentence) == (code, True), found.sentence


def forgetting(living: Living) -> tuple[Iterator[None], Future[Answer]]:
    """Have it asked, a few rounds from now, to forget `a`; what it is answered."""
    reply: Future[Answer] = Future()

    def ask() -> Iterator[None]:
        yield from [None] * 10
        living.inbox.add(PendingQuery(ForgetId("orders", b"a"), reply, math.inf))
        yield None

    return ask(), reply


@pytest.mark.row(17)
def test_a_disk_that_refuses_a_change_over_rest_ends_with_exit_code_5() -> None:
    living = Living()
    living.send("a")
    living.faults.at["consume.done"], reply = forgetting(living)
    living.faults.at["store.apply"] = iter([None, StoreFailedError("no space left on device")])
    error = ended(living)
    assert (error.exit_code, "no space left" in error.sentence) == (ExitCode.CONTRADICTION, True)
    with pytest.raises(Unavailable, match="not known"):
        reply.result(0)


@pytest.mark.row(17)
def test_a_store_that_is_damaged_by_a_change_over_rest_is_restored_with_it() -> None:
    living = Living()
    living.send("a")
    living.faults.at["consume.done"], reply = forgetting(living)
    damage = StoreCorruptError(ORDERS, "a bit flipped")
    living.faults.at["store.apply"] = iter([None, damage])

    def send_again() -> Iterator[None]:
        living.send("a")
        yield None

    living.faults.at["store.wipe"] = send_again()
    run(living, 60)
    assert isinstance(reply.exception(0), Unavailable)
    assert living.faults.passed["store.wipe"] == 1
    assert living.values("orders.unique") == ["a", "a"], "it was forgotten: Kafka had committed"


@pytest.mark.row(7)
def test_a_change_over_rest_that_was_committed_and_not_applied_ends_the_process() -> None:
    living = Living()
    living.send("a")
    living.faults.at["consume.done"], reply = forgetting(living)
    genuine, calls = living.watch.committed, count(1)

    def committed(plan: Plan, duration_s: float) -> None:
        if next(calls) == 2:
            raise MemoryError
        genuine(plan, duration_s)

    living.watch.committed = committed  # type: ignore[method-assign]  # nothing else provokes it
    with pytest.raises(NotAppliedError):
        living.worker().run()
    with pytest.raises(Unavailable, match="not known"):
        reply.result(0)
    living.watch.committed = genuine  # type: ignore[method-assign]
    living.cluster.wait(60)
    living.send("a")
    run(living, 40)
    assert living.values("orders.unique") == ["a", "a"], "it was forgotten: Kafka had committed"


@pytest.mark.row(19)
def test_a_changelog_with_a_foreign_record_ends_with_exit_code_5() -> None:
    living = Living()
    living.cluster.create_topic(LOG.topic, cleanup_policy="compact")
    living.cluster.write(*LOG, Record(b"who", b"?"))
    living.send("a")
    error = ended(living)
    assert error.exit_code is ExitCode.CONTRADICTION
    assert "did not write" in error.sentence
    assert f"{LOG.topic}-0@0" in error.sentence
    assert living.committed(ORDERS) is None


def test_who_was_fenced_in_the_life_of_the_process_before_counts_it() -> None:
    living = Living()
    living.send("a")
    living.faults.at["commit_transaction"] = iter([fenced()])
    clients, fenced_s = living.clients, living.clock.monotonic_s() - 5
    worker = LoopRunner(
        living.config, clients, living.stores, living.clock, living.watch, living.inbox, fenced_s
    )
    with ending(ExitCode.FENCED):
        worker.run()


@pytest.mark.row(28)
def test_state_of_a_newer_version_ends_with_exit_code_5_and_nothing_is_touched() -> None:
    living = Living()
    living.cluster.group(GROUP).store(ORDERS, Committed(0, '{"f":2,"new":["fields"]}'))
    living.send("a")
    error = ended(living)
    assert error.exit_code is ExitCode.CONTRADICTION
    assert "was committed with state format 2, this version reads 1" in error.sentence
    assert living.values("orders.unique") == []


def test_changes_that_are_aborted_again_and_again_are_waited_for_by_who_asks_alone() -> None:
    living = Living()
    living.send("a")
    worker, loop = living.worker(), living.running()
    living.faults.at["commit_transaction"] = repeat(refused())
    for _ in range(100):
        with pytest.raises(Unavailable, match="NOT_ENOUGH_REPLICAS"):
            at_once(worker.answer(loop, ForgetId("orders", b"a")))
        loop.turn()
        assert living.board.read().waiting_for is None
    assert living.board.read().counts.transactions_aborted > 50


def test_a_question_after_an_aborted_transaction_may_load_what_it_asks_for() -> None:
    living = Living(transaction_timeout_ms=10_000)
    living.send("a")
    worker, loop = living.worker(), living.running()
    living.send("b")
    living.faults.at["commit_transaction"] = iter([refused()])
    loop.turn()
    living.cluster.wait(5)
    loop.cache.drop(ORDERS)
    answer = at_once(worker.answer(loop, IdQuery("orders", b"a")))
    assert isinstance(answer, IdAnswer)
    assert answer.known
