"""A child process without Kafka that behaves as its arguments say.

    python -m tests.unit.service.supervisor.dummy BEHAVIOUR FD SUPERVISOR_PID

`BEHAVIOUR` applies to worker 0; all others behave well.
"""

import os
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from multiprocessing.connection import Connection

from ringfence_service.errors import ExitCode
from ringfence_service.queries.errors import NotPossible
from ringfence_service.queries.ids import (
    ChangeAnswer,
    ClearAddress,
    ForgetId,
    IdAnswer,
    IdQuery,
    ImportAnswer,
    ImportIds,
)
from ringfence_service.queries.status import NO_COUNTS, ServicePhase, ServiceStatus
from ringfence_service.supervisor.heap import memory_bytes
from ringfence_service.supervisor.protocol import (
    Channel,
    MetricsReply,
    MetricsRequest,
    QueryAnswered,
    QueryFailed,
    QueryRefused,
    StopRequest,
    ToSupervisor,
    ToWorker,
    WorkerEnded,
    WorkerQuery,
    WorkerReport,
    WorkerSetup,
)
from ringfence_service.supervisor.worker_process import die_with
from ringfence_service.telemetry.aggregation import MetricFamily, MetricPoint
from tests.support.statuses import partition_status

GROUP = "g"
PARTITIONS = 4


def status_of(worker: int, workers: int) -> ServiceStatus:
    """One that runs, and has counted ten records."""
    owned = tuple(
        partition_status("orders", number) for number in range(worker, PARTITIONS, workers)
    )
    nothing = ServiceStatus.starting("0", GROUP, datetime.fromtimestamp(0, UTC))
    return nothing._replace(
        phase="running",
        partitions=owned,
        counts=NO_COUNTS.more(records_consumed=10),
        partitions_total=PARTITIONS,
        hops=("inputs",),
    )


def count_lives(begin: WorkerSetup) -> int:
    """How many processes of this part there were, with this one."""
    (begin.folder / f"goes-on-{begin.task.label}").write_text(str(begin.resumes))
    file = begin.folder / f"lives-{begin.task.label}"
    with file.open("a") as lives:
        lives.write(f"{os.getpid()}\n")
    return len(file.read_text().splitlines())


class Dummy:
    """A worker that acts out the given behaviour."""

    def __init__(self, behaviour: str, begin: WorkerSetup, connection: Connection) -> None:
        self._behaviour = behaviour if begin.task.worker == 0 else "well"
        self._begin = begin
        self._lives = count_lives(begin)
        self._workers = begin.config.service.workers
        self._stop = threading.Event()
        self._link: Channel[ToWorker, ToSupervisor] = Channel(
            connection, self._hear, lambda: os._exit(1)
        )

    def run(self) -> int:
        if self._behaviour == "never" or (self._behaviour == "once" and self._lives == 1):
            return 1
        self._link.start()
        if self._behaviour.isdigit():
            code = ExitCode(int(self._behaviour))
            self._link.send(WorkerEnded(code, f"A sentence that tells of code {code}."))
            self._link.flush()
            return code
        while not self._stop.wait(0.02):
            if self._behaviour != "mute":
                self._report()
            if self._behaviour == "killed":
                time.sleep(0.2)  # noqa: TID251 - so that what it reported is heard before its end
                os.kill(os.getpid(), signal.SIGKILL)
        if self._behaviour == "leaves for ever":
            self._report("stopping")
        if self._behaviour in {"stubborn", "leaves for ever"}:
            threading.Event().wait()
        self._link.flush()
        return 0

    def _report(self, phase: ServicePhase = "running") -> None:
        status = status_of(self._begin.task.worker, self._workers)._replace(phase=phase)
        if self._behaviour == "routed":
            status = status._replace(hops=("inputs", "by-address"))
        report = WorkerReport(status, True, 0, memory_bytes(), "cluster-1", float("-inf"))  # noqa: FBT003
        self._link.send(report._replace(fast_path="python", fast_path_fault="not built"))

    def _hear(self, message: ToWorker) -> None:
        match message:
            case StopRequest():
                self._stop.set()
            case MetricsRequest(number):
                points = (MetricPoint("ringfence_duplicates_total", (("route", "r"),), 3.0),)
                family = MetricFamily("ringfence_duplicates", "Duplicates.", "counter", points)
                self._link.send(MetricsReply(number, (family,)))
            case WorkerQuery(number):
                self._link.send(self._answer(message)._replace(number=number))

    def _answer(self, ask: WorkerQuery) -> "QueryAnswered | QueryRefused | QueryFailed":
        worker, query = self._begin.task.worker, ask.query
        match query:
            case IdQuery():
                return QueryAnswered(0, IdAnswer(known=False, sightings=()))
            case ClearAddress():
                return QueryAnswered(0, ChangeAnswer(worker + 1))
            case ImportIds():
                if (query.partition or 0) % self._workers == worker:
                    return QueryAnswered(0, ImportAnswer(len(query.ids), 1))
                return QueryRefused(
                    0, NotPossible("It is no partition that this instance decides.")
                )
            case ForgetId() if worker == 1:
                return QueryRefused(0, NotPossible("Only a ring can do it."))
            case ForgetId():
                return QueryAnswered(0, ChangeAnswer(1))
        return QueryFailed(0, "ValueError('unknown')")


def main(behaviour: str, fd: str, supervisor_pid: str) -> int:
    die_with(int(supervisor_pid))
    connection: Connection[ToSupervisor, ToWorker] = Connection(int(fd))
    begin = connection.recv()
    assert isinstance(begin, WorkerSetup)
    return Dummy(behaviour, begin, connection).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
