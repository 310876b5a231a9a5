"""The real service, which sends itself a signal at the k-th passing of a named step.

    VICTIM_STEP=after_flush VICTIM_COUNT=3 VICTIM_SIGNAL=KILL python -m tests.broker.victim FILE

Only the place of death is added: everything before it is what `ringfence serve` does.
"""

import os
import signal
import sys
import threading
from enum import StrEnum
from typing import Any

from confluent_kafka import Producer

from service import assignment, cli, kafka, loop
from service.apply import apply
from state.restore import Restorer


class Step(StrEnum):
    BEFORE_BEGIN = "before_begin"
    AFTER_BEGIN = "after_begin"
    MID_PRODUCE = "mid_produce"
    AFTER_FLUSH = "after_flush"
    AFTER_SEND_OFFSETS = "after_send_offsets"
    INSIDE_COMMIT = "inside_commit"
    AFTER_COMMIT = "after_commit"
    AFTER_STORE = "after_store"
    MID_RESTORE = "mid_restore"


class Fate:
    """Counts the passings of one step."""

    def __init__(self, step: Step, count: int, signal_number: signal.Signals) -> None:
        self._step = step
        self._left = count
        self._signal = signal_number

    def passes(self, step: Step, delay_s: float = 0) -> None:
        if step is not self._step or self._left == 0:
            return
        self._left -= 1
        if self._left == 0 and delay_s:
            threading.Timer(delay_s, self._strike).start()
        elif self._left == 0:
            self._strike()

    def _strike(self) -> None:
        os.kill(os.getpid(), self._signal)


def condemn(fate: Fate) -> None:
    """Make producer, restorer and `apply` pass their steps by the fate."""

    class CondemnedProducer(Producer):
        def begin_transaction(self) -> None:
            fate.passes(Step.BEFORE_BEGIN)
            super().begin_transaction()
            fate.passes(Step.AFTER_BEGIN)

        def produce(self, *place: Any, **record: Any) -> None:
            super().produce(*place, **record)
            fate.passes(Step.MID_PRODUCE)

        def flush(self, *timeout: Any) -> int:
            left = super().flush(*timeout)
            fate.passes(Step.AFTER_FLUSH)
            return left

        def send_offsets_to_transaction(self, *offsets: Any) -> None:
            super().send_offsets_to_transaction(*offsets)
            fate.passes(Step.AFTER_SEND_OFFSETS)

        def commit_transaction(self, *timeout: Any) -> None:
            fate.passes(Step.INSIDE_COMMIT, delay_s=0.001)
            super().commit_transaction(*timeout)
            fate.passes(Step.AFTER_COMMIT)

    class CondemnedRestorer(Restorer):
        def step(self, timeout_s: float) -> int:
            moved = super().step(timeout_s)
            if moved:
                fate.passes(Step.MID_RESTORE)
            return moved

    def apply_and_pass(*committed: Any) -> None:
        apply(*committed)
        fate.passes(Step.AFTER_STORE)

    vars(kafka)["Producer"] = CondemnedProducer
    vars(assignment)["Restorer"] = CondemnedRestorer
    vars(loop)["apply"] = apply_and_pass


def main() -> None:
    environ = os.environ
    number = signal.Signals[f"SIG{environ['VICTIM_SIGNAL']}"]
    condemn(Fate(Step(environ["VICTIM_STEP"]), int(environ["VICTIM_COUNT"]), number))
    sys.argv[1:] = ["serve", "--config", *sys.argv[1:]]
    cli.main()


if __name__ == "__main__":
    main()
