"""Service under test: a child process that is started, killed, started again and stopped.

It runs in its own session, so that Ctrl-C reaches only the demo, which then stops everything in
order. It never outlives the demo, and every wait for it has a limit.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tools.broker.embedded import LAUNCH
from tools.demo.errors import DemoError
from tools.demo.topics import Names

ATTACHED: Final = (sys.executable, "-I", "-S", str(LAUNCH), "attached")
SERVE: Final = (sys.executable, "-m", "ringfence_main.entry", "serve")
HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8080
READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0
PROBE_TIMEOUT_S: Final = 1.0
PROBE_PAUSE_S: Final = 0.2
TAIL_LINES: Final = 12


class Service:
    """One `ringfence serve` with a fixed configuration; a context manager that stops it."""

    def __init__(self, folder: Path, bootstrap_servers: str, names: Names) -> None:
        self.log = folder / "service.log"
        self.port = free_port()
        self._config = folder / "ringfence.toml"
        self._config.write_text(
            config_text(bootstrap_servers, names, self.port, folder / "state"), encoding="utf-8"
        )
        self._environment = environment(bootstrap_servers)
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self.is_ready = False

    @property
    def url(self) -> str:
        """Base URL of the console and the API."""
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Start the process; its output is appended to the log."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*ATTACHED, str(os.getpid()), *SERVE, "--config", str(self._config)],
                cwd=Path(__file__).parents[2],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started_s = time.monotonic()
        self.is_ready = False

    def wait_until_ready(self) -> None:
        """Wait until the service is ready."""
        while not self.probe():
            time.sleep(PROBE_PAUSE_S)

    def probe(self) -> bool:
        """Return whether the service is ready; raise DemoError if it exited or takes too long."""
        self.check()
        if not self.is_ready:
            self.is_ready = answers_ready(self.port)
        if not self.is_ready and time.monotonic() - self._started_s > READY_TIMEOUT_S:
            raise DemoError(
                self._with_tail(f"the service was not ready after {READY_TIMEOUT_S:.0f} s")
            )
        return self.is_ready

    def fast_path(self) -> str:
        """Return which fast path it runs, and why if it is not the one that was asked for."""
        end_s = time.monotonic() + READY_TIMEOUT_S
        while (told := answer(self.port, "/v1/info"))[0] != HTTPStatus.OK:
            self.check()
            if time.monotonic() > end_s:
                raise DemoError(self._with_tail(f"the service answers /v1/info with {told[0]}"))
            time.sleep(PROBE_PAUSE_S)
        info = json.loads(told[1])
        fault = info["fast_path_fault"]
        return f"{info['fast_path']}  ({fault})" if fault else str(info["fast_path"])

    def check(self) -> None:
        """Raise DemoError if the process has ended by itself."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            raise DemoError(self._with_tail(f"the service ended by itself with status {code}"))

    def kill(self) -> int:
        """Kill the process with SIGKILL, wait for its end, and return its id."""
        self.check()
        if self._process is None:
            raise DemoError("the service does not run, so it cannot be killed; start it first")
        process, self._process = self._process, None
        self.is_ready = False
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=STOP_TIMEOUT_S)
        return process.pid

    def stop(self) -> None:
        """Stop the service with SIGTERM, as an operator would; it has to exit with 0 in time."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait(timeout=STOP_TIMEOUT_S)
            raise DemoError(
                self._with_tail(f"the service did not stop within {STOP_TIMEOUT_S:.0f} s")
            ) from error
        if code != 0:
            raise DemoError(self._with_tail(f"the service stopped with status {code}, not 0"))

    def _with_tail(self, sentence: str) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = "".join(f"\n  {line}" for line in lines[-TAIL_LINES:])
        return f"{sentence}; its log {self.log} ends with:{tail or ' nothing'}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        failure: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except DemoError:
            # The first failure is the one to report.
            if failure is None:
                raise


def free_port() -> int:
    """Return the default port if it is free, or else any free one."""
    for port in (DEFAULT_PORT, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            # As the service does: connections of the last run in TIME_WAIT do not count.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((HOST, port))
            except OSError:
                continue
            bound: int = listener.getsockname()[1]
            return bound
    raise DemoError(f"no port is free on {HOST}; stop a program that listens there")


def answers_ready(port: int) -> bool:
    """Return whether the readiness probe responds with 200."""
    return answer(port, "/readyz")[0] == HTTPStatus.OK


def answer(port: int, path: str) -> tuple[int, bytes]:
    """Return status and body of a GET request; status 0 if nobody answers."""
    connection = HTTPConnection(HOST, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, HTTPException):
        return 0, b""
    finally:
        connection.close()


def environment(bootstrap_servers: str) -> dict[str, str]:
    """Return our variables, which may hold credentials, without settings of another service."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith("RINGFENCE_") and "__" in name)
    }
    return {**kept, "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers, "PYTHONUNBUFFERED": "1"}


def config_text(bootstrap_servers: str, names: Names, port: int, state_dir: Path) -> str:
    """Return the content of the configuration file, as a user would write it."""
    return f"""\
# Written by the demo. Start the service on it with: ringfence serve --config FILE
[kafka]
"bootstrap.servers" = {json.dumps(bootstrap_servers)}

[service]
group_id = {json.dumps(names.group_id)}
state_dir = {json.dumps(str(state_dir), ensure_ascii=False)}

[api]
host = "{HOST}"
port = {port}

[[routes]]
name = "flights"
inputs = [{json.dumps(names.input)}]
scope = "partition"
output = {json.dumps(names.output)}
dead_letter = {json.dumps(names.dead_letter)}

[addresses."flights.#"]
id_cache_size = 400000
"""
