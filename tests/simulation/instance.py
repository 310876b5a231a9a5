"""Instance: one process of the service with its disk, life after life, step by step."""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from unittest.mock import patch

from confluent_kafka import KafkaException

from ringfence_service.config.tasks import Task
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.errors import KafkaFailure
from ringfence_service.processor.committer import NotAppliedError
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.reporter import Reporter
from ringfence_service.processor.transaction import OutcomeUnknownError
from ringfence_service.queries.inbox import QueryInbox
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.queries.status import ServiceStatus, StatusBoard
from ringfence_service.schemas import documents
from ringfence_service.supervisor.loop_runner import LoopRunner
from ringfence_service.telemetry.metrics import Metrics
from ringfence_state.store import StoreFailedError
from tests.fakes.clients import FakeClients
from tests.fakes.log import FakeCluster
from tests.simulation.disk import Disk
from tests.simulation.registry import Registry, SimulatedLookups
from tests.simulation.scenario import GROUP, Scenario
from tests.simulation.trouble import Crash

LOAD_S_MAX = 6.0
SCANS_MAX = 3
"""Of the segments of one address: the oldest, those for which a run is made, and the others."""


class FakeClock:
    """A fake `Clock`: the cluster's time, which advances when an instance sleeps.

    The wall clock may be set; the monotonic clock, which measures deadlines, may not.
    """

    def __init__(self, log: FakeCluster) -> None:
        self._log = log
        self.set_ahead_ms = 0

    def monotonic_s(self) -> float:
        return self._log.now_ms / 1000

    def wall_ms(self) -> int:
        return self._log.now_ms + self.set_ahead_ms

    def sleep(self, seconds: float) -> None:
        self._log.step("sleep")
        self._log.wait(seconds)


class Instance:
    """A name, a disk, and at times a process. With two hops, one instance is two of these."""

    def __init__(
        self, name: str, scenario: Scenario, log: FakeCluster, registry: Registry, part: Task
    ) -> None:
        self.name = name
        self.hop = part.hop
        """What it works on."""
        self._part = part
        self.disk = Disk(log.step, partial(_wait_for_read, scenario, log))
        self.dead = False
        self.doomed = False
        """Whether something unforeseen has happened that its life may not outlast."""
        self.answers = False
        """Whether it is about to answer over REST."""
        self.has_rival = False
        """Whether another process has borne its name."""
        self.wanted = True
        self.is_newer = False
        """Whether it has the newer file."""
        self.life = 0
        """The number of the process: each one has its own configuration."""
        self.clock = FakeClock(log)
        self.scenario = scenario
        self._log = log
        self._registry = registry
        self._documents: list[documents.Documents] = []
        """Those of the process."""
        self._clients: FakeClients | None = None
        self._worker: LoopRunner | None = None
        self._watch: Reporter | None = None
        self._inbox = QueryInbox(1)
        self._fenced_s = float("-inf")
        self.loop: Loop | None = None
        """The life that it leads, if it does."""

    @property
    def label(self) -> tuple[str, str]:
        """Its transactional id, and which of its processes there is."""
        return self._part.transactional_id(GROUP, self.name), f"{self.name}/{self.life}"

    @property
    def runs(self) -> bool:
        """Whether there is a life."""
        return self.loop is not None

    def turn(self) -> None:
        """Begin a life, or give it one turn; see `ringfence_service.supervisor.loop_runner`."""
        self._live(self._turn)

    def ask(self, query: Query) -> Answer | None:
        """What it answers to a question over REST; None where that is no answer."""
        reply = self._inbox.put(query, float("inf"))
        self.answers = True
        self._live(self._answer)
        self.answers = False
        if not reply.done():
            reply.cancel()
            self._inbox = QueryInbox(1)
            return None
        return None if reply.exception() else reply.result()

    def stop(self) -> None:
        """End it in an orderly way."""
        self.wanted = False
        self._live(lambda: self._exit(leaves=True))

    def twin(self) -> "Instance":
        """Make another process of the same name, on another machine."""
        twin = Instance(self.name, self.scenario, self._log, self._registry, self._part)
        twin.life, twin.is_newer = self.life, self.is_newer
        twin.has_rival = self.has_rival = True
        return twin

    def freeze(self) -> None:
        if self._clients:
            self._clients.freeze()

    def thaw(self) -> None:
        if self._clients:
            self._clients.thaw()

    def _live(self, act: Callable[[], None]) -> None:
        """Do something as the process does it: whatever it does not foresee ends it."""
        try:
            fault, has_store = None, True
            try:
                with patch.object(documents, "_of_process", self._documents):
                    act()
            except OutcomeUnknownError as unknown:
                fault = unknown.fault
            except StoreFailedError:
                has_store = False
            if fault is not None:
                self._end()
                self._tell(fault)
            elif not has_store:
                self._exit()  # as `LoopRunner` ends by it
        except ExitError as end:
            self._exit()
            if not self._may_end_by(end):
                raise
        except (Crash, MemoryError, NotAppliedError):
            self.kill()

    def _may_end_by(self, end: ExitError) -> bool:
        """Whether what went wrong explains the end of the process."""
        if end.exit_code is ExitCode.FENCED:
            return self.has_rival
        return end.exit_code is ExitCode.BROKER or isinstance(end.__cause__, StoreFailedError)

    def _turn(self) -> None:
        worker = self._worker or self._started()
        if self.loop is None:
            self.loop = worker.open_loop()
        else:
            worker.turn(self.loop)

    def _answer(self) -> None:
        worker, loop = self._worker, self.loop
        assert worker is not None  # there is a life
        assert loop is not None
        answer = partial(worker.answer, loop)
        self._inbox.change(answer, 1)
        self._inbox.answer(answer, iter([True, False]).__next__)
        worker.raise_change_error(loop)

    def _tell(self, fault: KafkaFailure) -> None:
        """What `LoopRunner.run` does when a life has ended."""
        worker, watch = self._worker, self._watch
        assert worker is not None  # it had that life
        assert watch is not None
        watch.unknown(fault)
        if fault.fenced:
            self._log.met["fenced"] += 1
            worker.note_fencing(fault)
            self._fenced_s = worker.fenced_s

    def _started(self) -> LoopRunner:
        self.life += 1
        config = self.scenario.config(self.name, self.life, is_newer=self.is_newer)
        lookups = SimulatedLookups(self._registry, self.clock.monotonic_s, self.clock.sleep)
        self._documents[:] = [documents.Documents(lookups, self.clock.monotonic_s)]
        self._watch = Reporter(config.service, self.clock, *_telling(self.clock.monotonic_s))
        self._worker = LoopRunner(
            config,
            self._made,
            self.disk,
            self.clock,
            self._watch,
            self._inbox,
            self._fenced_s,
        )
        return self._worker

    def _made(self) -> FakeClients:
        """Clients for one life; those of the last one go, as the garbage collector has it."""
        if self._clients:
            self._clients.kill()
        _, by = self.label
        self._clients = FakeClients(self._log, GROUP, self.name, by, self._part)
        return self._clients

    def _end(self, *, leaves: bool = False) -> None:
        loop, self.loop = self.loop, None
        if loop is not None:
            with contextlib.suppress(KafkaException):
                loop.close(leaves=leaves)

    def _exit(self, *, leaves: bool = False) -> None:
        """End the process."""
        try:
            self._end(leaves=leaves)
        except (Crash, MemoryError, NotAppliedError):
            self.kill()
        self._worker = None

    def kill(self) -> None:
        """Have it die as it stands."""
        self.loop = self._worker = None
        self.dead = False
        self.disk.crash()
        if self._clients:
            self._clients.kill()


def _wait_for_read(case: Scenario, log: FakeCluster, before: int, after: int) -> None:
    log.wait(_load_s(case, after) - _load_s(case, before))


def _load_s(case: Scenario, size_bytes: int) -> float:
    """How long a scan takes; what one piece of a transaction needs fits into it."""
    caches = case.partitions * len(case.topics) * len(case.addresses)
    longest_s = LOAD_S_MAX / min(case.knobs.at_once or caches, caches) / SCANS_MAX
    return min(size_bytes * case.load_ms_per_byte / 1000, longest_s)


_TOLD: list[tuple[StatusBoard, Metrics]] = []


def _telling(clock_s: Callable[[], float]) -> tuple[StatusBoard, Metrics]:
    """Return board and metrics, made once in a process: no run looks at them."""
    if not _TOLD:
        nothing = ServiceStatus.starting("", GROUP, datetime.fromtimestamp(0, UTC))
        board = StatusBoard(nothing, clock_s)
        _TOLD.append((board, Metrics(board, {"version": "simulated"}, addresses_max=10)))
    return _TOLD[0]
