"""Asking: a running `serve` is asked through its API, as an operator or a scraper does."""

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
    """The answer's body; OSError when it does not listen or says no."""
    url = f"http://127.0.0.1:{stage.api_port}{path}"
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
        return bytes(answer.read())


def ask_json(stage: Stage, path: str) -> Any:  # noqa: ANN401 - the caller knows the resource
    """The answer as a document."""
    return json.loads(ask(stage, path))


def await_ready(stage: Stage, check: Callable[[], None]) -> None:
    """Return once `/readyz` says ok."""
    await_answer(lambda: bool(ask(stage, "/readyz")), check)


def await_answer(holds: Callable[[], bool], check: Callable[[], None]) -> None:
    """Ask until it holds; an answer that does not come counts as no."""
    deadline_s = time.monotonic() + _READY_WITHIN_S
    while not _holds(holds):
        check()
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not ready within {_READY_WITHIN_S:.0f} s")
        time.sleep(_POLL_S)


def _holds(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:
        return False


@dataclass(slots=True)
class Answers:
    """What askers heard."""

    took_ms: list[float] = field(default_factory=list)
    refused: int = 0
    """How many were no good answers."""


@contextmanager
def asked(stage: Stage, paths: Sequence[str], per_s: float, askers: int) -> Iterator[Answers]:
    """Ask so often while the block runs, for the paths in turn; infinitely often: at once again.

    Each asker begins when it is due, not when the answer before it came, and keeps its connection.
    What it asks and hears it writes and reads itself: an HTTP client would take as much of the
    machine as the one who answers.
    """
    is_over = threading.Event()
    answers = Answers()

    def keep_asking(number: int) -> None:
        due_s = time.monotonic() + number / per_s
        with socket.create_connection(("127.0.0.1", stage.api_port), _TIMEOUT_S) as connection:
            for path in islice(cycle(paths), number, None):
                if is_over.wait(max(0.0, due_s - time.monotonic())):
                    return
                due_s += askers / per_s
                started_s = time.monotonic()
                if _answered(connection, path):
                    answers.took_ms.append((time.monotonic() - started_s) * 1000)
                else:
                    answers.refused += 1

    threads = [threading.Thread(target=keep_asking, args=[n], daemon=True) for n in range(askers)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        is_over.set()
        for thread in threads:
            thread.join(_TIMEOUT_S)


def _answered(connection: socket.socket, path: str) -> bool:
    """Whether the answer is a good one, once all of it is there."""
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
        raise ConnectionError("the API has closed a connection that it was to keep")
    return data
