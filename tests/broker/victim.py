"""The real service, which sends itself a signal at the k-th passing of a named step.

    VICTIM_STEP=after_flush VICTIM_COUNT=3 VICTIM_SIGNAL=KILL python -m tests.broker.victim FILE

The step is passed in a child; the signal goes to the supervisor first, then to the child. Only the
place of death is added: everything before it is what `ringfence serve` does.
"""

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Producer

from ringfence_main import cli
from ringfence_main import serve as run
from ringfence_service.kafka import clients as kafka
from ringfence_service.native import path as fast_path
from ringfence_service.native.clients import NativeProducer
from ringfence_service.processor import committer
from ringfence_service.processor import takeover as initializer
from ringfence_service.processor.apply import apply
from ringfence_service.processor.restore import Restorer
from ringfence_service.supervisor import supervisor
from ringfence_service.supervisor import worker_process as child
from ringfence_service.supervisor.watchdog import HANG_LIMIT_S
from ringfence_state import rocksdb_store as rocks


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
    MID_WIPE = "mid_wipe"


class Fate:
    """Counts the passings of one step."""

    def __init__(self, step: Step, count: int, strike: Callable[[], None]) -> None:
        self._step = step
        self._left = count
        self._strike = strike

    def passes(self, step: Step, delay_s: float = 0) -> None:
        if step is not self._step or self._left == 0:
            return
        self._left -= 1
        if self._left == 0 and delay_s:
            threading.Timer(delay_s, self._strike).start()
        elif self._left == 0:
            self._strike()


def signalled(number: signal.Signals) -> None:
    """The whole instance, and the supervisor first."""
    os.kill(os.getppid(), number)
    os.kill(os.getpid(), number)


def hung() -> None:
    """This loop alone, for good, as in a call of the client that never returns; once."""
    try:
        Path(os.environ["VICTIM_ONCE"]).touch(exist_ok=False)
    except FileExistsError:
        return
    threading.Event().wait()


STRIKES: dict[str, Callable[[], None]] = {
    "KILL": partial(signalled, signal.SIGKILL),
    "STOP": partial(signalled, signal.SIGSTOP),
    "HANG": hung,
}


def condemn(fate: Fate) -> None:  # noqa: C901 - a class for each client that passes steps
    """Make producer, restorer and `apply` pass their steps by the fate."""

    class Condemned(Producer):
        def begin_transaction(self) -> None:
            fate.passes(Step.BEFORE_BEGIN)
            super().begin_transaction()
            fate.passes(Step.AFTER_BEGIN)

        def produce(self, *place: Any, **record: Any) -> None:
            records = len(place[0]) if len(place) == 1 and not record else 1
            super().produce(*place, **record)
            for _ in range(records):
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

    class CondemnedNativeProducer(Condemned, NativeProducer):
        pass

    class CondemnedRestorer(Restorer):
        def step(self, timeout_s: float) -> int:
            before = [each.position for each in self.replays.values()]
            records = super().step(timeout_s)
            if before != [each.position for each in self.replays.values()]:
                fate.passes(Step.MID_RESTORE)
            return records

    genuine_rmtree = shutil.rmtree

    def half_rmtree(folder: Path) -> None:
        next(file for file in sorted(folder.iterdir()) if file.is_file()).unlink()
        fate.passes(Step.MID_WIPE)
        genuine_rmtree(folder)

    def apply_and_pass(*committed: Any) -> None:
        apply(*committed)
        fate.passes(Step.AFTER_STORE)

    vars(kafka)["Producer"] = Condemned
    vars(fast_path)["NativeProducer"] = CondemnedNativeProducer
    vars(initializer)["Restorer"] = CondemnedRestorer
    vars(committer)["apply"] = apply_and_pass
    vars(rocks)["shutil"] = SimpleNamespace(rmtree=half_rmtree)


def supervise(config: str) -> None:
    limit_s = float(os.environ.get("VICTIM_LIMIT_S", HANG_LIMIT_S))
    vars(supervisor)["_UNHEARD_S"] = min(limit_s, 10.0)
    program = ("-m", "tests.broker.victim")
    vars(run)["serve"] = partial(run.serve, program=program, hang_limit_s=limit_s)
    sys.argv[1:] = ["serve", "--config", config]
    cli.main()


def work(fd: str, supervisor_pid: str) -> int:
    environ = os.environ
    strikes = STRIKES[environ["VICTIM_SIGNAL"]]
    condemn(Fate(Step(environ["VICTIM_STEP"]), int(environ["VICTIM_COUNT"]), strikes))
    return child.main(fd, supervisor_pid)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        supervise(sys.argv[1])
    else:
        sys.exit(work(*sys.argv[1:]))
