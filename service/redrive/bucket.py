"""Bucket: how fast letters may go out. A token for each, so many a second, and few in reserve.

It begins empty, and what a standstill leaves is bounded, so over any time no more go out than the
rate allows, but for that reserve. Whoever sends slowly may take more together, since what a step
costs hardly depends on how many go in it: so the rate is reached too.
"""

from typing import Final

_RESERVE_S: Final = 1.0
_STEP_S: Final = 0.1


class Bucket:
    """See the module; the times it is told never go back."""

    def __init__(self, per_second: float | None, now_s: float) -> None:
        """Without a rate nothing waits."""
        self._per_second = per_second
        self._tokens = 0.0
        self._filled_s = now_s

    def at_once(self, now_s: float) -> float:
        """How many may be taken together: what is there, or else a tenth of a second's worth."""
        if self._per_second is None:
            return float("inf")
        return max(1.0, self._per_second * _STEP_S, self._there(now_s))

    def take(self, count: int, now_s: float) -> float:
        """Take so many tokens; gives how long to wait until they are there, in seconds."""
        if self._per_second is None:
            return 0.0
        self._tokens = self._there(now_s) - count
        self._filled_s = now_s
        return max(0.0, -self._tokens / self._per_second)

    def _there(self, now_s: float) -> float:
        assert self._per_second is not None, "what has no rate has no tokens"
        filled = self._tokens + (now_s - self._filled_s) * self._per_second
        return min(filled, max(1.0, self._per_second * _RESERVE_S))
