"""API requests to a running `serve`, one by one or as a steady load of several clients."""

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any, Final

from bench.arms import Stage

_TIMEOUT_S: Final = 10.0
_READY_WITHIN_S: Final = 300.0
_POLL_S: Final = 0.01
_BLANK_LINE: Final = b"\r\n\r\n"
_CHUNK_BYTES: Final = 65_536


def ask(stage: Stage, path: str) -> bytes:
    """GET a path and return the response's body; OSError if that fails."""
    url = f"http://127.0.0.1:{stage.api_port}{path}"
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:
        return bytes(response.read())


def ask_json(stage: Stage, path: str) -> Any:  # noqa: ANN401 - the caller knows the resource
    """GET a path and return the JSON of its response."""
    return json.loads(ask(stage, path))


def await_ready(stage: Stage, check: Callable[[], None]) -> None:
    """Wait until `/readyz` returns ok."""
    await_answer(lambda: bool(ask(stage, "/readyz")), check)


def await_answer(holds: Callable[[], bool], check: Callable[[], None]) -> None:
    """Repeat a request until it returns True; one without a response counts as False."""
    deadline_s = time.monotonic() + _READY_WITHIN_S
    while not _holds(holds):
        check()
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not ready within {_READY_WITHIN_S:.0f} s")
        time.sleep(_POLL_S)


def _holds(request: Callable[[], bool]) -> bool:
    try:
        return request()
    except OSError:
        return False


@dataclass(slots=True)
class Answers:
    """Response times of a load, and its failures."""

    took_ms: list[float] = field(default_factory=list)
    refused: int = 0
    """Number of responses without status 200."""


@contextmanager
def api_load(stage: Stage, paths: Sequence[str], per_s: float, clients: int) -> Iterator[Answers]:
    """Request the paths in turn while the block runs; with an infinite rate, without a pause.

    Each client sends a request when it is due, not when the previous response has arrived, and
    keeps its connection. It writes and parses HTTP itself, since an HTTP library would use as much
    of the machine as the server does.
    """
    is_over = threading.Event()
    answers = Answers()

    def keep_requesting(number: int) -> None:
        due_s = time.monotonic() + number / per_s
        with socket.create_connection(("127.0.0.1", stage.api_port), _TIMEOUT_S) as connection:
            for path in islice(cycle(paths), number, None):
                if is_over.wait(max(0.0, due_s - time.monotonic())):
                    return
                due_s += clients / per_s
                started_s = time.monotonic()
                if _succeeds(connection, path):
                    answers.took_ms.append((time.monotonic() - started_s) * 1000)
                else:
                    answers.refused += 1

    threads = [
        threading.Thread(target=keep_requesting, args=[number], daemon=True)
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        is_over.set()
        for thread in threads:
            thread.join(_TIMEOUT_S)


def _succeeds(connection: socket.socket, path: str) -> bool:
    """GET a path; return whether the status is 200, once the whole response has arrived."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    head = b""
    while not (blank := head.find(_BLANK_LINE)) + 1:
        head += _received(connection)
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    body = head[blank + len(_BLANK_LINE) :]
    while len(body) < length:
        body += _received(connection)
    return head.startswith(b"HTTP/1.1 200 ")


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(_CHUNK_BYTES)
    if not data:
        raise ConnectionError("the API has closed a keep-alive connection")
    return data
