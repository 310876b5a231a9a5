"""The command line against the real API on a fake service, as a shell would run it."""

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from ringfence_api.app import create_app
from ringfence_api.ports import ServiceView
from ringfence_api.server import serve_in_thread
from ringfence_main.cli import main
from ringfence_service.cli import http
from ringfence_service.cli.command import RESPONSE_S
from ringfence_service.cli.http import AdminApi
from ringfence_service.cli.target import ApiTarget
from ringfence_service.queries.ids import IdLocation
from ringfence_service.queries.inbox import QueryInbox
from ringfence_service.queries.status import ServiceStatus
from tests.api import conftest as api
from tests.api.fake_service import RUNNING, Clock, make_view, remembering, serving
from tests.fakes.logs import logging_to
from tests.support.leaks import has_secret
from tests.support.statuses import LOST_WORKER, worker_status
from tests.support.waiting import LIMIT_S

HELD = api.HELD | {("..", b"\x1b[31m"): IdLocation("orders", 3, 46, 1_700_000_000_004, 3)}
WORKERS = (worker_status(fast_path="python"), LOST_WORKER)


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """Its output as a program reads it: lines of values."""
        return [line.split("\t") for line in self.out.splitlines()]


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


Shell = Callable[..., Ran]


@pytest.fixture(autouse=True)
def logged() -> Iterator[io.StringIO]:
    """What the service logs; it runs beside the command line here, which prints."""
    stream = io.StringIO()
    with logging_to(stream):
        yield stream


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user without tokens and colours; the folder of the settings."""
    for name in ("URL", "TOKEN", "TOKEN_FILE", "CA_FILE"):
        monkeypatch.delenv(f"RINGFENCE_{name}", raising=False)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


def _patient(target: ApiTarget, timeout_s: float, note: Callable[[str], None]) -> AdminApi:
    return AdminApi(target, LIMIT_S if timeout_s == RESPONSE_S else timeout_s, note)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Runs the command line: in a pipe, or with answers typed at a terminal.

    A command that names no limit waits for a machine with much else to do.
    """
    monkeypatch.setattr(http, "AdminApi", _patient)

    def run(*arguments: str, typed: str | None = None, piped: str = "") -> Ran:
        stream = io.StringIO if typed is None else Terminal
        out, err = stream(), stream()
        monkeypatch.setattr(sys, "argv", ["ringfence", *arguments])
        monkeypatch.setattr(sys, "stdin", stream(piped if typed is None else typed))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as ended:
            main()
        assert not has_secret(out.getvalue() + err.getvalue()), arguments
        return Ran(int(ended.value.code or 0), out.getvalue(), err.getvalue())

    return run


@pytest.fixture
def status() -> ServiceStatus:
    """What the service publishes."""
    return RUNNING


@pytest.fixture
def view(status: ServiceStatus) -> Iterator[ServiceView]:
    """A service as its API sees it."""
    inbox = QueryInbox(depth=8)
    with serving(inbox, remembering(HELD)):
        made = make_view(status, Clock(), inbox)
        yield replace(made, workers=lambda: WORKERS)


@pytest.fixture
def url(view: ServiceView, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A served API, to which commands go."""
    server = serve_in_thread(create_app(view), "127.0.0.1", 0)
    monkeypatch.setenv("RINGFENCE_URL", server.url)
    yield server.url
    server.stop()
