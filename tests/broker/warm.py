"""Warm start: services that are forked from a process which has imported what they import.

Imports are more than half of the CPU time of a start, and the tests start hundreds of services.
After the fork it is as with `python -m`: a process of its own, which runs the module as the main
one, with its arguments, environment and log. It ends with the process that forked it, and that one
with the tests, killed or not. Workers are started by their supervisor, as always.
"""

import atexit
import ctypes
import importlib
import os
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple, Protocol

from ringfence_main.quick_start import start_quickly

MODULES: Final = (
    "ringfence_service.config.load",
    "ringfence_main.bridge",
    "ringfence_main.cli",
    "ringfence_main.serve_api",
    "ringfence_service.processor.committer",  # the victim's, as are the others of the loop
    "ringfence_service.processor.takeover",
    "ringfence_service.supervisor.worker_process",
)
REPOSITORY: Final = Path(__file__).parents[2]
_PR_SET_PDEATHSIG: Final = 1


class Process(Protocol):
    """What the tests use of `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its id, which is no other's before its status was asked for."""

    def poll(self) -> int | None:
        """Return its exit status, or minus the signal that ended it; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the same once it has ended; raise TimeoutExpired after so many seconds."""

    def kill(self) -> None:
        """Kill it unless it has ended."""


class Order(NamedTuple):
    """What to start: a module and its arguments, with an environment and a log."""

    words: Sequence[str]
    environment: Mapping[str, str]
    log: Path


class Source:
    """The process that forks. Any thread may use it, even one that ends before what it started."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        fd = theirs.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.broker.warm", str(fd)],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            pass_fds=(fd,),
        )
        theirs.close()
        self._channel: Connection[Order | int, int | None] = ours
        self._lock = Lock()

    def ask(self, request: Order | int) -> int | None:
        """Start what is ordered and return its id, or return the exit status of an id."""
        with self._lock:
            self._channel.send(request)
            return self._channel.recv()

    def end(self) -> None:
        """End it, and all that it has started."""
        self._channel.close()
        self._process.wait()


class Forked:
    """A process that was forked for the tests."""

    def __init__(self, source: Source, pid: int) -> None:
        self._ended = os.pidfd_open(pid)
        self.pid = pid
        self._source = source
        self._status: int | None = None

    def poll(self) -> int | None:
        if self._status is None:
            self._status = self._source.ask(self.pid)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        if self._status is None:
            ended = select.poll()
            ended.register(self._ended, select.POLLIN)
            ended.poll(None if timeout is None else timeout * 1000)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._ended)


def start(words: Sequence[str], environment: Mapping[str, str], log: Path) -> Forked:
    """Start a module, the first of the words, which appends what it says to the log."""
    pid = _source().ask(Order(tuple(words), dict(environment), log))
    assert pid, "a fork has an id"
    return Forked(_source(), pid)


@cache
def _source() -> Source:
    """The one of this process."""
    source = Source()
    atexit.register(source.end)
    return source


def main(channel: "Connection[int | None, Order | int]") -> None:
    """Import all modules, then fork for each order; in the fork, run the module that is ordered."""
    start_quickly()
    for name in MODULES:
        importlib.import_module(name)
    order = _next_order(channel)
    if order is not None:
        sys.argv[1:] = order.words[1:]
        runpy.run_module(order.words[0], run_name="__main__", alter_sys=True)


def _next_order(channel: "Connection[int | None, Order | int]") -> Order | None:
    """Return an order in each process that is forked for one, and None after the last."""
    source = os.getpid()
    while True:
        try:
            request = channel.recv()
        except EOFError:
            return None
        if isinstance(request, int):
            ended, status = os.waitpid(request, os.WNOHANG)
            channel.send(os.waitstatus_to_exitcode(status) if ended else None)
        elif pid := os.fork():
            channel.send(pid)
        else:
            channel.close()
            _become(request, source)
            return request


def _become(order: Order, source: int) -> None:
    """Be what a new process would be for this order."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != source:
        sys.exit(1)  # it had ended before
    os.environ.clear()
    os.environ.update(order.environment)
    log = os.open(order.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
