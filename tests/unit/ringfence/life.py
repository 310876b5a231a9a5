"""A publisher without threads, from its start to its death: its store and its sender."""

import shutil
from pathlib import Path
from typing import Final

from ringfence_client.publisher.errors import PublisherError
from ringfence_client.publisher.message import Message
from ringfence_client.publisher.outbox import Outbox, OutboxLimits, OutboxOwner
from ringfence_client.publisher.sender import Sender, SendPolicy
from tests.fakes.judge import FakeConnection, FakeSessions, Judge

ACK_WAIT_S = 5.0


class KilledError(BaseException):
    """The end of a life, which nothing in it can catch."""


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


OPEN: Final[list["Life"]] = []
"""Those that have not ended."""


class Life:
    """A publisher that dies after `steps_left` more external calls; never if None."""

    def __init__(
        self, judge: Judge, store: Path, clock: Clock, *, now_ms: int = 0, gap_allowed: bool = False
    ) -> None:
        OPEN.append(self)
        self.judge = judge
        self.path = store
        self.clock = clock
        self.steps_left: int | None = None
        self.connections: list[FakeConnection] = []
        self.told: list[PublisherError] = []
        owner = OutboxOwner("p", "orders", "orders")
        self.store = Outbox(str(store), owner, OutboxLimits(10**6, 10**9), now_ms)
        self.sender = Sender(
            "p",
            self.store,
            FakeSessions(judge, passes=self._passes),
            self._connect,
            SendPolicy(gap_allowed, ACK_WAIT_S),
            self.told.append,
            clock,
        )

    def _passes(self) -> None:
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise KilledError

    def _connect(self) -> FakeConnection:
        self._passes()
        self.connections.append(FakeConnection(self.judge, 0, self._passes))
        return self.connections[-1]

    def publish(self, *values: bytes) -> range:
        return self.store.append([Message(value, None, (), 1) for value in values])

    def run(self, steps: int = 4) -> None:
        """Some steps, each a second apart, with the service deciding what it finds."""
        for _ in range(steps):
            self.clock.now_s += 1
            self.sender.step()
            self.judge.judge(1000)

    def kill(self) -> Path:
        """End it as `kill -9` does; where the files are that were left behind."""
        left = self.path.with_name(self.path.name + "+")
        for end in ("", "-wal"):
            shutil.copy(f"{self.path}{end}", f"{left}{end}")
        self.end()
        return left

    def end(self) -> None:
        OPEN.remove(self)
        for connection in self.connections:
            connection.close()
        self.store.close()
