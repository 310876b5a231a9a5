"""Watchdog: a thread that ends the process when its loop hangs.

A call into the Kafka client may never return (librdkafka #5456), and a thread cannot be taken out
of it. Invariant: a loop that beats, or computes, or could not have been observed is never killed;
it beats wherever it waits, and no single wait of its own is as long as the limit.
"""

import contextvars
import ctypes
import faulthandler
import gc
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from service.errors import ExitCode
from service.queries.status import StatusBoard

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


_YOUNG_OBJECTS: Final = 100_000

_GENERATIONS: Final = 20


# As malloc.h has them.
_M_TRIM_THRESHOLD: Final = -1

_M_TOP_PAD: Final = -2

_M_MMAP_THRESHOLD: Final = -3

_KEPT_BYTES: Final = 256 * 1024 * 1024

_TAKEN_BYTES: Final = 16 * 1024 * 1024

_LARGE_BYTES: Final = 32 * 1024 * 1024
"""The most that glibc takes for what it maps by itself."""

_DESCRIPTORS: Final = 65_536

_TUNABLES: Final = "GLIBC_TUNABLES"

_ARENAS: Final = "glibc.malloc.arena_max"

_ARENAS_TOO: Final = "MALLOC_ARENA_MAX"
"""An older name, a variable of its own; people set it in containers."""

_HEAP: Final = {"glibc.malloc.hugetlb": 1, _ARENAS: 128}


def calm_garbage_collector() -> None:
    """Look for cycles rarely: nearly all that a batch allocates goes by reference count.

    What was loaded until now lives as long as the process, so it is never looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(_YOUNG_OBJECTS, _GENERATIONS, _GENERATIONS)


def drop_cycles() -> None:
    """Free what only refers to itself.

    Clients do, with what they call back. One of a former life, with its threads and connections,
    would stay until many batches have passed: cycles are looked for rarely.
    """
    gc.collect()


def keep_freed_memory() -> None:
    """Have the C library keep what a batch has freed for the next one.

    glibc gives the end of its heap back as soon as 128 KiB of it are free, and each page that is
    taken anew is a fault. It costs up to a quarter of the loop's time, as the heap happens to lie;
    less with this, and not always nothing. Without glibc there is nothing to tell.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TOP_PAD, _TAKEN_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def raise_descriptor_limit() -> None:
    """Let this process and its children open as many files as they may, up to 65,536.

    The usual soft limit of 1,024 is for programs that call select(2). A worker has 256 files open
    for each store, and the API a descriptor for each connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def with_heap_tuned(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment that tells the C library how to keep the heap of a worker.

    On large pages: a batch lies on thousands of small ones, more than a processor finds without a
    search, and the search is a fifth of the loop's time (`bench.full --only stages`). It takes
    glibc 2.35, and a kernel whose transparent_hugepage is `madvise` or `always`.

    And with an arena for each thread: clients have more threads than the eight arenas a core that
    there are by default, so now and then the thread that fetches would share the loop's, wait for
    its lock, and scatter what both allocate. Such a run takes a fifth more time, chosen by chance.

    The C library looks at it once, when a process starts; what somebody has chosen stays. Another
    C library ignores it.
    """
    given = environment.get(_TUNABLES, "")
    chosen = f"{given}:{_ARENAS}" if _ARENAS_TOO in environment else given
    ours = [f"{name}={value}" for name, value in _HEAP.items() if name not in chosen]
    return {**environment, _TUNABLES: ":".join(filter(None, (given, *ours)))}
