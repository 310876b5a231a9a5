"""Trouble: the faults of a plan, done to a broker, a network and instances, and undone again."""

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ringfence_service.errors import ExitCode
from tests.broker.proxy import END_TXN, Trouble, What
from tests.broker.service import Service
from tests.broker.world import World
from tests.soak.footprint import tree
from tests.soak.plan import OF_BROKER, OF_INSTANCES, Fault, Kind
from tests.soak.venue import Venue

SLOW_S: Final = 0.1
LATE_S: Final = 4.0
"""Longer than a transaction may take."""
LEAVE_S: Final = 60.0
_AROUND_END: Final = {
    Kind.END_CUT: What.CUT,
    Kind.END_ANSWER_CUT: What.CUT_ANSWER,
    Kind.END_LATE: What.LATE,
    Kind.END_OUTLIVES: What.OUTLIVES,
}

Undo = Callable[[], None]


class Troublemaker:
    """One fault at a time of each thing that can break: who is down already is left alone."""

    def __init__(self, world: World, instances: Sequence[Service], venue: Venue) -> None:
        self._world = world
        self._instances = instances
        self._brokers = venue.brokers
        self._proxy = venue.proxy
        self._broken: set[object] = set()

    def provoke(self, fault: Fault) -> Undo | None:
        """Do it; gives what undoes it, or None where that thing is broken already."""
        thing = self._thing(fault)
        if thing in self._broken:
            return None
        self._broken.add(thing)
        undo = self._begun(fault)

        def mend() -> None:
            undo()
            self._broken.discard(thing)

        return mend

    @staticmethod
    def _thing(fault: Fault) -> object:
        if fault.kind in OF_INSTANCES:
            return fault.instance
        return "broker" if fault.kind in OF_BROKER else "network"

    def _begun(self, fault: Fault) -> Undo:
        if fault.kind in OF_INSTANCES:
            return self._of_instance(fault)
        if fault.kind in OF_BROKER:
            return self._of_broker(fault)
        return self._of_network(fault.kind)

    def _of_instance(self, fault: Fault) -> Undo:
        service = self._instances[fault.instance]
        if service.ended and service.wait() == ExitCode.BROKER:
            service.start()  # as whatever runs it does: the broker was away when it began
        assert not service.ended, f"it had left with {service.wait()} before\n{service.tail()}"
        if fault.kind is Kind.SLEEP:
            processes = tree(service.process.pid)
            _send_all(processes, signal.SIGSTOP)
            return lambda: _send_all(processes, signal.SIGCONT)
        if fault.kind is Kind.LEAVE:
            service.wait_started()
            service.signal(signal.SIGTERM)

            def start_again() -> None:
                status = service.wait(LEAVE_S)
                assert status == 0, f"SIGTERM ended in status {status}\n{service.tail()}"
                service.start()

            return start_again
        service.signal(signal.SIGKILL)
        service.wait()
        if fault.kind is Kind.LOSE:
            shutil.rmtree(self._world.store_folder(str(fault.instance)), ignore_errors=True)
        return service.start

    def _of_broker(self, fault: Fault) -> Undo:
        broker = self._brokers[fault.broker]
        if fault.kind is Kind.BROKER_PAUSE:
            broker.suspend()
            return broker.resume
        if fault.kind is Kind.BROKER_KILL:
            broker.kill()
        else:
            broker.stop()
        return broker.start

    def _of_network(self, kind: Kind) -> Undo:
        around = _AROUND_END.get(kind)
        if around is not None:
            self._proxy.provoke(Trouble(END_TXN, around, times=2, late_s=LATE_S))
            return self._late if around is What.OUTLIVES else self._proxy.calm
        if kind is Kind.SILENT:
            self._proxy.silence()
            return self._proxy.resume
        if kind is Kind.SLOW:
            self._proxy.slow_s = SLOW_S
            return self._hurry
        self._proxy.cut()
        return _nothing

    def _late(self) -> None:
        """The broker has what outlived its connection, where it is still there to have it."""
        for _ in range(self._proxy.struck):
            with suppress(OSError):
                self._proxy.deliver()
        self._proxy.calm()

    def _hurry(self) -> None:
        self._proxy.slow_s = 0.0


def _send_all(processes: Sequence[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):  # a worker that has ended meanwhile
            os.kill(pid, number)


def _nothing() -> None:
    """Who was cut off comes back by itself."""
