"""Instance: one process of the service with its disk, life after life, step by step."""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

from confluent_kafka import KafkaException

from service.commit import OutcomeUnknownError, TransactionAbortedError
from service.errors import ExitCode, ExitError
from service.loop import Loop
from service.metrics import Metrics
from service.part import Hop, Part
from service.status import Status, StatusBoard
from service.watch import Watch
from state.store import StoreFailedError
from tests.fakes.clients import FakeClients
from tests.fakes.log import FakeCluster
from tests.simulation.disk import Disk
from tests.simulation.scenario import GROUP, Scenario
from tests.simulation.trouble import Crash


class FakeClock:
    """See `service.clock.Clock`: the cluster's time, moved by whoever sleeps.

    What the machine believes may be set; what measures deadlines may not.
    """

    def __init__(self, log: FakeCluster) -> None:
        self._log = log
        self.set_ahead_ms = 0

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return self._log.now_ms / 1000

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return self._log.now_ms + self.set_ahead_ms

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        self._log.step("sleep")
        self._log.wait(seconds)


class Instance:
    """A name, a disk, and at times a loop. With two hops, one instance is two of these."""

    def __init__(self, name: str, scenario: Scenario, log: FakeCluster, part: Part) -> None:
        self.name = name
        self._part = part
        self.disk = Disk(log.step)
        self.dead = False
        self.wanted = True
        self.life = 0
        self.clock = FakeClock(log)
        self._scenario = scenario
        self._log = log
        self._clients: FakeClients | None = None
        self._loop: Loop | None = None

    @property
    def hop(self) -> Hop:
        """What it works on."""
        return self._part.hop

    @property
    def runs(self) -> bool:
        """Whether there is a process."""
        return self._loop is not None

    def turn(self) -> None:
        """Begin a life, or give it one turn; see `service.worker`."""
        try:
            self._turn()
        except Crash:
            self._gone()

    def stop(self) -> None:
        """End it in an orderly way."""
        self.wanted = False
        try:
            self._end()
        except Crash:
            self._gone()

    def freeze(self) -> None:
        """See `FakeClients.freeze`."""
        if self._clients:
            self._clients.freeze()

    def thaw(self) -> None:
        """See `FakeClients.thaw`."""
        if self._clients:
            self._clients.thaw()

    def _turn(self) -> None:
        try:
            if self._loop is None:
                self._begin()
            else:
                self._loop.turn()
        except (OutcomeUnknownError, StoreFailedError):
            self._end()
        except ExitError as end:
            if end.exit_code is not ExitCode.BROKER:
                raise
            self._end()

    def _begin(self) -> None:
        self.life += 1
        label = f"{self.name}/{self.life}"
        if self._clients:
            self._clients.kill()
        self._clients = FakeClients(self._log, GROUP, self.name, label, self._part)
        config = self._scenario.config(self.name, self.life)
        watch = Watch(config.service, self.clock, *_telling(self.clock.monotonic_s))
        try:
            self._loop = Loop(config, self._clients, self.disk, self.clock, watch)
        except (KafkaException, TransactionAbortedError):
            self._clients.kill()  # as the garbage collector does
            self._log.wait(1)

    def _end(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            with contextlib.suppress(KafkaException):
                loop.close()

    def _gone(self) -> None:
        self._loop = None
        self.dead = False
        if self._clients:
            self._clients.kill()


_TOLD: list[tuple[StatusBoard, Metrics]] = []


def _telling(clock_s: Callable[[], float]) -> tuple[StatusBoard, Metrics]:
    """Return board and metrics, made once in a process: no run looks at them."""
    if not _TOLD:
        nothing = Status.starting("", GROUP, datetime.fromtimestamp(0, UTC))
        board = StatusBoard(nothing, clock_s)
        _TOLD.append((board, Metrics(board, {"version": "simulated"}, addresses_max=10)))
    return _TOLD[0]
