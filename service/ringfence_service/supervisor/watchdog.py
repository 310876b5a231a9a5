"""Watchdog: a thread that ends the process when its loop hangs; and the limits of the process.

A call into the Kafka client may never return (librdkafka #5456), and a thread cannot be interrupted
there. Invariant: the watchdog never ends a loop that sends heartbeats, uses CPU time, or could not
be observed. The loop sends a heartbeat wherever it waits, and no single wait of its own is as long
as the limit.
"""

import contextvars
import faulthandler
import gc
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from ringfence_service.config.model import Config
from ringfence_service.errors import ExitCode
from ringfence_service.queries.status import StatusBoard
from ringfence_state.store import OPEN_FILES_MAX

HANG_LIMIT_S: Final = 60.0
"""How long a loop may neither send a heartbeat nor use CPU time."""

_BUSY_MAX_S: Final = 900.0
"""How long CPU time counts as a heartbeat; a ring of a hundred million ids loads within this."""

_EVERY_S: Final = 1.0
"""How often the loop is checked: a hang is found this much after the limit at the latest."""

_ASLEEP_S: Final = 5.0
"""Two checks that are further apart show that the process was suspended: silence counts from now.

Far more than `_EVERY_S`, far less than `HANG_LIMIT_S`.
"""

_WORKING: Final = 0.2
"""A share of one CPU that a thread which only waits never uses."""

_SERVICE: Final = Path(__file__).parents[1]

_log = structlog.stdlib.get_logger(__name__)


class Watchdog:
    """Checks the loop every second; calls `on_hang` with the seconds of silence when it hangs."""

    def __init__(
        self,
        board: StatusBoard,
        limit_s: float = HANG_LIMIT_S,
        *,
        on_hang: Callable[[float], None] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        used_s: Callable[[], float] | None = None,
    ) -> None:
        """`used_s` returns the CPU seconds of the loop's thread, which is the main thread.

        `on_hang` ends the process unless it is given.
        """
        self._board = board
        self._limit_s = limit_s
        self._on_hang = on_hang or exit_hung
        self._clock_s = clock_s
        self._cpu_s = used_s or main_thread_cpu_s
        self._checked_s = self._alive_s = clock_s()
        self._used_s = self._cpu_s()

    def start(self) -> None:
        """Start to check, on a daemon thread."""
        context = contextvars.copy_context()  # its log lines name the same worker as the caller's
        threading.Thread(
            target=context.run, args=(self._run,), name="ringfence-watchdog", daemon=True
        ).start()

    def silent_ms(self) -> int:
        """Return the time since the last sign of life."""
        since_s = self._clock_s() - self._alive_s
        return min(self._board.heartbeat_age_ms(), max(0, round(since_s * 1000)))

    def look(self) -> None:
        """Check the loop once, and call `on_hang` if it has been silent for too long."""
        now_s, used_s = self._clock_s(), self._cpu_s()
        passed_s, silent_s = now_s - self._checked_s, self._board.heartbeat_age_ms() / 1000
        is_working = used_s - self._used_s > passed_s * _WORKING and silent_s < _BUSY_MAX_S
        self._checked_s, self._used_s = now_s, used_s
        if is_working or passed_s > _ASLEEP_S:  # this thread was suspended and saw nothing
            self._alive_s = now_s
        self._alive_s = max(self._alive_s, now_s - silent_s)
        if now_s - self._alive_s > self._limit_s:
            self._on_hang(now_s - self._alive_s)

    def _run(self) -> None:
        while True:
            time.sleep(min(_EVERY_S, self._limit_s / 4))
            self.look()


def main_thread_cpu_s() -> float:
    """Return the CPU seconds of the main thread; 0 if the system cannot report them."""
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    main = threading.main_thread().ident
    return 0.0 if clock_of is None or main is None else time.clock_gettime(clock_of(main))


def exit_hung(silent_s: float) -> None:
    """Log where the loop hangs and for how long, dump all threads, and exit with `HUNG`."""
    where = main_thread_position()
    _log.critical("loop_hangs", where=where, silent_s=round(silent_s), limit=HANG_LIMIT_S)
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    sys.stderr.flush()
    os._exit(ExitCode.HUNG)


def main_thread_position() -> str:
    """Return the file, line and function of our own code that the main thread executes."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - its name
    while frame is not None:
        path, parent = Path(frame.f_code.co_filename), frame.f_back
        if path.is_relative_to(_SERVICE) and ".venv" not in path.parts:
            return f"{path.name}:{frame.f_lineno} {frame.f_code.co_qualname}"
        frame = parent
    return "unknown"


_YOUNG_OBJECTS: Final = 100_000

_GENERATIONS: Final = 20

_DESCRIPTORS: Final = 65_536
_BASE_DESCRIPTORS: Final = 128
"""For the clients' connections to brokers, libraries, the log and pipes."""


def calm_garbage_collector() -> None:
    """Collect cycles rarely: reference counts free nearly everything that a batch allocates.

    Objects that exist now live as long as the process, so they are excluded from collection.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(_YOUNG_OBJECTS, _GENERATIONS, _GENERATIONS)


def drop_cycles() -> None:
    """Free unreachable cycles now.

    A Kafka client forms a cycle with its callbacks. Since cycles are collected rarely, the client
    of an earlier loop would keep its threads and connections for many batches.
    """
    gc.collect()


def raise_descriptor_limit() -> int:
    """Raise the limit of open files of this process and its children to the hard limit or 65,536.

    Return the limit. The usual soft limit of 1,024 is for programs that call select(2). A worker
    has 256 files open for each store, and the API a descriptor for each connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        return target
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def descriptors_needed(config: Config) -> int:
    """Return how many files a process of an instance may have open, as far as the file shows.

    One worker may have every partition of the topic by-address while other workers are away. The
    partitions of inputs are not known without the broker: one of each is counted. Files that find
    the older ids of large addresses take more than a MiB of the id cache each.
    """
    by_address = any(route.is_repartitioned for route in config.routes)
    inputs = sum(len(route.inputs) for route in config.routes if not route.is_repartitioned)
    stores = inputs + (config.service.by_address_partitions if by_address else 0)
    runs = config.service.cache_memory_mb
    return _BASE_DESCRIPTORS + max(config.api.connections_max, OPEN_FILES_MAX * stores + runs)
