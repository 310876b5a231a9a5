"""Worker process: runs the loop of one task and reports to its supervisor.

Invariant: it never outlives its supervisor. The kernel kills it, or it exits when the connection
ends.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from concurrent.futures import CancelledError, Future
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

import structlog

from ringfence_service.clock import SystemClock, product_version
from ringfence_service.config.load import ConfigErrors
from ringfence_service.dead_letters.comparer import DuplicateComparer
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.clients import KafkaClients, property_problems
from ringfence_service.native.path import chosen
from ringfence_service.processor.reporter import Reporter
from ringfence_service.queries.errors import NameInUse, NotPossible, Unavailable
from ringfence_service.queries.inbox import QueryInbox
from ringfence_service.queries.registry import Answer
from ringfence_service.queries.status import ServiceStatus, StatusBoard
from ringfence_service.schemas.documents import connect
from ringfence_service.supervisor.heap import FreedMemory, keep_freed_memory, memory_bytes
from ringfence_service.supervisor.loop_runner import LoopRunner
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
from ringfence_service.supervisor.watchdog import (
    Watchdog,
    calm_garbage_collector,
    drop_cycles,
)
from ringfence_service.telemetry import logging as log
from ringfence_service.telemetry.metrics import Metrics
from ringfence_service.telemetry.tracing import open_tracer
from ringfence_state.rocksdb_store import RocksStores

_REPORT_S: Final = 0.2
"""How often a report is sent while the status is the same, since it has the loop's silence too.

`/readyz` judges by it, and allows four seconds.
"""
_LOOK_S: Final = 0.05
"""How often the reporting thread looks for a new status, which the API shows this much later."""
_INBOX_DEPTH: Final = 64
_PR_SET_PDEATHSIG: Final = 1
_REFUSALS: Final = (Unavailable, NotPossible, NameInUse)

_log = structlog.stdlib.get_logger(__name__)


class WorkerProcess:
    """The loop of one task, with its metrics, its watchdog and its channel to the supervisor."""

    def __init__(
        self, setup: WorkerSetup, connection: "Connection[ToSupervisor, ToWorker]"
    ) -> None:
        service = setup.config.service
        initial = ServiceStatus.starting(service.instance, service.group_id, datetime.now(UTC))
        clock = SystemClock()
        self._board = StatusBoard(initial, time.monotonic)
        self._metrics = Metrics(
            self._board, {"version": product_version()}, addresses_max=setup.addresses_max
        )
        self._inbox = QueryInbox(_INBOX_DEPTH)
        self._tracer = open_tracer(setup.config.tracing, service, product_version())
        self._fast_path = chosen(service.fast_path)
        if self._fast_path.fault:
            _log.warning("fast_path_in_python", cause=self._fast_path.fault)
        self._metrics.fast_path(self._fast_path.name, service.fast_path)
        self._comparer = DuplicateComparer(lambda: clients, clock)
        reporter = Reporter(
            service, clock, self._board, self._metrics, self._tracer, self._comparer
        )
        makers = self._fast_path.use()
        clients = KafkaClients(setup.config, setup.task, makers, reporter.throttled)
        self._cluster = clients.cluster
        connect(setup.config.schema_registry, self._metrics.schema_lookup, waits=False)

        def clients_of_new_loop() -> KafkaClients:
            drop_cycles()
            return clients

        self._worker = LoopRunner(
            setup.config,
            clients_of_new_loop,
            RocksStores(setup.folder),
            clock,
            reporter,
            self._inbox,
            setup.fenced_s,
            resumes=setup.resumes,
            tests_broker=True,
        )
        self._watchdog = Watchdog(self._board, setup.hang_limit_s)
        self._channel: Channel[ToWorker, ToSupervisor] = Channel(
            connection, self._receive, _exit_orphaned
        )

    def stop(self) -> None:
        """Finish the current batch and leave the group; safe in a signal handler."""
        self._worker.stop()

    def run(self) -> int:
        """Run until stopped; return the exit code."""
        self._channel.start()
        threading.Thread(target=self._report, name="ringfence-report", daemon=True).start()
        self._watchdog.start()
        self._comparer.start()
        keep_freed_memory()
        FreedMemory().start()
        calm_garbage_collector()
        try:
            self._worker.run()
        except ExitError as error:
            self._channel.send(WorkerEnded(error.exit_code, error.sentence))
            return error.exit_code
        except Exception:  # noqa: BLE001 - logged; the supervisor starts another process
            _log.exception("worker_failed")
            return ExitCode.NO
        else:
            return ExitCode.DONE
        finally:
            self._channel.send(self._current_report())
            self._channel.send(MetricsReply(0, self._metrics.families()))
            if self._tracer is not None:
                self._tracer.flush()
            self._channel.flush()

    def _report(self) -> None:
        sent_s, sent = float("-inf"), self._board.read()
        while True:
            now_s, status = time.monotonic(), self._board.read()
            is_due = status is not sent or now_s - sent_s > _REPORT_S
            if is_due and self._channel.is_free:  # a suspended supervisor reads nothing
                self._channel.send(self._current_report())
                sent_s, sent = now_s, status
            time.sleep(_LOOK_S)

    def _current_report(self) -> WorkerReport:
        status = self._board.read()
        if self._worker.is_leaving:  # the loop may be in a long call and publish no status
            status = status._replace(phase="stopping")
        return WorkerReport(
            status,
            self._board.has_run(),
            self._watchdog.silent_ms(),
            memory_bytes(),
            self._cluster.known_id,
            self._worker.fenced_s,
            self._fast_path.name,
            self._fast_path.fault,
        )

    def _receive(self, message: ToWorker) -> None:
        match message:
            case StopRequest():
                self.stop()
            case MetricsRequest(number):
                self._channel.send(MetricsReply(number, self._metrics.families()))
            case WorkerQuery(number, query, deadline_s):
                try:
                    reply = self._inbox.put(query, deadline_s)
                except Unavailable as reason:
                    self._channel.send(QueryRefused(number, reason))
                else:
                    reply.add_done_callback(partial(self._reply, number))

    def _reply(self, number: int, reply: Future[Answer]) -> None:
        """Send a reply. The loop calls this, so it must not block."""
        try:
            self._channel.send(QueryAnswered(number, reply.result()))
        except _REFUSALS as reason:
            self._channel.send(QueryRefused(number, reason))
        except CancelledError:
            pass  # the caller has stopped waiting
        except Exception as error:  # noqa: BLE001 - raised again in the supervisor
            _log.exception("question_failed")
            self._channel.send(QueryFailed(number, repr(error)))


def _exit_orphaned() -> None:
    """Exit because the supervisor is gone; the next process aborts any open transaction."""
    os._exit(ExitCode.NO)


def die_with(supervisor_pid: int) -> None:
    """Make the kernel kill this process when the supervisor ends, where the kernel can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor_pid:
        _exit_orphaned()  # the supervisor died before the call took effect


def main(fd: str, supervisor_pid: str) -> int:
    """Run a worker that is connected to its supervisor by a file descriptor."""
    die_with(int(supervisor_pid))
    connection: Connection[ToSupervisor, ToWorker] = Connection(int(fd))
    try:
        setup = connection.recv()
    except EOFError:
        _exit_orphaned()
    assert isinstance(setup, WorkerSetup)  # the first message
    log.configure(sys.stderr, setup.config.log.level, setup.config.log.format)
    if setup.label is not None:
        structlog.contextvars.bind_contextvars(worker=setup.label)
    problems = property_problems(setup.config)
    if problems:
        connection.send(WorkerEnded(ExitCode.USAGE, ConfigErrors(problems).sentence))
        return ExitCode.USAGE
    worker_process = WorkerProcess(setup, connection)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: worker_process.stop())
    return worker_process.run()
