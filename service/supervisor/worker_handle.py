"""Worker handle: one task of an instance, and the process that does it, across its restarts.

Only the supervisor's main thread starts and ends processes: the kernel ends a child with the thread
that started it. Invariant: every query ends, at the latest with the process that was asked.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection

from service.config.tasks import Task
from service.queries.errors import Busy, Unavailable
from service.queries.registry import Answer, Query
from service.queries.status import WorkerPhase, WorkerStatus
from service.supervisor.protocol import (
    Channel,
    MetricsReply,
    MetricsRequest,
    QueryAnswered,
    QueryFailed,
    QueryRefused,
    StopRequest,
    ToChild,
    ToSupervisor,
    WorkerEnded,
    WorkerQuery,
    WorkerReport,
    WorkerSetup,
)
from service.supervisor.status import NOTHING, CumulativeCounts, WorkerState
from service.supervisor.watchdog import with_heap_tuned
from service.telemetry.aggregation import MetricFamily, counted, joined

Told = Answer | tuple[MetricFamily, ...]


class PendingReplies:
    """Safe on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._waiting: dict[int, Future[Told]] = {}

    def add(self) -> tuple[int, "Future[Told]"]:
        """A question more. Whoever does not wait for the reply any more cancels it."""
        reply: Future[Told] = Future()
        with self._lock:
            self._number += 1
            number = self._number
            self._waiting[number] = reply
        reply.add_done_callback(lambda _reply: self._waiting.pop(number, None))
        return number, reply

    def settle(self, number: int, outcome: Told | Exception) -> None:
        """The reply to one, or why there is none; nothing where nobody waits for it."""
        reply = self._waiting.pop(number, None)
        if reply is None or not reply.set_running_or_notify_cancel():
            return
        if isinstance(outcome, Exception):
            reply.set_exception(outcome)
        else:
            reply.set_result(outcome)

    def end(self, reason: Exception) -> None:
        """All that are under way."""
        for number in list(self._waiting):
            self.settle(number, reason)


def start(
    program: Sequence[str],
) -> tuple["subprocess.Popen[bytes]", "Connection[ToChild, ToSupervisor]"]:
    """Start Python with these arguments, a file descriptor and our process id.

    To be called by the main thread: the kernel ends a child with the thread that started it.
    OSError where the system has no process left.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs, _without_ctrl_c():
        fd = theirs.fileno()
        # -P: what lies in the current folder is none of our modules.
        command = [sys.executable, "-P", *program, str(fd), str(os.getpid())]
        process = subprocess.Popen(
            command,
            env=with_heap_tuned(os.environ),
            stdin=subprocess.DEVNULL,
            pass_fds=(fd,),
        )
        return process, Connection(ours.detach())


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """A child inherits what is blocked: of Ctrl-C, which reaches all of us, we alone hear."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerFailedError(Exception):
    """A child met an error of ours; its log has it."""


class WorkerHandle:
    """See the module. Whoever asks may be on any thread."""

    def __init__(
        self,
        part: Task,
        begin: Callable[[float, bool], WorkerSetup],
        program: Sequence[str],
        changed: Callable[[], None],
    ) -> None:
        """`begin` makes the first message: given when a child was fenced, and whether one had run.

        `changed` is called on any thread when the child ends or says that it will.
        """
        self.part = part
        self._begin = begin
        self._program = program
        self._changed = changed
        self._lock = threading.Lock()
        self._replies = PendingReplies()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel[ToSupervisor, ToChild] | None = None
        self._report: WorkerReport | None = None
        self._heard_s = 0.0
        self._past, self._past_families = NOTHING, tuple[MetricFamily, ...]()
        self._families: tuple[MetricFamily, ...] = ()
        self._fenced_s = float("-inf")
        self._goes_on = False
        self.since = datetime.now(UTC)
        self.starts = 0
        self.last_exit_code: int | None = None
        self.farewell: WorkerEnded | None = None
        """What the child said before it ended."""
        self.farewell_s = 0.0
        self.leaving_s = float("inf")
        """Since when its last transaction has ended, and only the group is left to leave."""
        self.trouble: str | None = None
        """Why the part is not done now, as what is waited for."""

    def start(self) -> None:
        """Start a process; OSError where the system has none left."""
        process, connection = start(self._program)
        self.starts += 1
        self.since, self.farewell, self._report = datetime.now(UTC), None, None
        self.leaving_s = float("inf")
        self.lives_anew()
        channel: Channel[ToSupervisor, ToChild] = Channel(connection, self._hear, self._gone)
        channel.start()
        channel.send(self._begin(self._fenced_s, self._goes_on))
        with self._lock:
            self._process, self._channel = process, channel

    def stop(self) -> None:
        """Ask it to end in order."""
        if self._channel is not None:
            self._channel.send(StopRequest())

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()

    def lives_anew(self) -> None:
        """Count its silence from now: it begins, or nobody could have heard it."""
        self._heard_s = time.monotonic()

    def ended(self) -> int | None:
        """The exit code of a process that has ended, told once; minus the signal, if one did it."""
        code = None if self._process is None else self._process.poll()
        channel = self._channel
        if code is None or channel is None:
            return None
        channel.close()
        with self._lock:
            self._process = self._channel = None
        self._gone()
        self.last_exit_code, self.since = code, datetime.now(UTC)
        if self._report is not None:
            self._past = self._past.plus(CumulativeCounts.of(self._report.status))
            self._fenced_s = self._report.fenced_s
            self._goes_on |= self._report.has_run
        self._past_families = joined(self._past_families, [counted(self._families)])
        self._families = ()
        return code

    @property
    def name(self) -> str:
        """As sentences and logs name it."""
        return f"worker {self.part.label}"

    @property
    def is_up(self) -> bool:
        """Whether there is a process."""
        return self._channel is not None

    @property
    def pid(self) -> int | None:
        """Of the process."""
        process = self._process
        return None if process is None else process.pid

    @property
    def report(self) -> WorkerReport | None:
        """What it told last; in the time after its end what it told at last."""
        return self._report

    @property
    def silent_s(self) -> float:
        """The time since the loop's last sign of life, as far as we have heard."""
        return time.monotonic() - self._heard_s if self.is_up else 0.0

    @property
    def has_run(self) -> bool:
        """Whether this process has joined the group."""
        return self.is_up and self._report is not None and self._report.has_run

    @property
    def families(self) -> tuple[MetricFamily, ...]:
        """The metrics of the living process as told last, and the counts of those before it."""
        return joined(self._families, [self._past_families])

    def standing(self) -> WorkerState:
        """What is known of the part."""
        report = self._report if self.is_up else None
        status = None if report is None else report.status
        return WorkerState(self.part, status, self._past, self.trouble, has_run=self.has_run)

    def status(self) -> WorkerStatus:
        """The same for `/v1/workers`."""
        report = self._report if self.is_up else None
        phase: WorkerPhase = "starting" if self.is_up else "ended"
        partitions = () if report is None else report.status.partitions
        return WorkerStatus(
            pid=self.pid,
            worker=self.part.worker,
            hop=self.part.hop.value,
            phase=phase if report is None else report.status.phase,
            since=self.since,
            restarts=max(0, self.starts - 1),
            last_exit_code=self.last_exit_code,
            heartbeat_age_ms=round(self.silent_s * 1000),
            partitions_owned=len(partitions),
            memory_bytes=None if report is None else report.memory_bytes,
        ).restoring(partitions)

    def ask(self, query: Query, deadline_s: float) -> "Future[Told]":
        """Put a question to the loop; `Unavailable` where it cannot be put."""
        return self._put(lambda number: WorkerQuery(number, query, deadline_s))

    def scrape(self) -> "Future[Told]":
        """Ask for the metrics; `Unavailable` where it cannot be asked."""
        return self._put(MetricsRequest)

    def _put(self, message: Callable[[int], WorkerQuery | MetricsRequest]) -> "Future[Told]":
        with self._lock:
            if self._channel is None:
                raise Unavailable(f"Worker {self.part.label} is being replaced; ask again.")
            number, reply = self._replies.add()
            is_sent = self._channel.send(message(number))
        if not is_sent:
            reply.cancel()
            raise Busy(f"Too many questions wait for worker {self.part.label}; ask again.")
        return reply

    def _hear(self, message: ToSupervisor) -> None:
        """Called by the link's thread."""
        match message:
            case WorkerReport():
                self._report = message
                self._heard_s = time.monotonic() - message.silent_ms / 1000
                if message.status.phase == "stopping":
                    self.leaving_s = min(self.leaving_s, time.monotonic())
            case QueryAnswered(number, answer):
                self._replies.settle(number, answer)
            case MetricsReply(number, families):
                self._families = families
                self._replies.settle(number, families)
            case QueryRefused(number, reason):
                self._replies.settle(number, reason)
            case QueryFailed(number, error):
                self._replies.settle(number, WorkerFailedError(error))
            case WorkerEnded():
                self.farewell_s = time.monotonic()
                self.farewell = message
                self._changed()

    def _gone(self) -> None:
        sentence = f"Worker {self.part.label} ended before it answered; ask again."
        self._replies.end(Unavailable(sentence))
        self._changed()
