"""Quick start: work that a serving process skips while it imports its modules.

This takes a fifth off the start of a worker. `calm_garbage_collector` turns collection on again.
"""

import gc
import sys


def start_quickly() -> None:
    """Disable garbage collection while modules load, and prevent the import of rich.

    Modules are never garbage. structlog imports rich for coloured tracebacks, which no log of a
    service has; without rich it writes plain ones.
    """
    gc.disable()
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes `import rich` an ImportError
