"""Footprint: what a process and its workers take, and whether it is more than it was."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

RSS_GROWTH: Final = 0.5
RSS_MORE_MIB: Final = 64
THREADS_MORE: Final = 3
HANDLES_MORE: Final = 24
"""How much more is no leak, in each process: caches fill, and a worker that had no partition of
a kind before makes its clients and opens its store when it gets one."""


class Footprint(NamedTuple):
    """At one moment."""

    rss_mib: float
    threads: int
    handles: int
    thread_names: Mapping[str, int]
    processes: int = 1

    def __str__(self) -> str:
        return f"{self.rss_mib:.0f} MiB, {self.threads} threads, {self.handles} file handles"

    @property
    def own_threads(self) -> int:
        """All but those of connections: a client meets the brokers one by one, and keeps them."""
        of_brokers = (n for name, n in self.thread_names.items() if name.startswith("rdk:broker"))
        return self.threads - sum(of_brokers)

    def returned_to(self, base: "Footprint", brokers: int = 1) -> bool:
        """Whether it is back at what it was."""
        return (
            self.rss_mib <= base.rss_mib * (1 + RSS_GROWTH) + RSS_MORE_MIB
            and self.own_threads <= base.own_threads + THREADS_MORE * self.processes
            and self.handles <= base.handles + HANDLES_MORE * brokers * self.processes
        )


def tree(pid: int) -> list[int]:
    """A process and all that it has started, and they in turn."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            children += map(int, task.read_text().split())
    return [pid, *(each for child in children for each in tree(child))]


def footprint(pid: int) -> Footprint:
    """Of a process with its workers, as the kernel counts it."""
    found = [_of_one(pid)]
    for worker in tree(pid)[1:]:
        with suppress(OSError):  # a worker that has just ended
            found.append(_of_one(worker))
    names = sum((Counter(each.thread_names) for each in found), Counter[str]())
    rss_mib, handles = sum(each.rss_mib for each in found), sum(each.handles for each in found)
    return Footprint(rss_mib, names.total(), handles, names, len(found))


def _of_one(pid: int) -> Footprint:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    # A process that has ended and was not waited for has no memory any more.
    rss_kib = next((int(line.split()[1]) for line in status if line.startswith("VmRSS")), 0)
    handles = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    names = Counter[str]()
    for task in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):  # a thread that has just ended
            names[task.read_text().strip()] += 1
    return Footprint(rss_kib / 1024, names.total(), handles, names)


def more_threads(now: Footprint, base: Footprint) -> str:
    """Which threads are there that were not, by their names."""
    more = Counter(now.thread_names) - Counter(base.thread_names)
    return ", ".join(f"{count} more {name}" for name, count in sorted(more.items())) or "none"
