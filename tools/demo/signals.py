"""Signal handling: the first SIGINT, SIGTERM or SIGHUP ends the demo; later ones are ignored."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(BaseException):
    """A signal has arrived; a BaseException, so that no library's `except Exception` catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise `Ended` in the main thread at the first signal while the block runs."""
    # Signals that our parent has ignored, as nohup does, stay ignored.
    before = {
        number: handler
        for number in ENDING
        if (handler := signal.getsignal(number)) != signal.SIG_IGN
    }

    def end(number: int, _frame: FrameType | None) -> None:
        for each in before:
            # A no-op handler instead of SIG_IGN, which children would inherit.
            signal.signal(each, lambda _number, _frame: None)
        raise Ended(number)

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
