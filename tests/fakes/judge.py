"""A log, the service that decides its records by the rule of `sequence`, and connections to both.

Connections write to the log, and what a closed one still had under way may follow later, in any
order. The judge stands for the service. It reads the records one by one: it refuses an epoch below
the session's, drops a number that is not above the last as a duplicate, and accepts anything else.
"""

from collections.abc import Callable
from typing import NamedTuple

from ringfence_client.headers import EPOCH, NUMBER, PUBLISHER
from ringfence_client.publisher.errors import AwayError, NameInUseError
from ringfence_client.publisher.message import Headers, Message
from ringfence_client.publisher.session import Session

ROOM = 7
"""How many messages a connection takes before it has to be polled."""
PACE = 5
"""How many of them one poll delivers to the log."""


class Sent(NamedTuple):
    """A record on the log."""

    number: int
    epoch: int
    value: bytes | None


class Judge:
    """The service, for one publisher at one address, and the log that it reads."""

    def __init__(self) -> None:
        self.log: list[Sent] = []
        self.read = 0
        self.accepted: list[Sent] = []
        self.last = 0
        self.epoch = 0
        self.user: str | None = None
        self.acks: list[int] = []
        self.up = True
        self.broker_up = True
        self.loses_acks = False
        self.tells_sessions = True
        self.loses_answers = False
        self.look_ups = 0
        self.adrift: list[list[Sent]] = []
        """What closed connections had under way: it is delivered late, in part, or never."""

    def judge(self, count: int) -> None:
        """Decide the next records and acknowledge them, as one transaction does."""
        batch = self.log[self.read : self.read + count] if self.up else []
        self.read += len(batch)
        for sent in batch:
            if sent.epoch >= self.epoch and sent.number > self.last:
                self.accepted.append(sent)
                self.last = sent.number
        if batch and not self.loses_acks:
            self.acks.append(self.last)

    def land(self, first: int, count: int) -> None:
        """Part of what drifts longest reaches the log.

        As long as its session holds it is the beginning, for a connection leaves no hole; what
        comes later may be any part.
        """
        if self.adrift:
            under_way = self.adrift.pop(0)
            if under_way[0].epoch == self.epoch:
                first = 0
            self.log.extend(under_way[first : first + count])

    def session(self, user: str) -> Session:
        """Open a session."""
        if not self.up:
            raise AwayError("the service is away")
        if self.user not in {None, user}:
            raise NameInUseError(f"{self.user} holds the name")
        self.user = user
        self.epoch += 1
        return Session(self.epoch, self.last)


class FakeSessions:
    """See `SessionClient`."""

    def __init__(
        self, judge: Judge, user: str = "u", passes: Callable[[], None] = lambda: None
    ) -> None:
        self._judge = judge
        self._user = user
        self._passes = passes

    def open(self) -> Session:
        self._passes()
        session = self._judge.session(self._user)
        self._passes()
        if self._judge.loses_answers:
            raise AwayError("the answer was lost")
        return session

    def look_up(self) -> Session | None:
        self._passes()
        self._judge.look_ups += 1
        if not self._judge.up:
            raise AwayError("the service is away")
        if not self._judge.tells_sessions:
            return None
        return Session(self._judge.epoch, self._judge.last)


class FakeConnection:
    """See `Connection`. `passes` is called at each step, and may end the life of the publisher."""

    def __init__(
        self, judge: Judge, partition: int, passes: Callable[[], None] = lambda: None
    ) -> None:
        if not judge.broker_up:
            raise AwayError("the broker is away")
        self.partition = partition
        self.fails = False
        self._judge = judge
        self._passes = passes
        self._queue: list[Sent] = []
        self._position = len(judge.acks)
        self.is_closed = False
        self.waits_s: list[float] = []
        """For how long each poll was ready to wait."""

    def send(self, message: Message, claim: Headers) -> bool:
        assert not self.is_closed
        self._passes()
        if len(self._queue) >= ROOM:
            return False
        said = {name: value or b"" for name, value in claim}
        assert set(said) == {PUBLISHER, NUMBER, EPOCH}
        self._queue.append(Sent(int(said[NUMBER]), int(said[EPOCH]), message.value))
        return True

    def poll(self, wait_s: float) -> int:
        assert wait_s < 1
        assert not self.is_closed
        self.waits_s.append(wait_s)
        self._passes()
        if self.fails or not self._judge.broker_up:
            raise AwayError("a record could not be delivered")
        self._judge.log.extend(self._queue[:PACE])
        del self._queue[:PACE]
        self._passes()
        acks, self._position = self._judge.acks[self._position :], len(self._judge.acks)
        return max(acks, default=0)

    def close(self) -> None:
        if self._queue and not self.is_closed:
            self._judge.adrift.append(self._queue)
        self.is_closed = True
