"""What a process takes is counted with its workers, and a little more is no leak."""

import os
import subprocess
import sys
from collections import Counter

from tests.soak.footprint import (
    HANDLES_MORE,
    THREADS_MORE,
    Footprint,
    footprint,
    more_threads,
    tree,
)

BASE = Footprint(100, 10, 50, Counter({"rdk:main": 4, "rdk:broker1": 6}))


def test_a_process_is_counted_with_what_it_has_started() -> None:
    alone = footprint(os.getpid())
    worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with worker:
        assert worker.pid in tree(os.getpid())
        both = footprint(os.getpid())
        assert both.threads > alone.threads
        assert both.handles > alone.handles
        worker.communicate(b"\n")
    assert worker.pid not in tree(os.getpid())


def test_a_little_more_is_no_leak_and_much_more_is_one() -> None:
    assert BASE.returned_to(BASE)
    assert BASE._replace(threads=10 + THREADS_MORE).returned_to(BASE)
    assert not BASE._replace(threads=11 + THREADS_MORE).returned_to(BASE)
    names = Counter({"rdk:main": 4, "rdk:broker1": 26})
    assert BASE._replace(threads=30, thread_names=names).returned_to(BASE)
    assert not BASE._replace(handles=51 + HANDLES_MORE).returned_to(BASE)
    assert not BASE._replace(rss_mib=300).returned_to(BASE)
    assert BASE._replace(threads=10 + 2 * THREADS_MORE, processes=2).returned_to(BASE)
    assert not BASE._replace(threads=11 + 2 * THREADS_MORE, processes=2).returned_to(BASE)


def test_additional_threads_are_reported_by_name() -> None:
    more = BASE._replace(thread_names=Counter({"rdk:main": 4, "rdk:broker1": 11}))
    assert more_threads(more, BASE) == "5 more rdk:broker1"
    assert more_threads(BASE, more) == "none"
