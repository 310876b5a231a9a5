"""Processes of the Spark benchmarks: each run has its own, whose memory and CPU time are sampled.

Memory and CPU time are sums over the process, Spark's JVM and the Python workers, sampled four
times a second. Pages that processes share count once, as they are there once: workers are forks of
one process, and so is for a moment what the JVM starts. A run prints its figures as a line of JSON
at its end.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console

from bench.finding import Finding, table
from bench.machine import described
from bench.results import FOLDER, versions
from tools.processes import children_of

_SAMPLE_S: Final = 0.25
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class SampledRun(NamedTuple):
    """What a run has printed, and what it took."""

    figures: list[Any]
    peak_bytes: int
    cpu_s: float


def sampled(module: str, *arguments: str, log: Path) -> SampledRun:
    """Run a module in a process of its own; raise RuntimeError with the end of its log."""
    peak_bytes, cpu_s = 0, 0.0
    command = [sys.executable, "-m", module, *arguments]
    with log.open("w") as out:
        running = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        while running.poll() is None:
            found = list(used(running.pid))
            peak_bytes = max(peak_bytes, sum(held for held, _ in found))
            cpu_s = max(cpu_s, sum(seconds for _, seconds in found))
            time.sleep(_SAMPLE_S)
    lines = log.read_text(encoding="utf-8").splitlines()
    if running.returncode:
        said = "\n".join(lines[-30:])
        raise RuntimeError(f"{module} {arguments[0]} ended with {running.returncode}:\n{said}")
    return SampledRun(json.loads(lines[-1]), peak_bytes, cpu_s)


def publish(found: Finding, name: str, console: Console) -> None:
    """Show a finding, and write it with the machine and the versions into the results."""
    console.print(table(found))
    FOLDER.mkdir(parents=True, exist_ok=True)
    document = {"machine": described(), "versions": versions(), name: found.to_json()}
    file = FOLDER / f"{name}.json"
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    console.print(f"written: {file}")


def used(pid: int) -> Iterator[tuple[int, float]]:
    """Yield bytes in memory and CPU seconds of a process and its descendants.

    The CPU time of a process includes that of the children that have ended.
    """
    try:
        for each in children_of(pid):
            yield from used(each)
        shares = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return  # the process has ended
    proportional = re.search(r"^Pss:\s+(\d+) kB", shares, re.MULTILINE)
    held = int(proportional[1]) * 1024 if proportional else 0
    times = stat.rpartition(")")[2].split()[11:15]
    yield held, sum(map(int, times)) / _TICKS_PER_S
