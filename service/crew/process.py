"""Process: starts a child anew, with a socket as its only tie to us.

Never by a fork of our own, which a Kafka client does not survive, nor with a process more that
tracks resources.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

from service.crew.messages import ToChild, ToSupervisor
from service.tuning import with_heap_tuned


def start(
    program: Sequence[str],
) -> tuple["subprocess.Popen[bytes]", "Connection[ToChild, ToSupervisor]"]:
    """Start Python with these arguments, a file descriptor and our process id.

    To be called by the main thread: the kernel ends a child with the thread that started it.
    OSError where the system has no process left.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs, _without_ctrl_c():
        fd = theirs.fileno()
        # -P: what lies in the current folder is none of our modules.
        command = [sys.executable, "-P", *program, str(fd), str(os.getpid())]
        process = subprocess.Popen(
            command,
            env=with_heap_tuned(os.environ),
            stdin=subprocess.DEVNULL,
            pass_fds=(fd,),
        )
        return process, Connection(ours.detach())


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """A child inherits what is blocked: of Ctrl-C, which reaches all of us, we alone hear."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
