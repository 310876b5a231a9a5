"""Connection limits: open connections, time that a client may take, and buffered bytes.

Opening a connection needs no token. A connection beyond the limits is closed and counted, and not
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

from api.auth.rate_limit import network_of

HEAD_BYTES_MAX: Final = 256 * 1024
"""An id of 64 KiB takes three times as much, percent-encoded in a path."""
WAIT_S: Final = 20.0
"""How long a client may keep us waiting: for a head in all, in a body and a response at once."""
BODY_BYTES_PER_S: Final = 1024
"""A body that comes more slowly uses up the time of waiting."""
_SMALL_HEAD_BYTES: Final = 16 * 1024
"""So much of a head is held for every connection."""
_HEADS_BYTES_MAX: Final = 32 * 1024 * 1024
"""So much more of larger ones, of all connections."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S: Final = 0.05
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Of one listener."""

    connections_max: int = 256
    per_address_max: int = 64


LIMITS: Final = ConnectionLimits()


class LimitedListener(socket.socket):
    """A listening socket that accepts no more connections than its limits allow.

    At most half of the descriptors that the process may open: the other half is for processes,
    files and clients of its own.
    """

    def __init__(
        self, listener: socket.socket, limits: ConnectionLimits, refused: Callable[[str], None]
    ) -> None:
        """Take over a listener; `refused` counts a connection by the reason for its end."""
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
        """Accept a connection; ConnectionAbortedError, on which asyncio goes on, if it is closed.

        asyncio would log each attempt without a descriptor, thousands a second.
        """
        try:
            taken, address = super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._turn_away()
            raise ConnectionAbortedError from error
        network = network_of(str(address[0]))
        if self._by_address[network] >= self._per_address_max:
            self._reset(taken, "address")
        if self._by_address.total() >= self._connections_max:
            self._reset(taken, "connections")
        self._by_address[network] += 1
        return _AcceptedSocket(taken, lambda: self._ended(network)), address

    def close(self) -> None:
        """Close the reserve with it."""
        self._reserve.close()
        super().close()

    def _turn_away(self) -> None:
        """Close the next connection, taken with the descriptor in reserve.

        Where another thread was faster, a pause keeps the loop from asking all the time.
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

    def _reset(self, taken: socket.socket, reason: str) -> None:
        self.refused(reason)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        taken.close()
        raise ConnectionAbortedError

    def _ended(self, network: str) -> None:
        self._by_address[network] -= 1
        if not self._by_address[network]:
            del self._by_address[network]


class _AcceptedSocket(socket.socket):
    """A connection that tells when its descriptor is free again."""

    def __init__(self, taken: socket.socket, ended: Callable[[], None]) -> None:
        super().__init__(taken.family, taken.type, taken.proto, fileno=taken.detach())
        self._ended: Callable[[], None] | None = ended

    def close(self) -> None:
        super().close()
        if self._ended is not None:
            self._ended()
            self._ended = None


class LimitedConnection(H11Protocol):
    """A connection as uvicorn handles it, with an end to its patience."""

    def __init__(
        self,
        gate: LimitedListener,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
    ) -> None:
        """With what `H11Protocol` takes."""
        super().__init__(config, server_state, app_state)
        self.conn = _Http(h11.SERVER, HEAD_BYTES_MAX)
        self._gate = gate
        self.left_s = WAIT_S
        self._head_bytes = 0

    def tick(self) -> None:
        """Called once a second: close the connection whose client keeps us waiting for too long."""
        if self._waits_for_client():
            self.left_s -= 1
            if self.left_s < 0:
                self._end("slow")

    def data_received(self, data: bytes) -> None:
        """Count what is held of a head, and give time for what comes of a body."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._hold(self._head_bytes + len(data))
            return
        self._hold(0)
        if not self._is_answered():  # what comes after the answer is thrown away
            self.left_s = min(WAIT_S, self.left_s + len(data) / BODY_BYTES_PER_S)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self.left_s = WAIT_S
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE:  # a head that came along with the last request
            self._hold(len(self.conn.trailing_data[0]))

    def resume_writing(self) -> None:
        """Give time for the rest of a response."""
        self.left_s = WAIT_S
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hold no head any more."""
        self._hold(0)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Count what is no request; uvicorn's line in the log is below the level of its logger."""
        self._gate.refused("malformed")
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
        self._gate.large_heads_bytes += now - before
        self._head_bytes = size
        if now > before and self._gate.large_heads_bytes > _HEADS_BYTES_MAX:
            self._end("heads")

    def _end(self, reason: str) -> None:
        if not self.transport.is_closing():
            self._gate.refused(reason)
            self.transport.abort()


class _Http(h11.Connection):
    """HTTP/1.1, with heads that are no longer than they may be, and targets of either form."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next one, refused where it is a head that is too long."""
        event = super().next_event()
        if not isinstance(event, h11.Request):
            return event
        fields = sum(len(name) + len(value) + len(": \r\n") for name, value in event.headers)
        if len(event.target) + fields > HEAD_BYTES_MAX:  # h11 looks at heads that are not whole
            raise h11.RemoteProtocolError("The head is too long.", error_status_hint=431)
        if event.target.startswith(b"/"):
            return event
        return _in_origin_form(event)


def _in_origin_form(request: h11.Request) -> h11.Request:
    """Host and path of an absolute-form target; the Host that came is ignored (RFC 9112, 3.2.2)."""
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
