"""Worker handle: one task of an instance and its worker process, across restarts.

Only the supervisor's main thread starts and ends processes: the kernel kills a worker when the
thread that started it ends. Invariant: every query ends, at the latest with the process that was
asked.
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

from ringfence_service.config.tasks import Task
from ringfence_service.queries.errors import Busy, Unavailable
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.queries.status import WorkerPhase, WorkerStatus
from ringfence_service.supervisor.heap import with_heap_tuned
from ringfence_service.supervisor.protocol import (
    Channel,
    MetricsReply,
    MetricsRequest,
    QueryAnswered,
    QueryFailed,
    QueryRefused,
    StopRequest,
    ToSupervisor,
    ToWorker,
    WorkerEnded,
    WorkerQuery,
    WorkerReport,
    WorkerSetup,
)
from ringfence_service.supervisor.status import NOTHING_COUNTED, CumulativeCounts, WorkerState
from ringfence_service.telemetry.aggregation import MetricFamily, counted, joined

Reply = Answer | tuple[MetricFamily, ...]


class PendingReplies:
    """The replies that have not arrived, by number. Safe on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._waiting: dict[int, Future[Reply]] = {}

    def add(self) -> tuple[int, "Future[Reply]"]:
        """Return a new number and its reply. A caller that stops waiting cancels the reply."""
        reply: Future[Reply] = Future()
        with self._lock:
            self._number += 1
            number = self._number
            self._waiting[number] = reply
        reply.add_done_callback(lambda _reply: self._waiting.pop(number, None))
        return number, reply

    def settle(self, number: int, outcome: Reply | Exception) -> None:
        """Complete a reply with a value or an error, unless its caller has stopped waiting."""
        reply = self._waiting.pop(number, None)
        if reply is None or not reply.set_running_or_notify_cancel():
            return
        if isinstance(outcome, Exception):
            reply.set_exception(outcome)
        else:
            reply.set_result(outcome)

    def end(self, reason: Exception) -> None:
        """Complete all pending replies with an error."""
        for number in list(self._waiting):
            self.settle(number, reason)


def start(
    program: Sequence[str],
) -> tuple["subprocess.Popen[bytes]", "Connection[ToWorker, ToSupervisor]"]:
    """Start Python with these arguments, followed by a file descriptor and our process id.

    Call it on the main thread: the kernel kills a worker when the thread that started it ends.
    Raise OSError if the system cannot create a process.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs, _without_ctrl_c():
        fd = theirs.fileno()
        # -P: do not import modules from the current folder.
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
    """Block SIGINT, so that a worker inherits this: the terminal sends Ctrl-C to all processes."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerFailedError(Exception):
    """A query hit a bug in a worker; the worker's log has the traceback."""


class WorkerHandle:
    """Starts, queries and ends the worker process of one task. Any thread may query it."""

    def __init__(
        self,
        task: Task,
        setup: Callable[[float, bool], WorkerSetup],
        program: Sequence[str],
        changed: Callable[[], None],
    ) -> None:
        """`setup` returns the first message, given when a worker was fenced and if one has run.

        `changed` is called on any thread when the worker ends or announces its end.
        """
        self.task = task
        self._setup = setup
        self._program = program
        self._changed = changed
        self._lock = threading.Lock()
        self._replies = PendingReplies()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel[ToSupervisor, ToWorker] | None = None
        self._report: WorkerReport | None = None
        self._alive_s = 0.0
        self._past, self._past_families = NOTHING_COUNTED, tuple[MetricFamily, ...]()
        self._families: tuple[MetricFamily, ...] = ()
        self._fenced_s = float("-inf")
        self._resumes = False
        self.since = datetime.now(UTC)
        self.starts = 0
        self.last_exit_code: int | None = None
        self.announced_end: WorkerEnded | None = None
        """The worker's announcement of its end, if it sent one."""
        self.announced_s = 0.0
        self.leaving_s = float("inf")
        """Since when its last transaction has ended, and it only has to leave the group."""
        self.trouble: str | None = None
        """Why the task has no running worker, for `waiting_for`."""

    def start(self) -> None:
        """Start a process; OSError if the system cannot create one."""
        process, connection = start(self._program)
        self.starts += 1
        self.since, self.announced_end, self._report = datetime.now(UTC), None, None
        self.leaving_s = float("inf")
        self.reset_silence()
        channel: Channel[ToSupervisor, ToWorker] = Channel(connection, self._receive, self._gone)
        channel.start()
        channel.send(self._setup(self._fenced_s, self._resumes))
        with self._lock:
            self._process, self._channel = process, channel

    def stop(self) -> None:
        """Ask the process to stop in an orderly way."""
        if self._channel is not None:
            self._channel.send(StopRequest())

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()

    def reset_silence(self) -> None:
        """Count its silence from now: the worker is new, or the supervisor was suspended."""
        self._alive_s = time.monotonic()

    def ended(self) -> int | None:
        """Return, once, the exit code of a process that has ended; minus the signal that killed it.

        None if no process has ended since the last call.
        """
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
            self._resumes |= self._report.has_run
        self._past_families = joined(self._past_families, [counted(self._families)])
        self._families = ()
        return code

    @property
    def name(self) -> str:
        """The worker's name in messages and logs."""
        return f"worker {self.task.label}"

    @property
    def is_up(self) -> bool:
        """Whether there is a process."""
        return self._channel is not None

    @property
    def pid(self) -> int | None:
        """The id of the process; None if there is none."""
        process = self._process
        return None if process is None else process.pid

    @property
    def report(self) -> WorkerReport | None:
        """The latest report; after the process has ended, its last one."""
        return self._report

    @property
    def silent_s(self) -> float:
        """The time since the loop's last sign of life that was reported."""
        return time.monotonic() - self._alive_s if self.is_up else 0.0

    @property
    def has_run(self) -> bool:
        """Whether this process has joined the group."""
        return self.is_up and self._report is not None and self._report.has_run

    @property
    def families(self) -> tuple[MetricFamily, ...]:
        """The latest metrics of the current process, plus the counts of its predecessors."""
        return joined(self._families, [self._past_families])

    def state(self) -> WorkerState:
        """Return the state of the task."""
        report = self._report if self.is_up else None
        status = None if report is None else report.status
        return WorkerState(self.task, status, self._past, self.trouble, has_run=self.has_run)

    def status(self) -> WorkerStatus:
        """Return the status of the process for `/v1/workers`."""
        report = self._report if self.is_up else None
        phase: WorkerPhase = "starting" if self.is_up else "ended"
        status = None if report is None else report.status
        partitions = () if status is None else status.partitions
        return WorkerStatus(
            pid=self.pid,
            worker=self.task.worker,
            hop=self.task.hop.value,
            phase=phase if status is None else status.phase,
            since=self.since,
            restarts=max(0, self.starts - 1),
            last_exit_code=self.last_exit_code,
            heartbeat_age_ms=round(self.silent_s * 1000),
            partitions_owned=len(partitions),
            memory_bytes=None if report is None else report.memory_bytes,
            fast_path=None if report is None else report.fast_path,
            fast_path_fault=None if report is None else report.fast_path_fault,
            compression=None if status is None else status.compression,
        ).restoring(partitions)

    def ask(self, query: Query, deadline_s: float) -> "Future[Reply]":
        """Send a query to the loop; `Unavailable` if it cannot be sent."""
        return self._send(lambda number: WorkerQuery(number, query, deadline_s))

    def scrape(self) -> "Future[Reply]":
        """Request the metrics; `Unavailable` if the request cannot be sent."""
        return self._send(MetricsRequest)

    def _send(self, message: Callable[[int], WorkerQuery | MetricsRequest]) -> "Future[Reply]":
        with self._lock:
            if self._channel is None:
                raise Unavailable(f"Worker {self.task.label} is being replaced; try again.")
            number, reply = self._replies.add()
            is_sent = self._channel.send(message(number))
        if not is_sent:
            reply.cancel()
            raise Busy(f"Too many queries wait for worker {self.task.label}; try again.")
        return reply

    def _receive(self, message: ToSupervisor) -> None:
        """Handle a message, on the channel's thread."""
        match message:
            case WorkerReport():
                self._report = message
                self._alive_s = time.monotonic() - message.silent_ms / 1000
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
                self.announced_s = time.monotonic()
                self.announced_end = message
                self._changed()

    def _gone(self) -> None:
        sentence = f"Worker {self.task.label} ended before it answered; try again."
        self._replies.end(Unavailable(sentence))
        self._changed()
