"""Ctrl-C and its like: the first one ends the demo in order, later ones do not disturb that."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal asked for the end. No `except Exception` of a library may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, the first signal raises `Ended` in the main thread."""
    before = {number: signal.getsignal(number) for number in ENDING}

    def end(number: int, _frame: FrameType | None) -> None:
        for each in ENDING:
            # Not SIG_IGN, which children would inherit.
            signal.signal(each, lambda _number, _frame: None)
        raise Ended(number)

    for number in ENDING:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
