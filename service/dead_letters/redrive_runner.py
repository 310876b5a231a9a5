"""Redrive runner: sends the steps of one redrive to the owners, at its rate, and saves progress.

An unanswered step is sent again unchanged until the owner answers. A runner may stop at any moment
and any instance may resume it: the owners' checkpoints record what is done.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from service.clock import Clock
from service.dead_letters.redrive_steps import ChunkReader, RedriveBatcher, halves
from service.dedup.dead_letter import DeadLetterView, State
from service.metadata.redrive_job import RedriveJob
from service.queries.errors import NotPossible, Unavailable
from service.queries.inbox import QueryService
from service.queries.redrives import (
    CheckpointsQuery,
    DecideDeadLetters,
    DeleteCheckpoints,
    PartitionCheckpoint,
    RedriveAnswer,
)
from state.model import PartitionId

_RESERVE_S: Final = 1.0

_STEP_S: Final = 0.1


class TokenBucket:
    """See the module; the times it is told never go back."""

    def __init__(self, per_second: float | None, now_s: float) -> None:
        """Without a rate nothing waits."""
        self._per_second = per_second
        self._tokens = 0.0
        self._filled_s = now_s

    def at_once(self, now_s: float) -> float:
        """How many may be taken together: what is there, or else a tenth of a second's worth."""
        if self._per_second is None:
            return float("inf")
        return max(1.0, self._per_second * _STEP_S, self._there(now_s))

    def take(self, count: int, now_s: float) -> float:
        """Take so many tokens; gives how long to wait until they are there, in seconds."""
        if self._per_second is None:
            return 0.0
        self._tokens = self._there(now_s) - count
        self._filled_s = now_s
        return max(0.0, -self._tokens / self._per_second)

    def _there(self, now_s: float) -> float:
        assert self._per_second is not None, "what has no rate has no tokens"
        filled = self._tokens + (now_s - self._filled_s) * self._per_second
        return min(filled, max(1.0, self._per_second * _RESERVE_S))


T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """What `work` gives, or raises."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # of T, where nothing was raised

    def run() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = (work(), None)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            outcome = (None, error)
        with suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="ringfence-aside", daemon=True).start()
    return await done


A = TypeVar("A")

Write = Callable[[str, Callable[[RedriveJob | None], RedriveJob]], Awaitable[RedriveJob]]
"""Writes what is made of the job of an id, as the config topic has it now."""

STEP_MAX: Final = 5_000

_ASK_S: Final = 10.0

_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)

_SAVE_S: Final = 5.0

_RATE_OVER_S: Final = 10.0


class JobDeletedError(Exception):
    """The job is on the config topic no more."""


class RedriveRunner:
    """See the module. `job` is for any thread."""

    def __init__(
        self, job: RedriveJob, query_service: QueryService, write: Write, clock: Clock
    ) -> None:
        self.job = job
        """As it stands now; of what was written it is ahead."""
        self._query_service = query_service
        self._write = write
        self._clock = clock
        self._ended = asyncio.Event()
        self._saved_s = clock.monotonic_s()
        self._sent: deque[tuple[float, int, int]] = deque()
        """When how many were sent, and how much was left."""

    def stop(self) -> None:
        """Send nothing more: it has ended, or is somebody else's now."""
        self._ended.set()

    async def run(
        self, way: Callable[[DeadLetterView], PartitionId | str], reader: ChunkReader
    ) -> None:
        """All that is left to do, or as much as comes before `stop`."""
        marks = await self._marks()
        drive = RedriveBatcher(self.job, way, reader, marks)
        if drive.job.progress.sent >= self.job.progress.sent:  # removed marks tell of less
            self.job = drive.job
        if self.job.is_running and not self._ended.is_set():
            await self._drive(drive)
        else:
            await self._clear()

    async def fail(self, sentence: str) -> None:
        """Give the job up."""
        await self._end("failed", sentence)

    async def _drive(self, drive: RedriveBatcher) -> None:
        bucket = TokenBucket(self.job.order.max_per_second, self._clock.monotonic_s())
        while not self._ended.is_set():
            at_once = min(bucket.at_once(self._clock.monotonic_s()), STEP_MAX)
            step = await aside(partial(drive.next, at_once))
            await self._rest(bucket.take(step.letters, self._clock.monotonic_s()))
            sendings = (self._send(commands, drive) for commands in step.commands)
            if not all(await asyncio.gather(*sendings)):
                break
            drive.advance(step)
            self._tell(drive)
            if step.is_last:
                await self._end("done")
                return
            if self._clock.monotonic_s() - self._saved_s > _SAVE_S:
                await self._save()
        await self._save()

    async def _send(self, commands: Sequence[DecideDeadLetters], drive: RedriveBatcher) -> bool:
        """To one owner, in order; False where the errand ends before all of it is answered for."""
        waiting = deque(commands)
        while waiting:
            command = waiting.popleft()
            answer = await self._redriven(command)
            if answer is None or answer.result == "ended":
                self._ended.set()
                return False
            if answer.result == "refused":
                waiting.extendleft(reversed(halves(command)))
            drive.answered(answer)
            self._tell(drive)
        return True

    async def _redriven(self, command: DecideDeadLetters) -> RedriveAnswer | None:
        return await self._asked(lambda: self._query_service.ask(command, _ASK_S))

    async def _marks(self) -> tuple[PartitionCheckpoint, ...]:
        """Of all owners; less would be guessed from."""
        pauses = iter(_PAUSES_S)
        while not self._ended.is_set():
            answer = await self._asked(
                lambda: self._query_service.ask(CheckpointsQuery(self.job.id), _ASK_S)
            )
            if answer is None or answer.complete:
                return () if answer is None else answer.marks
            self.waits("Not all deciding partitions are owned by an instance that answers.")
            await self._rest(next(pauses, _PAUSES_S[-1]))
        return ()

    async def _clear(self) -> None:
        """Have all owners forget a job that has ended; it is known by then that it has."""
        while not self._ended.is_set():
            answer = await self._asked(
                lambda: self._query_service.ask(DeleteCheckpoints(self.job.id), _ASK_S)
            )
            if answer is not None and answer.complete:
                await self._save(cleared=True)
                return
            await self._rest(_PAUSES_S[-1])

    async def _asked(self, ask: Callable[[], Awaitable[A]]) -> A | None:
        """The answer, however often it takes to ask; None where the errand ends before it comes."""
        pauses = iter(_PAUSES_S)
        while not self._ended.is_set():
            try:
                answer = await ask()
            except (Unavailable, NotPossible) as reason:
                # It is not possible where nobody owns what is meant: somebody will.
                pause_s = next(pauses, _PAUSES_S[-1])
                if pause_s == _PAUSES_S[-1]:
                    self.waits(str(reason))
                await self._rest(pause_s)
            else:
                self.waits(None)
                return answer
        return None

    async def _rest(self, seconds: float) -> None:
        """Wait, unless the errand ends meanwhile."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    def waits(self, sentence: str | None) -> None:
        """Tell why it does not go on; None when it does."""
        if sentence != self.job.waiting_for:
            self.job = self.job._replace(waiting_for=sentence)

    def _tell(self, drive: RedriveBatcher) -> None:
        """How far it is, how fast it goes, and how long it may take."""
        now_s, left = self._clock.monotonic_s(), drive.left
        self._sent.append((now_s, drive.job.progress.sent, left))
        while now_s - self._sent[0][0] > _RATE_OVER_S:
            self._sent.popleft()
        since_s, sent, had_left = self._sent[0]
        took_s, passed = now_s - since_s, had_left - left
        rate = (drive.job.progress.sent - sent) / took_s if took_s else 0.0
        eta_s = left * took_s / passed if passed > 0 else None
        self.job = drive.job._replace(
            updated_at_ms=self._clock.wall_ms(),
            rate_per_second=round(rate, 1),
            eta_s=None if eta_s is None else round(eta_s, 1),
        )

    async def _save(self, *, cleared: bool = False) -> None:
        """Write how far it is; what has become of it meanwhile stands."""
        mine = self.job

        def change(now: RedriveJob | None) -> RedriveJob:
            return _onto(now, mine)._replace(cleared=cleared)

        await self._write(mine.id, change)
        self._saved_s = self._clock.monotonic_s()

    async def _end(self, state: State, error: str | None = None) -> None:
        """Write that it has come to its end, unless it has come to another already."""
        mine, now_ms = self.job, self._clock.wall_ms()

        def change(now: RedriveJob | None) -> RedriveJob:
            return _onto(now, mine).ended(state, now_ms, error)

        self.job = await self._write(mine.id, change)


def _onto(now: RedriveJob | None, mine: RedriveJob) -> RedriveJob:
    """The progress of one, and all else as it is written now."""
    if now is None:
        raise JobDeletedError(mine.id)
    return now._replace(
        span=mine.span,
        offset=mine.offset,
        progress=mine.progress,
        rate_per_second=mine.rate_per_second,
        eta_s=mine.eta_s if now.is_running else None,
        waiting_for=mine.waiting_for if now.is_running else None,
        updated_at_ms=mine.updated_at_ms,
    )
