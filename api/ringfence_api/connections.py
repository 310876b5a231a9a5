"""Connection limits: number of open connections, time per client, and buffered bytes.

They apply before authentication. A connection beyond the limits is closed and counted, but not
logged.
"""

import errno
import resource
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ringfence_api.auth.rate_limit import network_of

HEAD_BYTES_MAX: Final = 256 * 1024
"""An id of 64 KiB takes up to 192 KiB, percent-encoded in a path."""
WAIT_S: Final = 20.0
"""How long we wait for a client: for a whole head, or for progress of a body or a response."""
BODY_BYTES_PER_S: Final = 1024
"""The rate at which received bytes of a body restore the waiting time."""
_SMALL_HEAD_BYTES: Final = 16 * 1024
"""Bytes of a head that every connection may buffer."""
_HEADS_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes beyond that, over the larger heads of all connections."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S: Final = 0.05
"""How long the API's thread sleeps without a descriptor: about 20 attempts a second.

Without a pause `accept` would fail thousands of times a second. All connections wait meanwhile,
so it is short.
"""
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one listener: connections in all, and per client address."""

    connections_max: int = 256
    per_address_max: int = 64


LIMITS: Final = ConnectionLimits()


class LimitedListener(socket.socket):
    """A listening socket that accepts no more connections than its limits allow.

    They use at most half of the descriptors that the process may open; the other half is for its
    workers, files and clients.
    """

    def __init__(
        self, listener: socket.socket, limits: ConnectionLimits, refused: Callable[[str], None]
    ) -> None:
        """Take over a listener; `refused` counts a closed connection, by reason."""
        super().__init__(listener.family, listener.type, listener.proto, fileno=listener.detach())
        descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if descriptors_max == resource.RLIM_INFINITY:
            descriptors_max = 2 * limits.connections_max
        self._connections_max = min(limits.connections_max, descriptors_max // 2)
        self._per_address_max = limits.per_address_max
        self._by_address: Counter[str] = Counter()
        self._reserve = socket.socket()
        self.refused = refused
        self.large_heads_bytes = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; raise ConnectionAbortedError, which asyncio ignores, to refuse it.

        Without a free descriptor, asyncio would log every attempt, thousands per second.
        """
        try:
            accepted, address = super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._refuse_next()
            raise ConnectionAbortedError from error
        network = network_of(str(address[0]))
        if self._by_address[network] >= self._per_address_max:
            self._reset(accepted, "address")
        if self._by_address.total() >= self._connections_max:
            self._reset(accepted, "connections")
        self._by_address[network] += 1
        return _AcceptedSocket(accepted, lambda: self._on_close(network)), address

    def close(self) -> None:
        """Close the listener and its reserve descriptor."""
        self._reserve.close()
        super().close()

    def _refuse_next(self) -> None:
        """Accept the next connection with the reserve descriptor, and close it.

        If another thread took the descriptor, a pause keeps the event loop from spinning.
        """
        self._reserve.close()
        try:
            super().accept()[0].close()
        except OSError:
            time.sleep(_PAUSE_S)
        else:
            self.refused("descriptors")
        with suppress(OSError):
            self._reserve = socket.socket()

    def _reset(self, connection: socket.socket, reason: str) -> None:
        self.refused(reason)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.close()
        raise ConnectionAbortedError

    def _on_close(self, network: str) -> None:
        self._by_address[network] -= 1
        if not self._by_address[network]:
            del self._by_address[network]


class _AcceptedSocket(socket.socket):
    """A connection that calls back when its descriptor is closed."""

    def __init__(self, accepted: socket.socket, on_close: Callable[[], None]) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._on_close: Callable[[], None] | None = on_close

    def close(self) -> None:
        super().close()
        if self._on_close is not None:
            self._on_close()
            self._on_close = None


class LimitedConnection(H11Protocol):
    """A uvicorn connection with a time limit and a limit of buffered head bytes."""

    def __init__(
        self,
        listener: LimitedListener,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
    ) -> None:
        """Take the listener, and the arguments of `H11Protocol`."""
        super().__init__(config, server_state, app_state)
        self.conn = _Http(h11.SERVER, HEAD_BYTES_MAX)
        self._listener = listener
        self.left_s = WAIT_S
        self._head_bytes = 0

    def tick(self) -> None:
        """Close the connection if its client takes too long; called once per second."""
        if self._waits_for_client():
            self.left_s -= 1
            if self.left_s < 0:
                self._end("slow")

    def data_received(self, data: bytes) -> None:
        """Count the buffered bytes of a head; extend the time limit for bytes of a body."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._hold(self._head_bytes + len(data))
            return
        self._hold(0)
        if not self._is_answered():  # bytes after the response are discarded
            self.left_s = min(WAIT_S, self.left_s + len(data) / BODY_BYTES_PER_S)

    def on_response_complete(self) -> None:
        """Restart the time limit, for the next request."""
        self.left_s = WAIT_S
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:  # a head that arrived with the last request
            self._hold(len(self.conn.trailing_data[0]))

    def resume_writing(self) -> None:
        """Restart the time limit, for the rest of the response."""
        self.left_s = WAIT_S
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the buffered bytes of the head."""
        self._hold(0)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Count a malformed request; the level of uvicorn's logger suppresses its log line."""
        self._listener.refused("malformed")
        super().send_400_response(msg)

    def _is_answered(self) -> bool:
        return self.conn.our_state not in {h11.SEND_RESPONSE, h11.SEND_BODY}

    def _waits_for_client(self) -> bool:
        if self.flow.write_paused or self._is_answered():
            return True
        waits_for_body = self.conn.their_state is h11.SEND_BODY and not self.flow.read_paused
        return waits_for_body and not self.cycle.waiting_for_100_continue

    def _hold(self, size: int) -> None:
        before, now = (max(0, each - _SMALL_HEAD_BYTES) for each in (self._head_bytes, size))
        self._listener.large_heads_bytes += now - before
        self._head_bytes = size
        if now > before and self._listener.large_heads_bytes > _HEADS_BYTES_MAX:
            self._end("heads")

    def _end(self, reason: str) -> None:
        if not self.transport.is_closing():
            self._listener.refused(reason)
            self.transport.abort()


class _Http(h11.Connection):
    """HTTP/1.1 with a limit on complete heads, and with targets in absolute form."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event. Raise RemoteProtocolError for a head that is too long."""
        event = super().next_event()
        if not isinstance(event, h11.Request):
            return event
        fields = sum(len(name) + len(value) + len(": \r\n") for name, value in event.headers)
        if len(event.target) + fields > HEAD_BYTES_MAX:  # h11 limits only incomplete heads
            raise h11.RemoteProtocolError("The head is too long.", error_status_hint=431)
        if event.target.startswith(b"/"):
            return event
        return _in_origin_form(event)


def _in_origin_form(request: h11.Request) -> h11.Request:
    """Convert an absolute-form target; its host replaces the Host header (RFC 9112, 3.2.2)."""
    try:
        url = urlsplit(request.target.decode("ascii"))
    except ValueError:
        return request
    if url.scheme.lower() not in {"http", "https"} or not url.netloc:
        return request
    others = [header for header in request.headers if header[0] != b"host"]
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    return h11.Request(
        method=request.method,
        target=target,
        headers=[(b"host", url.netloc.encode("ascii")), *others],
        http_version=request.http_version,
    )
