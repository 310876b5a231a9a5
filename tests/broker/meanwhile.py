"""Meanwhile: what goes on beside a test, on threads of its own, from entering to leaving."""

import threading
from collections.abc import Callable
from typing import Final, Self

_ENDS_WITHIN_S: Final = 60.0


class Meanwhile:
    """Runs loops, each of which returns soon after `_ends` is set."""

    def __init__(self, *loops: Callable[[], None]) -> None:
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in loops]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(_ENDS_WITHIN_S)
            assert not thread.is_alive(), f"{type(self).__name__} does not end"
