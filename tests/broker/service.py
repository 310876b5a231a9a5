"""Service: one process of the service, of the victim, or of a bridge, and a stage for several.

What all tests ask of a process stands here: its file, its commands and its API.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from tests.broker import warm
from tests.broker.workload import PARTITIONS
from tests.support.waiting import LIMIT_S, eventually
from tools.broker.config import free_port
from tools.broker.embedded import LAUNCH
from tools.processes import children_of

REPOSITORY = Path(__file__).parents[2]
SERVE = ("-m", "ringfence_main.entry", "serve", "--config")
BRIDGE = ("-m", "ringfence_main.entry", "bridge", "--config")
VICTIM = ("-m", "tests.broker.victim")
COMMAND_S = 120.0
END_S = 60.0
IN_TIME_S = 20.0
"""An open transaction's time, what the process has for its end, and a margin."""


def properties(client: Mapping[str, str]) -> str:
    """Those of a Kafka client, as lines of TOML."""
    return "\n".join(f'"{name}" = {json.dumps(value)}' for name, value in client.items())


def configuration(
    client: Mapping[str, str],
    group: str,
    state: Path,
    port: int = 0,
    *,
    kafka: str = "",
    service: str = "",
    api: str = "",
    rest: str = "",
    session_ms: int = 6_000,
) -> str:
    """A configuration of `serve`: what all have, and lines of TOML for each of its tables."""
    return f"""
[kafka]
{properties(client)}
{kafka}
[service]
group_id = "{group}"
state_dir = "{state}"
session_timeout_ms = {session_ms}
{service}
[api]
port = {port}
{api}
{rest}
"""


def ringfence(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; of our settings its environment has only these."""
    ours = ("KAFKA_", "RINGFENCE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        [sys.executable, "-m", "ringfence_main.entry", *words],
        cwd=REPOSITORY,
        env={**kept, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_S,
    )


def struck(step: str, count: int, how: str = "KILL") -> dict[str, str]:
    """What a victim finds in its environment."""
    return {"VICTIM_STEP": step, "VICTIM_COUNT": str(count), "VICTIM_SIGNAL": how}


class Answer(NamedTuple):
    """Of the API."""

    status: int
    """0 while nobody listens."""
    text: str = ""
    headers: Mapping[str, str] = {}

    @property
    def document(self) -> Any:
        """What it says as JSON."""
        return json.loads(self.text)


class Service:
    """One process of the service, of the victim, or of a bridge."""

    def __init__(self, config: Path, port: int, log: Path, program: Sequence[str] = SERVE) -> None:
        self._config = config
        self._program = program
        self.port = port
        self.log = log
        self._process: warm.Process | None = None

    def start(
        self, victim: Mapping[str, str] | None = None, *, through: Sequence[str] = ()
    ) -> None:
        """Start it; with a step to be struck at, as the victim; through a command before it."""
        program = self._program if victim is None else VICTIM
        environment = {**os.environ, **(victim or {})}
        if sys.platform == "linux" and not through:
            words = [*program[1:], str(self._config)]
            self._process = warm.start(words, environment, self.log)
            return
        attached = [sys.executable, "-I", "-S", str(LAUNCH), "attached", str(os.getpid())]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*attached, *through, sys.executable, *program, str(self._config)],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def process(self) -> warm.Process:
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

    def die(self, step: str, count: int) -> None:
        """Start it as the victim, and wait until it was killed at a passing of the step."""
        self.start(struck(step, count))
        assert self.wait(LIMIT_S) == -signal.SIGKILL, self.tail()

    def wait_until_stopped(self) -> None:
        """Until SIGSTOP took hold of it."""
        eventually(lambda: not self.is_awake, self)

    @property
    def url(self) -> str:
        """Where its API is."""
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        path: str,
        body: object = None,
        method: str | None = None,
        headers: Mapping[str, str] = {},
        limit_s: float = 120.0,
    ) -> Answer:
        """What the API answers; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - our own
            f"{self.url}{path}",
            data=None if body is None else data,
            headers={"Content-Type": "application/json", **headers},
            method=method or ("GET" if body is None else "POST"),
        )
        try:
            with _opened(request, limit_s) as page:
                told = {name.lower(): value for name, value in page.headers.items()}
                return Answer(page.status, page.read().decode(), told)
        except OSError:
            return Answer(0)

    def get(self, path: str, limit_s: float = 5.0) -> tuple[int, str]:
        """Status and body of a page; status 0 while nobody listens."""
        return self.ask(path, limit_s=limit_s)[:2]

    @property
    def restored(self) -> list[int]:
        """How many changelog records it has read for each of its partitions."""
        return [part["restored_records"] for part in self.partitions()]

    def answered(
        self,
        path: str,
        body: object = None,
        method: str | None = None,
        headers: Mapping[str, str] = {},
    ) -> Answer:
        """What is answered in the end: asked again on 503, and while nobody is up."""
        answers: list[Answer] = []

        def is_answered() -> bool:
            answers.append(self.ask(path, body, method, headers))
            return answers[-1].status not in {0, HTTPStatus.SERVICE_UNAVAILABLE}

        eventually(is_answered, self)
        return answers[-1]

    def told(
        self,
        path: str,
        body: object = None,
        method: str | None = None,
        headers: Mapping[str, str] = {},
    ) -> Any:
        """The document that is answered in the end."""
        answer = self.answered(path, body, method, headers)
        assert answer.status in {HTTPStatus.OK, HTTPStatus.CREATED}, f"{path}: {answer}"
        return answer.document

    @property
    def is_ready(self) -> bool:
        """Whether it says so."""
        return self.get("/readyz")[0] == HTTPStatus.OK

    def wait_started(self) -> None:
        """Until it answers at all; a program that is just being loaded ends by SIGTERM itself."""
        eventually(lambda: self.get("/livez")[0] != 0, self)

    def wait_ready(self, partitions: int = PARTITIONS) -> None:
        """Until it is ready and owns so many partitions."""

        eventually(lambda: self.running() == partitions, self)

    def running(self) -> int:
        """How many partitions it decides for; 0 while it restores one, or is not ready."""
        # In this order: one that is reported as running was restored, whatever happens in between.
        owned = self.partitions() if self.is_ready else []
        return len(owned) if all(part["phase"] == "running" for part in owned) else 0

    def wait_complaint(self, words: str) -> None:
        """Until it says on /readyz that it is not ready, with these words."""

        def complains() -> bool:
            status, body = self.get("/readyz")
            return status == 503 and words in body

        eventually(complains, self)

    def wait_note(self, words: str) -> None:
        """Until it says on /readyz that it is ready, and with these words that something waits."""

        def notes() -> bool:
            status, body = self.get("/readyz")
            return status == 200 and words in body

        eventually(notes, self)

    def partitions(self) -> list[dict[str, Any]]:
        """Its own; TimeoutError while it does not tell."""
        status, text = self.get("/v1/partitions?scope=instance")
        if status != HTTPStatus.OK:
            raise TimeoutError(f"/v1/partitions: {status} {text}")
        found: list[dict[str, Any]] = json.loads(text)["partitions"]
        return found

    def tail(self) -> str:
        """What it answers, if it still does, and the end of its log."""
        pages = ("/readyz", "/v1/partitions?scope=instance") if self.started else ()
        answers = [f"{page}: {self.get(page)}" for page in pages]
        log = self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""
        return "\n".join([*answers, log])


def _opened(request: urllib.request.Request, limit_s: float) -> Any:
    """What is answered, be it a refusal."""
    try:
        return urllib.request.urlopen(request, timeout=limit_s)  # noqa: S310 - our own
    except urllib.error.HTTPError as refusal:
        return refusal


S = TypeVar("S", bound=Service)


def wait_shared(*services: Service) -> None:
    """Until each is ready and has some partitions, and all of them together all."""

    def is_shared() -> bool:
        owned = [each.running() for each in services]
        return min(owned) > 0 and sum(owned) == PARTITIONS

    eventually(is_shared, *services)


class Stage:
    """A group whose services come and go; a context manager that leaves no process behind."""

    def __init__(self, client: Mapping[str, str], folder: Path, group: str) -> None:
        self.client = dict(client)
        self.folder = folder
        self.group = group
        self._services: list[Service] = []

    def adopted(self, service: S) -> S:
        """A service as one of this stage's: its end is the stage's."""
        self._services.append(service)
        return service

    def written(
        self,
        name: str,
        text: Callable[[int], str],
        *,
        port: int | None = None,
        program: Sequence[str] = SERVE,
    ) -> Service:
        """One that is not yet started, with a file that says for a port what `text` does."""
        port = port or free_port(0)
        config = self.folder / f"{name}.toml"
        config.write_text(text(port), encoding="utf-8")
        return self.adopted(Service(config, port, self.folder / f"{name}.log", program))

    def serving(self, name: str, state: str = "state", **tables: Any) -> Service:
        """A service of the group; `tables` are what `configuration` takes."""
        folder = self.folder / state
        return self.written(
            name, lambda port: configuration(self.client, self.group, folder, port, **tables)
        )

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
