"""API server: runs the API on its own thread.

The socket is bound before the thread starts, so that a port in use is reported at once and port 0
is resolved. The thread is a daemon: a hanging request never keeps the process alive. Its niceness
lets the loops run first on busy processors.
"""

import asyncio
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from ringfence_api.app import PROBES, create_app
from ringfence_api.auth.authenticate import Authenticator
from ringfence_api.connections import LIMITS, ConnectionLimits, LimitedConnection, LimitedListener
from ringfence_api.ports import ServiceView
from ringfence_api.tls_certificates import TlsCertificates
from ringfence_service.config.model import ApiSettings
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.listeners import BindError, Listeners, bound, not_bound

START_MAX_S: Final = 10.0
"""How long the command waits for the API before it exits; workers are not supervised meanwhile.

Long enough for a busy machine, where the thread of the API has a lower priority.
"""

STOP_MAX_S: Final = 5.0
"""How long the end of a process waits for a server, whose thread is a daemon.

More than the two seconds that requests get (`timeout_graceful_shutdown`). API and probes are
stopped one after the other, so it counts twice.
"""

_HANDSHAKE_MAX_S: Final = 10.0
"""How long a client may take for the TLS handshake, which occupies one of the connections.

`connections.WAIT_S` counts only after it. Much less than asyncio's 60 s, and enough for a slow
network, where a handshake takes a few round trips.
"""

_TLS_CLOSE_MAX_S: Final = 2.0
"""How long a client may take to acknowledge the end of TLS."""

_BACKLOG: Final = 128

_NICENESS: Final = 5
"""Competing with a loop, the thread gets a quarter of a processor; on an idle one, all of it."""


class ServerHandle:
    """A running server."""

    def __init__(self, server: uvicorn.Server, thread: threading.Thread, url: str) -> None:
        self._server = server
        self._thread = thread
        self._on_stop: list[Callable[[], None]] = []
        self.url = url

    def then(self, callback: Callable[[], None]) -> None:
        """Add a callback to run after the server has stopped."""
        self._on_stop.append(callback)

    def stop(self) -> None:
        """Finish the current requests within a time limit, and end the thread."""
        self._server.should_exit = True
        self._thread.join(STOP_MAX_S)
        for callback in self._on_stop:
            callback()


class _Server(uvicorn.Server):
    """A uvicorn server that accepts connections from a limited listener."""

    def __init__(
        self, config: uvicorn.Config, listener: LimitedListener, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(config)
        self._listener = listener
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start uvicorn without a socket, then listen with the limited listener."""
        await super().startup(sockets=sockets or [])
        options = dict[str, Any]()
        if self._tls is not None:
            options = {
                "ssl": self._tls,
                "ssl_handshake_timeout": _HANDSHAKE_MAX_S,
                "ssl_shutdown_timeout": _TLS_CLOSE_MAX_S,
            }

        def connection() -> LimitedConnection:
            return LimitedConnection(
                self._listener, self.config, self.server_state, self.lifespan.state
            )

        server = await asyncio.get_running_loop().create_server(
            connection, sock=self._listener, backlog=_BACKLOG, **options
        )
        self.servers.append(server)

    async def on_tick(self, counter: int) -> bool:
        """Apply the time limits of connections once per second; called ten times per second."""
        if counter % 10 == 0:
            for connection in tuple(self.server_state.connections):
                assert isinstance(connection, LimitedConnection)
                connection.tick()
        return await super().on_tick(counter)


def serve_in_thread(
    app: FastAPI,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    *,
    key: str = "port",
    listener: socket.socket | None = None,
    limits: ConnectionLimits = LIMITS,
    refused: Callable[[str], None] = lambda _reason: None,
    niceness: int = _NICENESS,
) -> ServerHandle:
    """Serve the API and return once it accepts requests. Raise `BindError` if it cannot listen.

    `key` is the key of [api] that sets the port, for the message of the error. `listener` is bound
    to host and port already; it is taken over. `refused` counts a
    connection that was refused or closed because of a limit, by reason. `niceness` applies to the
    thread and the threads that it starts, on Linux only: elsewhere it belongs to the process.
    """
    own = bound(host, port, key) if listener is None else listener
    try:
        own.listen(_BACKLOG)
    except OSError as error:
        raise not_bound(host, port, key, error) from error
    # Accepted connections inherit it. asyncio sets it only for sockets created with IPPROTO_TCP;
    # without it, a body that waits for the acknowledgement of the head is 40 ms late.
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    limited = LimitedListener(own, limits, refused)
    scheme = "http" if tls is None else "https"
    name = f"[{host}]" if ":" in host else host
    url = f"{scheme}://{name}:{limited.getsockname()[1]}"
    server = _Server(_config(app), limited, tls)

    def run() -> None:
        if sys.platform == "linux":
            os.nice(niceness)  # of this thread alone, on Linux
        server.run()

    thread = threading.Thread(target=run, name="ringfence-api", daemon=True)
    thread.start()
    _await_start(server, thread)
    return ServerHandle(server, thread, url)


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
    )


def _await_start(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline_s = time.monotonic() + START_MAX_S
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline_s:
            sentence = (
                f"The API did not start within {START_MAX_S:g} s; see the log for the reason."
            )
            raise BindError(sentence)
        time.sleep(0.005)


_PROBE_LIMITS: Final = ConnectionLimits(connections_max=64, per_address_max=16)


def opened(api: ApiSettings) -> Authenticator:
    """Create the authenticator. Raise ExitError if a file changed after the validation."""
    try:
        return Authenticator(api)
    except (OSError, ValueError) as error:
        raise ExitError(ExitCode.USAGE, _unreadable(error)) from error


def listening(
    view: ServiceView,
    resources: Collection[ModuleType],
    api: ApiSettings,
    listeners: Listeners | None = None,
) -> ServerHandle:
    """Serve resources as configured. Raise ExitError if the API cannot listen.

    `listeners` are taken over if they are bound already.
    If `probe_port` is set, probes and metrics are also served on that plain port by their own
    thread, so that load on the API cannot delay them.
    """
    try:
        return _listening(view, resources, api, listeners or Listeners.bound(api))
    except OSError as error:
        raise ExitError(ExitCode.USAGE, _unreadable(error)) from error
    except BindError as error:
        raise ExitError(ExitCode.USAGE, str(error)) from error


def _listening(
    view: ServiceView, resources: Collection[ModuleType], api: ApiSettings, listeners: Listeners
) -> ServerHandle:
    refused = view.metrics.http_connection_refused
    certificates = TlsCertificates(api) if api.tls_cert_file else None
    if certificates is not None:
        certificates.follow()
    server = serve_in_thread(
        create_app(view, resources),
        api.host,
        api.port,
        None if certificates is None else certificates.context,
        listener=listeners.api,
        limits=ConnectionLimits(api.connections_max, api.connections_per_address_max),
        refused=refused,
    )
    if api.probe_port:
        probes = serve_in_thread(
            create_app(view, PROBES),
            api.host,
            api.probe_port,
            key="probe_port",
            listener=listeners.probes,
            limits=_PROBE_LIMITS,
            refused=refused,
            niceness=0,
        )
        server.then(probes.stop)
    return server


def _unreadable(error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    return f"A file named in [api] cannot be used: {reason}; run `ringfence check`."
