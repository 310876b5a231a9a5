"""Tuning of the interpreter for a process that handles records by the ten thousand."""

import ctypes
import gc
import resource
from collections.abc import Mapping
from typing import Final

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
