"""Retry policy: how long a loop waits for a broker, and its exit code once a limit is exceeded.

One policy serves all lives of a loop, since a wait may outlast a life. The loop calls `back_off`
for errors of the broker and `turned` after each turn without one; `ringfence_service.kafka.errors`
classifies errors. The policy reports waits and reads nothing from the reporter.
"""

from collections.abc import Callable
from typing import Final

from ringfence_service.clock import Clock
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.errors import KafkaFailure
from ringfence_service.processor.reporter import Reporter

_BACKOFF_S: Final = (0.1, 0.5, 1.0, 2.0)
"""Pauses of the loop, during which it answers no query: a query waits for five seconds at most."""
_OPEN_TRANSACTION_S: Final = 900.0
"""How long partitions may wait for the broker, with turns that succeed, before exit code 3.

It is the default of the broker's `transaction.max.timeout.ms`: no transaction that blocks a
changelog or a committed offset stays open for longer.
"""
_CUT_OFF_S: Final = 20.0
"""How long clients may find no broker before the life ends, and the next one has new clients.

Twice the longest pause after which librdkafka connects again (`reconnect.backoff.max.ms`, 10 s by
default), so clients that still know their brokers come back by themselves. A new life costs more:
it joins the group again.
"""
BROKER_PATIENCE_S: Final = 300.0
"""How long the broker may refuse all work before the process ends with exit code 3."""
THROTTLED: Final = (
    "the broker, which throttles this client (quota); raise the quota of its user or client id"
)
_SILENT_S: Final = 2.0
"""A transaction request that is unanswered for longer counts as a wait."""


class RetryPolicy:
    """What a loop waits for and since when, its backoff, and the limits of both."""

    def __init__(self, reporter: Reporter, clock: Clock, session_timeout_ms: int) -> None:
        self._reporter, self._clock = reporter, clock
        self._group_s = 2 * session_timeout_ms / 1000
        self._waiting_since_s: float | None = None
        self._until_commit = False
        """Whether only a commit ends the wait: a turn without a failure proves nothing."""
        self._stands_still = False
        """Whether all routes wait for something else than the broker."""
        self.begin_life()

    def begin_life(self) -> None:
        """Reset what belongs to one life of the loop; a wait continues."""
        self._failures = 0
        self._cut_off_since_s: float | None = None
        """Since when the clients of this life have found no broker."""
        self._unsettled: tuple[int, float] | None = None
        """The number of rebalances and the time at which the group began to refuse our commits."""

    def wait(self, sentence: str, *, until_commit: bool = False) -> None:
        """Wait for what the sentence says, from now on or from the beginning of the current wait.

        With `until_commit` only a commit ends the wait.
        """
        self._until_commit = self._until_commit or until_commit
        if self._waiting_since_s is None:
            self._waiting_since_s = self._clock.monotonic_s()
        self._reporter.waiting(sentence)

    def wait_again(self, sentence: str) -> None:
        """Wait from now on: the broker has just answered, so the time that it has begins again."""
        self._waiting_since_s = None
        self.wait(sentence)

    def waited_s(self) -> float:
        """Return how long the loop has waited; 0 if it does not wait."""
        since_s = self._waiting_since_s
        return 0.0 if since_s is None else self._clock.monotonic_s() - since_s

    def on_wait(self, waited_s: float) -> None:
        """Handle a moment of a transaction in which the broker has not responded for so long."""
        self._reporter.beat()
        if waited_s >= _SILENT_S and self._waiting_since_s is None:  # else the reason is known
            sentence = "the broker, which leaves a transaction unanswered"
            self.wait(self.cause_of(sentence), until_commit=True)

    def cause_of(self, sentence: str) -> str:
        """Return the sentence of a wait for the broker, or the quota that is its likely cause."""
        return THROTTLED if self._reporter.is_throttled else sentence

    def back_off(self, sentence: str, *, until_commit: bool = False) -> None:
        """Note the wait and sleep, longer after each failure in a row.

        Raises ExitError 3 once the wait exceeds `BROKER_PATIENCE_S`.
        """
        self.wait(sentence, until_commit=until_commit)
        if self.waited_s() > BROKER_PATIENCE_S:
            raise ExitError(ExitCode.BROKER, f"Gave up waiting for {sentence}.")
        self._clock.sleep(_BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)])
        self._failures += 1

    def turned(
        self, waiting: str | None, standstill: str | None, has_caught_up: Callable[[], bool]
    ) -> None:
        """Handle a turn without errors; `waiting` is what it still waits for in the broker.

        `standstill` is what the routes wait for if none of them can be read. That never ends the
        process: another one would wait for the same.
        `has_caught_up` returns whether all input is committed: no further commit is expected then.
        """
        if waiting is not None:
            self.wait(waiting)
            if self.waited_s() > _OPEN_TRANSACTION_S:
                raise ExitError(ExitCode.BROKER, f"Gave up waiting for {waiting}.")
            return
        self._until_commit = self._until_commit and not has_caught_up()
        if self._until_commit:
            return
        self._failures = 0
        has_waited = self._waiting_since_s is not None or self._stands_still
        self._waiting_since_s, self._stands_still = None, standstill is not None
        if standstill is not None:
            self._reporter.waiting(standstill, stands_still=True)
        elif has_waited:
            self._reporter.resumed()

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
        """Note a commit: the broker works, and the group accepted our offsets."""
        self._unsettled = None
        self._until_commit = False

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
