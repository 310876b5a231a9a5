"""What a run of a Spark benchmark takes, summed over its processes."""

import os
import signal

from bench.machine import MIB
from bench.spark_process import used


def test_pages_that_processes_share_count_once() -> None:
    pages = b"\1" * (64 * MIB)
    alone = sum(held for held, _ in used(os.getpid()))
    child = os.fork()
    if not child:
        signal.pause()
    try:
        both = sum(held for held, _ in used(os.getpid()))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert alone >= len(pages)
    assert abs(both - alone) < len(pages) / 2
