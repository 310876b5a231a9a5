"""Service: one process of the service, of the victim, or of a bridge, and a stage for several."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.broker.workload import PARTITIONS
from tests.waiting import eventually
from tools.broker.embedded import LAUNCH
from tools.processes import children_of

REPOSITORY = Path(__file__).parents[2]
SERVE = ("-m", "service.cli", "serve", "--config")
BRIDGE = ("-m", "service.cli", "bridge", "--config")
VICTIM = ("-m", "tests.broker.victim")
END_S = 60.0
IN_TIME_S = 20.0
"""An open transaction's time, what the process has for its end, and a margin."""


class Service:
    """One process of the service, of the victim, or of a bridge."""

    def __init__(self, config: Path, port: int, log: Path, program: Sequence[str] = SERVE) -> None:
        self._config = config
        self._program = program
        self.port = port
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, victim: Mapping[str, str] | None = None, *, through: Sequence[str] = ()
    ) -> None:
        """Start it; with a step to be struck at, as the victim; through a command before it."""
        program = self._program if victim is None else VICTIM
        attached = [sys.executable, "-I", "-S", str(LAUNCH), "attached", str(os.getpid())]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*attached, *through, sys.executable, *program, str(self._config)],
                cwd=REPOSITORY,
                env={**os.environ, **(victim or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def is_awake(self) -> bool:
        """Whether it runs and is not stopped by a signal."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        return not self.ended and stat.read_text().rpartition(")")[2].split()[0] != "T"

    def signal(self, number: signal.Signals) -> None:
        """To the process that was started; to wake up, to its children too."""
        workers = self.workers() if number is signal.SIGCONT else []
        for pid in (*workers, self.process.pid):
            os.kill(pid, number)

    def workers(self) -> list[int]:
        """The ids of its children."""
        return children_of(self.process.pid)

    def wait(self, limit_s: float = END_S) -> int:
        """The status it ends with."""
        try:
            return self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {limit_s} s\n{self.tail()}") from None

    def stop(self, limit_s: float = END_S) -> None:
        """SIGTERM, which has to end in status 0; a program being loaded would end by it itself."""
        eventually(lambda: self._hears(signal.SIGTERM), self)
        self.signal(signal.SIGTERM)
        status = self.wait(limit_s)
        assert status == 0, f"SIGTERM ended in status {status}\n{self.tail()}"

    def _hears(self, number: int) -> bool:
        """Whether it handles a signal by now, or has ended, which its status will tell."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        told = dict(line.split(":\t", 1) for line in lines)
        return told["State"][0] == "Z" or bool(int(told["SigCgt"], 16) >> (number - 1) & 1)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone; nothing where it was never started or has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def wait_until_stopped(self) -> None:
        """Until SIGSTOP took hold of it."""
        eventually(lambda: not self.is_awake, self)

    def get(self, path: str, limit_s: float = 5.0) -> tuple[int, str]:
        """Status and body of a page; status 0 while nobody listens."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=limit_s) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()
        except OSError:
            return 0, ""

    def wait_started(self) -> None:
        """Until it answers at all; a program that is just being loaded ends by SIGTERM itself."""
        eventually(lambda: self.get("/livez")[0] != 0, self)

    def wait_ready(self, partitions: int = PARTITIONS) -> None:
        """Until it is ready and owns so many partitions."""

        def is_ready() -> bool:
            return self.get("/readyz")[0] == 200 and len(self.partitions()) == partitions

        eventually(is_ready, self)

    def wait_complaint(self, words: str) -> None:
        """Until it says on /readyz that it is not ready, with these words."""

        def complains() -> bool:
            status, body = self.get("/readyz")
            return status == 503 and words in body

        eventually(complains, self)

    def partitions(self) -> list[dict[str, Any]]:
        """Its own; TimeoutError while it does not tell."""
        status, text = self.get("/v1/partitions?scope=instance")
        if status != HTTPStatus.OK:
            raise TimeoutError(f"/v1/partitions: {status} {text}")
        found: list[dict[str, Any]] = json.loads(text)["partitions"]
        return found

    def told(self, path: str) -> Any:
        """What a page says; asked again where it cannot be said just now (503), or nobody is up."""
        answers = [(0, "")]

        def is_told() -> bool:
            answers.append(self.get(path))
            status = answers[-1][0]
            assert status in {0, 200, 503}, f"{path}: {answers[-1]}"
            return status == HTTPStatus.OK

        eventually(is_told, self)
        return json.loads(answers[-1][1])

    def tail(self) -> str:
        """What it answers, if it still does, and the end of its log."""
        pages = ("/readyz", "/v1/partitions?scope=instance") if self.started else ()
        answers = [f"{page}: {self.get(page)}" for page in pages]
        log = self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""
        return "\n".join([*answers, log])


S = TypeVar("S", bound=Service)


class Stage:
    """Where services come and go; a context manager that leaves no process behind."""

    def __init__(self) -> None:
        self._services: list[Service] = []

    def adopted(self, service: S) -> S:
        """A service as one of this stage's: its end is the stage's."""
        self._services.append(service)
        return service

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as ends:
            for service in self._services:
                ends.callback(service.kill)
