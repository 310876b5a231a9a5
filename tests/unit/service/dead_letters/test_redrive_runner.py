"""Running one redrive: nothing is left out or sent before its turn, whichever owner answers."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import pytest
from confluent_kafka import Message

from ringfence_service.clock import SystemClock
from ringfence_service.dead_letters import redrive_runner as runner_module
from ringfence_service.dead_letters.reader import RecordChunk
from ringfence_service.dead_letters.redrive_runner import JobDeletedError, RedriveRunner
from ringfence_service.dead_letters.redrive_steps import RedriveBatcher
from ringfence_service.dedup.dead_letter import RedrivenRecord
from ringfence_service.metadata.redrive_job import DeadLetterRange, RedriveJob
from ringfence_service.queries.dead_letters import (
    DeadLetterFilter,
    DeadLetterPosition,
    DeadLetterView,
    RedriveRequest,
)
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_service.queries.ids import ChangeAnswer
from ringfence_service.queries.inbox import QueryService
from ringfence_service.queries.redrives import (
    CheckpointsAnswer,
    CheckpointsQuery,
    DecideDeadLetters,
    DeleteCheckpoints,
    PartitionCheckpoint,
    RedriveAnswer,
)
from ringfence_service.queries.registry import Answer, Query
from ringfence_state.model import PartitionId
from tests.support.helpers import some
from tests.support.waiting import LIMIT_S, eventually

DLQ = PartitionId("a.dlq", 0)
NAME = "1-x"
BROKEN = 7
"""What would go out for it is refused by the broker."""


def message(offset: int, *, is_ours: bool = True) -> Message:
    told = {"reason": "duplicate", "topic": "a", "partition": "0", "offset": str(offset)}
    headers = [(f"ringfence.{name}", text.encode()) for name, text in told.items()]
    return Message(
        topic=DLQ.topic,
        partition=DLQ.partition,
        offset=offset,
        value=b"%d" % offset,
        headers=headers if is_ours else [],  # type: ignore[arg-type]  # bytes they are
        timestamp=(1, 1_000 + offset),
    )


class Tape:
    """Dead letters of one partition; some offsets hold markers."""

    def __init__(self, *offsets: int, end: int, foreign: Sequence[int] = ()) -> None:
        self._offsets = offsets
        self._foreign = foreign
        self._end = end

    def read(
        self, source: PartitionId, start: int, records_max: int, timeout_s: float
    ) -> RecordChunk:
        """See `Reader`."""
        del timeout_s
        assert source == DLQ
        found = [each for each in self._offsets if each >= start][:records_max]
        more = len(found) == records_max
        messages = [message(each, is_ours=each not in self._foreign) for each in found]
        return RecordChunk(messages, found[-1] + 1 if more else self._end)


class Owners(QueryService):
    """Two partitions that decide: of the even letters, and of the odd ones."""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles = deque(troubles)
        self.decided: list[tuple[int, int]] = []
        """Partition and letter, in their order."""
        self.marks: dict[int, PartitionCheckpoint] = {}
        self.has_ended = False
        self.silent: int | None = None
        """A partition that nobody owns."""
        self.asked: list[Query] = []
        self.complete = True
        self.on_delete: Callable[[], None] | None = None
        """Called where marks are to be deleted, which nobody answers then."""

    async def _answer(self, query: Query) -> Answer:
        await asyncio.sleep(0)  # noqa: TID251 - none, others have their turn
        self.asked.append(query)
        if self.troubles:
            raise self.troubles.popleft()
        match query:
            case DecideDeadLetters():
                return self._redriven(query)
            case CheckpointsQuery():
                return CheckpointsAnswer(tuple(self.marks.values()), self.complete)
            case DeleteCheckpoints():
                if self.on_delete is not None:
                    self.on_delete()
                    raise Unavailable("nobody answers")
                self.marks.clear()
                return ChangeAnswer(0, self.complete)
        raise AssertionError(query)

    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        del timeout_s
        return self._answer(query)

    def _redriven(self, query: DecideDeadLetters) -> RedriveAnswer:
        number = query.partition
        mark = self.marks.get(number, PartitionCheckpoint("a", number, *DLQ, -1, 0, 0, 0, 0))
        if self.has_ended:
            return RedriveAnswer("ended", mark)
        if number == self.silent:
            raise NotPossible("nobody owns it")
        new = [letter for letter in query.letters if letter.at > mark.done]
        if not query.given_up and any(letter.at == BROKEN for letter in new):
            return RedriveAnswer("refused", mark, "too large")
        for letter in new:
            self.decided.append((number, letter.at))
        kind = "failed" if query.given_up else "accepted"
        counted = {kind: getattr(mark, kind) + len(new)}
        if new:
            mark = self.marks[number] = mark._replace(done=new[-1].at, **counted)
        return RedriveAnswer("done", mark)


class Topic:
    """The metadata topic's job."""

    def __init__(self, job: RedriveJob) -> None:
        self.job: RedriveJob | None = job
        self.written: list[RedriveJob] = []

    async def write(
        self, name: str, change: Callable[[RedriveJob | None], RedriveJob]
    ) -> RedriveJob:
        assert name == NAME
        self.job = change(self.job)
        self.written.append(self.job)
        return self.job


def even_or_odd(view: DeadLetterView) -> PartitionId | str:
    if view.source is None:
        return "foreign"
    return PartitionId("a", view.position.offset % 2)


def job_of(end: int, **changes: object) -> RedriveJob:
    made = RedriveJob(
        NAME, RedriveRequest("bypass", DeadLetterFilter()), (DeadLetterRange(*DLQ, 0, end),), 1, 1
    )
    return made._replace(**changes)  # type: ignore[arg-type]  # by name


def carried_out(job: RedriveJob, tape: Tape, owners: Owners) -> Topic:
    """Twice: what it begins as, it does to its end."""
    topic = Topic(job)
    for _ in range(2):
        assert topic.job is not None
        runner = RedriveRunner(topic.job, owners, topic.write, SystemClock())
        asyncio.run(asyncio.wait_for(runner.run(even_or_odd, tape), LIMIT_S))
    return topic


def test_every_letter_is_sent_once_to_its_owner_in_order_and_the_marks_are_removed() -> None:
    owners = Owners()
    topic = carried_out(job_of(23), Tape(*range(6), *range(8, 20), end=23), owners)
    assert topic.job is not None
    wanted = [*range(6), *range(8, 20)]
    for number in (0, 1):
        sent = [at for owner, at in owners.decided if owner == number]
        assert sent == [each for each in wanted if each % 2 == number]
    progress = topic.job.progress
    assert (progress.scanned, progress.matched, progress.sent, progress.accepted) == (18,) * 4
    assert [each.state for each in topic.written] == ["done", "done"]
    assert (topic.job.span, topic.job.offset) == (1, -1)
    assert topic.job.is_over
    assert owners.marks == {}


@pytest.mark.parametrize(
    "trouble", [Unavailable("worker 0 is being replaced"), NotPossible("nobody owns it")]
)
def test_what_is_not_answered_is_asked_again(trouble: Exception) -> None:
    owners = Owners(*[trouble] * 4)
    topic = carried_out(job_of(9), Tape(0, 1, 2, end=9), owners)
    assert topic.job is not None
    assert topic.job.progress.sent == 3
    assert topic.job.waiting_for is None


def test_what_the_broker_refuses_is_found_by_halves_and_given_up_alone() -> None:
    owners = Owners()
    topic = carried_out(job_of(20), Tape(*range(20), end=20), owners)
    assert topic.job is not None
    progress = topic.job.progress
    assert (progress.accepted, progress.failed, progress.sent) == (19, 1, 20)
    assert [at for owner, at in owners.decided if owner == 1] == list(range(1, 20, 2))


def test_what_cannot_be_redriven_is_counted_with_its_reason() -> None:
    topic = carried_out(job_of(9), Tape(0, 1, 2, 3, end=9, foreign=(1, 3)), Owners())
    assert topic.job is not None
    assert topic.job.progress.skipped == {"foreign": 2}
    assert topic.job.progress.sent == 2


def test_a_limit_is_how_many_match() -> None:
    job = job_of(50)
    owners = Owners()
    topic = carried_out(
        job._replace(order=job.order._replace(limit=5)), Tape(*range(50), end=50), owners
    )
    assert topic.job is not None
    assert sorted(at for _, at in owners.decided) == list(range(5))
    assert topic.job.progress.matched == 5


def test_only_the_named_letters_are_sent_and_missing_ones_are_reported() -> None:
    named = tuple(DeadLetterPosition(*DLQ, offset) for offset in (2, 5, 6, 5_000))
    order = RedriveRequest("bypass", DeadLetterFilter(), letters=named)
    owners = Owners()
    tape = Tape(0, 1, 2, 3, 4, 5, 4_999, 5_000, end=6_000)
    topic = carried_out(job_of(5_001, order=order), tape, owners)
    assert topic.job is not None
    assert sorted(at for _, at in owners.decided) == [2, 5, 5_000]
    assert topic.job.progress.skipped == {"not-found": 1}


def test_a_job_goes_on_where_it_was_written_and_counts_what_the_owners_tell() -> None:
    """Two of the letters after that place are decided already."""
    owners = Owners()
    owners.marks = {
        0: PartitionCheckpoint("a", 0, *DLQ, 6, 4, 0, 0, 0),
        1: PartitionCheckpoint("a", 1, *DLQ, 3, 2, 0, 0, 0),
    }
    written = job_of(12, span=0, offset=4)
    progress = written.progress._replace(scanned=4, matched=4, sent=4)
    tape = Tape(*(each for each in range(12) if each != BROKEN), end=12)
    topic = carried_out(written._replace(progress=progress), tape, owners)
    assert topic.job is not None
    assert sorted(at for _, at in owners.decided) == [5, 8, 9, 10, 11]
    assert topic.job.progress.accepted == 6 + 5
    assert topic.job.progress.matched == 11


def test_a_job_that_has_ended_elsewhere_is_sent_no_further_and_stays_so() -> None:
    owners = Owners()
    owners.has_ended = True
    job = job_of(9)
    topic = Topic(job.ended("cancelled", 5))
    runner = RedriveRunner(job, owners, topic.write, SystemClock())
    asyncio.run(asyncio.wait_for(runner.run(even_or_odd, Tape(0, 1, end=9)), LIMIT_S))
    assert owners.decided == []
    assert topic.job is not None
    assert (topic.job.state, topic.job.progress.scanned) == ("cancelled", 0)
    assert not topic.job.cleared


def test_marks_that_were_removed_take_nothing_back() -> None:
    """The runner that clears did not hear that another had already cleared."""
    written = job_of(9).ended("done", 5)
    progress = written.progress._replace(sent=9, accepted=9)
    owners = Owners()
    for accepted in (9, 12):
        topic = carried_out(written._replace(progress=progress), Tape(end=9), owners)
        assert topic.job is not None
        assert (topic.job.progress.accepted, topic.job.cleared) == (accepted, True)
        owners.marks = {0: PartitionCheckpoint("a", 0, *DLQ, 6, 12, 0, 0, 0)}


class OnceIncomplete(Owners):
    """The first deletion of marks misses an owner."""

    async def _answer(self, query: Query) -> Answer:
        is_first = not any(isinstance(each, DeleteCheckpoints) for each in self.asked)
        answer = await super()._answer(query)
        return (
            ChangeAnswer(0, complete=not is_first) if isinstance(answer, ChangeAnswer) else answer
        )


def test_marks_are_deleted_until_every_owner_has_done_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_PAUSES_S", (0,))
    owners = OnceIncomplete()
    topic = Topic(job_of(9).ended("done", 5))
    runner = RedriveRunner(some(topic.job), owners, topic.write, SystemClock())
    asyncio.run(asyncio.wait_for(runner.run(even_or_odd, Tape(end=9)), LIMIT_S))
    assert [type(query) for query in owners.asked] == [CheckpointsQuery] + [DeleteCheckpoints] * 2
    assert [job.cleared for job in topic.written] == [True]


def test_who_stops_while_nobody_deletes_marks_has_cleared_nothing() -> None:
    owners, topic = Owners(), Topic(job_of(9).ended("done", 5))

    async def a_while() -> None:
        runner = RedriveRunner(some(topic.job), owners, topic.write, SystemClock())
        owners.on_delete = runner.stop
        await asyncio.wait_for(runner.run(even_or_odd, Tape(end=9)), LIMIT_S)

    asyncio.run(a_while())
    assert topic.written == []


def test_nothing_is_sent_while_some_owner_does_not_tell_how_far_it_is() -> None:
    owners = Owners()
    owners.complete = False

    async def a_while() -> None:
        runner = RedriveRunner(job_of(9), owners, Topic(job_of(9)).write, SystemClock())
        running = asyncio.create_task(runner.run(even_or_odd, Tape(0, end=9)))
        said = "Not all deciding partitions"
        await asyncio.to_thread(eventually, lambda: said in (runner.job.waiting_for or ""))
        runner.stop()
        await asyncio.wait_for(running, LIMIT_S)

    asyncio.run(a_while())
    assert owners.decided == []


def test_a_step_has_as_many_letters_as_it_may_and_ends_where_none_come_in_time() -> None:
    tape = Tape(*range(20), end=20, foreign=(0, 1))
    assert RedriveBatcher(job_of(20), even_or_odd, tape).next(3).letters == 3
    assert not RedriveBatcher(job_of(20), even_or_odd, Tape(end=0)).next(3).is_last


def test_a_command_is_never_larger_than_it_may_be() -> None:
    big = RedrivenRecord(0, "a", 0, 0, 0, None, b"v" * 3_000_000, (), 0)

    class Big(Tape):
        def read(
            self, source: PartitionId, start: int, records_max: int, timeout_s: float
        ) -> RecordChunk:
            messages, position = super().read(source, start, records_max, timeout_s)
            for each in messages:
                each.set_value(big.own_value)
            return RecordChunk(messages, position)

    drive = RedriveBatcher(job_of(20), even_or_odd, Big(*range(20), end=20))
    step = drive.next(1_000)
    assert [len(command.letters) for commands in step.commands for command in commands] == [1] * 20


def test_a_step_that_an_owner_has_not_answered_for_is_not_done() -> None:
    owners, topic, tape = Owners(), Topic(job_of(5)), Tape(*range(5), end=5)
    owners.silent = 1

    async def a_while() -> None:
        runner = RedriveRunner(job_of(5), owners, topic.write, SystemClock())
        running = asyncio.create_task(runner.run(even_or_odd, tape))
        await asyncio.to_thread(eventually, lambda: runner.job.progress.sent == 3)
        runner.stop()
        await asyncio.wait_for(running, LIMIT_S)

    asyncio.run(a_while())
    assert topic.job is not None
    assert (topic.job.state, topic.job.offset, topic.job.progress.accepted) == ("running", -1, 3)
    owners.silent = None
    assert carried_out(topic.job, tape, owners).written[-1].progress.accepted == 5
    assert owners.decided == [(0, 0), (0, 2), (0, 4), (1, 1), (1, 3)]


class PatientRunner(RedriveRunner):
    """Does not pause, and records for how long it would have, and what it said meanwhile."""

    def __init__(self, job: RedriveJob, owners: Owners, topic: Topic) -> None:
        super().__init__(job, owners, topic.write, Ticking())
        self.pauses: list[tuple[float, str | None]] = []

    async def _pause(self, seconds: float) -> None:
        self.pauses.append((seconds, self.job.waiting_for))
        await asyncio.sleep(0)  # noqa: TID251 - none, others have their turn


def sent_one_by_one(letters: int, owners: Owners) -> tuple[PatientRunner, Topic]:
    """Run a redrive that sends one letter in each step, and saves each step."""
    job = job_of(letters)
    topic = Topic(job._replace(order=job.order._replace(max_per_second=1)))
    runner = PatientRunner(some(topic.job), owners, topic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner_module, "_SAVE_S", 0)
        running = runner.run(even_or_odd, Tape(*range(letters), end=letters))
        asyncio.run(asyncio.wait_for(running, LIMIT_S))
    return runner, topic


def test_an_owner_is_asked_at_growing_intervals_and_the_job_says_why_at_the_longest() -> None:
    runner, topic = sent_one_by_one(2, Owners(*[Unavailable("nobody is there")] * 8))
    silent, said = (0.02, 0.05, 0.1, 0.25, 0.5), "nobody is there"
    assert runner.pauses[:8] == [*((each, None) for each in silent), *[(1.0, said)] * 3]
    saved, *_, last = topic.written
    assert (saved.waiting_for, last.state) == (None, "done")


def test_what_a_job_waits_for_is_saved_unless_it_has_ended_elsewhere() -> None:
    for state, waits_for in (("running", "nobody owns it"), ("cancelled", None)):
        job = job_of(2)
        owners, topic = Owners(), Topic(job)
        owners.silent = 1
        runner = PatientRunner(job, owners, topic)

        async def a_while(runner: RedriveRunner = runner) -> None:
            running = asyncio.create_task(runner.run(even_or_odd, Tape(0, 1, end=2)))
            await asyncio.to_thread(eventually, lambda: runner.job.waiting_for == "nobody owns it")
            runner.stop()
            await asyncio.wait_for(running, LIMIT_S)

        if state == "cancelled":
            topic.job = job.ended("cancelled", 5)
        asyncio.run(a_while())
        saved = some(topic.job)
        assert (saved.state, saved.waiting_for) == (state, waits_for)
        assert saved.updated_at_ms == runner.job.updated_at_ms > job.updated_at_ms


def test_the_first_letter_tells_how_long_the_others_may_take() -> None:
    _, topic = sent_one_by_one(4, Owners())
    assert topic.written[0].eta_s == 3.0, "one took a second"


class Ticking(SystemClock):
    """Each time that it is asked a second has passed."""

    def __init__(self) -> None:
        self._now_s = 1_000.0

    def monotonic_s(self) -> float:
        self._now_s += 1
        return self._now_s


def test_how_far_it_is_is_written_every_few_seconds_with_how_long_it_may_take() -> None:
    job = job_of(600)
    job = job._replace(order=job.order._replace(max_per_second=100))
    owners, topic = Owners(), Topic(job)
    tape = Tape(*(each for each in range(600) if each != BROKEN), end=600)
    runner = RedriveRunner(job, owners, topic.write, Ticking())
    asyncio.run(asyncio.wait_for(runner.run(even_or_odd, tape), LIMIT_S))
    *saved, last = topic.written
    assert [(each.offset, each.state) for each in saved] == [
        (offset, "running") for offset in (101, 201, 301, 401, 501)
    ]
    assert [each.progress.sent for each in saved] == [100, 200, 300, 400, 500]
    assert [each.rate_per_second for each in saved[1:]] == [16.6, *[16.7] * 3]  # 100 in 6 s
    assert [each.eta_s for each in saved[1:]] == [17.9, 13.5, 9.0, 4.5]
    assert (last.state, last.eta_s, last.progress.sent) == ("done", None, 599)
    topic.job = None
    with pytest.raises(JobDeletedError):
        asyncio.run(runner.fail("it is gone"))


def test_no_more_go_out_than_its_rate_allows() -> None:
    job, clock = job_of(3), SystemClock()
    job = job._replace(order=job.order._replace(max_per_second=20))
    began_s = clock.monotonic_s()
    carried_out(job, Tape(0, 1, 2, end=3), Owners())
    assert clock.monotonic_s() - began_s >= 3 / 20
