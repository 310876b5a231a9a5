"""CPU burner: a process that takes CPU, to separate the effect of a busy machine from a load's."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SLICE_S: Final = 0.002


@contextmanager
def burning(cores: float) -> Iterator[None]:
    """Use a fraction of one core in another process while the block runs."""
    process = multiprocessing.get_context("spawn").Process(target=_burn, args=(cores,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _burn(cores: float) -> None:
    began_s, used_s = time.monotonic(), time.process_time()
    while True:
        due_s = (time.monotonic() - began_s) * cores
        while time.process_time() - used_s < due_s:
            pass
        time.sleep(_SLICE_S)
