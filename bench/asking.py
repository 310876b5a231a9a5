"""Asking: a running `serve` is asked through its API, as an operator or a scraper does."""

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from itertools import cycle, islice
from typing import Any, Final

from bench.arms import Stage

_TIMEOUT_S: Final = 10.0
_READY_WITHIN_S: Final = 300.0
_POLL_S: Final = 0.01
_ASKERS: Final = 8


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


@contextmanager
def asked(stage: Stage, paths: Sequence[str], per_s: float) -> Iterator[list[float]]:
    """Ask so often while the block runs, for the paths in turn; how long answers took, in ms.

    Each asker begins when it is due, not when the answer before it came, and keeps its connection.
    """
    is_over = threading.Event()
    took_ms: list[float] = []

    def keep_asking(number: int) -> None:
        connection = HTTPConnection("127.0.0.1", stage.api_port, timeout=_TIMEOUT_S)
        due_s = time.monotonic() + number / per_s
        for path in islice(cycle(paths), number, None):
            if is_over.wait(max(0.0, due_s - time.monotonic())):
                break
            due_s += _ASKERS / per_s
            started_s = time.monotonic()
            if _answered(connection, path):
                took_ms.append((time.monotonic() - started_s) * 1000)
        connection.close()

    askers = [threading.Thread(target=keep_asking, args=[n], daemon=True) for n in range(_ASKERS)]
    for asker in askers:
        asker.start()
    try:
        yield took_ms
    finally:
        is_over.set()
        for asker in askers:
            asker.join(_TIMEOUT_S)


def _answered(connection: HTTPConnection, path: str) -> bool:
    """Whether the answer is a good one; the next question opens a lost connection again."""
    try:
        connection.request("GET", path)
        with connection.getresponse() as answer:
            answer.read()
    except (OSError, HTTPException):
        connection.close()
        return False
    return answer.status == HTTPStatus.OK
