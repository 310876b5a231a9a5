"""Heap: how much freed memory the C library keeps for a process, and when it gives it back.

Freed memory is kept for the next batch, since taking it again costs page faults. But each thread
has a heap of its own, and none of them ever shrinks: after large batches the heaps together keep
several times what is in use. So a thread has them return what is free whenever the process has
grown.
"""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

# The values of malloc.h.
_M_TRIM_THRESHOLD: Final = -1

_M_TOP_PAD: Final = -2

_M_MMAP_THRESHOLD: Final = -3

_KEPT_BYTES: Final = 256 * 1024 * 1024
"""How much free memory glibc keeps at the end of a heap: four batches of 64 MiB.

A batch takes it again without page faults. `FreedMemory` returns it once the process has grown.
"""

_TAKEN_BYTES: Final = 16 * 1024 * 1024
"""By how much glibc grows a heap beyond the request: fewer calls than by its default of 128 KiB.

Pages that are never touched take no memory.
"""

_LARGE_BYTES: Final = 32 * 1024 * 1024
"""The largest threshold that glibc accepts for allocations by mmap."""

_GROWTH_BYTES: Final = 128 * 1024 * 1024
"""By how much a process may grow before it returns what is free: two batches of 64 MiB."""

_EVERY_S: Final = 0.5
"""How often the size of the process is read, from one small file; in between it may grow freely."""

_TUNABLES: Final = "GLIBC_TUNABLES"

_ARENAS: Final = "glibc.malloc.arena_max"

_ARENAS_TOO: Final = "MALLOC_ARENA_MAX"
"""The older environment variable, which is often set in containers."""

_HEAP: Final = {"glibc.malloc.hugetlb": 1, _ARENAS: 128}


def keep_freed_memory() -> None:
    """Make the C library keep the memory that a batch has freed for the next one.

    glibc returns the end of its heap to the system as soon as 128 KiB of it are free, and each page
    that it takes again is a page fault. Depending on the heap's layout this costs up to a quarter
    of the loop's time; with this setting less, but not always nothing. Without glibc, do nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TOP_PAD, _TAKEN_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


class FreedMemory:
    """Returns freed memory to the system whenever the process has grown."""

    def __init__(
        self,
        resident_bytes: Callable[[], int | None] | None = None,
        trim: Callable[[], object] | None = None,
    ) -> None:
        """`trim` returns what is free; by default glibc does, and without glibc nobody."""
        self._resident_bytes = resident_bytes or memory_bytes
        self._trim = trim or _trimmer()
        self._least = self._resident_bytes()

    def start(self) -> None:
        """Start to look, on a daemon thread."""
        if self._trim is not None and self._least is not None:
            threading.Thread(target=self._run, name="ringfence-heap", daemon=True).start()

    def look(self) -> None:
        """Return what is free if the process has grown since the last time, or since its least."""
        now = self._resident_bytes()
        if self._trim is None or self._least is None or now is None:
            return
        self._least = min(self._least, now)
        if now - self._least > _GROWTH_BYTES:
            self._trim()
            self._least = self._resident_bytes()

    def _run(self) -> None:
        while True:
            time.sleep(_EVERY_S)
            self.look()


def memory_bytes() -> int | None:
    """Return the resident memory of this process; None if the system cannot report it."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGESIZE")


def _trimmer() -> Callable[[], object] | None:
    """Return glibc's own; a call of it holds no lock of Python's, and one heap at a time."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return None if trim is None else lambda: trim(0)


def with_heap_tuned(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with glibc tunables for the heap of a worker.

    Huge pages: a batch is spread over thousands of small pages, more than the TLB covers, and the
    page walks take a fifth of the loop's time (`bench.full --only stages`). This needs glibc 2.35,
    and a kernel whose transparent_hugepage is `madvise` or `always`.

    An arena for each thread: the clients have more threads than the default of eight arenas per
    core. By chance, the fetching thread would share the arena of the loop, so that they contend
    for its lock and scatter each other's allocations. Such a run takes a fifth more time.

    glibc reads the tunables once, when a process starts; values that are already set are kept.
    Other C libraries ignore them.
    """
    given = environment.get(_TUNABLES, "")
    already_set = f"{given}:{_ARENAS}" if _ARENAS_TOO in environment else given
    added = [f"{name}={value}" for name, value in _HEAP.items() if name not in already_set]
    return {**environment, _TUNABLES: ":".join(filter(None, (given, *added)))}
