"""A worker's C library is given heap settings, unless somebody has already chosen them."""

import subprocess
import sys

from service.supervisor.watchdog import with_heap_tuned


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
