"""Supervisor: starts one worker for each task, restarts it when it ends, and stops all in order.

If the next process would end the same way, the instance ends: on the exit codes for configuration,
broker, fenced and contradiction, or after ten processes in a row that never joined the group. After
any other end the worker is restarted, with a delay that doubles, while the other tasks continue.
"""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from ringfence_service.config.model import Config
from ringfence_service.config.tasks import Hop, Task, share_of, tasks_of, tasks_on
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.queries.status import ServiceStatus
from ringfence_service.supervisor.protocol import WorkerSetup
from ringfence_service.supervisor.status import instance_status, running_partitions
from ringfence_service.supervisor.worker_handle import WorkerHandle

_FIRST_PAUSE_S: Final = 0.5
"""The delay after a first end: the partitions of the task wait, and a single end may be chance."""

_PAUSE_MAX_S: Final = 30.0
"""The longest delay: a task that keeps failing costs no more starts, and resumes this soon.

Processes that end at once reach `FUTILE_MAX` after some two minutes of delays.
"""

_WELL_S: Final = 60.0
"""A process that ran this long resets the delay."""

FUTILE_MAX: Final = 10
"""The instance ends after this many processes in a row that never joined the group."""


class RestartPolicy:
    """The restart delay of one task, and when to give up."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._futile = 0

    def pause_s(self, lived_s: float) -> float:
        """Record the end of a process; return how long to wait before the next start."""
        doubled_s = min(_PAUSE_MAX_S, 2 * self._pause_s)
        self._pause_s = doubled_s if self._pause_s and lived_s < _WELL_S else _FIRST_PAUSE_S
        return self._pause_s

    def is_futile(self, *, had_run: bool) -> bool:
        """Record the end of a process; return whether to give up."""
        self._futile = 0 if had_run else self._futile + 1
        return self._futile >= FUTILE_MAX


def how_it_ended(code: int) -> str:
    """Return how a process ended, as a predicate for the name of its worker."""
    if code == ExitCode.HUNG:
        return "hung"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return f"was killed by {name}"
    return f"ended with exit code {code}"


_LOOK_S: Final = 0.1
"""How often the workers are looked at; SIGTERM only sets a flag, which is seen this much later."""

_SETTLED_S: Final = 3.0
"""How long partitions stay the same when no worker is joining its group any more."""

_ASLEEP_S: Final = 5.0
"""Two looks that are further apart show that the supervisor itself was suspended.

It then counts the silence of its workers from now. Far more than `_LOOK_S`, far less than the hang
limit.
"""

_UNHEARD_S: Final = 10.0
"""How long after the limit the supervisor kills a worker whose watchdog did not end it."""

_LINGER_S: Final = 10.0
"""How long a worker that has announced its end may take to exit."""

_COMMIT_S: Final = 15.0
"""How much longer than `transaction_timeout_ms` a stop may take before workers are killed.

More than the ten seconds for which a commit of unknown outcome is retried (`COMMIT_GRACE_MS`). The
process manager has to allow at least as much.
"""

_LEAVE_S: Final = 6.0
"""How long leaving the group may take: a client that is joining first waits for the others."""

ADDRESS_LABELS_MAX: Final = 100
"""How many addresses that the configuration does not name are labels, divided among the workers.

Each has a series in every metric by address, which the monitoring pays for.
"""

_FINAL: Final = frozenset(
    {ExitCode.USAGE, ExitCode.BROKER, ExitCode.FENCED, ExitCode.CONTRADICTION}
)

_log = structlog.stdlib.get_logger(__name__)


class Supervisor:
    """The workers of an instance.

    Only the main thread may call its methods, except `stop` and those that only read.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        *,
        hang_limit_s: float,
        program: Sequence[str],
    ) -> None:
        """`program` is the arguments with which Python runs a worker."""
        self._hang_limit_s = hang_limit_s
        self._on_restart: Callable[[Task], None] = lambda _task: None
        self._grace_s = config.service.transaction_timeout_ms / 1000 + _COMMIT_S
        self._wake = threading.Event()
        self._stopping = False
        self._checked_s = time.monotonic()
        tasks = tasks_of(config)
        self._initial_status = ServiceStatus.starting(
            config.service.instance, config.service.group_id, datetime.now(UTC)
        )
        self._workers = config.service.workers
        self._setup_of = partial(_setup_of, config, folder=folder, hang_limit_s=hang_limit_s)
        self._program = program
        self.handles = [self._handle(task) for task in tasks]
        """It only grows: a route added over REST may need tasks that the file does not."""
        self._restart_policy = {task: RestartPolicy() for task in tasks}
        self._started_s: dict[Task, float] = {}
        self._due_s: dict[Task, float] = {}
        self._ran: set[Task] = set()
        self._owned: frozenset[tuple[str, int]] = frozenset()
        self._owned_since_s = self._checked_s

    def on_restart(self, callback: Callable[[Task], None]) -> None:
        """Call `callback` before every restart of a worker."""
        self._on_restart = callback

    def start(self) -> None:
        """Start all workers."""
        for handle in self.handles:
            self._start(handle)

    def run(self, on_ready: Callable[[int], None] = lambda _partitions: None) -> None:
        """Keep the workers running until `stop` is called; ExitError for every other end.

        Call `on_ready` once, with the number of partitions that the instance owns: when they are
        all running, and are all that there are or have not changed for some seconds.
        """
        end: ExitError | None = None
        is_ready = False
        while not self._stopping and end is None:
            end = self._check_all()
            if not is_ready and (partitions := self._settled_partitions()):
                is_ready = True
                on_ready(partitions)
            self._wake.wait(_LOOK_S)
            self._wake.clear()
        self._stopping = True
        end = self._stop_all(end)
        if end is not None:
            raise end

    def stop(self) -> None:
        """Stop all workers in an orderly way; safe in a signal handler, since it takes no lock."""
        self._stopping = True

    def kill(self) -> None:
        """Kill all workers."""
        for handle in self.handles:
            handle.kill()

    # Read by the API, on any thread.

    def read(self) -> ServiceStatus:
        """Return the status of the instance."""
        states = [handle.state() for handle in self.handles]
        return instance_status(
            self._initial_status, states, has_run=self.has_run(), stopping=self._stopping
        )

    def has_run(self) -> bool:
        """Return whether each task has joined its group once."""
        self._ran |= {handle.task for handle in self.handles if handle.has_run}
        return len(self._ran) == len(self.handles)

    def heartbeat_age_ms(self) -> int:
        """Return the longest silence of the running workers and of the supervisor itself."""
        own_s = time.monotonic() - self._checked_s
        return max(0, round(1000 * max(own_s, *(handle.silent_s for handle in self.handles))))

    @property
    def cluster_id(self) -> str | None:
        """The id of the Kafka cluster; None until a worker reports it."""
        reports = (handle.report for handle in self.handles)
        return next((each.cluster_id for each in reports if each and each.cluster_id), None)

    # Only on the main thread.

    def _settled_partitions(self) -> int:
        """Return the number of partitions; 0 unless all run and none is about to move."""
        status, now_s = self.read(), time.monotonic()
        owned = frozenset(each.source for each in status.partitions)
        if owned != self._owned:
            self._owned, self._owned_since_s = owned, now_s
        is_settled = status.complete or now_s - self._owned_since_s >= _SETTLED_S
        return running_partitions(status) if is_settled else 0

    def _start(self, handle: WorkerHandle) -> None:
        self._started_s[handle.task] = time.monotonic()
        try:
            handle.start()
        except OSError as error:
            _log.error("worker_not_started", worker=handle.task.label, error=str(error))
            self._delay_restart(handle, f"cannot be started ({error})")
        else:
            handle.trouble = None

    def _check_all(self) -> ExitError | None:
        """Restart workers that ended and kill those that hang; return why the instance must end."""
        now_s = time.monotonic()
        was_asleep = now_s - self._checked_s > _ASLEEP_S
        self._checked_s = now_s
        for handle in self.handles:
            if was_asleep:
                handle.reset_silence()
            code = handle.ended()
            end = None if code is None else self._ended(handle, code)
            if end is not None:
                return end
            self._check(handle, now_s)
        self._add_workers()
        return None

    def _handle(self, task: Task) -> WorkerHandle:
        return WorkerHandle(task, self._setup_of(task), self._program, self._wake.set)

    def _add_workers(self) -> None:
        """Start workers for tasks that the effective routes need, as the workers report them."""
        reports = [handle.report for handle in self.handles]
        hops = [Hop(name) for each in reports if each is not None for name in each.status.hops]
        known = {handle.task for handle in self.handles}
        for task in tasks_on(list(dict.fromkeys(hops)), self._workers):
            if task not in known:
                _log.info("worker_added", worker=task.label)
                self._restart_policy[task] = RestartPolicy()
                handle = self._handle(task)
                self._start(handle)
                self.handles.append(handle)

    def _check(self, handle: WorkerHandle, now_s: float) -> None:
        if not handle.is_up and now_s >= self._due_s[handle.task]:
            _log.info("worker_restarts", worker=handle.task.label)
            self._on_restart(handle.task)
            self._start(handle)
        elif handle.silent_s > self._hang_limit_s + _UNHEARD_S:
            _log.critical(
                "worker_unheard", worker=handle.task.label, silent_s=round(handle.silent_s)
            )
            handle.kill()
        elif handle.announced_end is not None and now_s > handle.announced_s + _LINGER_S:
            handle.kill()

    def _ended(self, handle: WorkerHandle, code: int) -> ExitError | None:
        """Schedule the restart of a worker that ended, or return why the instance must end."""
        announced, last = handle.announced_end, handle.report
        had_run = last is not None and last.has_run
        exit_code = code if announced is None else announced.exit_code
        how = how_it_ended(code)
        if exit_code in _FINAL:
            sentence = f"{handle.name.capitalize()} {how}; its log has the reason."
            return ExitError(
                ExitCode(exit_code), sentence if announced is None else announced.sentence
            )
        _log.error("worker_ended", worker=handle.task.label, exit_code=code)
        if self._restart_policy[handle.task].is_futile(had_run=had_run):
            sentence = (
                f"{handle.name.capitalize()} has ended {FUTILE_MAX} times without joining the "
                f"group; the last process {how}. Its log has the reason."
            )
            return ExitError(ExitCode.HUNG if code == ExitCode.HUNG else ExitCode.NO, sentence)
        self._delay_restart(handle, how)
        return None

    def _delay_restart(self, handle: WorkerHandle, how: str) -> None:
        now_s = time.monotonic()
        pause_s = self._restart_policy[handle.task].pause_s(now_s - self._started_s[handle.task])
        self._due_s[handle.task] = now_s + pause_s
        handle.trouble = f"{how} and will be restarted after {pause_s:g} s; see its log"

    def _stop_all(self, end: ExitError | None) -> ExitError | None:
        """Stop all workers, and kill those that are late; return `end`, or the first ExitError."""
        deadline_s = time.monotonic() + self._grace_s
        for handle in self.handles:
            handle.stop()
        killed: set[Task] = set()
        while left := [handle for handle in self.handles if handle.is_up]:
            self._checked_s = time.monotonic()
            for handle in left:
                if handle.ended() is not None:
                    end = end or _announced(handle)
                elif handle.task not in killed and self._is_late(handle, deadline_s):
                    killed.add(handle.task)
                    handle.kill()
            self._wake.wait(_LOOK_S)
            self._wake.clear()
        return end

    def _is_late(self, handle: WorkerHandle, deadline_s: float) -> bool:
        """Return whether a worker has exceeded its time for an open transaction, or for leaving.

        Killing a worker that only has to leave the group costs nothing but its session timeout, for
        which the group waits.
        """
        if self._checked_s > handle.leaving_s + _LEAVE_S:
            _log.warning("worker_did_not_leave", worker=handle.task.label, limit_s=_LEAVE_S)
            return True
        if self._checked_s > deadline_s:
            _log.critical("worker_killed", worker=handle.task.label, grace_s=self._grace_s)
            return True
        return False


def _announced(handle: WorkerHandle) -> ExitError | None:
    """Return the end that a worker announced, if it did."""
    end = handle.announced_end
    return None if end is None else ExitError(ExitCode(end.exit_code), end.sentence)


def _setup_of(
    config: Config, task: Task, *, folder: Path, hang_limit_s: float
) -> Callable[[float, bool], WorkerSetup]:
    """Return the function that makes the first message to each process of a task."""
    tasks = tasks_of(config)
    return lambda fenced_s, resumes: WorkerSetup(
        config=share_of(config),
        task=task,
        folder=folder,
        label=task.label if len(tasks) > 1 else None,
        addresses_max=max(1, ADDRESS_LABELS_MAX // len(tasks)),
        hang_limit_s=hang_limit_s,
        fenced_s=fenced_s,
        resumes=resumes,
    )
