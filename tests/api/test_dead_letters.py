"""Dead letters over REST: browsed, shown, counted; payloads kept from who may not see them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from api.view import ServiceView
from service.tokens import entry_of
from tests.api.fake_letters import FOREIGN, LETTER, FakeLetters
from tests.api.guarded import TOKENS, client_of, guarded, settings

SECRETS = ("customer-5", "secret", "acme")


@pytest.fixture
def client_with(view: ServiceView, tmp_path: Path) -> Callable[[str], TestClient]:
    """A client of somebody with these roles."""
    api = settings(tmp_path)
    token = "of-one-who-is-both".ljust(40, "x")
    with (tmp_path / "tokens").open("a") as file:
        file.write(entry_of("both", "viewer,payload:read", token).line + "\n")
    asking = guarded(view, api)
    return lambda roles: client_of(asking, token if "," in roles else TOKENS[roles])


def test_a_page_tells_why_and_where_from_and_nothing_of_the_records(client: TestClient) -> None:
    response = client.get("/v1/dead-letters")
    first, second = response.json()["dead_letters"]
    assert first["reason"] == "duplicate"
    assert first["source"] == {
        "topic": "orders",
        "partition": 3,
        "offset": 90,
        "time": "2023-11-14T22:13:19Z",
    }
    assert first["original"] == "orders-3@42"
    assert (second["is_ours"], second["reason"], second["source"]) == (False, None, None)
    assert not any(secret in response.text for secret in SECRETS)


def test_pages_follow_each_other_by_their_tokens(client: TestClient) -> None:
    first = client.get("/v1/dead-letters?page_size=1").json()
    assert first["complete"] is False
    second = client.get(f"/v1/dead-letters?page_token={first['next_page_token']}").json()
    assert [each["offset"] for each in second["dead_letters"]] == [8]
    assert (second["complete"], second["next_page_token"]) == (True, None)
    assert client.get("/v1/dead-letters?page_token=nonsense").status_code == 422


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("reason=duplicate", [7]),
        ("reason=expired", []),
        ("reason=expired&reason=duplicate", [7]),
        ("address=orders", [7]),
        ("from=2023-11-14T22:13:20Z", [7, 8]),
        ("to=2023-11-14T22:13:20Z", []),
        ("from=2023-11-15T00:00:00%2B01:00", []),
        ("header.tenant=acme", [7, 8]),
        ("header.tenant=acme&header._DUPL_ID=other", []),
        ("key=hex:637573746f6d65722d35", [7, 8]),
        ("newest=true", [8, 7]),
    ],
)
def test_a_filter_leaves_out_what_it_does_not_name(
    client: TestClient, query: str, offsets: list[int]
) -> None:
    document = client.get(f"/v1/dead-letters?{query}").json()
    assert [each["offset"] for each in document["dead_letters"]] == offsets


@pytest.mark.parametrize("query", ["from=yesterday", "from=2023-11-14T22:13:20", "key=hex:x"])
def test_what_cannot_be_read_is_told(client: TestClient, query: str) -> None:
    assert client.get(f"/v1/dead-letters?{query}").status_code == 422


def test_one_letter_is_shown_whole_to_who_may_read_payloads(
    client_with: Callable[[str], TestClient],
) -> None:
    document = client_with("viewer,payload:read").get("/v1/dead-letters/orders.dlq/0/7").json()
    payload = document["payload"]
    assert payload["key"]["text"] == "customer-5"
    assert payload["value"]["text"] == '{"secret": 1}'
    assert [header["name"] for header in payload["headers"]] == ["_DUPL_ID", "tenant"]


def test_a_viewer_sees_no_payload_and_cannot_ask_about_it(
    client_with: Callable[[str], TestClient],
) -> None:
    viewer = client_with("viewer")
    response = viewer.get("/v1/dead-letters/orders.dlq/0/7")
    assert response.json()["payload"] is None
    assert not any(secret in response.text for secret in SECRETS)
    for path in ("/v1/dead-letters", "/v1/dead-letters:summary"):
        for question in ("key=customer-5", "header.tenant=acme"):
            refusal = viewer.get(f"{path}?{question}")
            assert refusal.status_code == 403
            assert refusal.json()["type"] == "urn:ringfence:problem:role-missing"
    order = {"mode": "through", "filter": {"key": "customer-5"}}
    operator = client_with("operator")
    assert operator.post("/v1/redrives?dry_run=true", json=order).status_code == 403


def test_a_viewer_is_not_told_by_which_key_a_redrive_goes(
    client: TestClient, client_with: Callable[[str], TestClient]
) -> None:
    filter_ = {"key": "customer-5", "header": {"tenant": "acme"}}
    begun = client.post("/v1/redrives", json={"mode": "through", "filter": filter_}).json()
    assert begun["filter"]["key"] == "customer-5"
    response = client_with("viewer").get(f"/v1/redrives/{begun['id']}")
    shown = response.json()["filter"]
    assert (shown["has_key"], shown["key"], shown["header"]) == (True, None, {"tenant": None})
    assert not any(secret in response.text for secret in SECRETS)


def test_bytes_that_are_no_text_are_shown_as_base64_and_long_ones_are_cut(
    view: ServiceView,
) -> None:
    odd = LETTER._replace(key=b"\xff\x00", value=("é" * 40_000).encode())
    app = create_app(replace(view, letters=FakeLetters([odd])))
    document = TestClient(app, base_url="http://127.0.0.1:8080").get(
        "/v1/dead-letters/orders.dlq/0/7"
    )
    payload = document.json()["payload"]
    assert payload["key"] == {"text": None, "base64": "/wA=", "size_bytes": 2, "truncated": False}
    assert payload["value"]["size_bytes"] == 80_000
    assert payload["value"]["truncated"] is True
    assert payload["value"]["text"] == "é" * 32_768


def test_a_place_where_no_letter_is_has_a_problem_of_its_own(client: TestClient) -> None:
    response = client.get("/v1/dead-letters/orders.dlq/0/99")
    assert response.status_code == 404
    assert response.json()["type"] == "urn:ringfence:problem:no-dead-letter"


def test_a_summary_counts_by_reason_address_topic_and_hour(client: TestClient) -> None:
    assert client.get("/v1/dead-letters:summary").json() == {
        "dead_letters": 1,
        "foreign": 1,
        "by_reason": {"duplicate": 1},
        "by_address": {"orders": 1},
        "by_topic": {"orders.dlq": 1},
        "by_hour": [{"hour": "2023-11-14T22:00:00Z", "dead_letters": 1}],
        "scanned": 2,
        "next_page_token": None,
        "complete": True,
    }
    assert FOREIGN.reason is None
