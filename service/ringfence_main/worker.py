"""Worker program: the process that the supervisor starts for each task.

python -P -m ringfence_main.worker FD SUPERVISOR_PID
"""

import sys

from ringfence_main.quick_start import start_quickly


def main() -> None:
    """Import the worker quickly, then run it and exit with its code."""
    start_quickly()
    from ringfence_service.clock import leave
    from ringfence_service.supervisor.worker_process import main as run

    leave(run(*sys.argv[1:]))


if __name__ == "__main__":
    main()
