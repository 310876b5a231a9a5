"""Worker process: runs the loop of one task and reports to its supervisor.

Invariant: it never outlives its supervisor: the kernel ends it, or else the end of the connection.
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
from pathlib import Path
from typing import Final

import structlog

from service.clock import SystemClock, product_version
from service.config.load import ConfigErrors
from service.errors import ExitCode, ExitError
from service.kafka.clients import KafkaClients, property_problems
from service.processor.reporter import Reporter
from service.queries.errors import NameInUse, NotPossible, Unavailable
from service.queries.inbox import QueryInbox
from service.queries.registry import Answer
from service.queries.status import ServiceStatus, StatusBoard
from service.supervisor.protocol import (
    Channel,
    MetricsReply,
    MetricsRequest,
    QueryAnswered,
    QueryFailed,
    QueryRefused,
    StopRequest,
    ToChild,
    ToSupervisor,
    WorkerEnded,
    WorkerQuery,
    WorkerReport,
    WorkerSetup,
)
from service.supervisor.watchdog import (
    Watchdog,
    calm_garbage_collector,
    drop_cycles,
    keep_freed_memory,
)
from service.supervisor.worker import LoopRunner
from service.telemetry import logging as log
from service.telemetry.metrics import Metrics
from service.telemetry.tracing import open_tracer
from state.rocksdb_store import RocksStores

_REPORT_S: Final = 0.2
_LOOK_S: Final = 0.05
_INBOX_DEPTH: Final = 64
_PR_SET_PDEATHSIG: Final = 1
_REFUSALS: Final = (Unavailable, NotPossible, NameInUse)

_log = structlog.stdlib.get_logger(__name__)


class WorkerProcess:
    """A worker, and what it answers and tells."""

    def __init__(self, begin: WorkerSetup, connection: "Connection[ToSupervisor, ToChild]") -> None:
        service = begin.config.service
        nothing_yet = ServiceStatus.starting(service.instance, service.group_id, datetime.now(UTC))
        clock = SystemClock()
        self._board = StatusBoard(nothing_yet, time.monotonic)
        self._metrics = Metrics(
            self._board, {"version": product_version()}, addresses_max=begin.addresses_max
        )
        self._inbox = QueryInbox(_INBOX_DEPTH)
        self._tracer = open_tracer(begin.config.tracing, service, product_version())
        clients = KafkaClients(begin.config, begin.part)
        self._cluster = clients.cluster

        def for_a_life() -> KafkaClients:
            drop_cycles()
            return clients

        self._worker = LoopRunner(
            begin.config,
            for_a_life,
            RocksStores(begin.folder),
            clock,
            Reporter(service, clock, self._board, self._metrics, self._tracer),
            self._inbox,
            begin.fenced_s,
            goes_on=begin.goes_on,
        )
        self._watchdog = Watchdog(self._board, begin.hang_limit_s)
        self._channel: Channel[ToChild, ToSupervisor] = Channel(connection, self._hear, _orphaned)

    def stop(self) -> None:
        """Finish the batch at hand and leave; safe in a signal handler."""
        self._worker.stop()

    def run(self) -> int:
        """Work until told to stop; the exit code."""
        self._channel.start()
        threading.Thread(target=self._report, name="ringfence-report", daemon=True).start()
        self._watchdog.start()
        keep_freed_memory()
        calm_garbage_collector()
        try:
            self._worker.run()
        except ExitError as error:
            self._channel.send(WorkerEnded(error.exit_code, error.sentence))
            return error.exit_code
        except Exception:  # noqa: BLE001 - logged; the supervisor starts another
            _log.exception("worker_failed")
            return ExitCode.NO
        else:
            return ExitCode.DONE
        finally:
            self._channel.send(self._told())
            self._channel.send(MetricsReply(0, self._metrics.families()))
            if self._tracer is not None:
                self._tracer.flush()
            self._channel.flush()

    def _report(self) -> None:
        told_s, told = float("-inf"), self._board.read()
        while True:
            now_s, status = time.monotonic(), self._board.read()
            is_time = status is not told or now_s - told_s > _REPORT_S
            if is_time and self._channel.is_free:  # nobody reads while the supervisor is stopped
                self._channel.send(self._told())
                told_s, told = now_s, status
            time.sleep(_LOOK_S)

    def _told(self) -> WorkerReport:
        status = self._board.read()
        if self._worker.is_leaving:  # the loop may be in a call that lasts, and pins nothing
            status = status._replace(phase="stopping")
        return WorkerReport(
            status,
            self._board.has_run(),
            self._watchdog.silent_ms(),
            memory_bytes(),
            self._cluster.known_id,
            self._worker.fenced_s,
        )

    def _hear(self, message: ToChild) -> None:
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
        """Called by the loop: it must not wait."""
        try:
            self._channel.send(QueryAnswered(number, reply.result()))
        except _REFUSALS as reason:
            self._channel.send(QueryRefused(number, reason))
        except CancelledError:
            pass  # nobody waits for it any more
        except Exception as error:  # noqa: BLE001 - it is raised again where it was asked
            _log.exception("question_failed")
            self._channel.send(QueryFailed(number, repr(error)))


def _orphaned() -> None:
    """The supervisor is gone: what is open, the successor aborts."""
    os._exit(ExitCode.NO)


def memory_bytes() -> int | None:
    """What of this process is in memory; None where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGESIZE")


def die_with(supervisor_pid: int) -> None:
    """Have the kernel end us with the supervisor, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor_pid:
        _orphaned()  # it died before the kernel knew of our wish


def main(fd: str, supervisor_pid: str) -> int:
    """Be the child at the other end of a connection."""
    die_with(int(supervisor_pid))
    connection: Connection[ToSupervisor, ToChild] = Connection(int(fd))
    try:
        begin = connection.recv()
    except EOFError:
        _orphaned()
    assert isinstance(begin, WorkerSetup)  # the first message
    log.configure(sys.stderr, begin.config.log.level, begin.config.log.format)
    if begin.label is not None:
        structlog.contextvars.bind_contextvars(worker=begin.label)
    problems = property_problems(begin.config)
    if problems:
        connection.send(WorkerEnded(ExitCode.USAGE, ConfigErrors(problems).sentence))
        return ExitCode.USAGE
    worker_process = WorkerProcess(begin, connection)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: worker_process.stop())
    return worker_process.run()
