"""A network between service and broker that can be cut, slow or silent, and rewrites nothing.

The broker has one more listener, which directs its clients to the proxy. Requests are identified by
the number in their header, so a fault can be placed around the very one that ends a transaction. A
request may outlive its connection: it is kept when the connection is cut, and delivered to the
broker when a test says so.
"""

import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tools.broker.config import HOST, Door, door_properties, free_port
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine
from tools.broker.three import NUMBERS, ThreeBrokers

# The numbers of Kafka's requests; END_TXN commits or aborts.
PRODUCE: Final = 0
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
_HEAD: Final = struct.Struct(">ih")
_SIZE: Final = struct.Struct(">i")
_CHUNK_BYTES: Final = 1 << 16
_ANSWER_S: Final = 30.0


class What(Enum):
    """What becomes of a request."""

    CUT = "the connection is cut before the broker has it"
    CUT_ANSWER = "the connection is cut before its answer"
    SILENT = "the broker has it, and no answer passes any more"
    LATE = "the broker has it late"
    OUTLIVES = "the connection is cut, and the broker has it when it is delivered"


class Trouble(NamedTuple):
    """What happens to the next requests of a kind."""

    request: int
    what: What
    times: int
    late_s: float = 0.0


class _Kept(NamedTuple):
    """A request that has outlived its connection."""

    request: bytes
    target_port: int


class Proxy:
    """Ports that lead to others; a context manager that leaves no connection behind."""

    def __init__(self, ways: Mapping[int, int]) -> None:
        """`ways` maps each port to the one that it leads to; clients start from the first."""
        self.port = next(iter(ways))
        self.client_properties = {"bootstrap.servers": ",".join(f"{HOST}:{way}" for way in ways)}
        """For who comes through it."""
        self.slow_s = 0.0
        """How long everything takes that passes, either way."""
        self.struck = 0
        """How many requests had trouble."""
        self.delivered = 0
        """How many requests the broker had, and answered, after their connection was cut."""
        self._kept: deque[_Kept] = deque()
        self._act: tuple[int, Callable[[], None]] | None = None
        self._trouble: Trouble | None = None
        self._lock = threading.Lock()
        self._passing = threading.Event()
        self._passing.set()
        self._pairs: set[_Pair] = set()
        self._listeners = [
            (socket.create_server((HOST, port)), target) for port, target in ways.items()
        ]

    def __enter__(self) -> Self:
        for way in self._listeners:
            threading.Thread(target=self._accept, args=way, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for listener, _ in self._listeners:
            listener.close()
        self._passing.set()
        self.cut()

    def provoke(self, trouble: Trouble) -> None:
        """Have the next requests of a kind meet with trouble."""
        with self._lock:
            self._trouble, self.struck = trouble, 0

    def calm(self) -> None:
        """Have no request meet with trouble any more; what was kept is lost."""
        with self._lock:
            self._trouble = self._act = None
            self.delivered = 0
            self._kept.clear()

    def heal(self) -> None:
        """Have everything pass at once, as at first."""
        self.calm()
        self.resume()
        self.slow_s = 0.0

    def before(self, request: int, act: Callable[[], None]) -> None:
        """Have the next request of a kind wait until `act` has returned."""
        with self._lock:
            self._act = request, act

    def act_at_last(self) -> None:
        """Do what was to be done before a request that has not come."""
        with self._lock:
            act, self._act = self._act, None
        if act is not None:
            act[1]()

    def deliver(self) -> None:
        """Have the broker answer what was kept the longest, on a connection of its own."""
        with self._lock:
            kept = self._kept.popleft()
        with socket.create_connection((HOST, kept.target_port), timeout=_ANSWER_S) as broker:
            broker.sendall(kept.request)
            (size,) = _SIZE.unpack(_exactly(broker, _SIZE.size))
            _exactly(broker, size)
        with self._lock:
            self.delivered += 1

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

    def _accept(self, listener: socket.socket, target_port: int) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = listener.accept()
                try:
                    broker = socket.create_connection((HOST, target_port), timeout=5)
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
            self._wait_for_act(request)
            trouble = self._taken(request, _Kept(head + rest, pair.target_port))
            if trouble is not None:
                if trouble.what in {What.CUT, What.OUTLIVES}:
                    pair.close()
                    return
                pair.fate = trouble.what
                if trouble.what is What.LATE:
                    time.sleep(trouble.late_s)  # noqa: TID251 - this is the fault
            pair.broker.sendall(head + rest)

    def _answers(self, pair: "_Pair") -> None:
        while chunk := pair.broker.recv(_CHUNK_BYTES):
            self._pass()
            if pair.fate is What.CUT_ANSWER:
                break
            if pair.fate is not What.SILENT:
                pair.client.sendall(chunk)
        pair.close()

    def _wait_for_act(self, request: int) -> None:
        with self._lock:
            if self._act is None or self._act[0] != request:
                return
            (_, act), self._act = self._act, None
        act()

    def _pass(self) -> None:
        self._passing.wait()
        if self.slow_s:
            time.sleep(self.slow_s)  # noqa: TID251 - this is the fault

    def _taken(self, request: int, whole: _Kept) -> Trouble | None:
        with self._lock:
            trouble = self._trouble
            if trouble is None or trouble.request != request or self.struck >= trouble.times:
                return None
            self.struck += 1
            if trouble.what is What.OUTLIVES:
                self._kept.append(whole)
            return trouble


class _Pair:
    """Two connections that are one."""

    def __init__(self, client: socket.socket, broker: socket.socket, pairs: "set[_Pair]") -> None:
        self.client, self.broker, self._pairs = client, broker, pairs
        self.target_port: int = broker.getpeername()[1]
        self.fate: What | None = None
        """Of the request that had trouble."""
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
    broker, door = EmbeddedBroker(folder, machine=Machine(heap_mb=512, short_lived=True)), _door()
    broker.configure(door_properties(broker.node.ports, door))
    return broker, Proxy({door.advertised: door.port})


def three_proxied(folder: Path) -> tuple[ThreeBrokers, Proxy]:
    """Three brokers likewise, and one proxy before all of them."""
    doors = [_door() for _ in NUMBERS]
    ways = {door.advertised: door.port for door in doors}
    return ThreeBrokers(folder, doors=doors), Proxy(ways)


def _door() -> Door:
    return Door(port=free_port(0), advertised=free_port(0))
