"""Bytes on the wire that a proxy and a server may read differently, and ways around the guard."""

import re
import socket
from typing import Final

import pytest

from tests.api.guarded import TOKENS
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.security

HOST: Final = "127.0.0.1"
GUARDED: Final = "/v1/info"
SMUGGLED: Final = f"GET {GUARDED} HTTP/1.1\r\nHost: {HOST}\r\n\r\n"


def sent(port: int, *lines: str, body: str = "", source: str = HOST) -> tuple[list[int], str]:
    """The statuses of all that is answered to one request, until the connection is closed."""
    with socket.create_connection((HOST, port), LIMIT_S, (source, 0)) as client:
        client.sendall(("\r\n".join(lines) + "\r\n\r\n" + body).encode("latin-1"))
        client.shutdown(socket.SHUT_WR)
        told = b"".join(iter(lambda: client.recv(65_536), b"")).decode("latin-1")
    return [int(each) for each in re.findall(r"HTTP/1\.1 (\d{3}) ", told)], told


def head(method: str = "GET", path: str = "/livez", *more: str) -> tuple[str, ...]:
    return (f"{method} {path} HTTP/1.1", f"Host: {HOST}", *more)


POST: Final = head("POST", "/v1/addresses/orders:clear")


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        ((*POST, "Content-Length: 3", "Transfer-Encoding: chunked"), "0\r\n\r\n" + SMUGGLED),
        ((*POST, "Content-Length: 5", "Content-Length: 0"), SMUGGLED),
        ((*POST, "Content-Length: +5"), SMUGGLED),
        ((*POST, "Content-Length: -5"), SMUGGLED),
        ((*POST, "Content-Length: 5, 0"), SMUGGLED),
        ((*POST, "Content-Length: 0x5"), SMUGGLED),
        ((*POST, "Transfer-Encoding: xchunked"), "0\r\n\r\n" + SMUGGLED),
        ((*POST, "Transfer-Encoding: chunked, identity"), "0\r\n\r\n" + SMUGGLED),
        ((*POST, "Transfer-Encoding : chunked"), "0\r\n\r\n" + SMUGGLED),
        ((*POST, "Content-Length : 5"), SMUGGLED),
        ((*POST, "X: a\rTransfer-Encoding: chunked"), "0\r\n\r\n" + SMUGGLED),
        ((*head(), "Host: evil.example"), ""),
        (("GET /livez HTTP/1.1",), ""),
        (("GET /livez",), ""),
        (("GET /livez HTTP/1.1", f" Host: {HOST}"), ""),
        (("GET /livez HTTP/1.1", f"Host: {HOST}", "X\0Y: 1"), ""),
    ],
    ids=lambda value: repr(value[-1])[:60] if isinstance(value, tuple) else "",
)
def test_what_can_be_read_in_two_ways_is_refused_and_ends_the_connection(
    port: int, lines: tuple[str, ...], body: str
) -> None:
    statuses, told = sent(port, *lines, body=body)
    assert statuses == [400], told


@pytest.mark.parametrize("chunk", ["-1\r\nx\r\n", "+5\r\nhello\r\n", "5x\r\nhello\r\n", "g\r\n"])
def test_a_chunk_without_a_length_is_no_body_and_nothing_after_it_is_a_request(
    port: int, chunk: str
) -> None:
    who = f"Authorization: Bearer {TOKENS['operator']}"
    path = "/v1/addresses/orders/ids:lookup"
    kind = ("Transfer-Encoding: chunked", "Content-Type: application/json", who)
    statuses, told = sent(port, *head("POST", path, *kind), body=chunk + SMUGGLED)
    assert statuses == [400], told


@pytest.mark.parametrize(
    "path",
    [
        "/livez/../v1/info",
        "/livez/%2e%2e/v1/info",
        "/livez/..%2fv1/info",
        "/%76%31/info",
        "//v1/info",
        "/v1//info",
        "/v1/info/",
        "/V1/info",
        "/livez;/v1/info",
        "/v1/info;x=/livez",
        "/v1/info%00",
        "/v1/info?x=/livez",
        "/console/assets/../../etc/passwd",
        "/console/assets/..%2f..%2fetc%2fpasswd",
    ],
)
def test_no_way_of_writing_a_path_leads_around_the_guard(port: int, path: str) -> None:
    statuses, told = sent(port, *head("GET", path, "Connection: close"))
    assert statuses in ([401], [404]), told
    assert "librdkafka" not in told
    assert "root:" not in told


@pytest.mark.parametrize(
    "line",
    [
        f"X-Original-URL: {GUARDED}",
        f"X-Rewrite-URL: {GUARDED}",
        "X-HTTP-Method-Override: POST",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Host: localhost",
        "Forwarded: for=127.0.0.1",
        "Authorization: Basic YWRhOmFkYQ==",
        "Authorization: Bearer ",
        "Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ.",
        "X-Ringfence-Actor: the-admin",
        "Cookie: ringfence_session=e30.e30",
    ],
)
def test_no_header_but_a_token_that_holds_tells_who_asks(port: int, line: str) -> None:
    statuses, told = sent(port, *head("GET", GUARDED, line, "Connection: close"))
    assert statuses in ([401], [429]), told
    query = f"{GUARDED}?access_token={TOKENS['admin']}"
    assert sent(port, *head("GET", query, "Connection: close"))[0] in ([401], [429])


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
def test_a_connection_speaks_nothing_but_http_1(port: int, upgrade: str) -> None:
    more = (f"Upgrade: {upgrade}", "Connection: Upgrade, close", "HTTP2-Settings: AAMAAABk")
    assert sent(port, *head("GET", GUARDED, *more))[0] == [401]
    assert 101 not in sent(port, "PRI * HTTP/2.0", "", "SM")[0]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8080"])
def test_a_name_that_is_not_ours_is_not_answered(port: int, host: str) -> None:
    lines = (f"GET {GUARDED} HTTP/1.1", f"Host: {host}", "Connection: close")
    assert sent(port, *lines, f"Authorization: Bearer {TOKENS['admin']}")[0] == [421]


@pytest.mark.parametrize("text", ["x\r\nSet-Cookie: a=b", "x\nX: y", "é" * 200, "\x1b[2J"])
def test_nothing_that_is_sent_becomes_a_header_of_the_reply(port: int, text: str) -> None:
    quoted = "".join(f"%{byte:02X}" for byte in text.encode())
    _, told = sent(port, *head("GET", f"/v1/{quoted}?next={quoted}", "Connection: close"))
    reply = told.partition("\r\n\r\n")[0].lower()
    assert "set-cookie" not in reply
    assert "\x1b" not in told
