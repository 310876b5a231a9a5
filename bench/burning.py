"""Burning: CPU that another process takes, to tell what a machine costs from what a load does."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SLICE_S: Final = 0.002


@contextmanager
def burning(cores: float) -> Iterator[None]:
    """Take so much of the processors while the block runs, one of them at most."""
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
