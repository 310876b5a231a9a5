"""What bodies from 64 connections take of the memory of a process that serves the API."""

import contextlib
import json
import selectors
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

import pytest

from bench.machine import Memory, memory_in
from ringfence_api.connections import LIMITS
from ringfence_service.peers.protocol import PATH
from tests.api.guarded import TOKENS
from tests.support.repository import CHECKOUT
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")

HOST: Final = "127.0.0.1"
MIB: Final = 1024 * 1024
GROWTH_BYTES_MAX: Final = 32 * MIB
SENT_BYTES: Final = 16 * MIB
_PROBE_EVERY_S: Final = 0.05
ATTACKER: Final = "127.0.0.2"
VIEWER: Final = f"Authorization: Bearer {TOKENS['viewer']}"
CHUNKED: Final = "Transfer-Encoding: chunked"
FORM: Final = "Content-Type: application/x-www-form-urlencoded"
JSON: Final = "Content-Type: application/json"
LOGIN: Final = ("POST /login HTTP/1.1", f"Host: {HOST}")
LOOKUP: Final = ("POST /v1/addresses/a/ids:lookup HTTP/1.1", f"Host: {HOST}", JSON, VIEWER)
INTERNAL: Final = (f"POST {PATH} HTTP/1.1", f"Host: {HOST}", JSON)


def declared(lines: Sequence[str], body: bytes, *, sent: int | None = None) -> bytes:
    """A request that declares the length of its body, and the part of the body that is sent."""
    return head(*lines, f"Content-Length: {len(body)}") + body[:sent]


def chunked(lines: Sequence[str], body: bytes, size: int = 65_536) -> bytes:
    """A request whose body comes in chunks."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return head(*lines, CHUNKED) + chunks + b"0\r\n\r\n"


def head(*lines: str) -> bytes:
    """The head of a request."""
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def fields(size: int) -> bytes:
    """A form of fields that Starlette takes: below 1 MB each."""
    return (b"f=" + b"a" * 900_000 + b"&") * (size // 900_003) + b"f="


def sent_by_all(port: int, request: bytes, *, is_whole: bool) -> Counter[int]:
    """Send a request on as many connections as an address may have; return the statuses.

    A request that is not whole has the status 0 if it is not refused. Such requests are held until
    another client has logged in.
    """
    statuses, selector = Counter[int](), selectors.DefaultSelector()
    with contextlib.ExitStack() as stack:
        for _ in range(LIMITS.per_address_max):
            client = socket.create_connection((HOST, port), LIMIT_S, (ATTACKER, 0))
            stack.enter_context(client).settimeout(0)
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            selector.register(client, both, memoryview(request))
        while selector.get_map():
            for key, events in selector.select(LIMIT_S):
                ended = _sent(selector, key, events, is_whole=is_whole)
                if ended is not None:
                    selector.unregister(key.fileobj)
                    statuses[ended] += 1
        login = urlencode({"token": TOKENS["operator"]}).encode()
        answer = answer_to(port, declared([*LOGIN, FORM, "Connection: close"], login))
        assert answer.startswith(b"HTTP/1.1 303 "), answer
    return statuses


def answer_to(port: int, request: bytes) -> bytes:
    """What another client receives until the server closes its connection."""
    with socket.create_connection((HOST, port), LIMIT_S) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65_536), b""))


def _sent(
    selector: selectors.BaseSelector, key: selectors.SelectorKey, events: int, *, is_whole: bool
) -> int | None:
    """Go on with one connection; return its status once it has one, 0 without a response."""
    client = key.fileobj
    assert isinstance(client, socket.socket)
    try:
        if events & selectors.EVENT_READ:
            answer = client.recv(65_536)
            return int(answer.split()[1]) if answer else 0
        left = key.data[client.send(key.data[:262_144]) :]
    except ConnectionError:
        return 0
    if left:
        selector.modify(client, events | selectors.EVENT_READ, left)
    elif is_whole:
        selector.modify(client, selectors.EVENT_READ)
    return None if left or is_whole else 0


class Attacked:
    """The process, its ports, and the memory that it has taken at most."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._pid = process.pid
        self.port, self._probe_port = map(int, process.stdout.readline().split())

    def growth(self, attack: Callable[[], None]) -> int:
        """The growth of the peak of its memory by an attack, in bytes; probes answer meanwhile."""
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")  # the peak begins here
        before = self._memory().now
        with ThreadPoolExecutor(1) as attacker:
            running = attacker.submit(attack)
            while not running.done():
                self.probe()
                wait([running], _PROBE_EVERY_S)
            running.result()
        return self._memory().peak - before

    def probe(self) -> None:
        """Ask the probe; raise URLError if it does not answer."""
        url = f"http://{HOST}:{self._probe_port}/livez"
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            assert answer.status == 200

    def _memory(self) -> Memory:
        return memory_in(Path(f"/proc/{self._pid}/status").read_text(encoding="ascii"))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    command = [sys.executable, "-m", "tests.api.attacked", str(folder)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Attacked(process)
        finally:
            process.kill()


class Attack(NamedTuple):
    """A request, and the statuses that it may get."""

    request: bytes
    statuses: set[int]
    is_whole: bool = True


FILE: Final = b"--b\r\nContent-Disposition: form-data; name=a; filename=b\r\n\r\n\r\n"
VALUES: Final = b'{"ids":[' + b'{"":{}},' * 80_000 + b"0]}"
WRONG: Final = b'{"ids":[' + b"0," * 20_000 + b"0]}"
UNKNOWN: Final = json.dumps(dict.fromkeys(map(str, range(10_000)), 0)).encode()
LARGE: Final = json.dumps({"ids": ["x" * 1_000] * 1_000}).encode()
BUSY: Final = 503

ATTACKS: Final = {
    "a form with its length": Attack(declared([*LOGIN, FORM], fields(SENT_BYTES)), {413}),
    "a form in chunks": Attack(chunked([*LOGIN, FORM], fields(SENT_BYTES)), {413}),
    "a form of small fields": Attack(chunked([*LOGIN, FORM], b"a=b&" * 2_000, 3), {400, 413}),
    "a form of files": Attack(
        declared([*LOGIN, "Content-Type: multipart/form-data; boundary=b"], FILE * 700), {400, 413}
    ),
    "a form that does not end": Attack(
        declared([*LOGIN, FORM], b"f=" + b"a" * 60_000, sent=60_001), {0}, is_whole=False
    ),
    "a query of a peer": Attack(declared([*INTERNAL, "Idempotency-Key: k"], b"x" * 2 * MIB), {403}),
    "a lookup of nothing but values": Attack(declared(LOOKUP, VALUES), {413, BUSY}),
    "a lookup of wrong values": Attack(declared(LOOKUP, WRONG), {422, BUSY}),
    "a lookup of unknown members": Attack(declared(LOOKUP, UNKNOWN), {422, BUSY}),
    "a lookup of large ids": Attack(declared(LOOKUP, LARGE), {BUSY}),
    "a lookup that does not end": Attack(
        declared(LOOKUP, LARGE, sent=len(LARGE) - 1), {0, BUSY}, is_whole=False
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_memory_that_bodies_take_is_bounded(attacked: Attacked, name: str) -> None:
    attack, statuses = ATTACKS[name], Counter[int]()

    def run() -> None:
        statuses.update(sent_by_all(attacked.port, attack.request, is_whole=attack.is_whole))

    grown = attacked.growth(run)
    assert grown <= GROWTH_BYTES_MAX
    assert set(statuses) <= attack.statuses | {0}  # the connection may end before its response
    assert statuses.total() == LIMITS.per_address_max
