"""Memory, CPU time and disk use of processes, read from /proc (Linux)."""

import os
import platform
import re
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

from tools.processes import children_of

MIB: Final = 1024 * 1024
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_KINDS: Final = (("rdk:", "Kafka client"), ("rocksdb:", "RocksDB"))


class Memory(NamedTuple):
    """Resident memory of a process and its children, in bytes."""

    now: int
    peak: int


def memory(pid: int) -> Memory:
    """Return VmRSS and VmHWM of a live process and its children, summed."""
    found = [
        memory_in(Path(f"/proc/{each}/status").read_text(encoding="ascii"))
        for each in (pid, *children_of(pid))
    ]
    return Memory(sum(each.now for each in found), sum(each.peak for each in found))


def memory_in(status: str) -> Memory:
    """Return VmRSS and VmHWM from the text of a process's status file."""
    kib = dict(re.findall(r"^(Vm\w+):\s+(\d+) kB", status, re.MULTILINE))
    return Memory(int(kib["VmRSS"]) * 1024, int(kib["VmHWM"]) * 1024)


def cpu_s(pid: int) -> dict[str, float]:
    """Return the CPU seconds of a live process and its children, by kind of thread.

    A process with children is a supervisor, and all its threads count as one kind.
    """
    found: dict[str, float] = defaultdict(float)
    children = children_of(pid)
    for each in (pid, *children):
        for task in Path(f"/proc/{each}/task").iterdir():
            try:
                name, seconds = thread_in((task / "stat").read_text(encoding="utf-8"))
            except OSError:
                continue  # the thread has ended
            kind = kind_of(name, is_main=task.name == str(each))
            found["supervisor" if children and each == pid else kind] += seconds
    return found


def busy_s() -> float:
    """Return the CPU seconds of all processes since the machine was started."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = _read("/proc/stat").split()[1:]
    return sum(map(int, (user, nice, system, irq, softirq))) / _TICKS_PER_S


def thread_in(stat: str) -> tuple[str, float]:
    """Return name and CPU seconds of a thread, from the text of its stat file."""
    head, _, rest = stat.rpartition(")")
    fields = rest.split()
    return head.partition("(")[2], (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def kind_of(thread: str, *, is_main: bool) -> str:
    """Return the kind of a thread, by its name."""
    if is_main:
        return "main thread"
    return next((kind for start, kind in _KINDS if thread.startswith(start)), "other threads")


def disk_bytes(folder: Path) -> int:
    """Return the disk space of a folder: its blocks, as `du` counts them."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def drop_cached(folder: Path) -> None:
    """Drop the files below a folder from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())  # only pages that are on the disk can be dropped
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def described() -> dict[str, object]:
    """Return the machine's processors, memory and kernel."""
    cpus = re.findall(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    total = re.search(r"^MemTotal:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return {
        "processors": os.cpu_count(),
        "processor": cpus[0] if cpus else platform.processor(),
        "memory_mib": int(total[1]) // 1024 if total else None,
        "kernel": platform.release(),
    }


def _read(path: str) -> str:
    file = Path(path)
    return file.read_text(encoding="utf-8") if file.exists() else ""
