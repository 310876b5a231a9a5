"""Watchdog: a thread that ends the process when its loop hangs.

A call into the Kafka client may never return (librdkafka #5456), and nobody can take a thread out
of it. Invariant: a loop that beats, or computes, or could not have been seen is never struck; it
beats wherever it waits, and no single wait of its own is as long as the limit.
"""

import contextvars
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from service.errors import ExitCode
from service.status import StatusBoard

HANG_LIMIT_S: Final = 60.0
"""How long a loop may neither beat nor compute."""

_BUSY_MAX_S: Final = 900.0
"""How long computing counts for a beat: a ring of a hundred million ids is loaded by then."""
_EVERY_S: Final = 1.0
_ASLEEP_S: Final = 5.0
_WORKING: Final = 0.2
"""The share of a processor that a thread which only waits never takes."""
_OURS: Final = Path(__file__).parents[1]

_log = structlog.stdlib.get_logger(__name__)


class Watchdog:
    """Looks every second; `strike` is told the seconds of silence, and ends the process."""

    def __init__(
        self,
        board: StatusBoard,
        limit_s: float = HANG_LIMIT_S,
        *,
        strike: Callable[[float], None] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        used_s: Callable[[], float] | None = None,
    ) -> None:
        """`used_s` tells the CPU seconds of the loop's thread, which is the main one."""
        self._board = board
        self._limit_s = limit_s
        self._strike = strike or end_the_process
        self._clock_s = clock_s
        self._cpu_s = used_s or main_thread_s
        self._looked_s = self._life_s = clock_s()
        self._used_s = self._cpu_s()

    def start(self) -> None:
        """Look from now on."""
        ours = contextvars.copy_context()  # its lines name whom the caller's name
        threading.Thread(
            target=ours.run, args=(self._run,), name="ringfence-watchdog", daemon=True
        ).start()

    def silent_ms(self) -> int:
        """The time since the last sign of life."""
        since_s = self._clock_s() - self._life_s
        return min(self._board.heartbeat_age_ms(), max(0, round(since_s * 1000)))

    def look(self) -> None:
        """Strike when it is time."""
        now_s, used_s = self._clock_s(), self._cpu_s()
        passed_s, silent_s = now_s - self._looked_s, self._board.heartbeat_age_ms() / 1000
        is_working = used_s - self._used_s > passed_s * _WORKING and silent_s < _BUSY_MAX_S
        self._looked_s, self._used_s = now_s, used_s
        if is_working or passed_s > _ASLEEP_S:  # who was stopped itself has seen nothing
            self._life_s = now_s
        self._life_s = max(self._life_s, now_s - silent_s)
        if now_s - self._life_s > self._limit_s:
            self._strike(now_s - self._life_s)

    def _run(self) -> None:
        while True:
            time.sleep(min(_EVERY_S, self._limit_s / 4))
            self.look()


def main_thread_s() -> float:
    """CPU seconds of the main thread; 0 where the system does not tell."""
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    main = threading.main_thread().ident
    return 0.0 if clock_of is None or main is None else time.clock_gettime(clock_of(main))


def end_the_process(silent_s: float) -> None:
    """Say what hangs and for how long, show all threads, and end with a code of its own."""
    _log.critical("loop_hangs", where=place(), silent_s=round(silent_s), limit=HANG_LIMIT_S)
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    sys.stderr.flush()
    os._exit(ExitCode.HUNG)


def place() -> str:
    """Where in our own code the main thread stands."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - its name
    while frame is not None:
        path, parent = Path(frame.f_code.co_filename), frame.f_back
        if path.is_relative_to(_OURS) and ".venv" not in path.parts:
            return f"{path.name}:{frame.f_lineno} {frame.f_code.co_qualname}"
        frame = parent
    return "unknown"
