"""Supervisor: starts one process for each task, restarts it when it ends, and stops all in order.

An end that the next process would meet too ends the instance: a foreseeable one (configuration,
broker, fenced, contradiction), or ten processes in a row that never joined the group. Any other end
restarts the process, after a delay that doubles, while the other tasks go on.
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

from service.config.load import Config
from service.config.tasks import Hop, Task, parts_of, parts_on, share_of
from service.errors import ExitCode, ExitError
from service.queries.status import ServiceStatus
from service.supervisor.protocol import WorkerSetup
from service.supervisor.status import instance_status
from service.supervisor.worker_handle import WorkerHandle

_FIRST_PAUSE_S: Final = 0.5

_PAUSE_MAX_S: Final = 30.0

_WELL_S: Final = 60.0
"""Who ran for so long has forgotten its falls."""

FUTILE_MAX: Final = 10
"""So many processes in a row that never joined the group are enough."""


class RestartPolicy:
    """Those of one part."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._futile = 0

    def pause_s(self, lived_s: float) -> float:
        """Count one more end; tells how long to wait before the next start."""
        again_s = min(_PAUSE_MAX_S, 2 * self._pause_s)
        self._pause_s = again_s if self._pause_s and lived_s < _WELL_S else _FIRST_PAUSE_S
        return self._pause_s

    def is_futile(self, *, had_run: bool) -> bool:
        """Whether there is no point in another start."""
        self._futile = 0 if had_run else self._futile + 1
        return self._futile >= FUTILE_MAX


def how_it_ended(code: int) -> str:
    """As a sentence goes on after the name of a worker."""
    if code == ExitCode.HUNG:
        return "hung"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return f"was ended by {name}"
    return f"ended with exit code {code}"


_LOOK_S: Final = 0.1

_ASLEEP_S: Final = 5.0

_UNHEARD_S: Final = 10.0
"""Past the limit at which a hanging child ends itself: then nobody in it can."""

_LINGER_S: Final = 10.0
"""How long a child that has said farewell may take to end."""

_COMMIT_S: Final = 15.0

_LEAVE_S: Final = 6.0
"""How long leaving the group may take: a client that is just joining waits for the others."""

ADDRESS_LABELS_MAX: Final = 100

_FINAL: Final = frozenset(
    {ExitCode.USAGE, ExitCode.BROKER, ExitCode.FENCED, ExitCode.CONTRADICTION}
)

_log = structlog.stdlib.get_logger(__name__)


class Supervisor:
    """The processes of an instance. All but `stop` and what only reads is for the main thread."""

    def __init__(
        self,
        config: Config,
        folder: Path,
        *,
        hang_limit_s: float,
        program: Sequence[str],
    ) -> None:
        """`program` is what a child runs, as arguments of Python."""
        self._hang_limit_s = hang_limit_s
        self._restarted: Callable[[Task], None] = lambda _part: None
        self._grace_s = config.service.transaction_timeout_ms / 1000 + _COMMIT_S
        self._wake = threading.Event()
        self._stopping = False
        self._looked_s = time.monotonic()
        parts = parts_of(config)
        self._nothing_yet = ServiceStatus.starting(
            config.service.instance, config.service.group_id, datetime.now(UTC)
        )
        self._workers = config.service.workers
        self._begin_of = partial(_beginning, config, folder=folder, hang_limit_s=hang_limit_s)
        self._program = program
        self.handles = [self._handle(part) for part in parts]
        """It only grows: a route that is added over REST may need parts that the file does not."""
        self._restart_policy = {part: RestartPolicy() for part in parts}
        self._started_s: dict[Task, float] = {}
        self._due_s: dict[Task, float] = {}
        self._ran: set[Task] = set()

    def counts_restarts_by(self, restarted: Callable[[Task], None]) -> None:
        """Call this at every restart from now on."""
        self._restarted = restarted

    def start(self) -> None:
        """Start every process."""
        for handle in self.handles:
            self._start(handle)

    def run(self) -> None:
        """Keep them until `stop`; ExitError for every end that is not one's own wish."""
        end: ExitError | None = None
        while not self._stopping and end is None:
            end = self._look()
            self._wake.wait(_LOOK_S)
            self._wake.clear()
        self._stopping = True
        end = self._end_in_order(end)
        if end is not None:
            raise end

    def stop(self) -> None:
        """Have all of them end in order; safe in a signal handler, which takes no lock."""
        self._stopping = True

    def kill(self) -> None:
        """Leave no process behind."""
        for handle in self.handles:
            handle.kill()

    # What the API reads, on any thread.

    def read(self) -> ServiceStatus:
        """One status of all parts."""
        standings = [handle.standing() for handle in self.handles]
        return instance_status(
            self._nothing_yet, standings, has_run=self.has_run(), stopping=self._stopping
        )

    def has_run(self) -> bool:
        """Whether each part has joined its group once."""
        self._ran |= {handle.part for handle in self.handles if handle.has_run}
        return len(self._ran) == len(self.handles)

    def heartbeat_age_ms(self) -> int:
        """The longest silence: of the loops that are not being replaced, and of this one."""
        own_s = time.monotonic() - self._looked_s
        return max(0, round(1000 * max(own_s, *(handle.silent_s for handle in self.handles))))

    @property
    def cluster_id(self) -> str | None:
        """As a child was told it."""
        reports = (handle.report for handle in self.handles)
        return next((each.cluster_id for each in reports if each and each.cluster_id), None)

    # What the main thread does.

    def _start(self, handle: WorkerHandle) -> None:
        self._started_s[handle.part] = time.monotonic()
        try:
            handle.start()
        except OSError as error:
            _log.error("worker_not_started", worker=handle.part.label, error=str(error))
            self._put_off(handle, f"cannot be started ({error})")
        else:
            handle.trouble = None

    def _look(self) -> ExitError | None:
        """Bury, replace, and end what hangs; what ends the instance, if anything does."""
        now_s = time.monotonic()
        was_asleep = now_s - self._looked_s > _ASLEEP_S
        self._looked_s = now_s
        for handle in self.handles:
            if was_asleep:
                handle.lives_anew()
            code = handle.ended()
            end = None if code is None else self._ended(handle, code)
            if end is not None:
                return end
            self._check(handle, now_s)
        self._employ()
        return None

    def _handle(self, part: Task) -> WorkerHandle:
        return WorkerHandle(part, self._begin_of(part), self._program, self._wake.set)

    def _employ(self) -> None:
        """Start what the routes in force need, as the children tell, and nobody does yet."""
        reports = [handle.report for handle in self.handles]
        hops = [Hop(name) for each in reports if each is not None for name in each.status.hops]
        known = {handle.part for handle in self.handles}
        for part in parts_on(list(dict.fromkeys(hops)), self._workers):
            if part not in known:
                _log.info("worker_added", worker=part.label)
                self._restart_policy[part] = RestartPolicy()
                handle = self._handle(part)
                self._start(handle)
                self.handles.append(handle)

    def _check(self, handle: WorkerHandle, now_s: float) -> None:
        if not handle.is_up and now_s >= self._due_s[handle.part]:
            _log.info("worker_restarts", worker=handle.part.label)
            self._restarted(handle.part)
            self._start(handle)
        elif handle.silent_s > self._hang_limit_s + _UNHEARD_S:
            _log.critical(
                "worker_unheard", worker=handle.part.label, silent_s=round(handle.silent_s)
            )
            handle.kill()
        elif handle.farewell is not None and now_s > handle.farewell_s + _LINGER_S:
            handle.kill()

    def _ended(self, handle: WorkerHandle, code: int) -> ExitError | None:
        farewell, last = handle.farewell, handle.report
        had_run = last is not None and last.has_run
        foreseen = code if farewell is None else farewell.exit_code
        told = how_it_ended(code)
        if foreseen in _FINAL:
            sentence = f"{handle.name.capitalize()} {told}; its log has the reason."
            return ExitError(
                ExitCode(foreseen), sentence if farewell is None else farewell.sentence
            )
        _log.error("worker_ended", worker=handle.part.label, exit_code=code)
        if self._restart_policy[handle.part].is_futile(had_run=had_run):
            sentence = (
                f"{handle.name.capitalize()} has ended {FUTILE_MAX} times without having joined "
                f"the group; the last one {told}. Its log has the reason."
            )
            return ExitError(ExitCode.HUNG if code == ExitCode.HUNG else ExitCode.NO, sentence)
        self._put_off(handle, told)
        return None

    def _put_off(self, handle: WorkerHandle, told: str) -> None:
        now_s = time.monotonic()
        pause_s = self._restart_policy[handle.part].pause_s(now_s - self._started_s[handle.part])
        self._due_s[handle.part] = now_s + pause_s
        handle.trouble = f"{told} and is started again after {pause_s:g} s; see its log"

    def _end_in_order(self, end: ExitError | None) -> ExitError | None:
        """Have all finish and leave; by force when it is time. The first end that was foreseen."""
        deadline_s = time.monotonic() + self._grace_s
        for handle in self.handles:
            handle.stop()
        killed: set[Task] = set()
        while left := [handle for handle in self.handles if handle.is_up]:
            self._looked_s = time.monotonic()
            for handle in left:
                if handle.ended() is not None:
                    end = end or _foreseen(handle)
                elif handle.part not in killed and self._is_late(handle, deadline_s):
                    killed.add(handle.part)
                    handle.kill()
            self._wake.wait(_LOOK_S)
            self._wake.clear()
        return end

    def _is_late(self, handle: WorkerHandle, deadline_s: float) -> bool:
        """Whether it has had its time: for a transaction that is open, or else for leaving.

        To end who only leaves costs nothing but its session, which the group waits for.
        """
        if self._looked_s > handle.leaving_s + _LEAVE_S:
            _log.warning("worker_did_not_leave", worker=handle.part.label, limit_s=_LEAVE_S)
            return True
        if self._looked_s > deadline_s:
            _log.critical("worker_killed", worker=handle.part.label, grace_s=self._grace_s)
            return True
        return False


def _foreseen(handle: WorkerHandle) -> ExitError | None:
    """The end that a process said it would have."""
    farewell = handle.farewell
    return None if farewell is None else ExitError(ExitCode(farewell.exit_code), farewell.sentence)


def _beginning(
    config: Config, part: Task, *, folder: Path, hang_limit_s: float
) -> Callable[[float, bool], WorkerSetup]:
    """What the process of a part is told first."""
    parts = parts_of(config)
    return lambda fenced_s, goes_on: WorkerSetup(
        config=share_of(config),
        part=part,
        folder=folder,
        label=part.label if len(parts) > 1 else None,
        addresses_max=max(1, ADDRESS_LABELS_MAX // len(parts)),
        hang_limit_s=hang_limit_s,
        fenced_s=fenced_s,
        goes_on=goes_on,
    )
