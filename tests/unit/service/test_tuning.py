"""A worker's C library is asked for large pages, unless somebody has chosen for it."""

import subprocess
import sys

from service.tuning import with_large_pages


def test_what_else_is_tuned_stays() -> None:
    assert with_large_pages({"A": "1"}) == {"A": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    tuned = with_large_pages({"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"})
    assert tuned["GLIBC_TUNABLES"] == "glibc.malloc.arena_max=4:glibc.malloc.hugetlb=1"


def test_who_has_chosen_is_not_overruled() -> None:
    chosen = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
    assert with_large_pages(chosen) == chosen


def test_a_process_starts_with_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "print(1)"],
        env=with_large_pages({}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
