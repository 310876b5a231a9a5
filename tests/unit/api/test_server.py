"""The server on a real socket of this machine."""

import contextlib
import http.client
import os
import socket
import sys
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from ringfence_api.app import create_app
from ringfence_api.connections import LimitedListener
from ringfence_api.server import ServerHandle, serve_in_thread
from ringfence_service.listeners import BindError
from ringfence_service.queries.ids import IdLocation
from ringfence_service.queries.inbox import QueryInbox
from tests.api.fake_service import RUNNING, Clock, make_view, remembering, serving
from tests.support.waiting import LIMIT_S

LONGEST_ID = b"\xff" * 65536
HELD = {
    ("a/b", LONGEST_ID): IdLocation("orders", 0, 1, 0, 1),
    ("a/b", b"1/2"): IdLocation("t", 0, 2, 0, 1),
}


@pytest.fixture
def server() -> Iterator[ServerHandle]:
    inbox = QueryInbox(depth=4)
    with serving(inbox, remembering(HELD)):
        handle = serve_in_thread(create_app(make_view(RUNNING, Clock(), inbox)), "127.0.0.1", 0)
        yield handle
        handle.stop()


def get(server: ServerHandle, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=LIMIT_S)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_port_0_becomes_a_port_that_answers(server: ServerHandle) -> None:
    assert urlsplit(server.url).port
    assert get(server, "/livez")[0] == 200


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere niceness is of a whole process")
def test_its_thread_yields_to_those_that_decide(server: ServerHandle) -> None:
    assert get(server, "/livez")[0] == 200
    (thread,) = (each for each in threading.enumerate() if each.name == "ringfence-api")
    nice = os.getpriority(os.PRIO_PROCESS, thread.native_id or 0)
    assert nice > os.getpriority(os.PRIO_PROCESS, threading.main_thread().native_id or 0)


def test_an_encoded_slash_is_no_separator(server: ServerHandle) -> None:
    status, body = get(server, "/v1/addresses/a%2Fb/ids/1%2F2")
    assert status == 200
    assert b'"known":true' in body


def test_the_longest_id_fits_in_a_path(server: ServerHandle) -> None:
    status, body = get(server, "/v1/addresses/a%2Fb/ids/hex:" + LONGEST_ID.hex())
    assert status == 200
    assert b'"known":true' in body


def test_no_answer_waits_for_an_acknowledgement(
    server: ServerHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Head and body are two segments; the second one would be held back for 40 ms."""
    accept, accepted = LimitedListener.accept, []

    def accepting(listener: LimitedListener) -> tuple[socket.socket, object]:
        found = accept(listener)
        accepted.append(found[0])
        return found

    monkeypatch.setattr(LimitedListener, "accept", accepting)
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=LIMIT_S)
    with contextlib.closing(connection):
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        (theirs,) = accepted
        assert theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_stopped_server_refuses_connections() -> None:
    inbox = QueryInbox(depth=1)
    handle = serve_in_thread(create_app(make_view(RUNNING, Clock(), inbox)), "127.0.0.1", 0)
    handle.stop()
    with pytest.raises(ConnectionRefusedError):
        get(handle, "/livez")


def test_a_port_that_is_taken_is_one_sentence_that_names_it() -> None:
    app = create_app(make_view(RUNNING, Clock(), QueryInbox(depth=1)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BindError, match=rf"127\.0\.0\.1:{port} .*api\.port"):
            serve_in_thread(app, "127.0.0.1", port)


def test_an_address_that_is_not_ours_is_one_sentence() -> None:
    app = create_app(make_view(RUNNING, Clock(), QueryInbox(depth=1)))
    with pytest.raises(BindError, match=r"192\.0\.2\.1:0 .*api\.host"):
        serve_in_thread(app, "192.0.2.1", 0)
