"""Worker protocol: the messages between the supervisor and a worker process, and their connection.

Frozen values, pickled. The configuration is sent this way too, so that no secret is an argument.
Deadlines use the monotonic clock, which all processes of a machine share.
"""

import contextlib
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Full, Queue
from typing import Final, Generic, NamedTuple, TypeVar

from service.config.load import Config
from service.config.tasks import Task
from service.queries.errors import NameInUse, NotPossible, Unavailable
from service.queries.registry import Answer, Query
from service.queries.status import ServiceStatus
from service.telemetry.aggregation import MetricFamily


class WorkerSetup(NamedTuple):
    """The first message: who the child is, and all that it needs."""

    config: Config
    """With this child's share of the instance's memory."""
    part: Task
    folder: Path
    """Where the stores are; the supervisor holds it."""
    label: str | None
    """What its log lines name it; None where there is one child only."""
    addresses_max: int
    """How many addresses are labels of its metrics."""
    hang_limit_s: float
    fenced_s: float
    """When the child before was fenced last, by the monotonic clock; minus infinity if never."""
    goes_on: bool
    """Whether a child before had joined the group."""


class WorkerQuery(NamedTuple):
    """A question; after its deadline nobody waits for the answer."""

    number: int
    query: Query
    deadline_s: float


class MetricsRequest(NamedTuple):
    """Asks for the metrics."""

    number: int


class StopRequest(NamedTuple):
    """Finish the batch at hand, leave the group, and end."""


class WorkerReport(NamedTuple):
    """How the child does; sent a few times a second."""

    status: ServiceStatus
    has_run: bool
    silent_ms: int
    """Since the loop's last sign of life."""
    memory_bytes: int | None
    cluster_id: str | None
    fenced_s: float


class QueryAnswered(NamedTuple):
    """The answer to a question."""

    number: int
    answer: Answer


class QueryRefused(NamedTuple):
    """Why there is no answer."""

    number: int
    reason: Unavailable | NotPossible | NameInUse


class QueryFailed(NamedTuple):
    """The question met an error of ours; the child's log has it."""

    number: int
    error: str


class MetricsReply(NamedTuple):
    """The metrics; with number 0 the last ones of a child that ends."""

    number: int
    families: tuple[MetricFamily, ...]


class WorkerEnded(NamedTuple):
    """The child ends, as was to be foreseen: the code that it ends with, and why."""

    exit_code: int
    sentence: str


ToChild = WorkerSetup | WorkerQuery | MetricsRequest | StopRequest

ToSupervisor = (
    WorkerReport | QueryAnswered | QueryRefused | QueryFailed | MetricsReply | WorkerEnded
)

_DEPTH: Final = 256

_CLOSE_S: Final = 2.0

In = TypeVar("In")

Out = TypeVar("Out")


class Channel(Generic[In, Out]):
    """Hands every message to `heard`, and calls `ended` once there will be no more."""

    def __init__(
        self,
        connection: "Connection[Out, In]",
        heard: Callable[[In], None],
        ended: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._heard = heard
        self._ended = ended
        self._waiting: Queue[Out | None] = Queue(_DEPTH)
        self._sender = threading.Thread(target=self._send, name="ringfence-sender", daemon=True)
        self._reader = threading.Thread(target=self._receive, name="ringfence-reader", daemon=True)

    def start(self) -> None:
        """Hear from now on."""
        self._sender.start()
        self._reader.start()

    def send(self, message: Out) -> bool:
        """Have it sent; False where too much waits already."""
        try:
            self._waiting.put_nowait(message)
        except Full:
            return False
        return True

    @property
    def is_free(self) -> bool:
        """Whether all that was to be sent is sent."""
        return self._waiting.empty()

    def flush(self) -> None:
        """Have what waits sent, within a limit; nothing is sent after it."""
        with contextlib.suppress(Full):
            self._waiting.put(None, timeout=_CLOSE_S)
        self._sender.join(_CLOSE_S)

    def close(self) -> None:
        """Hear what the other end, which has ended, had still to say; within a limit."""
        self._reader.join(_CLOSE_S)
        self.flush()
        self._connection.close()

    def _send(self) -> None:
        while (message := self._waiting.get()) is not None:
            try:
                self._connection.send(message)
            except OSError:
                return  # the other end is gone; the reader tells

    def _receive(self) -> None:
        try:
            while True:
                self._heard(self._connection.recv())
        except (EOFError, OSError):
            self._ended()
