"""Worker protocol: the messages between the supervisor and a worker process, and their channel.

Messages are frozen values, pickled. The configuration is sent this way too, so that no secret
appears among the arguments of a process.
Deadlines use the monotonic clock, which all processes of a machine share.
"""

import contextlib
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Full, Queue
from typing import Final, Generic, NamedTuple, TypeVar

from ringfence_service.config.model import Config, FastPath
from ringfence_service.config.tasks import Task
from ringfence_service.queries.errors import NameInUse, NotPossible, Unavailable
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.queries.status import ServiceStatus
from ringfence_service.telemetry.aggregation import MetricFamily


class WorkerSetup(NamedTuple):
    """The first message: the worker's task, and everything it needs."""

    config: Config
    """With this worker's share of the instance's memory."""
    task: Task
    folder: Path
    """The folder of the stores; the supervisor holds its lock."""
    label: str | None
    """The worker's name in log lines; None if there is only one worker."""
    addresses_max: int
    """How many addresses may be labels of its metrics."""
    hang_limit_s: float
    fenced_s: float
    """When its predecessor was last fenced, by the monotonic clock; minus infinity if never."""
    resumes: bool
    """Whether an earlier process of this task had joined the group."""


class WorkerQuery(NamedTuple):
    """A query; after its deadline the supervisor no longer waits for the answer."""

    number: int
    query: Query
    deadline_s: float


class MetricsRequest(NamedTuple):
    """A request for the metrics."""

    number: int


class StopRequest(NamedTuple):
    """A request to finish the current batch, leave the group, and exit."""


class WorkerReport(NamedTuple):
    """The state of a worker; sent a few times a second."""

    status: ServiceStatus
    has_run: bool
    silent_ms: int
    """The time since the loop's last sign of life."""
    memory_bytes: int | None
    cluster_id: str | None
    fenced_s: float
    fast_path: FastPath | None = None
    fast_path_fault: str | None = None


class QueryAnswered(NamedTuple):
    """The answer to a query."""

    number: int
    answer: Answer


class QueryRefused(NamedTuple):
    """Why there is no answer."""

    number: int
    reason: Unavailable | NotPossible | NameInUse


class QueryFailed(NamedTuple):
    """The query hit a bug in Ringfence; the worker's log has the traceback."""

    number: int
    error: str


class MetricsReply(NamedTuple):
    """The metrics; number 0 marks the last ones of a worker that ends."""

    number: int
    families: tuple[MetricFamily, ...]


class WorkerEnded(NamedTuple):
    """The announcement of a worker that it ends for a known reason, with an exit code."""

    exit_code: int
    sentence: str


ToWorker = WorkerSetup | WorkerQuery | MetricsRequest | StopRequest

ToSupervisor = (
    WorkerReport | QueryAnswered | QueryRefused | QueryFailed | MetricsReply | WorkerEnded
)

_DEPTH: Final = 256

_CLOSE_S: Final = 2.0
"""How long each step of closing may take, which normally ends at once.

An ending worker has two: until the queue has room, and until all is sent. The supervisor's main
thread has one more before them: until the last messages have arrived.
"""

In = TypeVar("In")

Out = TypeVar("Out")


class Channel(Generic[In, Out]):
    """Sends and receives messages: calls `on_message` for each, and `on_end` after the last."""

    def __init__(
        self,
        connection: "Connection[Out, In]",
        on_message: Callable[[In], None],
        on_end: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._on_message = on_message
        self._on_end = on_end
        self._waiting: Queue[Out | None] = Queue(_DEPTH)
        self._sender = threading.Thread(target=self._send, name="ringfence-sender", daemon=True)
        self._reader = threading.Thread(target=self._receive, name="ringfence-reader", daemon=True)

    def start(self) -> None:
        """Start to send and receive, on two daemon threads."""
        self._sender.start()
        self._reader.start()

    def send(self, message: Out) -> bool:
        """Queue a message; return False if the queue is full."""
        try:
            self._waiting.put_nowait(message)
        except Full:
            return False
        return True

    @property
    def is_free(self) -> bool:
        """Whether the queue is empty."""
        return self._waiting.empty()

    def flush(self) -> None:
        """Send the queued messages, within a time limit; nothing can be sent afterwards."""
        with contextlib.suppress(Full):
            self._waiting.put(None, timeout=_CLOSE_S)
        self._sender.join(_CLOSE_S)

    def close(self) -> None:
        """Receive the last messages of the other process, which has exited; within a time limit."""
        self._reader.join(_CLOSE_S)
        self.flush()
        self._connection.close()

    def _send(self) -> None:
        while (message := self._waiting.get()) is not None:
            try:
                self._connection.send(message)
            except OSError:
                return  # the other process is gone; the reader notices

    def _receive(self) -> None:
        try:
            while True:
                self._on_message(self._connection.recv())
        except (EOFError, OSError):
            self._on_end()
