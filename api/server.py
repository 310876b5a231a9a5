"""The server: the API on a thread of its own beside the loop.

The socket is bound before the thread starts, so that a port that is taken is said at once, and
port 0 is known. The thread is a daemon: a request that hangs never keeps the process.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final

import uvicorn
from fastapi import FastAPI

START_MAX_S: Final = 10.0
STOP_MAX_S: Final = 5.0
REQUEST_HEAD_BYTES_MAX: Final = 256 * 1024
"""An id of 64 KiB takes three times as much, percent-encoded in a path."""


class BindError(Exception):
    """The API cannot listen where it is configured to."""

    exit_code: Final = 2


class ServerHandle:
    """A server that runs."""

    def __init__(self, server: uvicorn.Server, thread: threading.Thread, url: str) -> None:
        self._server = server
        self._thread = thread
        self._ends: list[Callable[[], None]] = []
        self.url = url

    def then(self, end: Callable[[], None]) -> None:
        """Have something end after the last request."""
        self._ends.append(end)

    def stop(self) -> None:
        """Finish the requests at hand, within a limit, and end the thread."""
        self._server.should_exit = True
        self._thread.join(STOP_MAX_S)
        for end in self._ends:
            end()


def serve_in_thread(
    app: FastAPI, host: str, port: int, tls: ssl.SSLContext | None = None
) -> ServerHandle:
    """Serve the API and return once it answers; raise `BindError` where it cannot listen."""
    listener = _listen(host, port)
    config = _config(app)
    if tls is not None:
        config.ssl_context_factory = lambda _config, _default: tls
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, args=([listener],), name="ringfence-api", daemon=True
    )
    thread.start()
    _await_start(server, thread)
    scheme = "http" if tls is None else "https"
    name = f"[{host}]" if ":" in host else host
    return ServerHandle(server, thread, f"{scheme}://{name}:{listener.getsockname()[1]}")


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=128)
    except (OSError, OverflowError) as error:
        sentence = (
            f"The API cannot listen on {host}:{port} ({error});"
            " set api.host and api.port to an address of this machine and a free port."
        )
        raise BindError(sentence) from error
    # For every connection: asyncio sees to it only for sockets that were made for TCP by name, and
    # a body that waits for the head's acknowledgement comes 40 ms late.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _config(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=REQUEST_HEAD_BYTES_MAX,
    )


def _await_start(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline_s = time.monotonic() + START_MAX_S
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline_s:
            sentence = f"The API did not start within {START_MAX_S:g} s; the log has the reason."
            raise BindError(sentence)
        time.sleep(0.005)
