"""Work in forked children: they have all that is imported, and what they break goes with them.

A child says by its exit what it found and writes before each test which it is. A test that goes on
for many times as long as ever ends its process: alarms that nobody handles do that.
"""

import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

FOUND: Final = 1
ELSEWHERE: Final = 2
"""The mutant cannot be judged in a child of this process."""
TOO_LONG: Final = {signal.SIGALRM, signal.SIGPROF}
MEMORY_BYTES_MAX: Final = 8 * 1024**3
CHILD_S_MAX: Final = 3600


class Task(NamedTuple):
    """A task for a child; `work` is given the file descriptor to write to, and ends the process."""

    name: str
    work: Callable[[int], None]


class Ending(NamedTuple):
    """How a child ended."""

    name: str
    how: str
    """`nothing` or `found`, `too long` or `crashed`; `elsewhere` for none of these."""
    said: str
    seconds: float
    """Of one core."""


class _Child(NamedTuple):
    task: Task
    pid: int
    folder: str
    began_s: float
    said: bytearray


def endings(tasks: Iterator[Task], at_once: int) -> Iterator[Ending]:
    """Of all tasks, each in a child of its own."""
    with selectors.DefaultSelector() as children:
        is_over = False
        while True:
            while not is_over and len(children.get_map()) < at_once:
                task = next(tasks, None)
                if task is None:
                    is_over = True
                else:
                    _start(task, children)
            if not children.get_map():
                return
            for key, _ in children.select(timeout=5):
                piece = os.read(key.fd, 65536)
                if piece:
                    key.data.said.extend(piece)
                else:
                    children.unregister(key.fileobj)
                    os.close(key.fd)
                    yield _end(key.data)
            for key in children.get_map().values():
                if time.monotonic() - key.data.began_s > CHILD_S_MAX:
                    os.killpg(key.data.pid, signal.SIGALRM)


def limit_test(cpu_s: float, wall_s: float) -> None:
    """End this process when its next test takes many times as long as it did; 0 ends the limit."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s and 1 + 10 * cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s and 30 + 10 * wall_s)


def _start(task: Task, children: selectors.BaseSelector) -> None:
    reads, writes = os.pipe()
    folder = tempfile.mkdtemp(prefix="mutant-")
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(writes)
        said = bytearray()
        child = _Child(task, pid, folder, time.monotonic(), said)
        children.register(reads, selectors.EVENT_READ, child)
        return
    try:
        os.setsid()
        os.environ["PYTEST_DEBUG_TEMPROOT"] = os.environ["TMPDIR"] = tempfile.tempdir = folder
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        task.work(writes)
    except BaseException as error:  # noqa: BLE001 - nothing of the child goes on in its parent
        os.write(writes, f"\n! {error!r}".encode())
        os._exit(FOUND)
    os._exit(0)


def _end(child: _Child) -> Ending:
    _, status, used = os.wait4(child.pid, 0)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    shutil.rmtree(child.folder, ignore_errors=True)
    if os.WIFSIGNALED(status):
        how = "too long" if os.WTERMSIG(status) in TOO_LONG else "crashed"
    else:
        how = {0: "nothing", ELSEWHERE: "elsewhere"}.get(os.WEXITSTATUS(status), "found")
    return Ending(child.task.name, how, child.said.decode(), used.ru_utime + used.ru_stime)
