"""Worker program: the process that the supervisor starts for each task.

python -P -m service.main.worker FD SUPERVISOR_PID
"""

import sys

from service.main.quick_start import start_quickly


def main() -> None:
    """Import the worker quickly, then run it and exit with its code."""
    start_quickly()
    from service.clock import leave
    from service.supervisor.worker_process import main as run

    leave(run(*sys.argv[1:]))


if __name__ == "__main__":
    main()
