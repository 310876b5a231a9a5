"""Registry in trouble: a schema registry in a process of its own, which fails on command.

It has the same schema for every id. It is killed, or answers late, refuses, or lies: about all ids,
or about the odd ones only. About an even id it never says what a healthy one would not.
"""

import contextlib
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.sharedctypes import Synchronized
from socketserver import BaseServer
from typing import Final, NamedTuple

from bench.encoded import AVRO, PROTOBUF
from tools.broker.config import HOST, free_port


class Trouble(NamedTuple):
    """What is wrong with a registry for a while."""

    name: str
    answers: Sequence[str] = ()
    """How it answers, by ids in turn; without any it is killed."""
    is_of_all: bool = True
    """Whether it answers so about all ids, or about the odd ones only."""


_LIES: Final = ("noise", "page", "endless", "redirect", "empty")
TROUBLES: Final = (
    Trouble("killed"),
    Trouble("slow: after 30 s", ["late"]),
    Trouble("slow about every other id: a byte a second", ["dripping"], is_of_all=False),
    Trouble("refusing: 503", ["503"]),
    Trouble("refusing every other id: 403, 500, 503", ["403", "500", "503"], is_of_all=False),
    Trouble("lying", _LIES),
    Trouble("lying about every other id", [*_LIES, "other type", "no schema"], is_of_all=False),
)

_CONTEXT: Final = multiprocessing.get_context("spawn")
_HEALTHY: Final = -1
_POLL_S: Final = 0.02
_LATE_S: Final = 30.0
_DRIP_S: Final = 1.0
_RIGHT: Final = json.dumps({"schema": AVRO}).encode()
_BODIES: Final = {
    "page": b"<html><body>Sign in</body></html>",
    "empty": b"{}",
    "other type": json.dumps({"schema": PROTOBUF, "schemaType": "PROTOBUF"}).encode(),
    "no schema": b'{"schema": "this is no schema"}',
}
"""What it answers with the status 200 instead of the schema."""
_PIECE: Final = b" " * 65_536


class TroubledRegistry:
    """The process, which is healthy unless it is in trouble."""

    def __init__(self) -> None:
        self._port = free_port(0)
        self._mode = _CONTEXT.Value("i", _HEALTHY)
        self._start()

    @property
    def url(self) -> str:
        """The URL, which it keeps."""
        return f"http://{HOST}:{self._port}"

    @contextlib.contextmanager
    def in_trouble(self, trouble: Trouble) -> Iterator[None]:
        """Fail in this way while the block runs."""
        if not trouble.answers:
            self.close()
            yield
            self._start()
            return
        self._mode.value = TROUBLES.index(trouble)
        yield
        self._mode.value = _HEALTHY

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()

    def _start(self) -> None:
        self._process = _CONTEXT.Process(target=_serve, args=(self._port, self._mode), daemon=True)
        self._process.start()
        while self._process.is_alive():
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection((HOST, self._port)).close()
                return
            time.sleep(_POLL_S)
        raise RuntimeError(f"the registry ended with {self._process.exitcode}")


def _serve(port: int, mode: "Synchronized[int]") -> None:
    ThreadingHTTPServer((HOST, port), partial(_Handler, mode)).serve_forever()


class _Handler(BaseHTTPRequestHandler):
    def __init__(
        self, mode: "Synchronized[int]", request: socket.socket, client: object, server: BaseServer
    ) -> None:
        """`mode` is the index of the trouble that it is in."""
        self._mode = mode
        super().__init__(request, client, server)  # which handles the request

    def do_GET(self) -> None:
        """Answer about an id, in the way of the trouble if it concerns that id."""
        number = int(self.path.rpartition("/")[2])
        mode = self._mode.value
        trouble = None if mode == _HEALTHY else TROUBLES[mode]
        with contextlib.suppress(OSError):  # the client does not wait any longer
            if trouble is None or not (trouble.is_of_all or number % 2):
                self._answer(200, _RIGHT)
                return
            self._fail(trouble.answers[number // 2 % len(trouble.answers)])

    def _fail(self, how: str) -> None:
        match how:
            case "late":
                time.sleep(_LATE_S)
                self._answer(200, _RIGHT)
            case "dripping":
                self._head(200, len(_RIGHT))
                for byte in _RIGHT:
                    self.wfile.write(bytes([byte]))
                    time.sleep(_DRIP_S)
            case "endless":
                self._head(200)
                while True:
                    self.wfile.write(_PIECE)
            case "noise":
                self._answer(200, os.urandom(1_000))
            case "redirect":
                self._answer(302, b"")
            case "403" | "500" | "503":
                self._answer(int(how), b'{"error_code": %b00, "message": "no"}' % how.encode())
            case _:
                self._answer(200, _BODIES[how])

    def _answer(self, status: int, body: bytes) -> None:
        self._head(status, len(body))
        self.wfile.write(body)

    def _head(self, status: int, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Location", "/schemas/ids/2")  # heeded with a status of 3xx
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""
