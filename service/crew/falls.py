"""Falls: how a process ended, how often one has, and what follows from it."""

import signal
from typing import Final

from service.errors import ExitCode

_FIRST_PAUSE_S: Final = 0.5
_PAUSE_MAX_S: Final = 30.0
_WELL_S: Final = 60.0
"""Who ran for so long has forgotten its falls."""
FUTILE_MAX: Final = 10
"""So many processes in a row that never joined the group are enough."""


class Falls:
    """Those of one part."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._futile = 0

    def pause_s(self, lived_s: float) -> float:
        """Count one more end; tells how long to wait before the next start."""
        again_s = min(_PAUSE_MAX_S, 2 * self._pause_s)
        self._pause_s = again_s if self._pause_s and lived_s < _WELL_S else _FIRST_PAUSE_S
        return self._pause_s

    def is_futile(self, *, had_run: bool) -> bool:
        """Whether there is no point in another start."""
        self._futile = 0 if had_run else self._futile + 1
        return self._futile >= FUTILE_MAX


def how_it_ended(code: int) -> str:
    """As a sentence goes on after the name of a worker."""
    if code == ExitCode.HUNG:
        return "hung"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return f"was ended by {name}"
    return f"ended with exit code {code}"
