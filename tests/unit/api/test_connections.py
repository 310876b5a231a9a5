"""What one client can hold of the server: connections, descriptors, memory and time."""

import contextlib
import io
import json
import os
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from fastapi import FastAPI, Request
from starlette.responses import Response

from ringfence_api import connections, server
from ringfence_api.app import ALL, create_app
from ringfence_api.connections import (
    HEAD_BYTES_MAX,
    LIMITS,
    ConnectionLimits,
    LimitedConnection,
    LimitedListener,
)
from ringfence_api.server import listening, serve_in_thread
from ringfence_service.config.model import ApiSettings
from ringfence_service.queries.inbox import QueryInbox
from tests.api.fake_service import RUNNING, Clock, make_view
from tests.fakes.logs import logging_to
from tests.support.waiting import LIMIT_S, eventually

HERE = "127.0.0.1"
LARGE = 64 * 1024 * 1024
GET = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /read HTTP/1.1\r\nHost: 127.0.0.1\r\n"

Served = Callable[..., int]


@pytest.fixture
def refused() -> Counter[str]:
    """Refused connections by reason."""
    return Counter()


@pytest.fixture
def served(refused: Counter[str]) -> Iterator[Served]:
    """Start servers of an application that answers at once, reads a body, or writes a large one."""
    app = FastAPI()

    @app.get("/livez")
    async def livez() -> str:
        return "ok"

    @app.get("/large")
    async def large() -> Response:
        return Response(b"x" * LARGE)

    @app.post("/read")
    async def read(request: Request) -> int:
        return len(await request.body())

    with contextlib.ExitStack() as stack:

        def serve(limits: ConnectionLimits = LIMITS, tls: ssl.SSLContext | None = None) -> int:
            handle = serve_in_thread(
                app, HERE, 0, tls, limits=limits, refused=lambda reason: refused.update([reason])
            )
            stack.callback(handle.stop)
            return urlsplit(handle.url).port or 0

        yield serve


@contextlib.contextmanager
def connected(port: int, source: str = HERE) -> Iterator[socket.socket]:
    with socket.create_connection((HERE, port), LIMIT_S, (source, 0)) as client:
        yield client


def answer_to(port: int, sent: bytes, source: str = HERE) -> bytes:
    """All that comes until the server closes; nothing where it resets the connection."""
    told = b""
    with contextlib.suppress(ConnectionError), connected(port, source) as client:
        client.sendall(sent)
        while piece := client.recv(65_536):
            told += piece
    return told


def is_ok(told: bytes) -> bool:
    return told.startswith(b"HTTP/1.1 200 ")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextlib.contextmanager
def gate_of(limits: ConnectionLimits, refused: Counter[str]) -> Iterator[LimitedListener]:
    with LimitedListener(
        socket.create_server((HERE, 0)), limits, lambda reason: refused.update([reason])
    ) as gate:
        gate.settimeout(LIMIT_S)  # a connection may come to the queue after its client knows
        yield gate


def test_one_address_holds_so_many_connections_and_gets_another_for_one_it_closes(
    refused: Counter[str],
) -> None:
    with gate_of(ConnectionLimits(3, 2), refused) as gate, contextlib.ExitStack() as stack:
        port = gate.getsockname()[1]

        def came(source: str) -> socket.socket | None:
            stack.enter_context(connected(port, source))
            with contextlib.suppress(ConnectionAbortedError):
                return stack.enter_context(gate.accept()[0])
            return None

        first, _ = came(HERE), came(HERE)
        assert came(HERE) is None
        assert refused == {"address": 1}
        assert first is not None
        first.close()
        first.close()
        assert came(HERE) is not None
        assert came(HERE) is None
        assert came("127.0.0.2") is not None
        assert came("127.0.0.2") is None
    assert refused == {"address": 2, "connections": 1}


def test_without_a_descriptor_a_connection_is_closed_and_none_is_waited_for(
    refused: Counter[str],
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with gate_of(LIMITS, refused) as gate, connected(gate.getsockname()[1]) as client:
        next_free = os.dup(0)
        os.close(next_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, hard))
        try:
            with pytest.raises(ConnectionAbortedError):
                gate.accept()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert client.recv(1) == b""
        with connected(gate.getsockname()[1]):
            gate.accept()[0].close()
    assert refused == {"descriptors": 1}


def test_half_of_the_descriptors_are_for_other_things_than_connections(
    refused: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4, 4))
    with gate_of(LIMITS, refused) as gate, contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connected(gate.getsockname()[1]))
        for _ in range(2):
            stack.enter_context(gate.accept()[0])
        with pytest.raises(ConnectionAbortedError):
            gate.accept()
    assert refused == {"connections": 1}


def test_six_hundred_half_requests_are_not_held_and_others_are_answered(
    served: Served, refused: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WAIT_S", LIMIT_S)  # none is ended for being slow
    port, before = served(), resident_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            with contextlib.suppress(ConnectionError):
                stack.enter_context(connected(port)).sendall(GET + b"X: " + b"x" * 250_000)
        eventually(lambda: refused["address"] == 600 - LIMITS.per_address_max)
        assert is_ok(answer_to(port, GET + b"Connection: close\r\n\r\n", "127.0.0.2"))
        assert resident_bytes() - before < 100_000_000


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        GET,
        POST + b"Content-Length: 9\r\n\r\n123",
        GET + b"Content-Length: 9\r\n\r\n123",
        b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "half a body nobody reads", "no receipt"],
)
def test_who_keeps_the_server_waiting_is_not_waited_for(
    sent: bytes, served: Served, refused: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WAIT_S", 1.0)
    with connected(served()) as client:
        client.sendall(sent)
        eventually(lambda: refused == {"slow": 1})


def test_a_body_that_keeps_coming_is_waited_for(
    served: Served, refused: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, tick = list[LimitedConnection](), LimitedConnection.tick
    monkeypatch.setattr(LimitedConnection, "tick", lambda each: found.append(each))  # noqa: PLW0108 - a method of the connection
    piece, pieces = b"x" * connections.BODY_BYTES_PER_S, 2 * round(connections.WAIT_S)
    length = b"Content-Length: %d\r\n\r\n" % (pieces * len(piece))
    with connected(served()) as client:
        client.sendall(POST + b"Connection: close\r\n" + length)
        eventually(lambda: found)
        for _ in range(pieces):
            tick(found[0])
            left_s = found[0].left_s
            client.sendall(piece)
            eventually(lambda before=left_s: found[0].left_s > before)  # type: ignore[misc]
        assert is_ok(client.recv(65_536))
    assert not refused


def test_a_handshake_that_does_not_begin_holds_a_connection_and_not_for_long(
    served: Served, refused: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert(HERE).configure_cert(tls)
    monkeypatch.setattr(server, "_HANDSHAKE_MAX_S", LIMIT_S)
    port = served(ConnectionLimits(8, 1), tls)
    with connected(port):
        assert answer_to(port, b"") == b""
        assert refused == {"address": 1}
    monkeypatch.setattr(server, "_HANDSHAKE_MAX_S", 0.1)
    with connected(served(LIMITS, tls)) as client:
        assert client.recv(1) == b""


def test_large_heads_share_a_bound_and_small_ones_do_not_need_it(
    served: Served, refused: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_HEADS_BYTES_MAX", 100_000)
    port = served()
    with connected(port) as first, connected(port) as second:
        for client in (first, second):
            client.sendall(GET + b"X: " + b"x" * 80_000)
        eventually(lambda: refused == {"heads": 1})
        assert is_ok(answer_to(port, GET + b"Connection: close\r\n\r\n"))
    assert is_ok(answer_to(port, GET + b"X: " + b"x" * 80_000 + b"\r\nConnection: close\r\n\r\n"))


def test_a_head_is_no_longer_than_it_may_be_however_it_comes(served: Served) -> None:
    head = GET + b"X: " + b"x" * (HEAD_BYTES_MAX + 1) + b"\r\n\r\n"
    assert answer_to(served(), head).startswith(b"HTTP/1.1 400 ")


def test_what_is_no_request_is_counted_and_not_logged(
    served: Served, refused: Counter[str]
) -> None:
    stream = io.StringIO()
    with logging_to(stream):
        port = served()
        assert answer_to(port, b"\x16\x03\x01nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
        upgrade = b"Connection: close, Upgrade\r\nUpgrade: websocket\r\n\r\n"
        assert is_ok(answer_to(port, GET + upgrade))
    assert refused == {"malformed": 1}
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == []


def test_a_target_with_a_host_of_its_own_goes_by_that_and_not_by_the_header() -> None:
    """RFC 9112, 3.2.2; the check of the host must not be passed by the other one."""
    handle = serve_in_thread(create_app(make_view(RUNNING, Clock(), QueryInbox(1))), HERE, 0)
    port = urlsplit(handle.url).port or 0
    try:
        for target, header, status in (
            (b"http://127.0.0.1/livez?verbose", b"evil.example", b"200"),
            (b"http://evil.example/livez", b"127.0.0.1", b"421"),
            (b"http://127.0.0.1", b"127.0.0.1", b"200"),
            (b"http://[/livez", b"127.0.0.1", b"404"),
        ):
            request = b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (target, header)
            assert answer_to(port, request).startswith(b"HTTP/1.1 %s " % status), target
    finally:
        handle.stop()


def test_the_limits_are_those_of_the_configuration_and_refusals_a_metric() -> None:
    view = make_view(RUNNING, Clock(), QueryInbox(1))
    api = ApiSettings(port=0, connections_per_address_max=4)
    handle = listening(view, ALL, api)
    port = urlsplit(handle.url).port or 0
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(connected(port))
            assert answer_to(port, GET) == b""
        metrics = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        line = b'\nringfence_http_connections_refused_total{reason="address"} 1.0\n'
        assert line in answer_to(port, metrics, "127.0.0.2")
    finally:
        handle.stop()


def test_probes_answer_at_a_port_of_their_own_while_nobody_gets_through_to_the_api() -> None:
    view = make_view(RUNNING, Clock(), QueryInbox(1))
    with socket.create_server((HERE, 0)) as free:
        probe_port = free.getsockname()[1]
    api = ApiSettings(port=0, probe_port=probe_port, connections_max=8)
    handle = listening(view, ALL, api)
    end = b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(600):
                with contextlib.suppress(ConnectionError):
                    stack.enter_context(connected(urlsplit(handle.url).port or 0)).sendall(GET)
            assert answer_to(urlsplit(handle.url).port or 0, GET) == b""
            for path in (b"/livez", b"/readyz", b"/startupz", b"/metrics"):
                assert is_ok(answer_to(probe_port, b"GET " + path + end))
        for path in (b"/", b"/v1/info", b"/openapi.json", b"/login", b"/v1/audit"):
            assert answer_to(probe_port, b"GET " + path + end).startswith(b"HTTP/1.1 404 ")
    finally:
        handle.stop()
    with pytest.raises(ConnectionRefusedError), connected(probe_port):
        pass
