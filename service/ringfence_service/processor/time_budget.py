"""Time budget: how much of the loop's time may be spent on other work than records."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Final

from ringfence_service.clock import Clock

CREDIT_S_MAX: Final = 0.05
"""Most time for such work between two batches, however little was used before: records wait for
it.
"""

_BUSY_S: Final = 0.25
"""A loop counts as busy this long after a record: one turn without records may only mean that the
broker is slow.
"""


class TimeBudget:
    """Limits the time that the loop spends on some work, to a share of it while records arrive.

    If a step exceeds the budget, the excess is deducted from later turns.
    """

    def __init__(self, clock: Clock, share: float) -> None:
        self._clock = clock
        self._share = share
        self._since_s = clock.monotonic_s()
        self._busy_s = float("-inf")
        self._left_s = CREDIT_S_MAX

    @contextlib.contextmanager
    def of_turn(self, *, has_read: bool) -> Iterator[Callable[[], bool]]:
        """Yield a function that returns whether any time is left after this turn."""
        now_s = self._clock.monotonic_s()
        if has_read:
            self._busy_s = now_s
        is_busy = now_s - self._busy_s < _BUSY_S
        earned_s = (now_s - self._since_s) * self._share if is_busy else math.inf
        self._left_s = min(CREDIT_S_MAX, self._left_s + earned_s)
        self._since_s = now_s
        yield lambda: self._clock.monotonic_s() - now_s < self._left_s
        self._left_s -= self._clock.monotonic_s() - now_s
