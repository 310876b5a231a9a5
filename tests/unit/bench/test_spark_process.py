"""Runs of the Spark benchmarks: what they print, what they take, and how they fail."""

import os
import signal
from pathlib import Path

import pytest

from bench.machine import MIB
from bench.spark_process import sampled, used

PROGRAM = """
import sys, time
if sys.argv[1] == "fails":
    sys.exit("out of disk")
kept = b"x" * 100_000_000
end_s = time.process_time() + 1
while time.process_time() < end_s:
    pass
print("on the way")
print([1, 2.5])
"""


def test_a_run_tells_its_last_line_its_peak_memory_and_its_cpu_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one_run.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = sampled("one_run", "works", log=tmp_path / "log")
    assert done.figures == [1, 2.5]
    assert done.peak_bytes > 100_000_000
    assert done.cpu_s > 0
    with pytest.raises(RuntimeError, match=r"one_run fails ended with 1:\nout of disk"):
        sampled("one_run", "fails", log=tmp_path / "log")


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
