"""A network between service and broker that can be cut, slow or silent, and rewrites nothing.

The broker listens on one door more, and tells clients who come through it to come through the
proxy. Requests are told apart by the number in their head, so a fault can be put around the very
one that ends a transaction.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tools.broker.config import HOST
from tools.broker.config import _free_port as free_port
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine

END_TXN: Final = 26
"""The number of Kafka's request that commits or aborts."""
_HEAD: Final = struct.Struct(">ih")
_CHUNK_BYTES: Final = 1 << 16


class What(Enum):
    """What becomes of a request."""

    CUT = "the connection is cut before the broker has it"
    CUT_ANSWER = "the connection is cut before its answer"
    LATE = "the broker has it late"


class Trouble(NamedTuple):
    """What happens to the next requests of a kind."""

    request: int
    what: What
    times: int
    late_s: float = 0.0


class Proxy:
    """One port that leads to another; a context manager that leaves no connection behind."""

    def __init__(self, port: int, target_port: int) -> None:
        self.port = port
        self.slow_s = 0.0
        """How long everything takes that passes, either way."""
        self.struck = 0
        """How many requests had trouble."""
        self._target_port = target_port
        self._trouble: Trouble | None = None
        self._lock = threading.Lock()
        self._passing = threading.Event()
        self._passing.set()
        self._pairs: set[_Pair] = set()
        self._listener = socket.create_server((HOST, port))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        self._passing.set()
        self.cut()

    def provoke(self, trouble: Trouble) -> None:
        """Have the next requests of a kind meet with trouble."""
        with self._lock:
            self._trouble, self.struck = trouble, 0

    def calm(self) -> None:
        """Have no request meet with trouble any more."""
        with self._lock:
            self._trouble = None

    def cut(self) -> None:
        """Cut all connections; new ones may be made."""
        for pair in list(self._pairs):
            pair.close()

    def silence(self) -> None:
        """Let nothing pass; connections stay open."""
        self._passing.clear()

    def resume(self) -> None:
        """Let pass what waits."""
        self._passing.set()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection((HOST, self._target_port), timeout=5)
                except OSError:
                    client.close()
                    continue
                broker.settimeout(None)
                pair = _Pair(client, broker, self._pairs)
                for pump in (self._requests, self._answers):
                    threading.Thread(target=_guarded, args=(pump, pair), daemon=True).start()

    def _requests(self, pair: "_Pair") -> None:
        while True:
            head = _exactly(pair.client, _HEAD.size)
            size, request = _HEAD.unpack(head)
            rest = _exactly(pair.client, size + 4 - _HEAD.size)
            self._pass()
            trouble = self._taken(request)
            if trouble is not None and trouble.what is What.CUT:
                pair.close()
                return
            if trouble is not None and trouble.what is What.CUT_ANSWER:
                pair.mute = True
            if trouble is not None and trouble.what is What.LATE:
                time.sleep(trouble.late_s)
            pair.broker.sendall(head + rest)

    def _answers(self, pair: "_Pair") -> None:
        while chunk := pair.broker.recv(_CHUNK_BYTES):
            self._pass()
            if pair.mute:
                break
            pair.client.sendall(chunk)
        pair.close()

    def _pass(self) -> None:
        self._passing.wait()
        if self.slow_s:
            time.sleep(self.slow_s)

    def _taken(self, request: int) -> Trouble | None:
        with self._lock:
            trouble = self._trouble
            if trouble is None or trouble.request != request or self.struck >= trouble.times:
                return None
            self.struck += 1
            return trouble


class _Pair:
    """Two connections that are one."""

    def __init__(self, client: socket.socket, broker: socket.socket, pairs: "set[_Pair]") -> None:
        self.client, self.broker, self._pairs = client, broker, pairs
        self.mute = False
        pairs.add(self)

    def close(self) -> None:
        """Both ends."""
        self._pairs.discard(self)
        for end in (self.client, self.broker):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _guarded(pump: Callable[[_Pair], None], pair: _Pair) -> None:
    try:
        pump(pair)
    except OSError:
        pair.close()  # the other pump, the client or the broker has closed it


def _exactly(end: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        chunk = end.recv(size - len(found))
        if not chunk:
            raise OSError("closed")
        found += chunk
    return bytes(found)


def proxied(folder: Path) -> tuple[EmbeddedBroker, Proxy]:
    """A broker with a door more, and the proxy before it; neither is started."""
    broker = EmbeddedBroker(folder, machine=Machine(heap_mb=512, short_lived=True))
    ports, door, port = broker.node.ports, free_port(0), free_port(0)
    ours = f"CLIENT://{HOST}:{ports.client},CONTROLLER://{HOST}:{ports.controller}"
    broker._properties.update(
        {
            "listeners": f"{ours},PROXIED://{HOST}:{door}",
            "advertised.listeners": f"CLIENT://{HOST}:{ports.client},PROXIED://{HOST}:{port}",
            "listener.security.protocol.map": (
                "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT"
            ),
        }
    )
    return broker, Proxy(port, door)
