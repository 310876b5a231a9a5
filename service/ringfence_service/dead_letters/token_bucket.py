"""Token bucket: limits how many records a second a redrive takes."""

from typing import Final

_RESERVE_S: Final = 1.0
"""The time for which tokens that nobody takes are kept: a pause is followed by no burst."""

_STEP_S: Final = 0.1
"""The tokens of this time are given at once: smaller steps would cost more than their records."""


class TokenBucket:
    """Rate limiter; the times that it is given must never go back."""

    def __init__(self, per_second: float | None, now_s: float) -> None:
        """`per_second` None means no limit."""
        self._per_second = per_second
        self._tokens = 0.0
        self._filled_s = now_s

    def at_once(self, now_s: float) -> float:
        """Return how many tokens may be taken at once: those available, at least those of 0.1 s."""
        if self._per_second is None:
            return float("inf")
        return max(1.0, self._per_second * _STEP_S, self._available(now_s))

    def take(self, count: int, now_s: float) -> float:
        """Take tokens, and return the seconds to wait until they are available."""
        if self._per_second is None:
            return 0.0
        self._tokens = self._available(now_s) - count
        self._filled_s = now_s
        return max(0.0, -self._tokens / self._per_second)

    def _available(self, now_s: float) -> float:
        assert self._per_second is not None, "a bucket without a rate has no tokens"
        filled = self._tokens + (now_s - self._filled_s) * self._per_second
        return min(filled, max(1.0, self._per_second * _RESERVE_S))
