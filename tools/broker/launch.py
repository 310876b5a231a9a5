"""Launcher: executes a program, attached to the process that starts it or detached from it.

    launch.py attached STARTER_PID PROGRAM ARGUMENTS…   ends with its starter, killed or not (Linux)
    launch.py detached PROGRAM ARGUMENTS…               outlives its starter; prints the process id

It is a script instead of a function that runs between fork and exec, because a process with client
threads must not run Python there.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _attached(starter_pid: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != starter_pid:
            # The starter died before prctl took effect.
            sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 - the point of this script


def _detached(command: list[str]) -> None:
    pid = os.fork()
    if pid:
        print(pid)
        return
    os.setsid()
    os.dup2(2, 1)  # The starter reads our standard output to its end; the log is on 2.
    os.execvp(command[0], command)  # noqa: S606 - the point of this script


if __name__ == "__main__":
    if sys.argv[1] == "attached":
        _attached(int(sys.argv[2]), sys.argv[3:])
    else:
        _detached(sys.argv[2:])
