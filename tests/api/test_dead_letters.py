"""Dead letters over REST: browsed, shown, counted; payloads kept from who may not see them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ringfence_api.ports import ServiceView
from ringfence_service.config.tokens import entry_of
from ringfence_service.dedup.dead_letter import ID_CHARS_MAX, shown_id
from tests.api.fake_letters import LETTER, FakeLetters
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


def test_a_viewer_is_not_shown_the_key_that_a_redrive_filters_by(
    client: TestClient, client_with: Callable[[str], TestClient]
) -> None:
    filter_ = {"key": "customer-5", "header": {"tenant": "acme"}}
    begun = client.post("/v1/redrives", json={"mode": "through", "filter": filter_}).json()
    assert begun["filter"]["key"] == "customer-5"
    response = client_with("viewer").get(f"/v1/redrives/{begun['id']}")
    shown = response.json()["filter"]
    assert (shown["has_key"], shown["key"], shown["header"]) == (True, None, {"tenant": None})
    assert not any(secret in response.text for secret in SECRETS)


@pytest.mark.parametrize(
    ("criteria", "offsets"),
    [
        ("source=orders-3@90", [7]),
        ("source=orders-3@91", []),
        ("source=orders-2@90", []),
        ("source=eu.orders-3@90", []),
        ("id=id-1", [7]),
        ("id=hex:69642d31", [7]),
        ("id=id-2", []),
        ("id=id-1&source=orders-3@90&address=orders", [7]),
    ],
)
def test_the_letter_of_a_record_or_of_an_id_is_found(
    client: TestClient, criteria: str, offsets: list[int]
) -> None:
    found = client.get(f"/v1/dead-letters?{criteria}").json()["dead_letters"]
    assert [each["offset"] for each in found] == offsets
    counted = client.get(f"/v1/dead-letters:summary?{criteria}").json()
    assert counted["dead_letters"] == len(offsets)


def test_a_long_id_is_found_though_its_letter_has_the_beginning_alone(view: ServiceView) -> None:
    identifier = "é" * 5_000
    cut = shown_id(identifier.encode())
    assert len(cut) == ID_CHARS_MAX
    client = client_of(replace(view, letters=FakeLetters([LETTER._replace(identifier=cut)])))
    for sought in (identifier, cut):
        query = {"id": sought}
        assert len(client.get("/v1/dead-letters", params=query).json()["dead_letters"]) == 1


@pytest.mark.parametrize("source", ["orders", "orders-3", "orders-x@1", "a b-0@1", "-1@2", ""])
def test_a_position_that_is_none_is_refused(client: TestClient, source: str) -> None:
    refusal = client.get("/v1/dead-letters", params={"source": source})
    assert refusal.status_code == 422
    assert "topic-partition@offset" in refusal.json()["detail"]


def test_bytes_that_are_no_text_are_shown_as_base64_and_long_ones_are_cut(
    view: ServiceView,
) -> None:
    odd = LETTER._replace(key=b"\xff\x00", value=("é" * 40_000).encode())
    client = client_of(replace(view, letters=FakeLetters([odd])))
    payload = client.get("/v1/dead-letters/orders.dlq/0/7").json()["payload"]
    assert payload["key"] == {"text": None, "base64": "/wA=", "size_bytes": 2, "truncated": False}
    assert payload["value"]["size_bytes"] == 80_000
    assert payload["value"]["truncated"] is True
    assert payload["value"]["text"] == "é" * 32_768
