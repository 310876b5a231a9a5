"""Load of the demo: the publisher sends, the reader reads, and the service is killed half-way.

The kill happens while messages are in transit, because the publisher never runs far ahead of the
verdicts. If there is no progress for a while, the load fails with a DemoError.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Final, NamedTuple, Self

from tools.demo.audit import Audit, Findings
from tools.demo.books import Books
from tools.demo.errors import DemoError
from tools.demo.publisher import Publisher
from tools.demo.reader import Reader
from tools.demo.screen import Progress, Screen
from tools.demo.service import Service
from tools.demo.topics import Topics

LOOK_EVERY_S: Final = 0.1
STALL_TIMEOUT_S: Final = 60.0


class Kill(NamedTuple):
    """The moment of the kill, and the counts at that time."""

    at_s: float
    moment_s: float
    process: int
    sent: int
    accepted: int

    @property
    def at(self) -> str:
        """Local time of day, in milliseconds."""
        local = datetime.fromtimestamp(self.at_s).astimezone()
        return local.time().isoformat(timespec="milliseconds")


class Result(NamedTuple):
    """The result of the load."""

    findings: Findings
    kill: Kill
    down_s: float
    took_s: float

    @property
    def messages_per_second(self) -> float:
        """Sent messages per second, including copies, from the first send to the last verdict."""
        return self.findings.sent / self.took_s


@dataclass
class Load:
    """One run of all flights; a context manager that stops its threads."""

    books: Books
    audit: Audit
    publisher: Publisher
    reader: Reader
    service: Service
    topics: Topics
    screen: Screen
    _kill: Kill | None = None
    _down_s: float = 0.0
    _seen: tuple[int, int] = (0, 0)
    _moved_s: float = 0.0

    def run(self) -> Result:
        """Send everything, kill the service once, wait for all verdicts, and compare."""
        started_s = self._moved_s = time.monotonic()
        self.reader.start()
        self.publisher.start()
        with self.screen.follow() as follower:
            while not self._is_over():
                self.reader.check()
                self._kill_half_way()
                self._see_it_return()
                self._refuse_to_hang()
                follower.show(self._progress())
                time.sleep(LOOK_EVERY_S)
        names = self.topics.names
        self.reader.finish(
            {topic: self.topics.end_offsets(topic) for topic in (names.output, names.dead_letter)}
        )
        if self._kill is None:
            raise DemoError("the load ended before the service could be killed; report this")
        took_s = self.reader.last_taken_s - started_s
        return Result(self.audit.findings(), self._kill, self._down_s, took_s)

    def _is_over(self) -> bool:
        """Return whether everything is sent and the group has committed all of it."""
        self.service.check()
        return (
            self.publisher.is_finished() and self.service.is_ready and self.topics.undecided() == 0
        )

    def _kill_half_way(self) -> None:
        if self._kill is not None or self.audit.accepted < len(self.books.flights) // 2:
            return
        process = self.service.kill()
        self._kill = Kill(
            at_s=time.time(),
            moment_s=time.monotonic(),
            process=process,
            sent=self.books.sent,
            accepted=self.audit.accepted,
        )
        self.screen.say(
            f"kill -9 of the service (process {process}) with {self._kill.sent:,} messages sent "
            f"and {self._kill.accepted:,} accepted; starting it again"
        )
        self.publisher.doubt()
        self.service.start()

    def _see_it_return(self) -> None:
        if self._kill is None or self._down_s or not self.service.probe():
            return
        self._down_s = time.monotonic() - self._kill.moment_s
        self.screen.say(f"the service is ready again, {self._down_s:.1f} s after the kill")

    def _refuse_to_hang(self) -> None:
        seen = self.books.sent, self.audit.taken
        now_s = time.monotonic()
        if seen != self._seen:
            self._seen, self._moved_s = seen, now_s
        elif now_s - self._moved_s > STALL_TIMEOUT_S:
            raise DemoError(
                f"nothing moved for {STALL_TIMEOUT_S:.0f} s: {seen[0]:,} messages are sent and "
                f"{seen[1]:,} have a verdict; look at the service's log {self.service.log}"
            )

    def _progress(self) -> Progress:
        return Progress(
            flights=len(self.books.flights),
            sent=self.books.sent,
            accepted=self.audit.accepted,
            duplicates=self.audit.duplicates,
            service="running" if self.service.is_ready else "restarting",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _failure: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.publisher.stop()
        self.reader.stop()
