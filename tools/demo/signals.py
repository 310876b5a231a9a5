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
    # What the starter wants ignored, as nohup does, stays ignored.
    before = {
        number: handler
        for number in ENDING
        if (handler := signal.getsignal(number)) != signal.SIG_IGN
    }

    def end(number: int, _frame: FrameType | None) -> None:
        for each in before:
            # Not SIG_IGN, which children would inherit.
            signal.signal(each, lambda _number, _frame: None)
        raise Ended(number)

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
