"""Redrive runner: sends the steps of one redrive to the owners, at its rate, and saves progress.

An unanswered step is sent again unchanged until the owner answers. A runner may stop at any moment
and any instance may resume it: the owners' checkpoints record what is done.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from ringfence_service.clock import Clock
from ringfence_service.dead_letters.daemon_thread import run_in_daemon_thread
from ringfence_service.dead_letters.redrive_steps import ChunkReader, RedriveBatcher, halves
from ringfence_service.dead_letters.token_bucket import TokenBucket
from ringfence_service.metadata.redrive_job import RedriveJob
from ringfence_service.queries.dead_letters import DeadLetterView, State
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_service.queries.inbox import QueryService
from ringfence_service.queries.redrives import (
    CheckpointsQuery,
    DecideDeadLetters,
    DeleteCheckpoints,
    PartitionCheckpoint,
    RedriveAnswer,
)
from ringfence_state.model import PartitionId

A = TypeVar("A")

Write = Callable[[str, Callable[[RedriveJob | None], RedriveJob]], Awaitable[RedriveJob]]
"""Applies a change to the newest state of the job with an id and writes the result."""

STEP_MAX: Final = 5_000
"""Dead letters of one step, all of which are in memory: five commands or more.

Owners decide in parallel within a step. An instance that resumes a job repeats at most one.
"""

_ASK_S: Final = 10.0
"""How long an owner may take for a command: as long as a transaction, by default.

It is then sent again, and the owner recognises what it has decided.
"""

_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Pauses before a request is repeated; the last is repeated, and shows why the job waits.

A busy loop costs little time, and an owner that is away is asked once a second.
"""

_SAVE_S: Final = 5.0
"""How often the progress is saved, each time as a record of the metadata topic.

A new coordinator sends again what came after it, and the checkpoints skip that (ADR 11).
"""

_RATE_OVER_S: Final = 10.0
"""The time over which the rate and the remaining time are measured.

Over a shorter one both would jump with each step, over a longer one they would lag behind.
"""


class JobDeletedError(Exception):
    """The job was deleted from the metadata topic."""


class RedriveRunner:
    """Runs one redrive. `job` may be read on any thread."""

    def __init__(
        self, job: RedriveJob, query_service: QueryService, write: Write, clock: Clock
    ) -> None:
        self.job = job
        """The current state of the job, ahead of the saved one."""
        self._query_service = query_service
        self._write = write
        self._clock = clock
        self._ended = asyncio.Event()
        self._saved_s = clock.monotonic_s()
        self._sent: deque[tuple[float, int, int]] = deque()
        """Samples for the rate: time, number sent, and number left."""

    def stop(self) -> None:
        """Send nothing more: the job has ended, or another instance runs it."""
        self._ended.set()

    async def run(
        self, owner_of: Callable[[DeadLetterView], PartitionId | str], reader: ChunkReader
    ) -> None:
        """Do the rest of the job, or as much as possible before `stop`."""
        checkpoints = await self._checkpoints()
        batcher = RedriveBatcher(self.job, owner_of, reader, checkpoints)
        if batcher.job.progress.sent >= self.job.progress.sent:  # deleted checkpoints count less
            self.job = batcher.job
        if self.job.is_running and not self._ended.is_set():
            await self._send_all(batcher)
        else:
            await self._clear()

    async def fail(self, sentence: str) -> None:
        """End the job as failed."""
        await self._end("failed", sentence)

    async def _send_all(self, batcher: RedriveBatcher) -> None:
        bucket = TokenBucket(self.job.order.max_per_second, self._clock.monotonic_s())
        while not self._ended.is_set():
            at_once = min(bucket.at_once(self._clock.monotonic_s()), STEP_MAX)
            step = await run_in_daemon_thread(partial(batcher.next, at_once))
            await self._pause(bucket.take(step.letters, self._clock.monotonic_s()))
            sendings = (self._send(commands, batcher) for commands in step.commands)
            if not all(await asyncio.gather(*sendings)):
                break
            batcher.advance(step)
            self._report_progress(batcher)
            if step.is_last:
                await self._end("done")
                return
            if self._clock.monotonic_s() - self._saved_s > _SAVE_S:
                await self._save()
        await self._save()

    async def _send(self, commands: Sequence[DecideDeadLetters], batcher: RedriveBatcher) -> bool:
        """Send commands to one owner, in order; return False if the runner stops before the end."""
        waiting = deque(commands)
        while waiting:
            command = waiting.popleft()
            answer = await self._decided(command)
            if answer is None or answer.result == "ended":
                self._ended.set()
                return False
            if answer.result == "refused":
                waiting.extendleft(reversed(halves(command)))
            batcher.answered(answer)
            self._report_progress(batcher)
        return True

    async def _decided(self, command: DecideDeadLetters) -> RedriveAnswer | None:
        return await self._answer(lambda: self._query_service.ask(command, _ASK_S))

    async def _checkpoints(self) -> tuple[PartitionCheckpoint, ...]:
        """Return the checkpoints of all owners; wait until every owner has answered."""
        pauses = iter(_PAUSES_S)
        while not self._ended.is_set():
            answer = await self._answer(
                lambda: self._query_service.ask(CheckpointsQuery(self.job.id), _ASK_S)
            )
            if answer is None or answer.complete:
                return () if answer is None else answer.marks
            self.waits("Not all deciding partitions are owned by an instance that answers.")
            await self._pause(next(pauses, _PAUSES_S[-1]))
        return ()

    async def _clear(self) -> None:
        """Delete the checkpoints of an ended job on all owners; the end is already saved."""
        while not self._ended.is_set():
            answer = await self._answer(
                lambda: self._query_service.ask(DeleteCheckpoints(self.job.id), _ASK_S)
            )
            if answer is not None and answer.complete:
                await self._save(cleared=True)
                return
            await self._pause(_PAUSES_S[-1])

    async def _answer(self, ask: Callable[[], Awaitable[A]]) -> A | None:
        """Repeat a request until it is answered; return None if the runner stops before."""
        pauses = iter(_PAUSES_S)
        while not self._ended.is_set():
            try:
                answer = await ask()
            except (Unavailable, NotPossible) as reason:
                # NotPossible means that the partition has no owner now: it will get one.
                pause_s = next(pauses, _PAUSES_S[-1])
                if pause_s == _PAUSES_S[-1]:
                    self.waits(str(reason))
                await self._pause(pause_s)
            else:
                self.waits(None)
                return answer
        return None

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not longer than until `stop`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    def waits(self, sentence: str | None) -> None:
        """Report why the job makes no progress; None clears it."""
        if sentence != self.job.waiting_for:
            self.job = self.job._replace(waiting_for=sentence)

    def _report_progress(self, batcher: RedriveBatcher) -> None:
        """Update the job's progress, rate and remaining time."""
        now_s, left = self._clock.monotonic_s(), batcher.left
        self._sent.append((now_s, batcher.job.progress.sent, left))
        while now_s - self._sent[0][0] > _RATE_OVER_S:
            self._sent.popleft()
        since_s, sent, had_left = self._sent[0]
        took_s, passed = now_s - since_s, had_left - left
        rate = (batcher.job.progress.sent - sent) / took_s if took_s else 0.0
        eta_s = left * took_s / passed if passed > 0 else None
        self.job = batcher.job._replace(
            updated_at_ms=self._clock.wall_ms(),
            rate_per_second=round(rate, 1),
            eta_s=None if eta_s is None else round(eta_s, 1),
        )

    async def _save(self, *, cleared: bool = False) -> None:
        """Save the progress; a state that was written in the meantime is kept."""
        mine = self.job

        def change(now: RedriveJob | None) -> RedriveJob:
            return _onto(now, mine)._replace(cleared=cleared)

        await self._write(mine.id, change)
        self._saved_s = self._clock.monotonic_s()

    async def _end(self, state: State, error: str | None = None) -> None:
        """Save the end of the job, unless it has ended in another state already."""
        mine, now_ms = self.job, self._clock.wall_ms()

        def change(now: RedriveJob | None) -> RedriveJob:
            return _onto(now, mine).ended(state, now_ms, error)

        self.job = await self._write(mine.id, change)


def _onto(now: RedriveJob | None, mine: RedriveJob) -> RedriveJob:
    """Return the stored job with our progress; raise JobDeletedError if it was deleted."""
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
