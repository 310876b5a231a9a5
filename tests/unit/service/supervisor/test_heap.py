"""A worker's heaps: their settings, unless somebody has chosen them, and what they give back."""

import subprocess
import sys

from ringfence_service.supervisor.heap import FreedMemory, with_heap_tuned


def test_heaps_have_large_pages_and_threads_their_own() -> None:
    tuned = with_heap_tuned({"A": "1"})
    assert tuned == {
        "A": "1",
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=128",
    }


def test_what_else_is_tuned_stays() -> None:
    tuned = with_heap_tuned({"GLIBC_TUNABLES": "glibc.malloc.perturb=4"})
    assert tuned["GLIBC_TUNABLES"].split(":") == [
        "glibc.malloc.perturb=4",
        "glibc.malloc.hugetlb=1",
        "glibc.malloc.arena_max=128",
    ]


def test_who_has_chosen_is_not_overruled() -> None:
    chosen = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0:glibc.malloc.arena_max=4"}
    assert with_heap_tuned(chosen) == chosen
    tuned = with_heap_tuned({"MALLOC_ARENA_MAX": "2"})
    assert tuned == {"MALLOC_ARENA_MAX": "2", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def test_a_process_starts_with_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "print(1)"],
        env=with_heap_tuned({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


MIB = 1024 * 1024


def test_a_process_that_has_grown_returns_what_is_free_each_time() -> None:
    """By more than 128 MiB since it was smallest after the last time."""
    resident, trims = 100, list[int]()

    def trim() -> None:
        nonlocal resident
        trims.append(resident)
        resident -= 79

    freed = FreedMemory(lambda: resident * MIB, trim)
    for size in (200, 228, 229, 278, 279, 120, 248, 249):
        resident = size
        freed.look()
    assert trims == [229, 279, 249]


def test_where_the_system_reports_no_size_nothing_is_returned() -> None:
    FreedMemory(lambda: None, lambda: 1 / 0).look()


KEEPS = """
import threading
from ringfence_service.supervisor.heap import FreedMemory, keep_freed_memory, memory_bytes

keep_freed_memory()
freed = FreedMemory()
if memory_bytes() is None or freed._trim is None:
    raise SystemExit
grown = []
kept, freed_all, done = [], threading.Event(), threading.Event()

def scatter():
    large = []
    for _ in range(400):
        large.append(bytearray(900_000))
        kept.append(bytearray(100))
    grown.append(memory_bytes())
    del large
    freed_all.set()
    done.wait()

thread = threading.Thread(target=scatter, daemon=True)
thread.start()
freed_all.wait()
freed.look()
print(grown[0] - memory_bytes() > 200 * 1024 * 1024)
"""


def test_what_a_thread_has_freed_between_what_it_keeps_goes_back_to_the_system() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KEEPS],
        env=with_heap_tuned({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout in {"True\n", ""}, done.stdout + done.stderr
