"""Any input is executed or refused: none causes an internal error, and every page is valid."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from ringfence_api.ports import ServiceView
from tests.api.console_pages import EVERY, Page
from tests.api.fake_service import answering, remembering
from tests.api.guarded import HERE, client_of, filled, operations

DIGITS: Final = "9" * 5_000
JSON: Final = (
    '"\\ud800"',
    '"\\u0000\\u202e"',
    "NaN",
    "1e999",
    "9" * 4_000,
    DIGITS,
    "[" * 900 + "]" * 900,
    "[" * 100_000,
    '{"a": {"b": "\\udc00"}}',
    '"0001-01-01T00:00:00+23:59"',
)
"""Values of which a lenient parser takes more than UTF-8, a clock or the stack can hold."""
FILLED: Final[dict[str, Any]] = {
    "topic": "orders",
    "partition": 3,
    "mode": "through",
    "address": "orders",
    "sequence": 8,
    "retry_window": "30m",
    "ids": [{"id": "a"}],
}
TEXTS: Final = ("--5", DIGITS, "\u00b2\u202e\x00", "x" * 70_000, "W1tbW1tbXV1dXV1d")
TOML: Final = (
    "when = 1979-05-27T07:32:00Z",
    "v = inf",
    "v = [nan]",
    f"v = {'[' * 5_000}",
    f"v = {DIGITS}",
    "strategy = 07:32:00",
)
FORMS: Final = (
    ("/console/address/clear", ("name", "reason")),
    ("/console/ids/forget", ("address", "id")),
    ("/console/redrive/cancel", ("id",)),
    ("/console/redrives/confirm", ("limit", "max_per_second", "mode", "from", "header_name")),
    ("/console/redrives/start", ("limit", "once", "key")),
    ("/console/settings/pause", ("name",)),
    ("/console/settings/edit", ("name", "kind")),
    ("/console/settings/preview", ("name", "text", "etag", "what")),
    ("/console/settings/apply", ("name", "text", "etag")),
    ("/console/settings/rollback", ("number", "etag")),
)
READ: Final = ("set.x", "page_token", "resend", "retry_window", "rate", "number", "since", "offset")


@pytest.fixture
def service() -> Iterator[ServiceView]:
    with answering(remembering({})) as view:
        yield view


def bodies(operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """The odd values, alone and in the place of each property of a good body."""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    known = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema).get("properties", {})
    for odd in JSON:
        yield odd
        for name in {*known, "inputs", "x"}:
            rest = {key: value for key, value in FILLED.items() if key in known and key != name}
            for value in (odd, f"[{odd}]"):
                yield json.dumps(rest | {name: "?"}).replace('"?"', value)


def test_no_body_causes_an_internal_error(service: ServiceView) -> None:
    client, found = client_of(service), list[str]()
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for method, path, operation in operations(service):
        for body in bodies(operation, schemas) if "requestBody" in operation else ():
            headers = {"Content-Type": "application/json", "If-Match": "*"}
            if path.startswith("/v1/address-settings"):
                del headers["If-Match"]  # it is new
            where = filled(path, "orders")
            answer = client.request(method, where, content=body, headers=headers)
            if answer.status_code >= 500:
                found.append(f"{answer.status_code} {method} {path} {body[:60]}")
    assert not found, "\n".join(found)


def test_no_form_causes_an_internal_error_and_each_is_answered_with_a_page(
    service: ServiceView,
) -> None:
    client, found = client_of(service), list[str]()

    def send(method: str, path: str, **sent: Any) -> None:
        answer = client.request(method, path, headers={"Origin": HERE}, **sent)
        kind = answer.headers.get("Content-Type", "")
        if kind.startswith("text/html"):
            Page(answer.text)
        elif answer.status_code != 303:
            found.append(f"{kind} {method} {path}")
        if answer.status_code >= 500:
            found.append(f"{answer.status_code} {method} {path} {str(sent)[-80:]}")

    good = {"kind": "address", "name": "orders", "mode": "through", "text": "id_cache_size = 1"}
    for path, fields in FORMS:
        send("POST", path)
        send("POST", path, files={"name": ("f", b"x")})
        send("POST", path, data={f"f{number}": "" for number in range(300)})
        for name in fields:
            for odd in TOML if name == "text" else TEXTS:
                send("POST", path, data={**good, name: odd})
    for path in {each.partition("?")[0] for each in EVERY}:
        for odd in TEXTS:
            send("GET", path, params={**good, **dict.fromkeys(READ, odd[:5000])})
    assert not found, "\n".join(found)


def test_half_of_a_character_is_refused_whatever_a_form_says_of_its_encoding(
    service: ServiceView,
) -> None:
    part = 'Content-Disposition: form-data; name="name"'
    text = f"--b\r\n{part}\r\n\r\n\\ud800\r\n--b--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=b; charset=unicode_escape"}
    answer = client_of(service).post("/console/address/clear", content=text, headers=headers)
    assert answer.status_code == 422
    assert "not valid UTF-8" in Page(answer.text).text


@pytest.mark.parametrize("host", ["[::1", "a:b:c", "\u00e9".encode()])
def test_a_page_needs_no_host_that_it_can_read(service: ServiceView, host: str | bytes) -> None:
    headers = [(b"Host", host if isinstance(host, bytes) else host.encode())]
    anywhere = client_of(replace(service, allowed_hosts=None))
    for path in ("/", "/console/no-such", "/console/login"):
        assert anywhere.get(path, headers=headers).status_code < 500


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/console/address/clear?dry_run=true", 422),
        ("PUT", "/console/audit", 405),
    ],
)
def test_what_never_comes_to_a_page_is_answered_one(
    service: ServiceView, method: str, path: str, status: int
) -> None:
    answer = client_of(service).request(method, path, headers={"Accept": "text/html"})
    assert answer.status_code == status
    assert Page(answer.text).text
    assert ("Allow" in answer.headers) == (status == 405)


def test_what_breaks_off_is_answered_a_page_that_says_so(
    service: ServiceView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence_api.console.pages.letters.FilterForm", None)
    answer = client_of(service).get("/console/dead-letters")
    assert answer.status_code == 500
    assert answer.headers["X-Request-Id"] in Page(answer.text).text
    assert "style-src 'self'" in answer.headers["Content-Security-Policy"]
