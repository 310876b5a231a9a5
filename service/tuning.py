"""Tuning of the interpreter for a process that handles records by the ten thousand."""

import gc
from typing import Final

_YOUNG_OBJECTS: Final = 100_000
_GENERATIONS: Final = 20


def calm_garbage_collector() -> None:
    """Look for cycles rarely: nearly all that a batch allocates goes by reference count.

    What was loaded until now lives as long as the process, so it is never looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _GENERATIONS, _GENERATIONS)
