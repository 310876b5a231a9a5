"""Bounds on what a client may send, and how often it may be refused."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ringfence_api.auth.rate_limit import FAILURES_MAX, WINDOW_S, FailedAttempts
from ringfence_api.ports import ServiceView
from tests.api.fake_service import Clock
from tests.api.guarded import TOKENS, Issuer, claims, client_of, counted, guarded, settings, signed

IMPORT = "/v1/addresses/orders/ids:import"
BODY = b'{"topic": "orders", "partition": 3, "ids": [{"id": "a"}]}'


def sent_in_pieces(body: bytes) -> Iterator[bytes]:
    yield from (body[i : i + 10] for i in range(0, len(body), 10))


@pytest.mark.parametrize("sent", [bytes, sent_in_pieces])
@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k"}])
def test_a_body_that_is_too_large_is_refused_whether_its_length_is_declared_or_not(
    view: ServiceView,
    sent: Callable[[bytes], bytes | Iterator[bytes]],
    headers: dict[str, str],
) -> None:
    client = client_of(replace(view, body_bytes_max=len(BODY)))
    for body, status in ((BODY, 200), (BODY + b" ", 413)):
        key = {name: f"{value}{status}" for name, value in headers.items()}
        typed = {"Content-Type": "application/json", **key}
        answer = client.post(IMPORT, content=sent(body), headers=typed)
        assert answer.status_code == status
    assert answer.json()["type"] == "urn:ringfence:problem:body-too-large"


def test_lines_of_an_import_may_be_many_but_nothing_that_is_held_whole(view: ServiceView) -> None:
    client = client_of(replace(view, body_bytes_max=1_024))
    lines = {"Content-Type": "application/x-ndjson; charset=utf-8"}
    much = b'{"id": "a"}\n' * 1_000
    assert client.post(IMPORT, content=much, headers=lines).status_code != 413
    for path, headers in (
        (IMPORT, {"Content-Type": "application/json"}),
        (IMPORT, lines | {"Idempotency-Key": "k"}),
        ("/v1/ids:lookup?address=a", {"Content-Type": "application/json", "Idempotency-Key": "l"}),
    ):
        assert client.post(path, content=much, headers=headers).status_code == 413


def test_an_unauthenticated_client_gets_401_whatever_it_sends(
    view: ServiceView, tmp_path: Path
) -> None:
    client = client_of(guarded(view, settings(tmp_path, body_bytes_max=1_024)))
    typed = {"Content-Type": "application/json"}
    for content in (b"{", b"x" * 2_000):
        assert client.post(IMPORT, content=content, headers=typed).status_code == 401


def test_names_and_lists_of_ids_have_bounds(client: TestClient) -> None:
    assert client.put(f"/v1/publishers/{'x' * 1025}/session", json={}).status_code == 422
    body = {"ids": ["a"] * 1_001}
    assert client.post("/v1/addresses/orders/ids:lookup", json=body).status_code == 422


def test_a_body_that_is_no_json_is_refused(client: TestClient) -> None:
    for content in (b"{", b"\xff", b"[" * 100_000, b""):
        typed = {"Content-Type": "application/json"}
        assert client.post(IMPORT, content=content, headers=typed).status_code in {400, 422}


def test_too_many_refused_tokens_are_answered_429(asking: ServiceView) -> None:
    client = client_of(asking, "x" * 40)
    answers = [client.get("/v1/info") for _ in range(FAILURES_MAX + 2)]
    assert [each.status_code for each in answers] == [401] * FAILURES_MAX + [429] * 2
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= WINDOW_S
    assert answers[-1].json()["type"] == "urn:ringfence:problem:too-many-failures"
    assert client.post("/login", data={"token": "y" * 40}).status_code == 429
    client.headers["Authorization"] = f"Bearer {TOKENS['viewer']}"
    assert client.get("/v1/info").status_code == 200


def test_attempts_are_counted_for_each_address_and_forgotten_after_a_minute() -> None:
    clock = Clock()
    attempts = FailedAttempts(clock)
    for _ in range(FAILURES_MAX):
        assert attempts.failed("10.0.0.1") is None
    assert attempts.failed("10.0.0.1") == round(WINDOW_S)
    assert attempts.failed("10.0.0.2") is None
    clock.now_s += WINDOW_S
    assert attempts.failed("10.0.0.1") is None


def test_of_ipv6_a_client_has_a_whole_network_to_itself() -> None:
    attempts = FailedAttempts(Clock())
    for number in range(FAILURES_MAX):
        assert attempts.failed(f"2001:db8::{number:x}") is None
    assert attempts.failed("2001:db8::ffff") is not None
    assert attempts.failed("2001:db8:0:1::1") is None
    assert attempts.failed("no address") is None


def test_an_issuer_that_is_away_is_a_503_for_its_tokens_alone(
    view: ServiceView, tmp_path: Path
) -> None:
    issuer = Issuer()
    issuer.is_away = True
    asking = guarded(view, settings(tmp_path), issuer)
    away = client_of(asking, signed(claims())).get("/v1/info")
    assert away.status_code == 503
    assert int(away.headers["Retry-After"]) >= 1
    assert client_of(asking, TOKENS["viewer"]).get("/v1/info").status_code == 200


def test_refusals_are_counted_by_reason_and_logged_without_what_was_presented(
    asking: ServiceView, logged: io.StringIO
) -> None:
    expired = signed(claims(exp=1))
    client_of(asking).get("/v1/info")
    client_of(asking, expired).get("/v1/info", headers={"X-Request-Id": "r-3"})
    client_of(asking, TOKENS["viewer"]).get("/v1/audit")
    failures = counted(client_of(asking), "ringfence_http_auth_failures_total", "reason")
    assert failures == {("missing",): 1, ("expired",): 1, ("role",): 1}
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    failed = next(line for line in lines if line["event"] == "http_auth_failed")
    assert (failed["reason"], failed["request_id"]) == ("expired", "r-3")
    assert expired not in logged.getvalue()
