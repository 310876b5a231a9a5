"""Retry policy: how long a loop waits for a broker, and its exit code once a limit is exceeded."""

from typing import Final

from service.clock import Clock
from service.errors import ExitCode, ExitError
from service.kafka.errors import KafkaFailure
from service.processor.reporter import Reporter

_BACKOFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
# The default of the broker's transaction.max.timeout.ms: no transaction stays open for longer.
_OPEN_TRANSACTION_S: Final = 900.0
_CUT_OFF_S: Final = 20.0
BROKER_PATIENCE_S: Final = 300.0
"""How long the broker may refuse all work before the process ends with exit code 3."""


class RetryPolicy:
    """Backoff and time limits of one life of a loop."""

    def __init__(self, reporter: Reporter, clock: Clock, session_timeout_ms: int) -> None:
        self._reporter, self._clock = reporter, clock
        self._group_s = 2 * session_timeout_ms / 1000
        self._failures = 0
        self._cut_off_since_s: float | None = None
        """Since when the clients of this life have found no broker."""
        self._unsettled: tuple[int, float] | None = None
        """The number of rebalances and the time at which the group began to refuse our commits."""

    def back_off(self, sentence: str, *, until_commit: bool = False) -> None:
        """Report what is waited for, sleep, and raise ExitError 3 after `BROKER_PATIENCE_S`."""
        self._reporter.wait(sentence, until_commit=until_commit)
        if self._reporter.waited_s() > BROKER_PATIENCE_S:
            raise ExitError(ExitCode.BROKER, f"Gave up waiting for {sentence}.")
        self._clock.sleep(_BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)])
        self._failures += 1

    def turned(self, waiting: str | None) -> None:
        """Handle a turn without errors; `waiting` is what it still waits for, if anything."""
        if waiting is not None:
            self._reporter.wait(waiting)
            if self._reporter.waited_s() > _OPEN_TRANSACTION_S:
                raise ExitError(ExitCode.BROKER, f"Gave up waiting for {waiting}.")
        elif self._reporter.go_on():
            self._failures = 0

    def is_cut_off(self, *, finds_broker: bool) -> bool:
        """Return whether clients have found no broker for so long that new ones are needed.

        Called once per turn. librdkafka may forget every broker permanently (its issue #5301).
        """
        now_s = self._clock.monotonic_s()
        if finds_broker:
            self._cut_off_since_s = None
            return False
        if self._cut_off_since_s is None:
            self._cut_off_since_s = now_s
        return now_s - self._cut_off_since_s > _CUT_OFF_S

    def committed(self) -> None:
        """Note that the group accepted our offsets."""
        self._unsettled = None

    def is_passing(self, fault: KafkaFailure, rebalances: int) -> bool:
        """Whether a failure is due to a rebalance whose callback has not run yet.

        That may last as long as a dead member can delay the group. After that the failure is
        handled like any other.
        """
        now_s = self._clock.monotonic_s()
        if not fault.of_group:
            self._unsettled = None
            return False
        if self._unsettled is None or self._unsettled[0] != rebalances:
            self._unsettled = (rebalances, now_s)
        if now_s - self._unsettled[1] > self._group_s:
            return False
        self._clock.sleep(_BACKOFF_S[0])
        return True
