"""Quick start: what a process that serves leaves out while it imports its modules.

Together it takes a fifth off the start of a worker. `calm_garbage_collector` ends it.
"""

import gc
import sys


def start_quickly() -> None:
    """Collect no garbage while modules load, and do not load rich.

    Nothing that is imported is garbage. structlog imports rich for tracebacks in colour, which no
    log of a service has; without rich it writes plain ones.
    """
    gc.disable()
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes `import rich` an ImportError
