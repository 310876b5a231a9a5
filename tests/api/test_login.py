"""A browser logs in with a token, and is known by its cookie for a while."""

import string
import time
from pathlib import Path

import pytest
from httpx2 import Headers
from starlette.testclient import TestClient

from ringfence_api.app import create_app
from ringfence_api.auth import cookies, oidc
from ringfence_api.ports import ServiceView
from ringfence_service.config.tokens import entry_of
from tests.api.guarded import HERE, KEY, PEER, TOKENS, claims, client_of, guarded, settings, signed

CLEAR = "/v1/addresses/orders:clear"


@pytest.fixture(autouse=True)
def _files_are_looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence_service.file_watcher._CHECK_S", 0.0)


def logged_in(view: ServiceView, token: str = TOKENS["operator"]) -> TestClient:
    client = client_of(view)
    answer = client.post("/login", data={"token": token}, headers={"Origin": HERE})
    assert answer.status_code == 303
    return client


def bearing(view: ServiceView, cookie: str) -> TestClient:
    client = client_of(view)
    client.headers = Headers(
        [*client.headers.raw, (b"cookie", f"{cookies.NAME}={cookie}".encode())]
    )
    return client


def test_a_token_that_was_shown_once_need_not_be_shown_again(asking: ServiceView) -> None:
    client = logged_in(asking)
    assert client.get("/v1/info").status_code == 200
    assert client.post(CLEAR, headers={"Origin": HERE}).status_code == 200
    assert client.get("/v1/audit").status_code == 403


def test_the_cookie_is_for_this_browser_and_this_service_alone(asking: ServiceView) -> None:
    client = client_of(asking)
    sent = client.post("/login", data={"token": TOKENS["viewer"]}).headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=3600"} <= set(sent.split("; "))
    assert "Secure" not in sent
    assert TOKENS["viewer"] not in sent


@pytest.mark.parametrize("base", [HERE.replace("http:", "https:"), HERE])
def test_over_tls_the_cookie_never_goes_another_way(asking: ServiceView, base: str) -> None:
    client = TestClient(create_app(asking), base_url=base, follow_redirects=False)
    origin = HERE.replace("http:", "https:")  # a proxy may end TLS in front of us
    sent = client.post("/login", data={"token": TOKENS["viewer"]}, headers={"Origin": origin})
    assert sent.headers["Set-Cookie"].startswith(f"{cookies.SECURE_NAME}=")
    assert {"Secure", "Path=/"} <= set(sent.headers["Set-Cookie"].split("; "))
    assert "Domain" not in sent.headers["Set-Cookie"]
    is_ours = base.startswith("https:")  # of a proxy's TLS, the proxy tells
    assert ("Strict-Transport-Security" in sent.headers) == is_ours
    value = sent.cookies[cookies.SECURE_NAME]
    asked = client_of(asking).get(
        "/v1/info", headers={"Cookie": f"{cookies.NAME}=x; {cookies.SECURE_NAME}={value}"}
    )
    assert asked.status_code == 200


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "http://127.0.0.1:8081"])
def test_a_cookie_changes_nothing_for_a_page_of_somebody_else(
    asking: ServiceView, origin: str | None
) -> None:
    headers = {} if origin is None else {"Origin": origin}
    assert logged_in(asking).post(CLEAR, headers=headers).status_code == 403


def test_nobody_is_logged_in_by_a_page_of_somebody_else(asking: ServiceView) -> None:
    client = client_of(asking)
    answer = client.post("/login", data={"token": TOKENS["viewer"]}, headers={"Origin": "null"})
    assert answer.status_code == 403
    assert "Set-Cookie" not in answer.headers


def test_a_cookie_ends_with_the_line_of_its_token(asking: ServiceView, tmp_path: Path) -> None:
    client = logged_in(asking)
    lines = (tmp_path / "tokens").read_text().splitlines()
    (tmp_path / "tokens").write_text("\n".join(x for x in lines if "operator" not in x) + "\n")
    assert client.get("/v1/info").status_code == 401


def test_a_cookie_has_the_roles_that_its_line_has_now(asking: ServiceView, tmp_path: Path) -> None:
    client = logged_in(asking)
    line = entry_of("the-operator", "viewer", TOKENS["operator"]).line
    (tmp_path / "tokens").write_text(f"{line}\n")
    assert client.get("/v1/info").status_code == 200
    assert client.post(CLEAR, headers={"Origin": HERE}).status_code == 403


def test_a_token_of_the_issuer_logs_in_for_as_long_as_it_holds(asking: ServiceView) -> None:
    client = logged_in(asking, signed(claims(roles=["viewer"])))
    assert client.get("/v1/info").status_code == 200
    cookie = client.cookies[cookies.NAME]
    assert asking.access is not None
    read = asking.access._cookies.read
    assert read(cookie, time.time()) is not None
    assert read(cookie, time.time() + 601) is None


@pytest.mark.parametrize(
    "token",
    ["", "x", "y" * 64, PEER, signed(claims(), KEY)[:-2]],
    ids=["empty", "short", "long", "a peer's", "cut off"],
)
def test_a_token_that_does_not_hold_logs_nobody_in(asking: ServiceView, token: str) -> None:
    client = client_of(asking)
    assert client.post("/login", data={"token": token}).status_code in {401, 422}
    page = client.post("/login", data={"token": token or "x"}, headers={"Accept": "text/html"})
    assert page.status_code == 303
    assert page.headers["Location"].startswith("/console/login?failed=true")
    assert not client.cookies


def test_who_logs_out_is_known_no_more(asking: ServiceView) -> None:
    client, other = logged_in(asking), logged_in(asking, TOKENS["viewer"])
    cookie = client.cookies[cookies.NAME]
    client.post("/logout", headers={"Origin": HERE})
    assert client.get("/v1/info").status_code == 401
    assert bearing(asking, cookie).get("/v1/info").status_code == 401  # a kept copy
    assert other.get("/v1/info").status_code == 200


def test_who_has_logged_out_is_not_known_by_another_spelling_of_the_cookie(
    asking: ServiceView,
) -> None:
    client = logged_in(asking)
    cookie = client.cookies[cookies.NAME]
    assert bearing(asking, cookie).get("/v1/info").status_code == 200
    client.post("/logout", headers={"Origin": HERE})
    body, _, signature = cookie.partition(".")
    for other in (
        cookie[:5] + "!!!!" + cookie[5:],
        f"{body}=.{signature}",
        f"{body}.{signature}=",
        f" {cookie}",
        f"{body}\n.{signature}",
        cookie.replace("-", "+").replace("_", "/"),
        *(f"{body[:-1]}{last}.{signature}" for last in string.ascii_letters + string.digits),
    ):
        assert asking.access is not None
        assert asking.access._cookies.read(other, time.time()) is None, other


def test_the_cookie_of_the_longest_name_is_read_again() -> None:
    signer = cookies.SessionCookies(b"k")
    login = cookies.SignIn("\U0001f600" * oidc._NAME_CHARS_MAX, ("admin",) * 4, 9, "0" * 64)
    assert signer.read(signer.write(login), 0) == login


def test_cookies_that_were_signed_out_of_are_remembered_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cookies, "ENDED_MAX", 2)
    signer = cookies.SessionCookies(b"k")
    values = [signer.write(cookies.SignIn(name, (), 9, "")) for name in "abc"]
    for value in (*values, "x", f"{values[0]}x"):
        signer.end(value, 0)
    assert [signer.read(each, 0) is None for each in values] == [False, True, True]


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ("/console/audit?actor=a", "/console/audit?actor=a"),
        ("https://evil.example", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\r\nX: y", "/"),
        ("", "/"),
    ],
)
def test_who_logs_in_is_sent_nowhere_else(asking: ServiceView, wanted: str, given: str) -> None:
    client = client_of(asking)
    answer = client.post("/login", data={"token": TOKENS["viewer"], "next": wanted})
    assert answer.headers["Location"] == given


def test_a_cookie_of_another_process_or_a_changed_one_is_none(
    asking: ServiceView, view: ServiceView, tmp_path: Path
) -> None:
    cookie = logged_in(asking).cookies[cookies.NAME]
    other = bearing(guarded(view, settings(tmp_path)), cookie)
    assert other.get("/v1/info").status_code == 401
    for changed in (cookie[:-1], "A" + cookie, cookie.replace(".", ""), "", "x", "é", "." * 5000):
        assert bearing(asking, changed).get("/v1/info").status_code == 401


def test_replicas_that_sign_with_one_key_know_each_others_cookies(
    view: ServiceView, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("k" * 64)
    one, other = (
        guarded(view, settings(tmp_path, session_key_file=str(tmp_path / "key"))) for _ in range(2)
    )
    cookie = logged_in(one).cookies[cookies.NAME]
    assert bearing(other, cookie).get("/v1/info").status_code == 200
